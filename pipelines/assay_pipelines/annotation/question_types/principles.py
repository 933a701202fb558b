"""Principle answers: whether each response fulfils each of an item's principles, and which words show it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from assay.domain import FULFILMENTS, PrincipleAnswer, ShownOrder, response_of, response_text
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.pair import letter
from assay_pipelines.annotation.question_types.question_type import Submission, TerminalForm, VoteRecord

if TYPE_CHECKING:
    import sqlite3

#: Label of each answer.
FULFILMENT_WORDS = {"yes": "yes", "partially": "partly", "no": "no"}


class PrincipleFulfilment:
    """Adds answers on the item's principles to a vote; an item that is passed on has none."""

    component: ClassVar[str] = "PrincipleFulfilment"

    def words(self) -> Mapping[str, Any]:
        return {"answers": [{"name": name, "label": label} for name, label in FULFILMENT_WORDS.items()]}

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm | None:
        return None

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        """The answers in one order, whatever order they came in."""
        if vote is None:
            raise BadInputError("principles are asked beside another question", field="question")
        if not vote.counts:
            raise BadInputError("an item that is passed on has no answers on principles", field="principles")
        principles = list(item.get("principles", ()))
        answers = []
        for answer in submission.principles:
            if answer.principle not in principles:
                raise BadInputError(f"this item does not ask about {answer.principle!r}", field="principles")
            if answer.position not in ("first", "second"):
                raise BadInputError(f"unknown place {answer.position!r}; one of first, second", field="principles")
            if answer.answer not in FULFILMENTS:
                raise BadInputError(f"an answer is one of {', '.join(FULFILMENTS)}", field="principles")
            response = letter(answer.position, order)
            said = response_text(response_of(item[response.lower()]))
            if answer.evidence is not None and answer.evidence not in said:
                raise BadInputError(
                    f"the evidence is not in the response: {answer.evidence[:60]!r}", field="principles"
                )
            answers.append(PrincipleAnswer(response, answer.principle, answer.answer, answer.evidence))
        return replace(
            vote, principles=tuple(sorted(answers, key=lambda a: (principles.index(a.principle), a.response)))
        )


def keep_answers(db: "sqlite3.Connection", judgment_id: str, answers: Iterable[PrincipleAnswer]) -> None:
    """Store answers beside the vote, inside the caller's transaction; those that are there stay."""
    db.executemany(
        "INSERT OR IGNORE INTO vote_principles VALUES (?, ?, ?, ?, ?)",
        [(judgment_id, a.response, a.principle, a.answer, a.evidence) for a in answers],
    )


def stored_answers(db: "sqlite3.Connection", judgment_id: str) -> tuple[PrincipleAnswer, ...]:
    rows = db.execute(
        """SELECT response, principle, answer, evidence FROM vote_principles
           WHERE judgment_id = ? ORDER BY principle, response""",
        (judgment_id,),
    )
    return tuple(PrincipleAnswer(*row) for row in rows)
