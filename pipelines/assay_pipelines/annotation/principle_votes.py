"""What people say of principles with a vote: whether each response fulfils each of the item's, and which words show it.

Covers: answers by place on the screen and by canonical letter, what a queue may ask, the check against an item, keeping
them in the operational file. Leaves out: their way into the store, which is the vote's own
(`assay.annotation.vote_journal`), how far people agree (`principle_agreement`), what principle models make of them
(`assay_pipelines.principles`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from assay.domain import FULFILMENTS, Fulfilment, PrincipleAnswer, ShownOrder
from assay.errors import BadInputError

if TYPE_CHECKING:
    import sqlite3

Place: TypeAlias = Literal["first", "second"]

_PLACES: dict[ShownOrder, dict[Place, Literal["A", "B"]]] = {
    "AB": {"first": "A", "second": "B"},
    "BA": {"first": "B", "second": "A"},
}


@dataclass(frozen=True, slots=True)
class PlacedAnswer:
    """An answer on the response at a place of the screen. `evidence`: words of that response, as they stand there."""

    place: Place
    principle: str
    answer: Fulfilment
    evidence: str | None = None

    def canonical(self, order: ShownOrder) -> PrincipleAnswer:
        letter = _PLACES[order].get(self.place)
        if letter is None:
            raise BadInputError(f"unknown place {self.place!r}; one of first, second", field="principles")
        return PrincipleAnswer(letter, self.principle, self.answer, self.evidence)


def checked(payload: str, answers: Sequence[PrincipleAnswer]) -> tuple[PrincipleAnswer, ...]:
    """The answers in one order, whatever order they came in. `payload`: the item's, which holds the texts.

    Raises BadInputError for a principle that the item does not ask about, an unknown answer, and evidence that is not
    in the response.
    """
    if not answers:
        return ()
    item = json.loads(payload)
    asked = item.get("principles", [])
    for said in answers:
        if said.principle not in asked:
            raise BadInputError(f"this item does not ask about {said.principle!r}", field="principles")
        if said.response not in ("A", "B") or said.answer not in FULFILMENTS:
            raise BadInputError(f"an answer is one of {', '.join(FULFILMENTS)}, of A or B", field="principles")
        if said.evidence is not None and said.evidence not in item[said.response.lower()]:
            raise BadInputError(f"the evidence is not in the response: {said.evidence[:60]!r}", field="principles")
    return tuple(sorted(answers, key=lambda said: (asked.index(said.principle), said.response)))


def keep_answers(db: sqlite3.Connection, judgment_id: str, answers: Iterable[PrincipleAnswer]) -> None:
    """Beside the vote, inside the caller's transaction; those that are there stay."""
    db.executemany(
        "INSERT OR IGNORE INTO vote_principles VALUES (?, ?, ?, ?, ?)",
        [(judgment_id, said.response, said.principle, said.answer, said.evidence) for said in answers],
    )


def answers_with(db: sqlite3.Connection, judgments: Iterable[str]) -> dict[str, tuple[PrincipleAnswer, ...]]:
    """What was said with votes, in the order of the principles' words; votes that said nothing are left out."""
    found: dict[str, tuple[PrincipleAnswer, ...]] = {}
    for judgment in judgments:
        if said := kept_answers(db, judgment):
            found[judgment] = tuple(sorted(said, key=lambda one: (one.principle, one.response)))
    return found


def kept_answers(db: sqlite3.Connection, judgment_id: str) -> frozenset[PrincipleAnswer]:
    rows = db.execute(
        "SELECT response, principle, answer, evidence FROM vote_principles WHERE judgment_id = ?", (judgment_id,)
    )
    return frozenset(PrincipleAnswer(*row) for row in rows)
