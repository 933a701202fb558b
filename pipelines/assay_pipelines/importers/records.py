"""Pairs that a program hands over, into the store: an import without a file.

A record has the columns of TRL's forms (`formats.trl`): `prompt`, and `response_a` and `response_b` or `chosen` and
`rejected`; `label`, where it is known; its `metadata` is kept with where it is from. Images come as data URLs. What
cannot be taken is a reject, as in an import; the same records again add nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from assay.conversation.message import stored_prompt, stored_response
from assay.data.json_lines import RowError
from assay.domain import Comparison
from assay.runs.record import start_run
from assay.store.intake import store_pairs, store_rejects
from assay.store.media import insert_media
from assay.workspace import Workspace
from assay_pipelines.importers.formats.trl import parse_pair
from assay_pipelines.importers.images import RowImages
from assay_pipelines.importers.rows import BatchBuilder, PairRow

METADATA = "metadata"


@dataclass(frozen=True)
class RejectedRecord:
    """`index`: 0-based among the records. `field`: None where it is the whole."""

    index: int
    field: str | None
    reason: str


@dataclass(frozen=True)
class RecordsReport:
    """`comparison_ids`: by the records' order, None for a rejected one. `new`: comparisons that the store had not."""

    run_id: str
    comparison_ids: tuple[str | None, ...]
    new: int
    rejected: tuple[RejectedRecord, ...]


def store_records(workspace: Workspace, records: Sequence[Mapping[str, Any]], source: str, by: str) -> RecordsReport:
    """`source`: the name under which the store has them. One unit of work; raises BusyError, and nothing is stored."""
    builder = BatchBuilder(source, "records", RowImages(workspace.media, None))
    rejected: list[RejectedRecord] = []
    for row, record in enumerate(records, 1):
        try:
            builder.add(row, _pair(record))
        except RowError as error:
            rejected.append(RejectedRecord(row - 1, error.field, error.reason))
            builder.reject(row, error, json.dumps(record, ensure_ascii=False))
        builder.row_done()
    batch = builder.take()
    ids: list[str | None] = [None] * len(records)
    for pair in batch.pairs.select(
        ["row", "messages", "conversation", "first", "first_turns", "second", "second_turns"]
    ).to_pylist():
        prompt = stored_prompt(pair["messages"], pair["conversation"])
        sides = [stored_response(pair[side], pair[f"{side}_turns"]) for side in ("first", "second")]
        ids[pair["row"] - 1] = Comparison.of(prompt, *sides)[0].id
    with start_run(workspace, "records", {"source": source, "person": by}) as run:
        new = 0
        with workspace.store.unit() as db:
            insert_media(db, batch.media, run.id)
            if batch.pairs.num_rows:
                new = store_pairs(db, batch.pairs, run.id).comparisons
            if batch.rejects.num_rows:
                store_rejects(db, batch.rejects, file=f"records of {source}", run_id=run.id)
        report = RecordsReport(run.id, tuple(ids), new, tuple(rejected))
        run.metrics.update(pairs=batch.pairs.num_rows, new=new, rejected=[asdict(reject) for reject in rejected])
    return report


def _pair(record: Mapping[str, Any]) -> PairRow:
    """Raises RowError. A record without an id gets one of its content, so that it is the same record next time."""
    stated = {name: value for name, value in record.items() if value is not None and name != METADATA}
    for entry in parse_pair(stated):
        if isinstance(entry, RowError):
            raise entry
        if isinstance(entry, PairRow):
            canonical = json.dumps(stated, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
            entry.record_id = entry.record_id or sha256(canonical).hexdigest()[:16]
            entry.meta = {**entry.meta, **(record.get(METADATA) or {})}
            return entry
    raise RowError("no pair")
