"""An export job: the open store with the selected comparisons in the temporary table `items`, the target, COPY, and
pseudonyms of people, one per person within an export, another in the next export.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.data.snapshots import Selection, Snapshot
from assay.errors import BadInputError
from assay.store.database import Connection
from assay_pipelines.exporters.conversations import ConversationForms
from assay_pipelines.exporters.message_forms import TEXTS, ImageCopies, MessageForm

#: Kinds of annotators that are people, or simulate them.
PEOPLE = ("human", "simulated")


@dataclass(frozen=True)
class Pseudonyms:
    """A salted hash, in SQL; the salt is never written, so that trying names cannot trace a pseudonym back."""

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


LINES = (".jsonl", ".jsonl.gz", ".parquet")
#: How COPY writes each ending.
ENDINGS = {
    ".jsonl": "FORMAT json",
    ".jsonl.gz": "FORMAT json, COMPRESSION gzip",
    ".parquet": "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 20000",
    ".json": "FORMAT json, ARRAY true",
}

#: One row for each comparison that the format has a place for: its texts, its label (`exporters.conversations`).
RESOLVED = "(SELECT * FROM resolved WHERE barred IS NULL)"

#: Judgments in force. Excludes the samples that a judge's answer was merged from, and judges that replay recorded
#: votes, whose annotators would be exported twice.
JUDGMENTS = """(SELECT * FROM standing_judgments WHERE NOT starts_with(origin, 'vote/') AND annotator_id NOT IN (
    SELECT annotator_id FROM annotators WHERE json_extract(config, '$.recorded') IS NOT NULL))"""

#: Those with a chosen side.
PAIRS = f"(SELECT * FROM {RESOLVED} WHERE label IN ('A', 'B'))"
CHOSEN, REJECTED = "chosen_turns", "rejected_turns"  #: as lists of messages


@dataclass(frozen=True)
class SelectionCounts:
    """Of the selected comparisons. `margins`: pairs with a margin."""

    matched: int
    pairs: int
    ties: int
    margins: int


@dataclass(frozen=True)
class Written:
    """`rows` of the file (of a folder: its pairs), in the format's own unit; `notes` for a person."""

    rows: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportJob:
    """`target`: the temporary file or folder to write. `snapshot` None: `selection` holds what was selected."""

    db: Connection
    target: Path
    ending: str
    counts: SelectionCounts
    snapshot: Snapshot | None
    selection: Selection | None
    rationales: bool
    pseudonyms: Pseudonyms
    run_id: str | None
    title: str
    forms: ConversationForms
    copies: ImageCopies

    def copy(
        self, query: str, target: Path | None = None, ending: str | None = None, values: dict[str, Any] | None = None
    ) -> int:
        """Write the rows of `query`, streamed by DuckDB; returns how many."""
        name = str(target or self.target).replace("'", "''")
        statement = f"COPY ({query}) TO '{name}' ({ENDINGS[ending or self.ending]})"
        return int(self.db.execute(statement, values).fetchall()[0][0])


@dataclass(frozen=True)
class ExportFormat:
    """A format of the registry `exporter`. `endings` of the file; none: a folder. `unit`: what a row is. `needs`: what
    the selection must have at least one of; "responses": it writes single ones, also those in no comparison. `form`:
    what its messages hold. `complete`: what is left to do once the file is in its
    place.
    """

    endings: tuple[str, ...]
    write: Callable[[ExportJob], Written]
    unit: str = "pairs"
    needs: Literal["pairs", "labels", "comparisons", "responses"] = "pairs"
    form: MessageForm = TEXTS
    complete: Callable[[Path, ExportJob], None] | None = None


def select_items(db: Connection, snapshot: Snapshot | None, selection: Selection | None) -> SelectionCounts:
    """Fill the temporary table `items` (comparison_id, label, margin, pool)."""
    values: dict[str, Any]
    if snapshot is not None:
        items = "SELECT comparison_id, label, margin, pool FROM snapshot_items WHERE snapshot_id = $snapshot"
        values = {"snapshot": snapshot.id}
    else:
        assert selection is not None
        if selection.slice is not None:
            raise BadInputError("make a snapshot of the slice, and export that")
        condition, values = selection.where()
        items = f"SELECT comparison_id, label, margin, pool FROM pools p WHERE {condition}"
    db.execute(f"CREATE OR REPLACE TEMP TABLE items AS {items}", values)
    (counts,) = db.execute(
        """SELECT count(*), count(*) FILTER (label IN ('A', 'B')), count(*) FILTER (label = 'tie'),
                  count(margin) FILTER (label IN ('A', 'B')) FROM items"""
    ).fetchall()
    return SelectionCounts(*counts)


def select_responses(db: Connection, selection: Selection | None) -> None:
    """Fill the temporary table `scope` (response_id, prompt_id) by the responses of `items`, and those in no comparison
    that come from the selection's sources and categories where it names no pools."""
    sides = "SELECT unnest([response_a, response_b]) AS response_id FROM comparisons"
    scope = f"{sides} SEMI JOIN items USING (comparison_id)"
    values: dict[str, Any] = {}
    if selection is not None and selection.pools == Selection().pools:
        scope += f" UNION ALL SELECT response_id FROM response_origins WHERE response_id NOT IN ({sides})"
        for column, selected in (("source", selection.sources), ("category", selection.categories)):
            if selected:
                scope += f" AND list_contains(${column}, {column})"
                values[column] = list(selected)
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE scope AS
            SELECT response_id, prompt_id FROM responses SEMI JOIN ({scope}) USING (response_id)""",
        values or None,
    )
