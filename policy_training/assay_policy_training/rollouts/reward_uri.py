"""How the command line names rewards: the model or member, what it reads of a response, the part that it gives.

verifier                      the prompt's own constraints
environment                   what the recipe's environment gives, of episodes and turns
recorded                      the rewards that recorded responses came with (sampler `recorded`)
http://host:port              the server's model, or that of --model
http://a:8000,http://b:8000   equal servers: each prompt goes to one, to another while that is away
quality=http://host:port      its part of the reward is called "quality", as a recipe may ask for it
http://host:port#safety       the model "safety" of the server
answer:http://host:port       reads only what follows the thinking
steps:http://host:port        scores every prefix that ends a step
turns:http://host:port        reads an episode as a conversation; a process reward model gives a value for each turn
parts:http://host:port        the parts of the model's score (members, ratings, ...) are the reward's parts, by name
dpo:POLICY@REFERENCE          implicit reward of two language models, loaded here; NAME=, answer:, steps: as above
prover:POLICY?samples=8       step values: each prefix that ends a step is continued by a language model loaded here
row:direction                 a number of the prompt's row, e.g. a drawn direction
module:Name, file.py:Name     a function (`functions.signatures`), or a `RewardSource` class, created without arguments;
                              so are names that packages install; NAME=file.py:Name calls a function's part NAME
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay.models.readings import implicit_parts
from assay.registry import Kind, unknown
from assay.runs.record import locate_model
from assay.workspace import Workspace

REWARDS: Kind[Any] = Kind(
    "reward",
    "Rewards responses in the trainer's process; reward servers are given by URL (`assay rl --reward`).",
    members={
        "verifier": "assay_policy_training.rollouts.rewards:VerifierReward",
        "recorded": "assay_policy_training.rollouts.rewards:RecordedReward",
        "row": "assay_policy_training.rollouts.rewards:RowNumber",
        "environment": "assay_policy_training.rollouts.episode_rewards:EnvironmentReward",
    },
    makes=("score",),
    option="--reward",
)
WHOLE, ANSWER, STEPS, PARTS, TURNS = "whole", "answer", "steps", "parts", "turns"
MEMBER, PROVER = "member", "prover"
_MODEL = re.compile(
    r"(?:(?P<name>[\w.-]+)=)?(?:(?P<form>answer|steps|parts|turns):)?(?P<url>dpo:.+|https?://[^#]+)(?:#(?P<model>.+))?"
)
_ROW = "row:"
_PROVER = re.compile(r"(?:(?P<name>[\w.-]+)=)?prover:(?P<policy>[^?]+)(?:\?(?P<settings>.+))?")
_PART = re.compile(r"(?P<part>[\w.-]+)=(?P<member>.+:.+)")
_OTHERS = "the URL of a server (assay serve), dpo:POLICY@REFERENCE, prover:POLICY, module:Name or file.py:Name"


@dataclass(frozen=True)
class RewardReference:
    """`form`: a member of `REWARDS`, what the model at `url` reads of a response (whole, answer, steps, turns; or
    parts: all that its score is made of), or the prover `model`."""

    form: str
    name: str | None = None  #: of the part, None = the source's own; of a member its name
    url: str = ""  #: or `dpo:POLICY@REFERENCE`
    model: str | None = None
    key: str | None = None  #: of `row`; of `prover` its settings
    part: str | None = None  #: of a function: the name of its part


def parse_reward(text: str, option: str = "--reward") -> RewardReference:
    """Raises BadInputError, naming the option, for a text that names nothing."""
    if text.startswith(_ROW) and text != _ROW:
        return RewardReference(MEMBER, "row", key=text.removeprefix(_ROW))
    if (match := _PROVER.fullmatch(text)) is not None:
        return RewardReference(PROVER, match["name"], model=match["policy"], key=match["settings"])
    if (match := _MODEL.fullmatch(text)) is not None:
        return RewardReference(match["form"] or WHOLE, match["name"], match["url"], match["model"])
    if "://" in text or text.startswith((f"{ANSWER}:", f"{STEPS}:", f"{PARTS}:", f"{TURNS}:", _ROW)):
        raise BadInputError(f"not the URL of a reward server: {text!r}; to serve a model: assay serve", field=option)
    if re.fullmatch(r"[\w.-]+:\d+", text):
        raise BadInputError(f"a server (assay serve) is given by its URL: http://{text}", field=option)
    if (match := _PART.fullmatch(text)) is not None:
        return RewardReference(MEMBER, match["member"], part=match["part"])
    if text in REWARDS.names() or ":" in text:
        return RewardReference(MEMBER, text)
    raise unknown("reward", text, REWARDS.names(), field=option, more=_OTHERS)


def recorded_reward(text: str, model: str | None, option: str = "--reward", workspace: Workspace | None = None) -> str:
    """As a run records it: with the server's model `model` where the reference names none, files by absolute path,
    models that are loaded here as `locate_model` finds them."""
    reference = parse_reward(text, option)
    if implicit_parts(reference.url) is not None:
        return text.replace(reference.url, locate_model(workspace, reference.url)[0])
    if reference.form == PROVER and reference.model is not None:
        location = locate_model(workspace, reference.model)[0]
        return text.replace(f"prover:{reference.model}", f"prover:{location}")
    if model and reference.url and reference.model is None:
        return f"{text}#{model}"
    return absolute_source(text) if reference.form == MEMBER else text


def absolute_source(text: str) -> str:
    """`file.py:Name`, with or without the name of a part, with the file's absolute path; any other text as it is."""
    if (match := _PART.fullmatch(text)) is not None:
        return f"{match['part']}={absolute_source(match['member'])}"
    source, colon, attribute = text.rpartition(":")
    return f"{Path(source).expanduser().resolve()}:{attribute}" if colon and source.endswith(".py") else text
