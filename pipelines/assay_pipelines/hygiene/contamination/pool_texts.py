"""The texts of the store that are checked: every turn of every prompt, every response, in pages of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from assay.compute.scratch_store import row_pages
from assay.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from assay_pipelines.hygiene.tokens import Offsets

Table = Literal["prompts", "responses"]
PAGE = 50_000  #: rows of one unit of work at most
PAGE_BYTES = 16_000_000  #: of text, by the sample's mean
SAMPLE_RANGES, SAMPLE_ROWS = 10, 2_000  #: of each table
_COLUMNS = {
    "prompts": "prompt_id, run_id, messages",
    "responses": "prompt_id, run_id, response_id, content",
}


@dataclass(frozen=True)
class TextPage:
    """`texts[i]` is turn `turn[i]` (from 1; 0: the response) of row `row[i]` of the page. `response_ids`: of the rows;
    None of prompts. `imports`: rows by the run that imported them, '' for none."""

    texts: pa.Array
    row: Offsets
    turn: Offsets
    roles: pa.Array | None
    prompt_ids: pa.Array
    response_ids: pa.Array | None
    imports: Counter[str]

    @property
    def rows(self) -> int:
        return len(self.prompt_ids)


def text_rows(workspace: Workspace, table: Table, *, page: int) -> Iterator[pa.Table]:
    """Shards of the table's rows, as `text_page` reads them."""
    query = f"SELECT {_COLUMNS[table]} FROM {table} WHERE rowid BETWEEN $low AND $high"
    return row_pages(workspace, table, query, page=page)


def fingerprint(workspace: Workspace, tables: Sequence[Table]) -> list[str]:
    """Of the rows of each table; comparable within one version of DuckDB."""
    with workspace.store.unit() as db:
        return [
            str(db.execute(f"SELECT (count(*), bit_xor(hash({table[:-1]}_id)), max(rowid)) FROM {table}").fetchall())
            for table in tables
        ]


def sample_pages(workspace: Workspace, table: Table) -> Iterator[TextPage]:
    """Ranges of rows, spread over the table."""
    with workspace.store.unit() as db:
        row = db.execute(f"SELECT coalesce(max(rowid), -1) + 1 FROM {table}").fetchone()
    rows = int(row[0]) if row else 0
    ranges = min(SAMPLE_RANGES, -(-rows // SAMPLE_ROWS))
    few = max(1, min(SAMPLE_ROWS, rows // max(ranges, 1)))
    for number in range(ranges):
        low = number * rows // ranges
        with workspace.store.unit() as db:
            sampled = db.sql(
                f"SELECT {_COLUMNS[table]} FROM {table} WHERE rowid BETWEEN {low} AND {low + few - 1}"
            ).to_arrow_table()
        yield text_page(sampled)


def page_rows(sample: list[TextPage], *, most: int = PAGE) -> int:
    """Rows of a page, so that its texts have about PAGE_BYTES where rows are as long as the sample's longest range."""
    mean = max((page.texts.nbytes / max(page.rows, 1) for page in sample), default=0)
    return max(1, min(most, int(PAGE_BYTES / max(mean, 1))))


def text_page(rows: pa.Table) -> TextPage:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = rows.column("run_id").value_counts().to_pylist()
    imports = Counter({count["values"] or "": count["counts"] for count in counts})
    prompt_ids = rows.column("prompt_id").combine_chunks()
    if "messages" not in rows.column_names:
        number = np.arange(rows.num_rows)
        texts = rows.column("content").combine_chunks()
        ids = rows.column("response_id").combine_chunks()
        return TextPage(texts, number, np.zeros(len(number), np.int64), None, prompt_ids, ids, imports)
    messages = rows.column("messages").combine_chunks()
    turns: Any = pc.list_flatten(messages)
    owner = pc.list_parent_indices(messages).to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = pc.list_value_length(messages).to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    fields = [turns.field(name) if isinstance(turns, pa.StructArray) else pc.struct_field(turns, name)
              for name in ("content", "role")]  # fmt: skip
    return TextPage(fields[0], owner, np.arange(len(owner)) - first[owner] + 1, fields[1], prompt_ids, None, imports)
