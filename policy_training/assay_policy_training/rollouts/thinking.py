"""The answer of a response that thinks first.

Covers: the text after the block of thinking. Leaves out: scoring it (`rewards`), rewarding the thinking
(`shaping.trust`).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import BadInputError
from assay.score import ScoreFailure

END = "</think>"


@dataclass(frozen=True)
class AnswerPart:
    """What follows the first `end`. `strict`: a response without it has no answer, else it is all answer.

    Source: arXiv 2509.20357 (RLMT), whose code scores an empty answer where the delimiter is missing; here there is no
    number then.
    """

    end: str = END
    strict: bool = True

    def __post_init__(self) -> None:
        if not self.end:
            raise BadInputError("the end of the thinking must not be empty", field="answer.end")

    def of(self, response: str) -> str | None:
        """The answer without white space around it; None = none."""
        thinking, delimiter, answer = response.partition(self.end)
        text = (answer if delimiter or self.strict else thinking).strip()
        return text or None

    def missing(self, model: str) -> ScoreFailure:
        return ScoreFailure("no_answer", f"nothing follows {self.end!r}: only thinking, or none that ends", model)
