"""From one intermediate form of preference pairs to all tables of the store, in SQL.

Covers: `pair_schema`, the Arrow schema that every reader yields whatever its file format; `store_pairs`, the one
normaliser that hashes, deduplicates and inserts a batch idempotently; `store_rejects`. Leaves out: reading files
(`assay_pipelines.importers`), judgments that come later (`assay.store.records`).

A row of the intermediate form is one pair. Its sides are `first` and `second`, in the order of the source; `label`
and the votes refer to that order and are turned into the canonical A/B here.
"""

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from assay.store import identity
from assay.store.database import Connection, registered
from assay.store.keys import KEYS, keep_known

if TYPE_CHECKING:
    import pyarrow as pa

#: What `label` and a vote's `label` may say, beside null (the source did not judge this pair).
LABELS = frozenset({"first", "second", "tie", "both_good", "both_bad", "skip"})


@cache
def pair_schema() -> "pa.Schema":
    """The intermediate form. Every column but those marked may not be null."""
    import pyarrow as pa

    text, small = pa.string(), pa.int8()
    vote = pa.struct(
        [("kind", text), ("voter", text), ("label", text), ("strength", small), ("rationale", text), ("origin", text)]
    )  # kind: an AnnotatorKind; voter: unique within the source; origin: tells repeated votes apart, null else
    return pa.schema(
        [
            ("row", pa.int64()),  # 1-based
            ("messages", pa.list_(pa.struct([("role", text), ("content", text)]))),
            ("conversation", text),  # nullable: JSON (`ids.forms_json`) of messages that are more than text
            ("first", text),
            ("second", text),
            ("first_turns", text),  # nullable: JSON of a response that is more than text; `first` is its text view
            ("second_turns", text),
            ("label", text),  # nullable; one of LABELS
            ("strength", small),  # nullable; 0-3
            ("rationale", text),  # nullable
            ("votes", pa.list_(vote)),  # nullable
            ("source", text),
            ("record_id", text),
            ("category", text),  # nullable, as all below
            ("license", text),
            ("language", text),
            ("meta", text),  # JSON
            ("annotator", text),  # how the source describes who labelled
        ]
    )


@cache
def reject_schema() -> "pa.Schema":
    """Rows that cannot be taken: 1-based row, field (nullable), reason for a person, raw text (nullable)."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema([("row", pa.int64()), ("field", text), ("reason", text), ("raw", text)])


@dataclass
class NewRows:
    """Rows that were new to the store; those already there are not counted."""

    prompts: int = 0
    responses: int = 0

    def __iadd__(self, other: Self) -> Self:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self


@dataclass
class IntakeCounts(NewRows):
    """Of pairs."""

    comparisons: int = 0
    origins: int = 0
    judgments: int = 0


_SIDES = f"""
    SELECT *, {identity.response_id("prompt_id", '"first"', "first_turns")} AS first_id,
              {identity.response_id("prompt_id", '"second"', "second_turns")} AS second_id
    FROM (SELECT *, {identity.prompt_id("messages", "conversation")} AS prompt_id FROM incoming)"""

_STAGE = f"""
    CREATE OR REPLACE TEMP TABLE intake AS
    SELECT *, {identity.comparison_id("prompt_id", "first_id", "second_id")} AS comparison_id
    FROM ({_SIDES})"""


def _canonical(label: str) -> str:
    """first/second to A/B: the lower response id is A."""
    return (
        f"CASE {label} WHEN 'first' THEN if(first_id < second_id, 'A', 'B') "
        f"WHEN 'second' THEN if(first_id < second_id, 'B', 'A') ELSE {label} END"
    )


# Of each comparison that was voted on: the record of the source that had it first. An annotator's vote in a later
# record is another vote, whose origin is that record, also where it says the same.
_FIRST_RECORDS = """
    CREATE OR REPLACE TEMP TABLE first_records AS
    WITH voted AS (SELECT DISTINCT comparison_id, source FROM intake WHERE votes IS NOT NULL)
    SELECT comparison_id, source, arg_min(record_id, place) AS first_record
    FROM (SELECT comparison_id, source, record_id, rowid AS place FROM origins SEMI JOIN voted USING (comparison_id,
    source)
          UNION ALL
          SELECT comparison_id, source, record_id, 8000000000000000000 + "row" FROM intake WHERE votes IS NOT NULL)
    GROUP BY comparison_id, source"""

# The source's own label and the votes of its annotators, one row each, in the order of the file.
_VOICES = f"""
    CREATE OR REPLACE TEMP TABLE voices AS
    WITH said AS (
        SELECT "row", comparison_id, 'source' AS kind, source AS name, {_canonical("label")} AS answer,
               strength, rationale, annotator, '' AS origin
        FROM intake WHERE label IS NOT NULL
        UNION ALL
        SELECT "row", comparison_id, vote.kind, source || '/' || vote.voter, {_canonical("vote.label")},
               vote.strength, vote.rationale, NULL, concat_ws('/', occasion, nullif(vote.origin, ''))
        FROM (SELECT "row", comparison_id, source, first_id, second_id, unnest(votes) AS vote,
                     if(record_id = first_record, NULL, record_id) AS occasion
              FROM intake JOIN first_records USING (comparison_id, source) WHERE votes IS NOT NULL)
    )
    SELECT *, {identity.judgment_id("comparison_id", "annotator_id", "answer", "strength", "origin")} AS judgment_id
    FROM (SELECT *, {identity.annotator_id("kind", "name")} AS annotator_id FROM said)"""

# The narrow tables that decide what is new: each key of the batch once, and where in `intake` it stands. Within a batch
# the first row of the file wins, as between batches: one content, one outcome, however it is cut.
_CANDIDATES: dict[str, str] = {
    "prompts": "SELECT prompt_id, min(rowid) AS place FROM intake GROUP BY prompt_id",
    "responses": """
        SELECT response_id, min(place) AS place, any_value(prompt_id) AS prompt_id
        FROM (SELECT first_id AS response_id, 2 * rowid AS place, prompt_id FROM intake
              UNION ALL SELECT second_id, 2 * rowid + 1, prompt_id FROM intake)
        GROUP BY response_id""",
    "comparisons": """
        SELECT comparison_id, min(rowid) AS place, any_value(prompt_id) AS prompt_id FROM intake
        GROUP BY comparison_id""",
    "origins": """
        SELECT comparison_id, source, record_id, arg_min(rowid, "row") AS place FROM intake
        GROUP BY comparison_id, source, record_id""",
    "judgments": """
        SELECT judgment_id, arg_min(rowid, "row") AS place, any_value(comparison_id) AS comparison_id FROM voices
        GROUP BY judgment_id""",
}

# Nothing is stored before what it refers to: what refers to a new prompt (or comparison) is new itself, so that only
# the rest is looked for, and a file of new prompts costs one look at the store a batch, whatever the store holds.
_REFERS_TO: dict[str, str] = {
    "responses": "prompts",
    "comparisons": "prompts",
    "origins": "comparisons",
    "judgments": "comparisons",
}

_INSERTS: dict[str, str] = {
    "prompts": """
        INSERT INTO prompts (prompt_id, messages, conversation, run_id)
        SELECT prompt_id, messages, conversation, $run FROM intake WHERE rowid IN (SELECT place FROM fresh)""",
    "responses": """
        INSERT INTO responses (response_id, prompt_id, content, turns, run_id)
        SELECT first_id, prompt_id, "first", first_turns, $run FROM intake WHERE 2 * rowid IN (SELECT place FROM fresh)
        UNION ALL
        SELECT second_id, prompt_id, "second", second_turns, $run FROM intake
        WHERE 2 * rowid + 1 IN (SELECT place FROM fresh)""",
    "comparisons": """
        INSERT INTO comparisons (comparison_id, prompt_id, response_a, response_b, run_id)
        SELECT comparison_id, prompt_id, least(first_id, second_id), greatest(first_id, second_id), $run FROM intake
        WHERE rowid IN (SELECT place FROM fresh)""",
    "origins": """
        INSERT INTO origins (comparison_id, source, record_id, category, license, language, meta, run_id)
        SELECT comparison_id, source, record_id, category, license, language, meta, $run FROM intake
        WHERE rowid IN (SELECT place FROM fresh)""",
    "judgments": """
        INSERT INTO judgments (judgment_id, comparison_id, annotator_id, answer, strength, rationale, origin, run_id)
        SELECT judgment_id, comparison_id, annotator_id, answer, strength, rationale, origin, $run FROM voices
        WHERE rowid IN (SELECT place FROM fresh)""",
}

_ANNOTATORS = """
    INSERT INTO annotators (annotator_id, kind, name, config)
    SELECT annotator_id, any_value(kind), any_value(name),
           CASE WHEN count(annotator) > 0 THEN json_object('described_as', arg_min(annotator, "row")) END
    FROM voices GROUP BY annotator_id
    ON CONFLICT DO NOTHING"""


def store_pairs(db: Connection, batch: "pa.Table | pa.RecordBatch", run_id: str | None) -> IntakeCounts:
    """Write one batch of `pair_schema()` into every table it touches, inside the caller's unit of work.

    The same batch a second time writes nothing. Texts must be valid Unicode; the two sides must differ.
    """
    with registered(db, "incoming", batch):
        db.execute(_STAGE)
    db.execute(_FIRST_RECORDS)
    db.execute(_VOICES)
    db.execute(_ANNOTATORS)
    existing: dict[str, int] = {}
    for table, candidates in _CANDIDATES.items():
        db.execute(f"CREATE OR REPLACE TEMP TABLE candidates_{table} AS {candidates}")
        existing[table] = _known_rows(db, table, existing)
    counts: dict[str, int] = {}
    for table, statement in _INSERTS.items():
        keys = ", ".join(KEYS[table])
        old = f"ANTI JOIN known_{table} USING ({keys})" if existing[table] else ""
        db.execute(f"CREATE OR REPLACE TEMP VIEW fresh AS SELECT place FROM candidates_{table} {old}")
        counts[table] = changed_rows(db, statement, {"run": run_id})
    db.execute("DROP VIEW fresh; DROP TABLE voices; DROP TABLE first_records; DROP TABLE intake")
    for table in _CANDIDATES:
        db.execute(f"DROP TABLE candidates_{table}; DROP TABLE IF EXISTS known_{table}")
    return IntakeCounts(**counts)


def _known_rows(db: Connection, table: str, existing: dict[str, int]) -> int:
    """How many of the batch's keys the table has already; they are in `known_TABLE` where there are any."""
    candidates = f"candidates_{table}"
    if (target := _REFERS_TO.get(table)) is not None:
        if not existing[target]:
            return 0
        key = KEYS[target][0]
        candidates = f"(SELECT * FROM {candidates} SEMI JOIN known_{target} USING ({key}))"
    return keep_known(db, table, candidates)


def store_rejects(db: Connection, rejects: "pa.Table | pa.RecordBatch", *, file: str, run_id: str) -> int:
    """Record rows of `reject_schema()`; one that an earlier run recorded alike is not repeated."""
    with registered(db, "incoming_rejects", rejects):
        return changed_rows(
            db,
            """INSERT INTO rejects (run_id, file, "row", field, reason, raw)
               SELECT DISTINCT $run, $file, i."row", i.field, i.reason, i.raw FROM incoming_rejects i
               WHERE NOT EXISTS (
                   SELECT 1 FROM rejects r WHERE r.file = $file AND r."row" = i."row" AND r.reason = i.reason
                   AND r.field IS NOT DISTINCT FROM i.field AND r.raw IS NOT DISTINCT FROM i.raw)""",
            {"run": run_id, "file": file},
        )


def changed_rows(db: Connection, statement: str, parameters: dict[str, Any] | None) -> int:
    row = db.execute(statement, parameters).fetchone()
    return int(row[0]) if row else 0
