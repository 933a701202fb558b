"""The texts of comparisons (prompt, response A, response B) or prompts, as shards in the order of the store.

Leaves out: their shingles (`jobs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from assay.browsing.pair_pages import PairPages, pair_pages
from assay.compute.scratch_store import Scratch
from assay.store.database import registered
from assay.workspace import Workspace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Over = Literal["pair", "prompt"]
PAGE = 25_000  #: items of a shard
_POOLS = "CASE pool WHEN 'gold' THEN 0 WHEN 'silver' THEN 1 ELSE 2 END"


@dataclass(frozen=True)
class Documents:
    """`items` documents numbered from 0; `parts` texts each. `table` of the scratch file has (item, id, pool_rank)."""

    workspace: Workspace
    scratch: Scratch
    over: Over
    items: int
    table: str
    pairs: PairPages | None

    @property
    def parts(self) -> int:
        return 3 if self.over == "pair" else 1

    def shards(self, *, only: str = "") -> Iterator[pa.Table]:
        """(item, texts: of its parts), items ascending. `only`: SQL condition over `item`."""
        import numpy as np
        import pyarrow as pa

        for items, texts in self._pages(only):
            ends = pa.array(np.arange(0, len(texts) + 1, self.parts))
            yield pa.table({"item": items, "texts": pa.LargeListArray.from_arrays(ends, texts)})

    @property
    def fingerprint(self) -> str:
        """Of the ids and their numbers."""
        query = f"SELECT count(*) || '-' || coalesce(bit_xor(md5_number(id || ' ' || item)), 0) FROM {self.table}"
        return str(self.scratch.db.execute(query).fetchall()[0][0])

    def preference(self) -> npt.NDArray[np.int64]:
        """Item numbers, first the one to keep: gold, silver, others; then in the order of the store."""
        table = self.scratch.db.sql(f"SELECT item FROM {self.table} ORDER BY pool_rank, item").to_arrow_table()
        order: npt.NDArray[np.int64] = table.column("item").to_numpy()
        return order

    def gold(self) -> npt.NDArray[np.bool_]:
        table = self.scratch.db.sql(f"SELECT pool_rank = 0 AS gold FROM {self.table} ORDER BY item").to_arrow_table()
        gold: npt.NDArray[np.bool_] = table.column("gold").to_numpy()
        return gold

    def ids(self, items: npt.NDArray[np.int64]) -> pa.Array:
        """The ids of these items, in the given order."""
        import pyarrow as pa

        requested = pa.table({"item": items, "place": range(len(items))})
        with registered(self.scratch.db, "wanted_items", requested):
            query = f"SELECT id FROM wanted_items JOIN {self.table} USING (item) ORDER BY wanted_items.place"
            return self.scratch.db.sql(query).to_arrow_table().column("id").combine_chunks()

    def _pages(self, only: str) -> Iterator[tuple[npt.NDArray[np.int64], pa.Array]]:
        import numpy as np
        import pyarrow as pa

        if self.pairs is None:
            for table in self._prompt_pages(only):
                yield table.column("item").to_numpy(), prompt_text(table.column("messages").combine_chunks())
            return
        for table in self.pairs.pages(page=PAGE, only=only):
            sides = [table.column(name).combine_chunks().cast(pa.large_string()) for name in ("a", "b")]
            prompt = prompt_text(table.column("messages").combine_chunks()).cast(pa.large_string())
            items = table.column("item").to_numpy()
            order = np.argsort(items)
            places = (order[:, None] + len(items) * np.arange(3)).ravel()
            yield items[order], pa.concat_arrays([prompt, *sides]).take(pa.array(places))

    def _prompt_pages(self, only: str) -> Iterator[pa.Table]:
        for page in self.scratch.item_pages(self.table, "item, id, place", self.items, page=PAGE, only=only):
            places = page.column("place").to_numpy()
            with self.workspace.store.unit() as db, registered(db, "wanted", page):
                yield db.sql(
                    """SELECT w.item, p.messages FROM wanted w JOIN prompts p ON p.prompt_id = w.id
                       WHERE p.rowid BETWEEN $low AND $high ORDER BY w.item""",
                    params={"low": int(places.min()), "high": int(places.max())},
                ).to_arrow_table()


def documents(workspace: Workspace, scratch: Scratch, over: Over) -> Documents:
    """All comparisons that are not discarded, or their prompts. A prompt is gold if a comparison of it is."""
    pairs = pair_pages(workspace, scratch)
    table = f"{over}_documents"
    if over == "pair":
        statement = f"SELECT item, comparison_id AS id, {_POOLS} AS pool_rank FROM pair_places"
    else:
        statement = f"""SELECT row_number() OVER (ORDER BY min(prompt_row)) - 1 AS item, prompt_id AS id,
                               min(prompt_row) AS place, min({_POOLS}) AS pool_rank
                        FROM pair_places GROUP BY prompt_id"""
    scratch.db.execute(f"CREATE OR REPLACE TABLE {table} AS {statement} ORDER BY item")
    items = scratch.number(f"SELECT count(*) FROM {table}")
    return Documents(workspace, scratch, over, items, table, pairs if over == "pair" else None)


def prompt_text(messages: pa.Array) -> pa.Array:
    """The contents of each prompt's turns, one a line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    contents = pc.struct_field(messages.flatten(), "content")
    lengths = pc.fill_null(pc.list_value_length(messages), 0).to_numpy()
    import numpy as np

    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), contents), "\n")
