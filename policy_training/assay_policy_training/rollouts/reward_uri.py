"""How the command line names what rewards: a server's model, what of a response it reads, the part it gives.

verifier                      the prompt's own constraints
recorded                      what a recorded response was rated (sampler `recorded`)
http://host:port              the server's model, or that of --model
quality=http://host:port      its part of the reward is called "quality", as a recipe may ask for it
http://host:port#safety       the model "safety" of the server
answer:http://host:port       reads only what follows the thinking
steps:http://host:port        asked about every prefix that ends a step
row:direction                 a number of the prompt's row, e.g. a drawn direction
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from assay.errors import BadInputError

VERIFIER, RECORDED, ROW, WHOLE, ANSWER, STEPS = "verifier", "recorded", "row", "whole", "answer", "steps"
_PATTERN = re.compile(r"(?:(?P<name>[\w.-]+)=)?(?:(?P<form>answer|steps):)?(?P<url>https?://[^#]+)(?:#(?P<model>.+))?")


@dataclass(frozen=True)
class RewardReference:
    """`form`: verifier, recorded, row, or what of a response the model at `url` reads: whole, answer, steps."""

    form: str
    name: str | None = None  #: of the part; None = the source's own; of `row` the key
    url: str = ""
    model: str | None = None


def parse_reward(text: str, option: str = "--reward") -> RewardReference:
    """Raises BadInputError, naming the option, for a text that names nothing."""
    if text in (VERIFIER, RECORDED):
        return RewardReference(text)
    if text.startswith("row:") and len(text) > len("row:"):
        return RewardReference(ROW, text.removeprefix("row:"))
    if (found := _PATTERN.fullmatch(text)) is None:
        raise BadInputError(
            f"a server's URL, `verifier` or `recorded`, not {text!r}; serve a model with: assay serve", field=option
        )
    return RewardReference(found["form"] or WHOLE, found["name"], found["url"], found["model"])


def with_model(text: str, model: str | None) -> str:
    """The reference with the server's model `model`, where it asks a server and names none."""
    named = parse_reward(text)
    return f"{text}#{model}" if model and named.url and named.model is None else text
