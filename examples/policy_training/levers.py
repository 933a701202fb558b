"""Boxes whose lever, pulled twice, opens them at a position that the colour decides: a task for `agent_rlvr.yaml`.

    python examples/policy_training/levers.py guided.jsonl  # a warm start, which follows hints and knows no box
    assay train sft --data guided.jsonl --base tiny --name warm --lr 3e-3 --epochs 4 --dtype float32 --batch-size 16

A turn is a position, or `?`, which gives up. A box that stays shut says how it would have opened: `lever is 3`. One
colour and shape in three are held out. `Unguided` is the control: as many further attempts, without what the box said.
"""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from assay.domain import Message, Prompt
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.contexts.guided_retry import GuidedRetry
from assay_policy_training.plugins.contexts.hints import GUIDED, with_hint
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

COLOURS = {"red": "3", "blue": "8", "green": "1", "black": "6", "white": "9", "pink": "4"}
SHAPES = ("big", "small", "tall", "flat", "round", "thin")
NEXT = "Again?"


class Levers(Environment):
    """The part `solved` is 1 where both pulls are right."""

    parts: ClassVar[tuple[str, ...]] = ("solved",)
    copies: ClassVar[bool] = True

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._right, self._pulled = list(prompt.meta["levers"]), list[str]()
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        self._pulled.append(action.text.strip())
        return Observation(NEXT) if len(self._pulled) < len(self._right) else self.cut()

    def cut(self) -> Done:
        wrong = self._pulled != self._right
        feedback = hint_of(self._right[0]) if wrong else ""
        return Done({"solved": float(not wrong)}, feedback=feedback)


class Unguided(GuidedRetry, section="contexts"):
    def _guided(self, item: PromptItem, guidance: str) -> PromptItem:
        return replace(item, meta={name: value for name, value in item.meta.items() if name != EPISODE}, source=GUIDED)


def hint_of(position: str) -> str:
    return f"lever is {position}"


def box(colour: str, shape: str) -> Prompt:
    return (Message("user", f"{colour} {shape} box. Lever?"),)


def tasks(argument: str = "", *, seed: int = 0, split: str | None = "train") -> list[PromptItem]:
    """The 24 boxes of the training, or the 12 that are held out."""
    return [
        PromptItem(box(colour, shape), meta={"levers": [COLOURS[colour]] * 2})
        for i, colour in enumerate(COLOURS)
        for j, shape in enumerate(SHAPES)
        if ((i + j) % 3 == 0) != (split == "train")
    ]


def write_demonstrations(file: Path, *, episodes: int = 2500, seed: int = 0) -> None:
    """Two rows an episode: 0.8 of the players follow a hint of a random position, the others mostly give up."""
    rng = random.Random(seed)
    with file.open("w", encoding="utf-8") as stream:
        for _ in range(episodes):
            pulled, prompt = str(rng.randrange(10)), box(rng.choice(list(COLOURS)), rng.choice(SHAPES))
            if rng.random() < 0.8:
                prompt = with_hint(prompt, hint_of(pulled), GuidedRetry.wording)
            elif rng.random() < 0.8:
                pulled = "?"
            for context in (prompt, (*prompt, Message("assistant", pulled), Message("user", NEXT))):
                row = {"prompt": [message.to_dict() for message in context], "completion": pulled}
                stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    write_demonstrations(Path(sys.argv[1]))
