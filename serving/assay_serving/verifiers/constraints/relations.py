"""Constraints on how often something occurs: words, sentences, a keyword, a letter, words in capitals.

Covers: the counts of IFEval (arXiv 2311.07911), which are "at least" or "less than" a number. They are cut otherwise
than `length` and `vocabulary` cut: a word is a run of word characters, so "don't" is two, and a keyword is found
inside longer words. Leaves out: exact counts (`length`).
"""

import re
from abc import abstractmethod
from dataclasses import dataclass, field

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import COUNT_OR_ZERO, PHRASE, Constraint, Verdict
from assay_serving.verifiers.segmentation import running_sentences

AT_LEAST = "at least"
LESS_THAN = "less than"

_WORD = re.compile(r"\w+")
#: As the Penn Treebank cuts: points and hyphens stay in a word, an apostrophe ends it.
_TREEBANK_WORD = re.compile(r"[^\W_]+(?:[-./][^\W_]+)*")


def require_relation(value: object, field: str) -> None:
    """Raise BadInputError unless `value` is one of the two relations."""
    if value not in (AT_LEAST, LESS_THAN):
        raise BadInputError(f"must be {AT_LEAST!r} or {LESS_THAN!r}, not {value!r}", field=field)


RELATION = {"require": require_relation}


@dataclass(frozen=True)
class Occurrences(Constraint):
    """`count` of something, in the given relation."""

    relation: str = field(metadata=RELATION)
    count: int = field(metadata=COUNT_OR_ZERO)

    @property
    @abstractmethod
    def counted_thing(self) -> str:
        """What is counted, in the singular, for people."""

    @abstractmethod
    def number_in(self, response: str) -> int:
        """How many there are."""

    def judge(self, response: str) -> Verdict:
        number = self.number_in(response)
        passed = number >= self.count if self.relation == AT_LEAST else number < self.count
        return Verdict(passed, f"{self.counted_thing}: {number}, {self.relation} {self.count} wanted")


@dataclass(frozen=True)
class NumberOfWords(Occurrences):
    r"""IFEval `length_constraints:number_words`: runs of word characters (`\w+`)."""

    counted_thing = "word"

    def number_in(self, response: str) -> int:
        return sum(1 for _ in _WORD.finditer(response))


@dataclass(frozen=True)
class NumberOfSentences(Occurrences):
    """IFEval `length_constraints:number_sentences`, of running text: a line break alone ends no sentence.

    The original uses NLTK's trained punkt model. This one uses punctuation and common abbreviations, so the two
    can differ by a sentence in a text with many abbreviations.
    """

    counted_thing = "sentence"

    def number_in(self, response: str) -> int:
        return len(running_sentences(response))


@dataclass(frozen=True)
class KeywordFrequency(Occurrences):
    """IFEval `keywords:frequency`: `keyword` in any case, also inside longer words, as text and not as a pattern."""

    keyword: str = field(metadata=PHRASE)

    @property
    def counted_thing(self) -> str:
        return f'"{self.keyword}"'

    def number_in(self, response: str) -> int:
        return sum(1 for _ in re.finditer(re.escape(self.keyword), response, re.IGNORECASE))


@dataclass(frozen=True)
class LetterFrequency(Occurrences):
    """IFEval `keywords:letter_frequency`: one character in either case; it may be a sign such as "!"."""

    letter: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.letter, str) or len(self.letter) != 1 or self.letter.isspace():
            raise BadInputError(f"must be one character, not {self.letter!r}", field="letter")

    @property
    def counted_thing(self) -> str:
        return f"letter {self.letter}"

    def number_in(self, response: str) -> int:
        return response.lower().count(self.letter.lower())


@dataclass(frozen=True)
class CapitalWordFrequency(Occurrences):
    """IFEval `change_case:capital_word_frequency`: words without a small letter. A hyphenated word is one word."""

    counted_thing = "word"

    def number_in(self, response: str) -> int:
        return sum(word.group().isupper() for word in _TREEBANK_WORD.finditer(response))
