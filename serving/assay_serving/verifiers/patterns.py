"""Constraint that a regular expression describes.

Leaves out: proving that a pattern ends. Python's engine backtracks, so a pattern can take longer than the universe has;
it is matched in a worker process, which is killed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import Constraint
from assay_serving.verifiers.verdict import Verdict

LONGEST = 2000  #: characters of a pattern; compiling it, which is not done in a worker, then takes 2 s at worst


@dataclass(frozen=True)
class Regex(Constraint):
    """`pattern` (of Python's `re`) matches the response without outer white space: all of it, or somewhere in it."""

    kind: ClassVar[str] = "regex"
    foreign: ClassVar[bool] = True
    pattern: str
    whole: bool = True  #: False searches

    def __post_init__(self) -> None:
        if not isinstance(self.whole, bool):
            raise BadInputError(f"must be true or false, not {self.whole!r}", field="whole")
        if not isinstance(self.pattern, str) or not 0 < len(self.pattern) <= LONGEST:
            raise BadInputError(f"must be text of 1 to {LONGEST} characters", field="pattern")
        try:
            re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise BadInputError(f"not a regular expression: {error}", field="pattern") from error

    def wordings(self) -> tuple[str, ...]:
        if self.whole:
            return (
                f"Your whole answer must match the regular expression {self.pattern}",
                f"Answer with text of this form and nothing else: {self.pattern}",
            )
        return (
            f"Your answer must contain a match of the regular expression {self.pattern}",
            f"Somewhere in your answer there must be text of this form: {self.pattern}",
        )

    def judge(self, response: str) -> Verdict:
        text = response.strip()
        found = re.fullmatch(self.pattern, text) if self.whole else re.search(self.pattern, text)
        return Verdict(found is not None, "matches" if found else "does not match")
