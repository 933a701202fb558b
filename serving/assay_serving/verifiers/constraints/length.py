"""Constraints on how long a response is: words, sentences, paragraphs.

Leaves out: how these are counted (`segmentation`), and lengths in tokens, which no reader can check.
"""

from dataclasses import dataclass, field

from assay.system.plurals import counted
from assay_serving.verifiers.constraint import COUNT, Constraint, Verdict
from assay_serving.verifiers.segmentation import paragraphs, sentences, words


@dataclass(frozen=True)
class MaxWords(Constraint):
    """At most `limit` words."""

    limit: int = field(metadata=COUNT)

    def judge(self, response: str) -> Verdict:
        number = len(words(response))
        return Verdict(number <= self.limit, f"{counted(number, 'word')}, at most {self.limit} allowed")


@dataclass(frozen=True)
class MinWords(Constraint):
    """At least `limit` words."""

    limit: int = field(metadata=COUNT)

    def judge(self, response: str) -> Verdict:
        number = len(words(response))
        return Verdict(number >= self.limit, f"{counted(number, 'word')}, at least {self.limit} wanted")


@dataclass(frozen=True)
class SentenceCount(Constraint):
    """Exactly `count` sentences."""

    count: int = field(metadata=COUNT)

    def judge(self, response: str) -> Verdict:
        number = len(sentences(response))
        return Verdict(number == self.count, f"{counted(number, 'sentence')}, exactly {self.count} wanted")


@dataclass(frozen=True)
class ParagraphCount(Constraint):
    """Exactly `count` paragraphs, set apart by blank lines."""

    count: int = field(metadata=COUNT)

    def judge(self, response: str) -> Verdict:
        number = len(paragraphs(response))
        return Verdict(number == self.count, f"{counted(number, 'paragraph')}, exactly {self.count} wanted")
