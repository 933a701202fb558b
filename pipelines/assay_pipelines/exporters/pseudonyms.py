"""Pseudonyms of people: one per person within an export, another in the next export.

A salted hash, in SQL; the salt is never written, so that trying names cannot trace a pseudonym back.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

#: Kinds of annotators that are people, or simulate them.
PEOPLE = ("human", "simulated")


@dataclass(frozen=True)
class Pseudonyms:
    salt: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def name(self, annotator: str = "n") -> str:
        """SQL: the exported name of a row of `annotators` under that alias; only people get a pseudonym."""
        person = f"'annotator-' || left({self.order(annotator)}, 16)"
        return f"if({person_of(annotator)}, {person}, {annotator}.name)"

    def order(self, annotator: str = "n") -> str:
        """SQL: a text that sorts annotators in an order independent of their names."""
        return f"sha256('{self.salt}' || chr(31) || {annotator}.annotator_id)"


def person_of(annotator: str = "n") -> str:
    """SQL: whether a row of `annotators` is a person."""
    return f"{annotator}.kind IN {PEOPLE}"
