"""The options that select comparisons: pool, source, category. Shared by the commands that read a selection."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.data.snapshots import Selection

PoolOption = Annotated[list[str] | None, typer.Option("--pool", help="Pool to take; may be given several times.")]
SourceFilter = Annotated[
    list[str] | None, typer.Option("--source", help="Only comparisons of this source; repeatable.")
]
CategoryFilter = Annotated[list[str] | None, typer.Option("--category", help="Only this category; repeatable.")]


def selection_of(pool: list[str] | None, source: list[str] | None, category: list[str] | None) -> "Selection":
    """The options as a `Selection`; default pools where none is named."""
    from assay.data.snapshots import Selection

    selection = Selection(sources=tuple(source or ()), categories=tuple(category or ()))
    return replace(selection, pools=tuple(pool)) if pool else selection
