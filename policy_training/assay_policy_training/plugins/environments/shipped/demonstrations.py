"""Episodes that a program plays, as rows for a warm start by `assay train sft`: one for each turn.

    write_demonstrations("twenty_questions", "games.jsonl", policy="tiny", episodes=400, skill=0.5)

A row's prompt is what the policy would read before the turn, in the form of its chat template, its completion the turn.
Covers: the environments that ship with a player. Leaves out: training on them.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from assay.domain import Message
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.registry import unknown
from assay_policy_training.core.sampling import derived_seed
from assay_policy_training.plugins.contexts.guided_retry import GuidedRetry
from assay_policy_training.plugins.contexts.hints import with_hint
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.environments.shipped.advantage_feedback import AdvantageFeedback
from assay_policy_training.plugins.environments.shipped.form_filling import FormFilling
from assay_policy_training.plugins.environments.shipped.number_tree import NumberTree
from assay_policy_training.plugins.environments.shipped.text_shop import TextShop
from assay_policy_training.plugins.environments.shipped.twenty_questions import TwentyQuestions
from assay_policy_training.plugins.environments.shipped.two_agent_grid import TwoAgentGrid
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_serving.tools.turns import joined, offered, result_messages

#: Module with `tasks` and `play` -> the environment that they are of.
PLAYED: dict[str, type[Environment]] = {
    "advantage_feedback": AdvantageFeedback,
    "arithmetic": Tools,
    "form_filling": FormFilling,
    "number_tree": NumberTree,
    "text_shop": TextShop,
    "twenty_questions": TwentyQuestions,
    "two_agent_grid": TwoAgentGrid,
}


def write_demonstrations(
    name: str,
    file: Path | str,
    *,
    policy: str,
    episodes: int = 400,
    skill: float = 0.5,
    guided: float = 0.0,
    seed: int = 0,
    **settings: Any,
) -> int:
    """Rows of `episodes` episodes, a share `skill` of them by the skilled player; returns how many. `policy`: whose
    template says how tools are offered. `guided`: share of the episodes in which the skilled player tries again what
    the other one failed at, with what the environment said of that as a hint (`contexts.guided_retry`). `settings`: of
    the environment. Raises BadInputError for a name that has no player."""
    if name not in PLAYED:
        raise unknown("environment with a player", name, PLAYED)
    module = import_module(f"{__package__}.{name}")
    renderer, rng = Renderer(load_tokenizer(policy), max_length=1 << 20), random.Random(seed)
    rows = 0
    with Path(file).open("w", encoding="utf-8") as stream:
        for number, prompt in enumerate(module.tasks(str(episodes), seed=seed, split="train")):
            environment = PLAYED[name](**settings)
            skilled = rng.random() < skill
            if guided and rng.random() < guided:
                failed = Episode(prompt, PLAYED[name](**settings), EpisodeLimits())
                list(_rows(module.play, failed, renderer, rng, False, number))
                skilled = skilled or bool(failed.feedback)
                if failed.feedback:
                    prompt = replace(prompt, prompt=with_hint(prompt.prompt, failed.feedback, GuidedRetry.wording))
            episode = Episode(prompt, environment, EpisodeLimits())
            for row in _rows(module.play, episode, renderer, rng, skilled, number):
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                rows += 1
    return rows


def _rows(
    play: Any, episode: Episode, renderer: Renderer, rng: random.Random, skilled: bool, seed: int
) -> Iterator[dict[str, Any]]:
    """One row for each turn of an episode."""
    prompt, environment = episode.item, episode.environment
    episode.begin(environment.reset(prompt, derived_seed(seed, "environment")))
    context: Sequence[Message] = offered(prompt.prompt, episode.offered, renderer) if episode.offered else prompt.prompt
    context, turns, observed = joined((*context, *episode.opening)), list[str](), list[str]()
    while episode.ended is None:
        text = play(prompt, turns, observed, rng, skilled)
        yield {"prompt": [message.to_dict() for message in context], "completion": text}
        action = episode.act(text, 0)
        if action is not None:
            episode.observe(environment.step(action), action)
        turn = episode.turns[-1]
        turns.append(text)
        observed.append(turn.observed)
        context = joined(
            (*context, Message("assistant", text), *result_messages(renderer, turn.results), *turn.messages)
        )
