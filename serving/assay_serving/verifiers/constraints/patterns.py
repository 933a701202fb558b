"""Constraint by a regular expression.

Leaves out: proof that a pattern terminates. Python's engine backtracks, so a pattern can take practically for ever; it
is matched in a worker process, which is killed at its time limit.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import Constraint, Verdict

LONGEST = 2000  #: characters of a pattern; compiling it, which is not done in a worker, then takes 2 s at worst


@dataclass(frozen=True)
class Regex(Constraint):
    """`pattern` (of Python's `re`) matches the response without outer white space: all of it, or somewhere in it."""

    foreign: ClassVar[bool] = True
    pattern: str
    full_match: bool = True  #: False searches

    def __post_init__(self) -> None:
        if not isinstance(self.full_match, bool):
            raise BadInputError(f"must be true or false, not {self.full_match!r}", field="full_match")
        if not isinstance(self.pattern, str) or not 0 < len(self.pattern) <= LONGEST:
            raise BadInputError(f"must be text of 1 to {LONGEST} characters", field="pattern")
        try:
            re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise BadInputError(f"not a regular expression: {error}", field="pattern") from error

    def judge(self, response: str) -> Verdict:
        text = response.strip()
        match = re.fullmatch(self.pattern, text) if self.full_match else re.search(self.pattern, text)
        return Verdict(match is not None, "matches" if match else "does not match")
