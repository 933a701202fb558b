"""Constraints on how long a response is: words, sentences, paragraphs.

Leaves out: how these are counted (`segmentation`), and lengths in tokens, which no reader can check.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from assay.system.plurals import counted
from assay_serving.verifiers.constraint import COUNT, Constraint, Verdict
from assay_serving.verifiers.segmentation import paragraphs, sentences, words


@dataclass(frozen=True)
class MaxWords(Constraint):
    """At most `limit` words."""

    kind: ClassVar[str] = "max_words"
    limit: int = field(metadata=COUNT)

    def wordings(self) -> tuple[str, ...]:
        return (
            f"Use at most {counted(self.limit, 'word')}.",
            f"Your answer must not be longer than {counted(self.limit, 'word')}.",
            f"Keep it short: no more than {counted(self.limit, 'word')}.",
        )

    def judge(self, response: str) -> Verdict:
        number = len(words(response))
        return Verdict(number <= self.limit, f"{counted(number, 'word')}, at most {self.limit} allowed")


@dataclass(frozen=True)
class MinWords(Constraint):
    """At least `limit` words."""

    kind: ClassVar[str] = "min_words"
    limit: int = field(metadata=COUNT)

    def wordings(self) -> tuple[str, ...]:
        return (
            f"Use at least {counted(self.limit, 'word')}.",
            f"Your answer must have {self.limit} or more words.",
            f"Write no fewer than {counted(self.limit, 'word')}.",
        )

    def judge(self, response: str) -> Verdict:
        number = len(words(response))
        return Verdict(number >= self.limit, f"{counted(number, 'word')}, at least {self.limit} wanted")


@dataclass(frozen=True)
class SentenceCount(Constraint):
    """Exactly `count` sentences."""

    kind: ClassVar[str] = "sentence_count"
    count: int = field(metadata=COUNT)

    def wordings(self) -> tuple[str, ...]:
        return (
            f"Answer in exactly {counted(self.count, 'sentence')}.",
            f"Write exactly {counted(self.count, 'sentence')}, not more and not fewer.",
            f"The answer must be exactly {counted(self.count, 'sentence')} long.",
        )

    def judge(self, response: str) -> Verdict:
        number = len(sentences(response))
        return Verdict(number == self.count, f"{counted(number, 'sentence')}, exactly {self.count} wanted")


@dataclass(frozen=True)
class ParagraphCount(Constraint):
    """Exactly `count` paragraphs, set apart by blank lines."""

    kind: ClassVar[str] = "paragraph_count"
    count: int = field(metadata=COUNT)

    def wordings(self) -> tuple[str, ...]:
        if self.count == 1:
            return (
                "Write a single paragraph, without blank lines.",
                "Answer in exactly one paragraph, with no blank line in it.",
            )
        return (
            f"Write exactly {self.count} paragraphs, with a blank line between them.",
            f"Divide the answer into exactly {self.count} paragraphs separated by a blank line.",
        )

    def judge(self, response: str) -> Verdict:
        number = len(paragraphs(response))
        return Verdict(number == self.count, f"{counted(number, 'paragraph')}, exactly {self.count} wanted")
