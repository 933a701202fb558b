"""A form to fill in from a text: a field a turn, then it is sent.

Covers: the form, its tasks (`--prompts form_filling:N`) with an expert's trace (for `replay`), a player for
demonstrations. A turn is `FIELD=VALUE` or
`send`, which ends the episode; the form says which fields are empty, and refuses values that cannot be.
"""

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation

VALUES = {
    "name": ("Ana", "Ben", "Chen", "Dora", "Eli", "Femi"),
    "age": tuple(map(str, range(20, 60, 7))),
    "city": ("Accra", "Bonn", "Cork", "Delhi", "Izmir", "Lima"),
}
TEXT = "{name}, {age}, of {city}. Fill in " + ", ".join(VALUES) + ", then send."


class FormFilling(Environment):
    """The part `field` is of each turn that fills one in rightly, its share of the form; `complete` of the episode."""

    parts: ClassVar[tuple[str, ...]] = ("field", "complete")
    copies: ClassVar[bool] = True

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._right: dict[str, str] = dict(prompt.meta["form"])
        self._filled: dict[str, str] = {}
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        text = action.text.strip()
        if text == "send":
            return self._done(float(self._filled == self._right))
        name, _, value = text.partition("=")
        if name not in self._right:
            return Observation(f"no field {name[:20]!r}")
        if name == "age" and not value.isdigit():
            return Observation("age: a number")
        new = name not in self._filled and value == self._right[name]
        self._filled[name] = value
        empty = [name for name in self._right if name not in self._filled]
        return Observation(f"empty: {', '.join(empty) or 'none'}", rewards={"field": new / len(self._right)})

    def cut(self) -> Done:
        return self._done(0.0)

    def _done(self, complete: float) -> Done:
        wrong = [f"{name}={value}" for name, value in self._right.items() if self._filled.get(name) != value]
        return Done({"complete": complete}, feedback=f"expected {', '.join(wrong)}" if wrong else "")


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """`argument` people."""
    rng = random.Random(f"{seed}/{split}")
    forms = [{name: rng.choice(values) for name, values in VALUES.items()} for _ in range(int(argument or 64))]
    return [
        PromptItem((Message("user", TEXT.format(**form)),), meta={"form": form, "trace": expert_trace(form)})
        for form in forms
    ]


def expert_trace(form: Mapping[str, str]) -> list[dict[str, str]]:
    """What an expert does, field by field, and what the form says to it."""
    names = list(form)
    steps = [
        {"action": f"{name}={form[name]}", "observation": f"empty: {', '.join(names[n + 1 :]) or 'none'}"}
        for n, name in enumerate(names)
    ]
    return [*steps, {"action": "send", "observation": ""}]


def play(prompt: PromptItem, turns: Sequence[str], observed: Sequence[str], rng: random.Random, skilled: bool) -> str:
    """The next turn after these. An unskilled player takes wrong values, and sends an incomplete form, at times."""
    form = prompt.meta["form"]
    empty = [name for name in form if not any(turn.startswith(f"{name}=") for turn in turns)]
    if not empty or (not skilled and rng.random() < 0.3):
        return "send"
    name = rng.choice(empty)
    value = form[name] if skilled or rng.random() < 0.5 else rng.choice(VALUES[name])
    return f"{name}={value}"
