"""verl's RL rows: one for each prompt, with the pairs about it in `extra_info.comparisons`.

Typed conversations are messages in OpenAI's form, and all sides are lists of messages then; images are `<image>` in a
text and paths in `images`; tools are named in `extra_info.tool_selection` (verl's rollouts take them from the run's
tool configuration) and defined in `tools`, which verl's fine-tuning reads: objects in JSON Lines, JSON text in Parquet.

`reward_model.style` is "model"; `ground_truth` is the chosen response of the first pair, as in verl's own example, and
unused. DuckDB sorts the pairs by prompt, which spills to disk; runs of equal prompts are cut out of the stream, since a
list that DuckDB gathers would have to fit in memory.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_pipelines.exporters.job import PAIRS, ExportFormat, ExportJob, Written
from assay_pipelines.exporters.message_forms import EVERYTHING, MessageForm

BATCH_PAIRS = 10_000
ABILITY = "alignment"  #: where a prompt has no category
_SORTED = """
    SELECT prompt_id, prompt, comparison_id, {sides}, margin, pool, source, category, tools, images
    FROM {pairs} ORDER BY prompt_id, comparison_id"""
_COMPARISON = ("comparison_id", "chosen", "rejected", "margin", "pool", "source", "category")


def write_verl(job: ExportJob) -> Written:
    typed = job.forms.typed
    query = _SORTED.format(
        sides="chosen_turns AS chosen, rejected_turns AS rejected" if typed else "chosen, rejected", pairs=PAIRS
    )
    tables = _whole_prompts(job.db.sql(query).to_arrow_reader(BATCH_PAIRS))
    written = compared = 0
    with ExitStack() as stack:
        writer: Any = None
        for pairs in tables:
            rows = prompt_rows(pairs, first_index=written, typed=typed)
            if writer is None and job.ending == ".parquet":
                writer = stack.enter_context(pq.ParquetWriter(job.target, rows.schema, compression="zstd"))
            elif writer is None:
                writer = stack.enter_context(job.target.open("w", encoding="utf-8"))
            if job.ending == ".parquet":
                writer.write_table(rows)
            else:
                for row in rows.to_pylist():
                    writer.write(json.dumps(_objects(row) if typed else row, ensure_ascii=False) + "\n")
            written += rows.num_rows
            compared += pairs.num_rows
    return Written(written, (f"{compared} pairs in extra_info.comparisons",))


def _objects(row: dict[str, Any]) -> dict[str, Any]:
    """A typed row with objects in place of JSON texts."""
    row["prompt"] = [json.loads(message) for message in row["prompt"]]
    for comparison in row["extra_info"]["comparisons"]:
        for side in ("chosen", "rejected"):
            comparison[side] = [json.loads(message) for message in comparison[side]]
    return row | {"tools": json.loads(row["tools"] or "[]")}


def prompt_rows(pairs: pa.Table, *, first_index: int, typed: bool) -> pa.Table:
    """The rows of verl from pairs sorted by prompt, all pairs of each prompt among them. `typed`: with tools and
    images."""
    starts = _starts(pairs)
    first = pairs.take(pa.array(starts))
    comparisons = pa.ListArray.from_arrays(
        pa.array([*starts, pairs.num_rows], pa.int32()),
        pa.StructArray.from_arrays(
            [pairs.column(name).combine_chunks() for name in _COMPARISON], names=list(_COMPARISON)
        ),
    )
    count = len(starts)
    chosen = pa.nulls(count) if typed else first.column("chosen").combine_chunks()
    tools = first.column("tools").to_pylist()
    selection = [[tool["function"]["name"] for tool in json.loads(each or "[]")] for each in tools] if typed else []
    reward_model = pa.StructArray.from_arrays([pa.array(["model"] * count), chosen], names=["style", "ground_truth"])
    extra_info = pa.StructArray.from_arrays(
        [
            pa.array(["train"] * count),
            pa.array(np.arange(first_index, first_index + count)),
            first.column("prompt_id").combine_chunks(),
            comparisons,
            *([pa.array(selection, pa.list_(pa.string()))] if typed else []),
        ],
        names=["split", "index", "prompt_id", "comparisons", *(["tool_selection"] if typed else [])],
    )
    ability = first.column("category").combine_chunks().fill_null(ABILITY)
    rows = pa.table(
        [first.column("source"), first.column("prompt"), ability, reward_model, extra_info],
        names=["data_source", "prompt", "ability", "reward_model", "extra_info"],
    )
    if not typed:
        return rows
    no_image = pa.array([[]], pa.list_(pa.string()))[0]
    images = first.column("images").cast(pa.list_(pa.string())).combine_chunks().fill_null(no_image)
    return rows.append_column("tools", first.column("tools")).append_column("images", images)


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


VERL = ExportFormat((".parquet", ".jsonl"), write_verl, unit="prompts", form=MessageForm(EVERYTHING, marks=True))
