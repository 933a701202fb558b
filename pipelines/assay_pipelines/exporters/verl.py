"""verl's RL rows (Parquet): one for each prompt, with the pairs about it in `extra_info.comparisons`.

`reward_model.style` is "model"; `ground_truth` is the chosen response of the first pair, as in verl's own example, and
unused. DuckDB sorts the pairs by prompt, which spills to disk; runs of equal prompts are cut out of the stream, since a
list that DuckDB gathers would have to fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_pipelines.exporters.job import PAIRS, ExportFormat, ExportJob, Written

BATCH_PAIRS = 10_000
ABILITY = "alignment"  #: where a prompt has no category
_SORTED = f"""
    SELECT prompt_id, prompt, comparison_id, chosen, rejected, margin, pool, source, category
    FROM {PAIRS} ORDER BY prompt_id, comparison_id"""
_COMPARISON = ("comparison_id", "chosen", "rejected", "margin", "pool", "source", "category")


def write_verl(job: ExportJob) -> Written:
    written = 0
    writer: Any = None
    try:
        for pairs in _whole_prompts(job.db.sql(_SORTED).to_arrow_reader(BATCH_PAIRS)):
            rows = prompt_rows(pairs, first_index=written)
            writer = writer or pq.ParquetWriter(job.target, rows.schema, compression="zstd")
            writer.write_table(rows)
            written += rows.num_rows
    finally:
        if writer is not None:
            writer.close()
    return Written(written, (f"{job.counts.pairs} pairs in extra_info.comparisons",))


def prompt_rows(pairs: pa.Table, *, first_index: int) -> pa.Table:
    """The rows of verl from pairs sorted by prompt, all pairs of each prompt among them."""
    starts = _starts(pairs)
    first = pairs.take(pa.array(starts))
    comparisons = pa.ListArray.from_arrays(
        pa.array([*starts, pairs.num_rows], pa.int32()),
        pa.StructArray.from_arrays(
            [pairs.column(name).combine_chunks() for name in _COMPARISON], names=list(_COMPARISON)
        ),
    )
    count = len(starts)
    chosen = first.column("chosen").combine_chunks()
    reward_model = pa.StructArray.from_arrays([pa.array(["model"] * count), chosen], names=["style", "ground_truth"])
    extra_info = pa.StructArray.from_arrays(
        [
            pa.array(["train"] * count),
            pa.array(np.arange(first_index, first_index + count)),
            first.column("prompt_id").combine_chunks(),
            comparisons,
        ],
        names=["split", "index", "prompt_id", "comparisons"],
    )
    ability = first.column("category").combine_chunks().fill_null(ABILITY)
    return pa.table(
        [first.column("source"), first.column("prompt"), ability, reward_model, extra_info],
        names=["data_source", "prompt", "ability", "reward_model", "extra_info"],
    )


def _whole_prompts(batches: Any) -> Iterator[pa.Table]:
    """The stream in tables that cut no prompt in two."""
    held: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        held = table if held is None else pa.concat_tables([held, table])
        if last := _starts(held)[-1]:
            yield held.slice(0, last)
            held = held.slice(last)
    if held is not None and held.num_rows:
        yield held


def _starts(pairs: pa.Table) -> list[int]:
    """Where each prompt begins. At least one pair."""
    ids = pairs.column("prompt_id").combine_chunks()
    changed = np.asarray(pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False), dtype=bool)
    return [0, *(np.flatnonzero(changed) + 1).tolist()]


VERL = ExportFormat((".parquet",), write_verl, unit="prompts")
