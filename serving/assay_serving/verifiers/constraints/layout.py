"""Constraints on the form of a response: bullets, numbered lists, a JSON object.

Leaves out: Markdown beyond list lines. Text around a list is allowed; text around a JSON object is not.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from assay.system.plurals import counted
from assay_serving.verifiers.constraint import COUNT, PHRASES, Constraint, Verdict, quoted_list
from assay_serving.verifiers.segmentation import bullets, numbered_items

_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


@dataclass(frozen=True)
class BulletCount(Constraint):
    """Exactly `count` bullet lines ("- ", "* ", "• "), nested ones included. Numbered lines are no bullets."""

    count: int = field(metadata=COUNT)

    def wordings(self) -> tuple[str, ...]:
        shape = "\n- ..." * self.count
        return (
            f"Answer with exactly {counted(self.count, 'bullet point')}, in this form:{shape}",
            f'Answer with exactly {counted(self.count, "bullet point")}, each line beginning with "- ".',
            f'Write exactly {counted(self.count, "bullet")}. Begin each of them with "- ".',
            f"Use a list of exactly {counted(self.count, 'bullet point')} (- item).",
        )

    def judge(self, response: str) -> Verdict:
        number = len(bullets(response))
        return Verdict(number == self.count, f"{counted(number, 'bullet')}, exactly {self.count} wanted")


@dataclass(frozen=True)
class NumberedList(Constraint):
    """Exactly `count` numbered lines, numbered 1, 2, 3, ... in order."""

    count: int = field(metadata=COUNT)

    def judge(self, response: str) -> Verdict:
        numbers = [number for number, _ in numbered_items(response)]
        if numbers != list(range(1, len(numbers) + 1)):
            return Verdict(False, f"numbered {', '.join(map(str, numbers))}, not from 1 in order")
        return Verdict(
            len(numbers) == self.count, f"{counted(len(numbers), 'numbered item')}, exactly {self.count} wanted"
        )


@dataclass(frozen=True)
class JsonObject(Constraint):
    """One JSON object (RFC 8259) that has every one of `keys` with a non-empty value.

    Null, "", [] and {} count as empty. More keys are allowed, the
    same key twice is not. One Markdown code fence around the object is removed, since chat models often add
    it; any other text before or after fails. NaN and Infinity are not JSON.
    """

    keys: tuple[str, ...] = field(metadata=PHRASES)

    def wordings(self) -> tuple[str, ...]:
        listed = quoted_list(self.keys)
        noun = "key" if len(self.keys) == 1 else "keys"
        shape = json.dumps(dict.fromkeys(self.keys, "..."), ensure_ascii=False)
        return (
            f"Answer only with a JSON object of this form: {shape}",
            f"Answer only with a JSON object that has the {noun} {listed}.",
            f"Reply with nothing but a JSON object with the {noun} {listed}.",
            f"Your answer must be one JSON object with the {noun} {listed} and no other text.",
        )

    def judge(self, response: str) -> Verdict:
        text = response.strip()
        fenced = _FENCE.fullmatch(text)
        try:
            value = json.loads(
                fenced.group(1) if fenced else text, object_pairs_hook=_unique, parse_constant=_refuse_constant
            )
        except (ValueError, RecursionError) as error:
            return Verdict(False, f"not JSON: {error}")
        if not isinstance(value, dict):
            return Verdict(False, f"JSON of type {type(value).__name__}, not an object")
        lacking = [key for key in self.keys if key not in value or value[key] in (None, "", [], {})]
        if lacking:
            return Verdict(False, f"no value for {quoted_list(lacking)}")
        return Verdict(True, f"a JSON object with {counted(len(value), 'key')}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"key {key!r} occurs twice")
        members[key] = value
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
