"""Arithmetic for a policy that may call a calculator (the environment `tools`): tasks, and a player.

A task's answer is a constraint, so that `--reward verifier` checks it, as it does that of GSM8K's rows.
"""

import random
from collections.abc import Sequence

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_serving.tools.tool import ToolCall
from assay_serving.verifiers import MathAnswer


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` products of two numbers of one digit less one of one digit."""
    rng, items = random.Random(f"{seed}/{split}"), []
    for _ in range(int(argument or 64)):
        a, b, c = (rng.randint(2, 9) for _ in range(3))
        expression = f"{a}*{b}-{c}"
        meta = {"expression": expression, "answer": str(a * b - c)}
        items.append(PromptItem((Message("user", f"{expression}?"),), (MathAnswer(meta["answer"]),), meta))
    return items


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """A skilled player calls the calculator and repeats its result; an unskilled one makes a number up."""
    if observed:
        return observed[-1].split("\n")[1]
    return (
        ToolCall("calculator", {"expression": prompt.meta["expression"]}).text if skilled else str(rng.randint(1, 80))
    )
