"""Ctrl-C in a training: the line that says how to go on with it.

Leaves out: saving what is gone on from (`training_state.py`, the checkpoints of policy_training), resuming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from assay.workspace import Workspace


@contextmanager
def says_how_to_go_on(
    workspace: Workspace, way: str, *, is_saved: Callable[[Path], bool], option: str
) -> Iterator[None]:
    """Around `assay train WAY`. `is_saved`: whether a run's folder can be gone on from; `option`: how often it is."""
    before = set(workspace.runs.glob("*"))
    try:
        yield
    except KeyboardInterrupt:
        saved = sorted(folder for folder in set(workspace.runs.glob("*")) - before if is_saved(folder))
        said = f"go on with: assay train {way} --resume {saved[-1].name}" if saved else None
        typer.echo(said or f"stopped before the first saved state ({option})", err=True)
        raise
