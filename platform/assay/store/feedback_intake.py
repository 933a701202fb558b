"""Statements about single responses, from their intermediate forms to the tables of the store, in SQL.

Covers: free-text feedback (`feedback_schema`, `store_feedback`) and yes/no judgments of principles
(`principle_schema`, `store_principle_judgments`), ratings and labels of steps and spans (`rated_schema`,
`store_rated`), with their prompts, responses, annotators and origins. A batch a second time writes nothing: every
insert leaves out what is there already. Leaves out: comparisons of two responses (`assay.store.intake`), reading files
(`assay_pipelines.importers`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from assay.store import identity
from assay.store.database import Connection, registered
from assay.store.intake import NewRows, changed_rows
from assay.store.keys import unknown

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def feedback_schema() -> "pa.Schema":
    """One text of one annotator about one response. Every column but those marked may not be null."""
    import pyarrow as pa

    return pa.schema([*_about_response(), *_about_annotator(), ("content", pa.string())])


@cache
def principle_schema() -> "pa.Schema":
    """One annotator's answer to whether a response fulfils a principle."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        [
            *_about_response(),
            *_about_annotator(),
            ("principle", text),  # the statement
            ("answer", text),  # yes, no, partially
            ("evidence", text),  # nullable; the span of feedback that supports it
        ]
    )


@cache
def rated_schema() -> "pa.Schema":
    """What annotators said of one response in numbers: any number of ratings, and of labels of steps and spans."""
    import pyarrow as pa

    text, real, place = pa.string(), pa.float64(), pa.int32()
    said = [
        ("kind", text),  # an AnnotatorKind
        ("voter", text),  # nullable: the source itself; unique within the source
        ("value", real),  # finite; nullable: could not say, or a span whose label says all
        ("low", real),  # the ends of the scale, nullable: unbounded or unknown
        ("high", real),
        ("rationale", text),  # nullable
        ("origin", text),  # tells repeated judgments of one annotator apart; else empty
    ]
    marked = [("step", place), ("start", place), ("end", place), ("label", text)]  # step and label nullable
    return pa.schema(
        [
            *_about_response(),
            ("ratings", pa.list_(pa.struct([*said, ("aspect", text)]))),
            ("marks", pa.list_(pa.struct([*said, *marked]))),
        ]
    )


def _about_response() -> list[Any]:
    import pyarrow as pa

    text = pa.string()
    return [
        ("row", pa.int64()),  # 1-based
        ("messages", pa.list_(pa.struct([("role", text), ("content", text)]))),
        ("conversation", text),  # nullable, as `turns`: JSON of what is more than text (see `assay.store.intake`)
        ("response", text),
        ("turns", text),
        ("source", text),
        ("record_id", text),
        ("category", text),  # nullable, as all below
        ("license", text),
        ("language", text),
        ("meta", text),  # JSON
    ]


def _about_annotator() -> list[Any]:
    import pyarrow as pa

    return [("kind", pa.string()), ("voter", pa.string())]  # as in a rating


@dataclass
class FeedbackCounts(NewRows):
    """Of statements about single responses."""

    feedback: int = 0
    principles: int = 0
    principle_judgments: int = 0
    response_judgments: int = 0
    step_judgments: int = 0


_STAGE = f"""
    CREATE OR REPLACE TEMP TABLE statements AS
    SELECT *, {identity.response_id("prompt_id", "response", "turns")} AS response_id
    FROM (SELECT *, {identity.prompt_id("messages", "conversation")} AS prompt_id FROM incoming_statements)"""

_NAMED = "if(voter IS NULL, source, source || '/' || voter)"
# Who said what in each of the statements.
_VOICES = f"""
    CREATE OR REPLACE TEMP TABLE voices AS
    SELECT *, {identity.annotator_id("kind", _NAMED)} AS annotator_id, {_NAMED} AS annotator FROM statements"""

# Within a batch the first row of the file wins, as between batches.
_COMMON: dict[str, str] = {
    "prompts": f"""
        INSERT INTO prompts (prompt_id, messages, conversation, run_id)
        SELECT prompt_id, any_value(messages), any_value(conversation), $run
        FROM ({unknown("prompts", "statements")}) GROUP BY prompt_id""",
    "responses": f"""
        INSERT INTO responses (response_id, prompt_id, content, turns, run_id)
        SELECT response_id, any_value(prompt_id), any_value(response), any_value(turns), $run
        FROM ({unknown("responses", "statements")}) GROUP BY response_id""",
    "response_origins": f"""
        INSERT INTO response_origins (response_id, source, record_id, category, license, language, meta, run_id)
        SELECT response_id, source, record_id, category, license, language, meta, $run
        FROM ({unknown("response_origins", "statements")})
        QUALIFY row_number() OVER (PARTITION BY response_id, source, record_id ORDER BY "row") = 1""",
}

_ANNOTATORS = {
    "annotators": """
        INSERT INTO annotators (annotator_id, kind, name)
        SELECT annotator_id, any_value(kind), any_value(annotator) FROM voices v
        WHERE NOT EXISTS (SELECT 1 FROM annotators t WHERE t.annotator_id = v.annotator_id) GROUP BY annotator_id""",
}

_FEEDBACK = {
    "feedback": f"""
        INSERT INTO feedback (feedback_id, response_id, annotator_id, content, run_id)
        SELECT feedback_id, any_value(response_id), any_value(annotator_id), any_value(content), $run
        FROM (SELECT *, {identity.feedback_id("response_id", "annotator_id", "content")} AS feedback_id
              FROM voices) s
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
              FROM (SELECT *, {identity.principle_id("principle")} AS principle_id FROM voices)) s
        WHERE NOT EXISTS (SELECT 1 FROM principle_judgments t WHERE t.judgment_id = s.judgment_id)
        QUALIFY row_number() OVER (PARTITION BY judgment_id ORDER BY "row") = 1""",
}


def _voices_of(column: str) -> str:
    """As `_VOICES`, of the entries of a list that each statement has."""
    return f"""
        CREATE OR REPLACE TEMP TABLE voices AS
        SELECT v.*, {identity.annotator_id("kind", _NAMED)} AS annotator_id, {_NAMED} AS annotator
        FROM (SELECT "row", response_id, source, unnest({column}, max_depth := 2) FROM statements
              WHERE len({column}) > 0) v"""


def _new_voices(table: str, judgment_id: str, columns: tuple[str, ...]) -> dict[str, str]:
    """Inserts the voices that `table` does not have; `judgment_id`: the expression of its key."""
    names = ", ".join(("response_id", "annotator_id", *columns, "value", "low", "high", "rationale", "origin"))
    keyed = f"(SELECT *, {judgment_id} AS judgment_id FROM voices)"
    return {
        table: f"""
        INSERT INTO {table} (judgment_id, {names}, run_id)
        SELECT judgment_id, {names}, $run FROM ({unknown(table, keyed)})
        QUALIFY row_number() OVER (PARTITION BY judgment_id ORDER BY "row") = 1"""
    }


_RATINGS = _new_voices(
    "response_judgments",
    identity.response_judgment_id("response_id", "annotator_id", "aspect", "value", "origin"),
    ("aspect",),
)
_MARKS = _new_voices(
    "step_judgments",
    identity.step_judgment_id("response_id", "annotator_id", "step", "start", '"end"', "label", "value", "origin"),
    ("step", "start", '"end"', "label"),
)


def store_feedback(db: Connection, batch: "pa.Table | pa.RecordBatch", run_id: str | None) -> FeedbackCounts:
    """Write one batch of `feedback_schema()` inside the caller's unit of work. Texts must be valid Unicode."""
    return _store(db, batch, [(_VOICES, _FEEDBACK)], run_id)


def store_principle_judgments(db: Connection, batch: "pa.Table | pa.RecordBatch", run_id: str | None) -> FeedbackCounts:
    """Write one batch of `principle_schema()` inside the caller's unit of work. Texts must be valid Unicode."""
    return _store(db, batch, [(_VOICES, _PRINCIPLES)], run_id)


def store_rated(db: Connection, batch: "pa.Table | pa.RecordBatch", run_id: str | None) -> FeedbackCounts:
    """Write one batch of `rated_schema()` inside the caller's unit of work. Texts must be valid Unicode,
    numbers finite."""
    return _store(db, batch, [(_voices_of("ratings"), _RATINGS), (_voices_of("marks"), _MARKS)], run_id)


def _store(
    db: Connection,
    batch: "pa.Table | pa.RecordBatch",
    said: Sequence[tuple[str, dict[str, str]]],
    run_id: str | None,
) -> FeedbackCounts:
    """`said`: what makes the table `voices`, and the inserts that read it."""
    counts = FeedbackCounts()
    with registered(db, "incoming_statements", batch):
        db.execute(_STAGE)
    _insert(db, _COMMON, counts, run_id)
    for voices, inserts in said:
        db.execute(voices)
        _insert(db, {**_ANNOTATORS, **inserts}, counts, run_id)
    db.execute("DROP TABLE voices; DROP TABLE statements")
    return counts


def _insert(db: Connection, inserts: dict[str, str], counts: FeedbackCounts, run_id: str | None) -> None:
    for table, statement in inserts.items():
        new = changed_rows(db, statement, {"run": run_id} if "$run" in statement else None)
        if hasattr(counts, table):
            setattr(counts, table, new)
