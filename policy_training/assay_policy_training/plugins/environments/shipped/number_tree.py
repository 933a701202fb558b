"""Numbers to combine to a target, two at a time: a tree to search, where a wrong step cannot be taken back.

Covers: the game, its tasks (`--prompts number_tree:N`), a player for demonstrations. A turn is `a+b`, `a-b` or `a*b`:
its result takes the place of the first, the second is gone. The last number is the answer.
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

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._numbers: dict[str, int] = dict(prompt.meta["numbers"])
        self._target = int(prompt.meta["target"])
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        after = combined(self._numbers, action.text.strip())
        if after is None:
            return Observation("unclear")
        self._numbers = after
        if len(after) == 1:
            return Done({"solved": float(self._target in after.values())})
        return Observation(_text(after))

    def cut(self) -> Done:
        return Done({"solved": 0.0})


def combined(numbers: dict[str, int], step: str) -> dict[str, int] | None:
    """What is left after the step; None where it is none."""
    if len(step) != 3 or step[1] not in OPERATIONS or step[0] == step[2] or not {step[0], step[2]} <= numbers.keys():
        return None
    result = OPERATIONS[step[1]](numbers[step[0]], numbers[step[2]])
    return {name: result if name == step[0] else number for name, number in numbers.items() if name != step[2]}


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` games of four numbers, each with a solution (`meta["steps"]`) whose results lie in 1 to 99."""
    rng, items = random.Random(f"{seed}/{split}"), list[PromptItem]()
    while len(items) < int(argument or 64):
        numbers = {name: rng.randint(1, 9) for name in NAMES}
        steps, left = list[str](), numbers
        while len(left) > 1:
            first, second = rng.sample(list(left), 2)
            steps.append(f"{first}{rng.choice(list(OPERATIONS))}{second}")
            left = combined(left, steps[-1]) or {}
            if not all(0 < number < 100 for number in left.values()):
                break
        else:
            [target] = left.values()
            text = f"Make {target}: {_text(numbers)}"
            items.append(
                PromptItem((Message("user", text),), meta={"numbers": numbers, "target": target, "steps": steps})
            )
    return items


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """The next turn after these. An unskilled player combines any two numbers."""
    if skilled:
        return str(prompt.meta["steps"][len(turns)])
    gone = {turn[2] for turn in turns}
    first, second = rng.sample([name for name in NAMES if name not in gone], 2)
    return f"{first}{rng.choice(list(OPERATIONS))}{second}"


def _text(numbers: dict[str, int]) -> str:
    return " ".join(f"{name}={number}" for name, number in numbers.items())
