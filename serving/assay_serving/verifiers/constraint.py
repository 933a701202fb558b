"""The base of all verifiable constraints: wording, check, JSON form.

Covers: what every constraint shares, above all the one rule that a response without a single word fails
whatever the constraint is (else silence would satisfy "no commas", and a policy trained on verdicts would learn
silence). Leaves out: the single constraints and the table of their kinds (`catalogue`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.segmentation import words
from assay_serving.verifiers.verdict import Verdict


@dataclass(frozen=True)
class Constraint(ABC):
    """One property of a response that a program can decide."""

    kind: ClassVar[str]
    #: Runs what others wrote (a pattern, a formula, a schema, a program), which can hang or crash: checked in a worker
    #: process only (`processes`), never in this one.
    foreign: ClassVar[bool] = False

    @property
    def run_seconds(self) -> float:
        """Time that the check itself may spend on programs it runs, on top of what any check may take."""
        return 0.0

    def prepare(self, response: str) -> None:  # noqa: B027  (most need nothing)
        """Import what the check of this response needs, outside its time limit. Raises BackendError without it."""

    @abstractmethod
    def wordings(self) -> tuple[str, ...]:
        """Equivalent instructions in plain English, each one sentence."""

    @abstractmethod
    def judge(self, response: str) -> Verdict:
        """The check proper; `response` holds at least one word."""

    def instruction(self, seed: int = 0) -> str:
        """The wording that `seed` selects."""
        options = self.wordings()
        return options[seed % len(options)]

    def check(self, response: str) -> Verdict:
        """Whether the constraint holds. Never raises, whatever the text."""
        if not words(response):
            return Verdict(False, "the response has no words")
        return self.judge(response)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `catalogue.constraint_from_dict` is the inverse."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"kind": self.kind, **plain}


def require_count(value: object, field: str, *, minimum: int = 1) -> None:
    """Raise BadInputError unless `value` is an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise BadInputError(f"must be a whole number of at least {minimum}, not {value!r}", field=field)


def require_phrase(value: object, field: str) -> None:
    """Raise BadInputError unless `value` is text with at least one word."""
    if not isinstance(value, str) or not words(value):
        raise BadInputError(f"must be text with at least one word, not {value!r}", field=field)


def require_phrases(value: object, field: str) -> None:
    """Raise BadInputError unless `value` is a non-empty tuple of distinct phrases."""
    if not isinstance(value, tuple) or not value:
        raise BadInputError(f"must be a non-empty list of words, not {value!r}", field=field)
    for phrase in value:
        require_phrase(phrase, field)
    if len({phrase.casefold() for phrase in value}) != len(value):
        raise BadInputError(f"names a word twice: {value!r}", field=field)


def quoted_list(items: Iterable[str], last: str = "and") -> str:
    """`"a", "b" and "c"`."""
    quoted = [f'"{item}"' for item in items]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"
