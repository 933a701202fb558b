"""Constraints on passages of a response: a postscript, the prompt repeated, two answers, how paragraphs and ends read.

Covers: the rest of IFEval's text constraints (arXiv 2311.07911), as strict as the original. Leaves out: beginnings and
ends compared without regard to punctuation (`ends`), words found as whole words (`vocabulary`).
"""

import re
from dataclasses import dataclass, field

from assay.errors import BadInputError
from assay.system.plurals import counted
from assay_serving.verifiers.constraint import COUNT, PHRASE, PHRASES, Constraint, Verdict, quoted_list

_POSTSCRIPTS = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}
_WORD_ENDS = re.compile(r"[.,?!'\"]")
_ASTERISKS = "******"


@dataclass(frozen=True)
class Postscript(Constraint):
    """IFEval `detectable_content:postscript`: `marker` ("P.S.", "P.P.S") anywhere, in any case."""

    marker: str = field(metadata=PHRASE)

    def judge(self, response: str) -> Verdict:
        pattern = _POSTSCRIPTS.get(self.marker) or re.compile(re.escape(self.marker.lower()))
        has_marker = pattern.search(response.lower()) is not None
        return Verdict(has_marker, f"{'a' if has_marker else 'no'} postscript {self.marker}")


@dataclass(frozen=True)
class RepeatPrompt(Constraint):
    """IFEval `combination:repeat_prompt`: the response begins with `prompt`, word for word; case does not count."""

    prompt: str = field(metadata=PHRASE)

    def judge(self, response: str) -> Verdict:
        repeated = response.strip().lower().startswith(self.prompt.strip().lower())
        return Verdict(repeated, f"{'begins' if repeated else 'does not begin'} with the request")


@dataclass(frozen=True)
class TwoResponses(Constraint):
    """IFEval `combination:two_responses`: two different answers with six asterisks between them."""

    def judge(self, response: str) -> Verdict:
        answers = [answer.strip() for answer in response.split(_ASTERISKS)]
        if not all(answers[1:-1]):
            return Verdict(False, "nothing between two dividers")
        nonempty = [answer for answer in answers if answer]
        passed = len(nonempty) == 2 and nonempty[0] != nonempty[1]
        return Verdict(passed, f"{counted(len(nonempty), 'answer')}, two different ones wanted")


@dataclass(frozen=True)
class NthParagraphFirstWord(Constraint):
    """IFEval `length_constraints:nth_paragraph_first_word`: `paragraphs` of them, the `nth` beginning with a word.

    Paragraphs are set apart by exactly one blank line. As in the original, the place counts empty ones and the number
    does not.
    """

    paragraphs: int = field(metadata=COUNT)
    nth: int = field(metadata=COUNT)
    first_word: str = field(metadata=PHRASE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nth > self.paragraphs:
            raise BadInputError(f"there are {self.paragraphs} paragraphs, so not {self.nth}", field="nth")

    def judge(self, response: str) -> Verdict:
        blocks = [block.strip() for block in response.split("\n\n")]
        number = sum(map(bool, blocks))
        if self.nth > number or not (block := blocks[self.nth - 1]):
            return Verdict(False, f"{counted(number, 'paragraph')}, no paragraph {self.nth}")
        word = _WORD_ENDS.split(block.split()[0].lstrip("'").lstrip('"'))[0].lower()
        passed = number == self.paragraphs and word == self.first_word.lower()
        return Verdict(passed, f"{counted(number, 'paragraph')}, paragraph {self.nth} begins with {word!r}")


@dataclass(frozen=True)
class OneOfOptions(Constraint):
    """IFEval `detectable_format:constrained_response`: one of `options` occurs, with case and punctuation."""

    options: tuple[str, ...] = field(metadata=PHRASES)

    def judge(self, response: str) -> Verdict:
        option_found = next((option for option in self.options if option in response), None)
        return Verdict(
            option_found is not None, "none of the options" if option_found is None else f"answers {option_found!r}"
        )


@dataclass(frozen=True)
class ExactEnd(Constraint):
    """IFEval `startend:end_checker`: nothing but a quotation mark follows `phrase`; case does not count."""

    phrase: str = field(metadata=PHRASE)

    def judge(self, response: str) -> Verdict:
        text = response.strip().strip('"').lower()
        return Verdict(text.endswith(self.phrase.strip().lower()), f"ends with {text[-30:]!r}")


@dataclass(frozen=True)
class WrappedInQuotes(Constraint):
    """IFEval `startend:quotation`: the first and the last character are straight double quotation marks."""

    def judge(self, response: str) -> Verdict:
        text = response.strip()
        passed = len(text) > 1 and text[0] == text[-1] == '"'
        return Verdict(passed, f"begins with {text[0]!r} and ends with {text[-1]!r}")


@dataclass(frozen=True)
class KeywordsOccur(Constraint):
    """IFEval `keywords:existence`: every one of `keywords`, in any case, also inside longer words."""

    keywords: tuple[str, ...] = field(metadata=PHRASES)

    def judge(self, response: str) -> Verdict:
        missing = [k for k in self.keywords if re.search(re.escape(k), response, re.IGNORECASE) is None]
        return Verdict(not missing, f"missing {quoted_list(missing)}" if missing else "holds all keywords")
