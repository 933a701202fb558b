"""Constraints on single characters: case, commas, digits.

Leaves out: what words they make up (`vocabulary`) and which alphabet they come from (`language`).
"""

import unicodedata
from dataclasses import dataclass, field

from assay.system.plurals import counted
from assay_serving.verifiers.constraint import COUNT, Constraint, Verdict
from assay_serving.verifiers.segmentation import words

COMMAS = ",，、،﹐﹑､"  # also the ideographic, Arabic and narrow forms


def _first_with_category(text: str, categories: tuple[str, ...]) -> str | None:
    return next((character for character in text if unicodedata.category(character) in categories), None)


@dataclass(frozen=True)
class AllLowercase(Constraint):
    """No capital letter, and at least one small one: digits or Chinese alone do not satisfy it."""

    def judge(self, response: str) -> Verdict:
        if (capital := _first_with_category(response, ("Lu", "Lt"))) is not None:
            return Verdict(False, f"capital letter {capital!r}")
        if _first_with_category(response, ("Ll",)) is None:
            return Verdict(False, "no letter that has a lower case")
        return Verdict(True, "no capital letters")


@dataclass(frozen=True)
class AllUppercase(Constraint):
    """No small letter, and at least one capital one."""

    def judge(self, response: str) -> Verdict:
        if (small := _first_with_category(response, ("Ll", "Lt"))) is not None:
            return Verdict(False, f"lowercase letter {small!r}")
        if _first_with_category(response, ("Lu",)) is None:
            return Verdict(False, "no letter that has an upper case")
        return Verdict(True, "no lowercase letters")


@dataclass(frozen=True)
class NoCommas(Constraint):
    """No comma of any script. A comma inside a number ("1,000") is a comma too."""

    def judge(self, response: str) -> Verdict:
        number = sum(response.count(comma) for comma in COMMAS)
        return Verdict(number == 0, counted(number, "comma") if number else "no commas")


@dataclass(frozen=True)
class ContainsNumber(Constraint):
    """At least `minimum` numbers written with digits of any script; "seven" does not count, "3rd" does.

    Numbers are words (`segmentation.words`) with a digit in them, so "3.14" and "1,000" are one number each. The
    markers of a numbered list count: they are numbers that the reader sees.
    """

    minimum: int = field(default=1, metadata=COUNT)

    def judge(self, response: str) -> Verdict:
        number = sum(any(character.isdecimal() for character in word) for word in words(response))
        return Verdict(number >= self.minimum, f"{counted(number, 'number')} in digits, at least {self.minimum} wanted")
