r"""Constraint on the final answer of a response to a mathematical problem.

Covers: the final answer of a response (the last \boxed{}, else what follows the last "####" or "answer is",
else the last number) and its comparison with the correct one: exact, by fractions, for plain numbers; by the
library math-verify (extra `verifiers`) for everything else. Leaves out: the steps of a solution, and units: "72
clips" is 72.
"""

import importlib.util
import logging
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from assay.errors import BackendError
from assay_serving.verifiers.constraint import PHRASE, Constraint, Verdict

LONGEST = 1000  #: characters of an answer; a longer one is none
EXTRA = "pip install 'assay[verifiers]'"

_BOXED = re.compile(r"\\f?boxed\s*\{")
_STATED = re.compile(r"(?:####|answer\s+is\s*:?|answer\s*:)", re.IGNORECASE)
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+"
_PLAIN = re.compile(rf"({_NUMBER})(?:\s*/\s*({_NUMBER}))?")
_FRACTION = re.compile(r"([-+]?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_IN_TEXT = re.compile(rf"(?<![\w.])(?:{_NUMBER})(?:\s*/\s*\d+)?")
_UNIT = re.compile(r"\\(?:text|mbox|mathrm)\s*\{[^{}]*\}")
_THIN = re.compile(r"\\[,!]|\{(?=,\})|(?<=\{,)\}")  # inside numbers: 1\,000, 1{,}000
_SPACES = re.compile(r"\\[ ;:]|\\q?quad|~|\^\s*\\circ|\^\{\s*\\circ\s*\}")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s-]+[^\W\d_]+)*")
_CHOICE = re.compile(r"\(?([A-Z])\)?")  # of several answers
_BEFORE, _AFTER = "*_`$ \t\n:;", "*_`$ \t\n:;."  # decoration of an answer


@dataclass(frozen=True)
class MathAnswer(Constraint):
    r"""The response's final answer equals `answer`.

    `answer`: a number, LaTeX, or a solution whose answer stands after "####" (GSM8K) or in \boxed{}. A word ("Paris")
    is compared as a word, in any case.
    """

    foreign: ClassVar[bool] = True
    names_the_answer: ClassVar[bool] = True
    answer: str = field(metadata=PHRASE)

    def prepare(self, response: str) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise BackendError(f"math_answer needs the package math-verify: {EXTRA}")
        if decided(expected(self.answer), stated_answer(response)) is None:
            import math_verify  # noqa: F401  (most of a second)

            logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its time limits are off

    def judge(self, response: str) -> Verdict:
        correct, answer = expected(self.answer), stated_answer(response)
        if answer is None:
            return Verdict(False, "no answer found")
        equal = decided(correct, answer)
        if equal is None:
            equal = _equal_by_library(correct, answer)
        return Verdict(equal, f"answers {answer[:60]!r}, {correct[:60]!r} is right")


def expected(answer: str) -> str:
    """The answer itself, of a data set's answer or worked solution."""
    if "####" in answer:
        return clean(answer.rpartition("####")[2])
    boxed = last_boxed(answer)
    return clean(answer if boxed is None else boxed)


def stated_answer(response: str) -> str | None:
    """What a response states as its answer; None where it has none, or one longer than `LONGEST`."""
    boxed = last_boxed(response)
    if boxed is not None:
        return _short(clean(boxed))
    stated = [match.end() for match in _STATED.finditer(response)]
    if stated:
        line = response[stated[-1] :].lstrip(_BEFORE).partition("\n")[0]
        sentence = clean(re.split(r"[.!]\s", line)[0])
        if sentence:
            return _short(sentence)
    numbers = [match.group() for match in _IN_TEXT.finditer(response)]
    return numbers[-1] if numbers else None


def last_boxed(text: str) -> str | None:
    r"""Content of the last \boxed{} (or \fbox{}) whose braces close."""
    for start in reversed([match.end() for match in _BOXED.finditer(text)][-20:]):
        depth = 1
        for index in range(start, min(len(text), start + 2 * LONGEST)):
            depth += {"{": 1, "}": -1}.get(text[index], 0) if text[index - 1] != "\\" else 0
            if depth == 0:
                return text[start:index]
    return None


def clean(answer: str) -> str:
    """Without dollar signs, spaces of LaTeX, units in text, and punctuation around it."""
    bare = answer.replace("\\$", "").replace("\\%", "%").replace("$", "")
    for marker in ("\\left", "\\right", "\\(", "\\)", "\\[", "\\]"):
        bare = bare.replace(marker, "")
    bare = _SPACES.sub(" ", _THIN.sub("", bare))
    without_units = _UNIT.sub(" ", bare)
    if not without_units.strip(_AFTER):  # \text{Paris} is no unit
        without_units = re.sub(r"\\(?:text|mbox|mathrm)\s*|[{}]", "", bare)
    return without_units.lstrip(_BEFORE).rstrip(_AFTER)


def decided(correct: str, answer: str | None) -> bool | None:
    """Whether the two are equal, where plain numbers, equal text or words decide it; None where they do not."""
    if answer is None:
        return False
    if correct.casefold() == answer.casefold():
        return True
    if _CHOICE.fullmatch(correct) and (choice := _CHOICE.fullmatch(answer)):
        return choice.group(1) == _CHOICE.sub(r"\1", correct)
    if "%" in correct + answer and (one := _percent(correct)) is not None and (other := _percent(answer)) is not None:
        return one & other != set()
    right = number(correct)
    if right is not None:
        answered = number(answer)
        if answered is None and (of_text := _number_in(answer)) is not None:
            answered = number(of_text)
        return None if answered is None else answered == right
    if _WORDS.fullmatch(correct):  # math-verify would take a word for a product of its letters
        return False
    return None


def number(text: str) -> Fraction | None:
    r"""Of a plain number: 1,000, -3.5, .5, 3/4, \frac{3}{4}. None for anything else, percentages included."""
    if frac := _FRACTION.fullmatch(text):
        sign, over, under = frac.groups()
        return Fraction(int(sign + over), int(under)) if int(under) else None
    if (plain := _PLAIN.fullmatch(text)) is None or len(text) > 200:
        return None
    over, under = (None if part is None else Fraction(part.replace(",", "")) for part in plain.groups())
    if over is None or under == 0:
        return None
    return over if under is None else over / under


def _percent(text: str) -> set[Fraction] | None:
    """What a plain number or percentage can mean: 50% is 50 of a hundred, or 1/2. None for anything else."""
    value = number(text.removesuffix("%").rstrip())
    if value is None:
        return None
    return {value, value / 100} if text.endswith("%") else {value}


def _number_in(text: str) -> str | None:
    """The number of an answer in words ("72 clips in May"): the first, where no formula is in it."""
    if re.search(r"[\\=^{}%+*]|\d[a-zA-Z]\b", text):
        return None
    first = _IN_TEXT.search(text)
    return first.group() if first else None


def _short(answer: str) -> str | None:
    return answer if answer and len(answer) <= LONGEST else None


def _equal_by_library(correct: str, answer: str) -> bool:
    """By math-verify, without its own time limits: they are alarms, and the worker's limit stands."""
    import math_verify

    right, answered = (math_verify.parse(f"${text}$", parsing_timeout=None) for text in (correct, answer))
    return bool(right and answered and math_verify.verify(right, answered, timeout_seconds=None))
