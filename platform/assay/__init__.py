"""Assay's platform: domain types, workspace, DuckDB store, lineage, models and chat templates, the `assay` command."""

__version__ = "0.1.0"
