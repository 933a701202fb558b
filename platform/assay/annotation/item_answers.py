"""Answers of people to what is no pair: ratings, step labels and spans of one response, rankings of several.

Covers: the answer as the journal and the store hold it, its identity, the judgments that follow from it, their
insertion. Leaves out: the journal's files (`assay.annotation.vote_journal`), who is asked what (annotation queues).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from assay import ids
from assay.domain import AnnotatorKind, Judgment, ResponseJudgment, StepJudgment
from assay.errors import BadInputError
from assay.store.database import Connection, registered
from assay.store.records import insert_annotator, insert_judgments

#: The lists of an answer's labels; each entry has the fields of its judgment without annotator and origin. A judgment
#: of a pair also has `prompt_id`, `response_a` and `response_b`.
LABELS = ("judgments", "ratings", "marks")


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """`item`: a response, or the prompt whose responses are ranked. `labels`: by the names of `LABELS`; empty where the
    item was passed on. `attempt`: 1, and one more after each undo."""

    queue: str
    item: str
    question: str
    annotator: str  #: by name
    labels: Mapping[str, Sequence[Mapping[str, Any]]]
    kind: AnnotatorKind = "human"
    attempt: int = 1
    rationale: str | None = None
    shown_order: str | None = None
    seconds: float | None = None
    run_id: str | None = None
    role: str = "queue"  #: or "adjudication:blind", "adjudication:open"

    @property
    def id(self) -> str:
        content = json.dumps(self.labels, sort_keys=True, ensure_ascii=True)
        parts = [self.queue, self.item, self.annotator_id, str(self.attempt), content, self.rationale or ""]
        return "u-" + ids.digest(ids.FIELD.join(parts if self.role == "queue" else [*parts, self.role]))

    @property
    def annotator_id(self) -> str:
        return ids.annotator_id(self.kind, self.annotator)

    @property
    def origin(self) -> str:
        return f"{self.role}/{self.queue}/{self.attempt}"

    def to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def judgments(self) -> list[Judgment | ResponseJudgment | StepJudgment]:
        """Raises TypeError, KeyError for labels that are none."""
        about: dict[str, Any] = {
            "annotator_id": self.annotator_id,
            "origin": self.origin,
            "rationale": self.rationale,
            "seconds": self.seconds,
        }
        pairs = [
            Judgment(label["comparison_id"], answer=label["answer"], **about)
            for label in self.labels.get("judgments", ())
        ]
        ratings = [ResponseJudgment(**{**about, **label}) for label in self.labels.get("ratings", ())]
        marks = [StepJudgment(**{**about, **label}) for label in self.labels.get("marks", ())]
        return [*pairs, *ratings, *marks]

    def judgment_ids(self) -> list[str]:
        """Of the answer itself, and of all judgments that follow from it."""
        return [self.id, *(judgment.id for judgment in self.judgments())]


def check_answer(answer: ItemAnswer) -> None:
    """Raise BadInputError for what the store would refuse: one such answer would keep all others from being folded."""
    try:
        text = json.dumps(answer.to_dict(), allow_nan=False, ensure_ascii=False)
        text.encode("utf-8")
        judgments = answer.judgments()
    except (TypeError, KeyError, ValueError) as error:
        raise BadInputError(f"labels that cannot be stored: {error}", field="labels") from error
    if not set(answer.labels) <= set(LABELS):
        raise BadInputError(f"labels are of {', '.join(LABELS)}", field="labels")
    for judgment in judgments:
        low, high = (None, None) if isinstance(judgment, Judgment) else (judgment.low, judgment.high)
        number = None if isinstance(judgment, Judgment) else judgment.value
        if number is not None and not ((low is None or low <= number) and (high is None or number <= high)):
            raise BadInputError(f"{number:g} is off the scale {low:g} to {high:g}", field="labels")
        if isinstance(judgment, StepJudgment) and not 0 <= judgment.start <= judgment.end:
            raise BadInputError(f"no such characters: {judgment.start} to {judgment.end}", field="labels")


def store_answers(db: Connection, answers: Iterable[tuple[ItemAnswer, str]]) -> int:
    """Insert the answers that the store does not have, each with when it was given (ISO), and their judgments; returns
    how many were new."""
    import pyarrow as pa

    rows = {answer.id: (answer, at) for answer, at in reversed(list(answers))}  # of equal answers the first counts
    if not rows:
        return 0
    table = pa.table({"answer_id": pa.array(list(rows), pa.string())})
    with registered(db, "incoming", table):
        stored = {
            row[0]
            for row in db.execute("SELECT answer_id FROM queue_answers SEMI JOIN incoming USING (answer_id)").fetchall()
        }
    new = [(answer, at) for answer_id, (answer, at) in rows.items() if answer_id not in stored]
    for kind, name in {(answer.kind, answer.annotator) for answer, _ in new}:
        insert_annotator(db, kind, name)
    for answer, at in new:
        db.execute(
            """INSERT INTO queue_answers (answer_id, queue, item, question, annotator_id, attempt, labels, rationale,
                                          shown_order, seconds, run_id, role, created_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 'queue'), ?::TIMESTAMPTZ)""",
            [
                *(answer.id, answer.queue, answer.item, answer.question, answer.annotator_id, answer.attempt),
                *(json.dumps(answer.labels), answer.rationale, answer.shown_order, answer.seconds, answer.run_id),
                *(answer.role, at),
            ],
        )
        _store_judgments(db, answer, at)
    return len(new)


def _store_judgments(db: Connection, answer: ItemAnswer, at: str) -> None:
    for pair in answer.labels.get("judgments", ()):
        keys = ("comparison_id", "prompt_id", "response_a", "response_b")
        db.execute(
            f"""INSERT INTO comparisons ({", ".join(keys)}, run_id) SELECT $comparison_id, $prompt_id, $response_a,
            $response_b, $run
                WHERE NOT EXISTS (SELECT 1 FROM comparisons WHERE comparison_id = $comparison_id)""",
            {**{key: pair[key] for key in keys}, "run": answer.run_id},
        )
    judgments = answer.judgments()
    insert_judgments(db, [judgment for judgment in judgments if isinstance(judgment, Judgment)], answer.run_id)
    for table, kind in (("response_judgments", ResponseJudgment), ("step_judgments", StepJudgment)):
        for judgment in judgments:
            if isinstance(judgment, kind):
                names = [field.name for field in fields(judgment)]
                columns = ", ".join(f'"{name}"' for name in names)
                values = [judgment.id, *(getattr(judgment, name) for name in names), answer.run_id, at]
                db.execute(
                    f"""INSERT INTO {table} (judgment_id, {columns}, run_id, created_at)
                        VALUES (?, {", ".join("?" * len(names))}, ?, ?::TIMESTAMPTZ)""",
                    values,
                )


def comparison_of(prompt: str, first: str, second: str) -> tuple[dict[str, str], bool]:
    """The keys of the comparison of two responses, and whether `first` is its B. All are ids."""
    low, high = sorted((first, second))
    keys = {
        "comparison_id": ids.comparison_id(prompt, first, second),
        "prompt_id": prompt,
        "response_a": low,
        "response_b": high,
    }
    return keys, first == high
