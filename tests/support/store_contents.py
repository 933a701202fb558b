"""All rows of a store, to compare two states of it."""

from __future__ import annotations

from typing import Any

from assay.store.schema import OWN_TABLES
from assay.workspace import Workspace


def store_contents(workspace: Workspace) -> dict[str, list[tuple[Any, ...]]]:
    """Table -> its rows as text, sorted; but those about the file itself."""
    with workspace.store.unit() as db:
        names = [
            name
            for (name,) in db.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = 'store' AND NOT temporary ORDER BY 1"
            ).fetchall()
        ]
        return {
            name: db.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {name} ORDER BY ALL").fetchall()
            for name in names
            if name not in OWN_TABLES
        }
