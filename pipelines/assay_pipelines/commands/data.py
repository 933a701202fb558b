"""`assay data ...`: import, clean, dedup, stats, export, snapshot."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the group `data`."""
    group = typer.Typer(no_args_is_help=True, help="Import, clean, inspect and export preference data.")
    app.add_typer(group, name="data")
