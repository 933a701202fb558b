"""The verifier `mentions_ticket`, which rows of prompts may name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay_serving.verifiers.constraint import Constraint, Verdict, require_count


@dataclass(frozen=True)
class MentionsTicket(Constraint):
    """The response names a ticket by its number."""

    kind: ClassVar[str] = "mentions_ticket"
    number: int

    def __post_init__(self) -> None:
        require_count(self.number, "number")

    def judge(self, response: str) -> Verdict:
        mentioned = f"#{self.number}" in response
        return Verdict(mentioned, f"ticket #{self.number} is {'' if mentioned else 'not '}mentioned")
