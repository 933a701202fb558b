"""Constraints on how a response begins and ends, and on quotation marks around it.

White space before and after the response never counts, nor do case and the form of apostrophes.
"""

import re
from dataclasses import dataclass, field

from assay_serving.verifiers.constraint import PHRASE, Constraint, Verdict
from assay_serving.verifiers.segmentation import words

_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」"}
_FINAL_PUNCTUATION = ".!?…\"'”’»)*_ \t\n"
_SHOWN = 30  # characters of the response that a detail repeats


def _folded(text: str) -> str:
    """Casefolded, with single spaces and straight apostrophes."""
    return re.sub(r"\s+", " ", text.replace("’", "'")).strip().casefold()


@dataclass(frozen=True)
class StartsWith(Constraint):
    """The response begins with `phrase`, and the phrase's last word ends there ("Sure" does not start "Surely")."""

    phrase: str = field(metadata=PHRASE)

    def judge(self, response: str) -> Verdict:
        text, phrase = _folded(response), _folded(self.phrase)
        after = text[len(phrase) : len(phrase) + 1]
        passed = text.startswith(phrase) and not (phrase[-1].isalnum() and after.isalnum())
        return Verdict(passed, f"begins with {response.strip()[:_SHOWN]!r}")


@dataclass(frozen=True)
class EndsWith(Constraint):
    """The response ends with `phrase` as whole words; closing punctuation after it does not count."""

    phrase: str = field(metadata=PHRASE)

    def judge(self, response: str) -> Verdict:
        text, phrase = (_folded(part).rstrip(_FINAL_PUNCTUATION) for part in (response, self.phrase))
        before = text[: -len(phrase)][-1:] if text.endswith(phrase) else ""
        passed = text.endswith(phrase) and not (phrase[0].isalnum() and before.isalnum())
        return Verdict(passed, f"ends with {response.strip()[-_SHOWN:]!r}")


@dataclass(frozen=True)
class Quoted(Constraint):
    """The whole response stands between one pair of double quotation marks, with none of that pair inside."""

    def judge(self, response: str) -> Verdict:
        text = response.strip()
        closing = _QUOTES.get(text[0])
        if closing is None:
            return Verdict(False, f"begins with {text[0]!r}, not with a quotation mark")
        if len(text) < 2 or text[-1] != closing:
            return Verdict(False, f"ends with {text[-1]!r}, not with {closing!r}")
        inside = text[1:-1]
        if text[0] in inside or closing in inside:
            return Verdict(False, "more quotation marks inside")
        return Verdict(bool(words(inside)), "the whole response is quoted")
