"""The base class of verifiable constraints, and the verdicts of their checks.

Covers: wording, check and JSON form of a constraint, the verdict of one and of several. A response without a word fails
every constraint: else an empty response would satisfy "no commas", and a policy trained on verdicts would learn it.
Leaves out: the constraints (`constraints`), their registry (`catalogue`), rewards and judgments made of verdicts.
"""

import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from assay.errors import BadInputError
from assay.registry import made_by
from assay.system.plurals import counted
from assay_serving.verifiers.segmentation import words

_WORDINGS: Mapping[str, Mapping[str, Sequence[str]]] = tomllib.loads(
    (Path(__file__).parent / "constraints" / "wordings.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one constraint holds, and what was measured, in one short line."""

    passed: bool
    detail: str


@dataclass(frozen=True)
class Constraint(ABC):
    """One property of a response that a program can decide. `kind`: the class's name in snake case, unless it says
    another."""

    kind: ClassVar[str]
    #: Runs untrusted input (a pattern, a formula, a schema, a program), which can hang or crash: checked in a worker
    #: process only (`sandbox.worker_pool`).
    foreign: ClassVar[bool] = False
    names_the_answer: ClassVar[bool] = (
        False  #: a verdict's detail says what is right: not for a policy that tries again
    )

    def __init_subclass__(cls) -> None:
        if "kind" not in vars(cls):
            cls.kind = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        """Raises BadInputError for a value that the field's metadata (`COUNT`, `PHRASE`, ...) refuse."""
        for each in fields(self):
            if (require := each.metadata.get("require")) is not None:
                require(getattr(self, each.name), each.name)

    @property
    def run_seconds(self) -> float:
        """Time limit of the programs that the check runs, on top of the limit of any check."""
        return 0.0

    def prepare(self, response: str) -> None:  # noqa: B027  (optional)
        """Import what the check needs, outside its time limit. Raises BackendError for a missing package."""

    def wordings(self) -> tuple[str, ...]:
        """Equivalent instructions in plain English, each one sentence; none where no generated prompt states it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        single = any(value == 1 or (isinstance(value, tuple) and len(value) == 1) for value in values.values())
        forms = _WORDINGS.get(self.kind, {"many": ()})
        texts = {name: _formatted(value) for name, value in values.items()}
        return tuple(form.format(**texts) for form in forms["one" if single and "one" in forms else "many"])

    @abstractmethod
    def judge(self, response: str) -> Verdict:
        """The check itself; `response` has at least one word."""

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
        registered = made_by(self)  # of a class named by module:Name or file.py:Name
        return {"kind": registered.name if registered is not None else self.kind, **plain}


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdicts of all constraints of one prompt on one response, in the constraints' order."""

    constraints: tuple[Constraint, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """True when every constraint holds."""
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def fraction(self) -> float:
        """Share of constraints that hold, 0 to 1."""
        return sum(verdict.passed for verdict in self.verdicts) / len(self.verdicts)

    @property
    def failures(self) -> tuple[str, ...]:
        """`kind: detail` of each constraint that does not hold."""
        pairs = zip(self.constraints, self.verdicts, strict=True)
        return tuple(f"{constraint.kind}: {verdict.detail}" for constraint, verdict in pairs if not verdict.passed)

    def to_dict(self) -> dict[str, Any]:
        pairs = zip(self.constraints, self.verdicts, strict=True)
        return {
            "passed": self.passed,
            "fraction": self.fraction,
            "verdicts": [{"kind": c.kind, "passed": v.passed, "detail": v.detail} for c, v in pairs],
        }


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


#: Metadata of a constraint's fields.
COUNT, COUNT_OR_ZERO = {"require": require_count}, {"require": partial(require_count, minimum=0)}
PHRASE, PHRASES = {"require": require_phrase}, {"require": require_phrases}


class _Number(int):
    def __format__(self, noun: str) -> str:
        return counted(self, noun) if noun else str(self)


class _Phrases(tuple[str, ...]):
    def __format__(self, last: str) -> str:
        return quoted_list(self, last or "and")


def _formatted(value: Any) -> Any:
    return _Number(value) if isinstance(value, int) else _Phrases(value) if isinstance(value, tuple) else value


def quoted_list(items: Iterable[str], last: str = "and") -> str:
    """`"a", "b" and "c"`."""
    quoted = [f'"{item}"' for item in items]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"
