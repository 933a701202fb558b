"""Constraint on the language of a response, decided without a model.

Covers: six languages in Latin script, distinguished by function words, and eight by their script. Limits: a script is
shared, so Bulgarian passes as "Russian" and Persian as "Arabic"; a Latin answer of fewer than `SHORTEST` words, or
mostly of names, fails; a text in two languages passes as the one with more function words. For more use a language
model (`detection`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import Constraint, Verdict
from assay_serving.verifiers.segmentation import pieces

SHORTEST = 4  #: words below which a Latin-script language is not decided
SCRIPT_SHARE = 0.7  #: of the letters
FUNCTION_WORD_SHARE = 0.15  #: of the words; running text has 30 to 50 %, a text of another language below 10 %

NAMES = {
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "de": "German",
    "it": "Italian",
    "pt": "Portuguese",
    "ru": "Russian",
    "el": "Greek",
    "ar": "Arabic",
    "he": "Hebrew",
    "hi": "Hindi",
    "zh": "Chinese",
    "ja": "Japanese",
    "ko": "Korean",
}

#: First words of the Unicode names of the letters of each script.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "ru": ("CYRILLIC",),
    "el": ("GREEK",),
    "ar": ("ARABIC",),
    "he": ("HEBREW",),
    "hi": ("DEVANAGARI",),
    "zh": ("CJK",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ko": ("HANGUL",),
}

_FUNCTION_WORD_LISTS = {
    "en": (
        "the a an and or but of to in on at for with from by as is are was were be been it its this that these those "
        "you your he she they we i not can will have has do if when which their"
    ),
    "es": (
        "el la los las un una unos unas y o pero de del a al en con por para sin es son era ser está están hay que se "
        "su sus lo le les me mi tu no más muy como cuando este esta puede también"
    ),
    "fr": (
        "le la les l un une des du de d et ou mais à au aux en dans avec par pour sans sur est sont était être il elle "
        "ils elles on nous vous je c qu que qui se s ne n pas plus très ce cette son sa ses leur comme"
    ),
    "de": (
        "der die das den dem des ein eine einen einem einer und oder aber von zu zum zur in im an am auf mit für bei "
        "aus nach ist sind war sein wird werden es er sie wir ihr ich man nicht auch sich als wie dass wenn kann"
    ),
    "it": (
        "il lo la i gli le l un uno una e o ma di del della dei delle a al alla in nel nella con per da dal su è sono "
        "era essere che si non più molto come quando questo questa suo sua ci anche può"
    ),
    "pt": (
        "o a os as um uma uns umas e ou mas de do da dos das em no na nos nas com por para sem é são era ser está há "
        "que se seu sua não mais muito como quando este esta isso também pode você ele ela"
    ),
}
_FUNCTION_WORDS = {code: frozenset(listed.split()) for code, listed in _FUNCTION_WORD_LISTS.items()}


def _script_shares(text: str) -> Counter[str]:
    """Share of letters per script, by the first word of a letter's Unicode name."""
    scripts = [unicodedata.name(character, "UNKNOWN").split()[0] for character in text if character.isalpha()]
    return Counter({script: number / len(scripts) for script, number in Counter(scripts).items()})


@dataclass(frozen=True)
class AnswerLanguage(Constraint):
    """The response is written in `language`, an ISO 639-1 code of `NAMES`."""

    kind: ClassVar[str] = "language"
    language: str

    def __post_init__(self) -> None:
        if self.language not in NAMES:
            raise BadInputError(f"unknown language {self.language!r}; one of {', '.join(NAMES)}", field="language")

    def wordings(self) -> tuple[str, ...]:
        name = NAMES[self.language]
        return (f"Answer in {name}.", f"Write your answer in {name}.", f"Your whole answer must be in {name}.")

    def judge(self, response: str) -> Verdict:
        shares = _script_shares(response)
        scripts = _SCRIPTS.get(self.language)
        if scripts is None:
            return self._judge_function_words(response, shares["LATIN"])
        share = sum(shares[script] for script in scripts)
        kana = shares["HIRAGANA"] + shares["KATAKANA"]
        detail = f"{share:.0%} of the letters are of the {NAMES[self.language]} script"
        if self.language == "ja" and kana < 0.1:
            return Verdict(False, f"{detail}, hardly any of them kana")
        return Verdict(share >= SCRIPT_SHARE, detail)

    def _judge_function_words(self, response: str, latin: float) -> Verdict:
        if latin < SCRIPT_SHARE:
            return Verdict(False, f"{latin:.0%} of the letters are Latin")
        tokens = pieces(response)
        if len(tokens) < SHORTEST:
            return Verdict(False, f"{len(tokens)} words are too few to tell the language")
        hits = {code: sum(word in listed for word in tokens) for code, listed in _FUNCTION_WORDS.items()}
        matching = hits.pop(self.language)
        rival, most = max(hits.items(), key=lambda item: item[1])
        share = matching / len(tokens)
        name = NAMES[self.language]
        detail = (
            f"{share:.0%} of {len(tokens)} words are {name} function words, {most / len(tokens):.0%} {NAMES[rival]}"
        )
        return Verdict(share >= FUNCTION_WORD_SHARE and matching > most, detail)
