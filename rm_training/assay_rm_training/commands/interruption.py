"""Ctrl-C in a training: the line that says how to go on with it.

Leaves out: saving what is gone on from (`resume_state.py`, the checkpoints of policy_training), resuming.
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
def prints_resume_hint(
    workspace: Workspace, way: str, *, is_saved: Callable[[Path], bool], option: str
) -> Iterator[None]:
    """Around `assay train WAY`. `is_saved`: whether a run's folder can be gone on from; `option`: how often it is."""
    before = set(workspace.runs.glob("*"))
    try:
        yield
    except KeyboardInterrupt:
        saved = sorted(folder for folder in set(workspace.runs.glob("*")) - before if is_saved(folder))
        hint = f"go on with: assay train {way} --resume {saved[-1].name}" if saved else None
        typer.echo(hint or f"stopped before the first saved state ({option})", err=True)
        raise
