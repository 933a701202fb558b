"""The store: one DuckDB file per workspace, opened for one unit of work at a time."""

from assay.store.database import Database

__all__ = ["Database"]
