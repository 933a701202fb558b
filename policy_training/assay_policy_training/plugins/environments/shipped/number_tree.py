"""Numbers to combine to a target, two at a time: a tree to search, where a wrong step cannot be taken back.

Covers: the game, its tasks (`--prompts number_tree:N`), a player for demonstrations. A turn is `a+b`, `a-b` or `a*b`:
its result takes the place of the first, the second is gone, and those after it move up. The last number is the answer.
"""

import random
from collections.abc import Sequence
from typing import ClassVar

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
NAMES = "abcd"


class NumberTree(Environment):
    """The part `solved` is of the episode: whether the last number is the target."""

    parts: ClassVar[tuple[str, ...]] = ("solved",)
    copies: ClassVar[bool] = True

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._numbers = [int(number) for number in prompt.meta["numbers"]]
        self._target = int(prompt.meta["target"])
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        after = combined(self._numbers, action.text.strip())
        if after is None:
            return Observation("unclear")
        self._numbers = after
        if len(after) == 1:
            return Done({"solved": float(after[0] == self._target)})
        return Observation(_text(after))

    def cut(self) -> Done:
        return Done({"solved": 0.0})


def combined(numbers: Sequence[int], step: str) -> list[int] | None:
    """What is left after the step; None where it is none."""
    names = NAMES[: len(numbers)]
    if len(step) != 3 or step[1] not in OPERATIONS or step[0] == step[2] or not {step[0], step[2]} <= set(names):
        return None
    first, second = names.index(step[0]), names.index(step[2])
    after = list(numbers)
    after[first] = OPERATIONS[step[1]](numbers[first], numbers[second])
    del after[second]
    return after


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` games of four numbers, each with a solution (`meta["steps"]`) whose results lie in 1 to 99."""
    rng, items = random.Random(f"{seed}/{split}"), list[PromptItem]()
    while len(items) < int(argument or 64):
        numbers = [rng.randint(1, 9) for _ in NAMES]
        steps, left = list[str](), numbers
        while len(left) > 1:
            steps.append(_any_step(len(left), rng))
            left = combined(left, steps[-1]) or []
            if not all(0 < number < 100 for number in left):
                break
        else:
            meta = {"numbers": numbers, "target": left[0], "steps": steps}
            items.append(PromptItem((Message("user", f"Make {left[0]}: {_text(numbers)}"),), meta=meta))
    return items


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """The next turn after these. An unskilled player combines any two numbers."""
    return str(prompt.meta["steps"][len(turns)]) if skilled else _any_step(len(NAMES) - len(turns), rng)


def _any_step(numbers: int, rng: random.Random) -> str:
    first, second = rng.sample(NAMES[:numbers], 2)
    return f"{first}{rng.choice(list(OPERATIONS))}{second}"


def _text(numbers: Sequence[int]) -> str:
    return " ".join(f"{name}={number}" for name, number in zip(NAMES, numbers, strict=False))
