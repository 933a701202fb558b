"""Statements about single responses, from their intermediate forms to the tables of the store, in SQL.

Covers: free-text feedback (`feedback_schema`, `store_feedback`) and yes/no judgments of principles
(`principle_schema`, `store_principle_judgments`), with their prompts, responses, annotators and origins. A batch a
second time writes nothing: every insert leaves out what is there already. Leaves out: comparisons of two responses
(`assay.store.intake`), reading files (`assay_pipelines.importers`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from assay.store import identity
from assay.store.database import Connection, registered

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def feedback_schema() -> pa.Schema:
    """One text of one annotator about one response. Every column but those marked may not be null."""
    import pyarrow as pa

    return pa.schema([*_about_response(), ("content", pa.string())])


@cache
def principle_schema() -> pa.Schema:
    """One annotator's answer to whether a response fulfils a principle."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        [
            *_about_response(),
            ("principle", text),  # the statement
            ("answer", text),  # yes, no, partially
            ("evidence", text),  # nullable; the span of feedback that supports it
        ]
    )


def _about_response() -> list[Any]:
    import pyarrow as pa

    text = pa.string()
    return [
        ("row", pa.int64()),  # 1-based
        ("messages", pa.list_(pa.struct([("role", text), ("content", text)]))),
        ("response", text),
        ("kind", text),  # an AnnotatorKind
        ("voter", text),  # nullable: the source itself; unique within the source
        ("source", text),
        ("record_id", text),
        ("category", text),  # nullable, as the next two
        ("license", text),
        ("language", text),
    ]


@dataclass
class FeedbackCounts:
    """Rows that were new to the store; those already there are not counted."""

    prompts: int = 0
    responses: int = 0
    feedback: int = 0
    principles: int = 0
    principle_judgments: int = 0

    def __iadd__(self, other: FeedbackCounts) -> FeedbackCounts:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self


_STAGE = f"""
    CREATE OR REPLACE TEMP TABLE statements AS
    SELECT *, {identity.response_id("prompt_id", "response")} AS response_id,
           {identity.annotator_id("kind", "annotator")} AS annotator_id
    FROM (SELECT *, {identity.prompt_id("messages")} AS prompt_id,
                 if(voter IS NULL, source, source || '/' || voter) AS annotator
          FROM incoming_statements)"""

# Within a batch the first row of the file wins, as between batches.
_COMMON: dict[str, str] = {
    "prompts": """
        INSERT INTO prompts (prompt_id, messages, run_id)
        SELECT prompt_id, any_value(messages), $run FROM statements s
        WHERE NOT EXISTS (SELECT 1 FROM prompts t WHERE t.prompt_id = s.prompt_id) GROUP BY prompt_id""",
    "responses": """
        INSERT INTO responses (response_id, prompt_id, content, run_id)
        SELECT response_id, any_value(prompt_id), any_value(response), $run FROM statements s
        WHERE NOT EXISTS (SELECT 1 FROM responses t WHERE t.response_id = s.response_id) GROUP BY response_id""",
    "annotators": """
        INSERT INTO annotators (annotator_id, kind, name)
        SELECT annotator_id, any_value(kind), any_value(annotator) FROM statements s
        WHERE NOT EXISTS (SELECT 1 FROM annotators t WHERE t.annotator_id = s.annotator_id) GROUP BY annotator_id""",
    "response_origins": """
        INSERT INTO response_origins (response_id, source, record_id, category, license, language, run_id)
        SELECT response_id, source, record_id, category, license, language, $run FROM statements s
        WHERE NOT EXISTS (SELECT 1 FROM response_origins t WHERE t.response_id = s.response_id
                          AND t.source = s.source AND t.record_id = s.record_id)
        QUALIFY row_number() OVER (PARTITION BY response_id, source, record_id ORDER BY "row") = 1""",
}

_FEEDBACK = {
    "feedback": f"""
        INSERT INTO feedback (feedback_id, response_id, annotator_id, content, run_id)
        SELECT feedback_id, any_value(response_id), any_value(annotator_id), any_value(content), $run
        FROM (SELECT *, {identity.feedback_id("response_id", "annotator_id", "content")} AS feedback_id
              FROM statements) s
        WHERE NOT EXISTS (SELECT 1 FROM feedback t WHERE t.feedback_id = s.feedback_id) GROUP BY feedback_id""",
}

_PRINCIPLES = {
    "principles": f"""
        INSERT INTO principles (principle_id, statement, run_id)
        SELECT {identity.principle_id("principle")} AS id, any_value(principle), $run FROM statements
        GROUP BY id HAVING NOT EXISTS (SELECT 1 FROM principles t WHERE t.principle_id = id)""",
    "principle_judgments": f"""
        INSERT INTO principle_judgments (judgment_id, response_id, principle_id, annotator_id, answer, evidence, run_id)
        SELECT judgment_id, response_id, principle_id, annotator_id, answer, evidence, $run
        FROM (SELECT *, {identity.principle_judgment_id("response_id", "principle_id", "annotator_id", "answer")}
                     AS judgment_id
              FROM (SELECT *, {identity.principle_id("principle")} AS principle_id FROM statements)) s
        WHERE NOT EXISTS (SELECT 1 FROM principle_judgments t WHERE t.judgment_id = s.judgment_id)
        QUALIFY row_number() OVER (PARTITION BY judgment_id ORDER BY "row") = 1""",
}


def store_feedback(db: Connection, batch: pa.Table | pa.RecordBatch, run_id: str | None) -> FeedbackCounts:
    """Write one batch of `feedback_schema()` inside the caller's unit of work. Texts must be valid Unicode."""
    return _store(db, batch, {**_COMMON, **_FEEDBACK}, run_id)


def store_principle_judgments(db: Connection, batch: pa.Table | pa.RecordBatch, run_id: str | None) -> FeedbackCounts:
    """Write one batch of `principle_schema()` inside the caller's unit of work. Texts must be valid Unicode."""
    return _store(db, batch, {**_COMMON, **_PRINCIPLES}, run_id)


def _store(
    db: Connection, batch: pa.Table | pa.RecordBatch, inserts: dict[str, str], run_id: str | None
) -> FeedbackCounts:
    counts = FeedbackCounts()
    with registered(db, "incoming_statements", batch):
        db.execute(_STAGE)
    for table, statement in inserts.items():
        row = db.execute(statement, {"run": run_id} if "$run" in statement else None).fetchone()
        if hasattr(counts, table):
            setattr(counts, table, int(row[0]) if row else 0)
    db.execute("DROP TABLE statements")
    return counts
