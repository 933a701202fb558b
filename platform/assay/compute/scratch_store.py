"""A scratch DuckDB file of one command, for joins, groups and sorts that exceed memory; removed at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.store.database import Connection, registered
from assay.workspace import Workspace

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MEMORY = "1GB"
FOLDER = "scratch"


@dataclass(frozen=True)
class Scratch:
    """`db`: an open connection. `folder`: for other files of this command."""

    db: Connection
    folder: Path

    def append(self, table: str, rows: pa.Table) -> None:
        """Add rows to `table`, which the first call creates."""
        with registered(self.db, "incoming_rows", rows):
            self.db.execute(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM incoming_rows LIMIT 0")
            self.db.execute(f"INSERT INTO {table} SELECT * FROM incoming_rows")

    def copy(self, workspace: Workspace, table: str, query: str, **values: Any) -> None:
        """Create `table` from a query on the store, in one unit of work: for ids, not for texts."""
        with workspace.store.unit() as store:
            self.fill(table, store.sql(query, params=values or None))

    def fill(self, table: str, rows: duckdb.DuckDBPyRelation) -> None:
        """Create `table` from a relation of another connection, batch by batch."""
        with registered(self.db, "copied_rows", rows.to_arrow_reader(100_000)):
            self.db.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM copied_rows")

    def item_pages(self, table: str, columns: str, items: int, *, page: int, only: str = "") -> Iterator[pa.Table]:
        """Rows of a table whose `item` counts from 0 to `items` - 1, up to `page` at a time, in that order.

        `columns`: `item` first. `only`: an SQL condition. Each page reads one range of the table.
        """
        step = page
        if only:
            matching = self.number(f"SELECT count(*) FROM {table} WHERE {only}")
            step = max(page, page * items // max(matching, 1))
        low = 0
        while low < items:
            rows = self.db.sql(
                f"""SELECT {columns} FROM {table} WHERE item BETWEEN {low} AND {low + step - 1}
                    {f"AND ({only})" if only else ""} ORDER BY item LIMIT {page}"""
            ).to_arrow_table()
            if rows.num_rows:
                yield rows
            low = rows.column(0)[-1].as_py() + 1 if rows.num_rows == page else low + step

    def has(self, table: str) -> bool:
        return bool(self.db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall())

    def number(self, query: str) -> int:
        """The one integer that `query` gives."""
        return int(self.db.execute(query).fetchall()[0][0])


@contextmanager
def scratch(workspace: Workspace, *, memory: str = MEMORY) -> Iterator[Scratch]:
    """A new, empty scratch file, removed at the end of the block."""
    import duckdb

    parent = workspace.root / FOLDER
    parent.mkdir(exist_ok=True)
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    try:
        db = duckdb.connect(
            str(folder / "scratch.duckdb"),
            config={
                "memory_limit": memory,
                "temp_directory": str(folder / "temp"),
                "autoinstall_known_extensions": "false",
                "preserve_insertion_order": "false",
                "TimeZone": "UTC",
            },
        )
        try:
            yield Scratch(db, folder)
        finally:
            db.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of killed processes; a folder's name begins with the process id."""
    for folder in parent.iterdir():
        pid = folder.name.partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def row_pages(workspace: Workspace, table: str, query: str, *, page: int, **values: Any) -> Iterator[pa.Table]:
    """The present rows of a table, `page` rows at a time, each page in a separate unit of work.

    `query` selects from `table`; its condition has `rowid BETWEEN $low AND $high`. Rows are only ever added to the
    store's tables, so the positions stay.
    """
    with workspace.store.unit() as db:
        row = db.execute(f"SELECT coalesce(max(rowid), -1) FROM {table}").fetchone()
    last = int(row[0]) if row else -1
    for low in range(0, last + 1, page):
        with workspace.store.unit() as db:
            rows = db.sql(query, params={**values, "low": low, "high": min(low + page - 1, last)}).to_arrow_table()
        yield rows
