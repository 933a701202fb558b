"""Inputs of a run for lineage, and an optional run record for commands that work without a workspace.

Leaves out: the runs themselves (`assay.runs.record`), what the data hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.data.snapshots import get_snapshot
from assay.errors import NotFoundError
from assay.runs.record import Run, start_run
from assay.workspace import Workspace


def snapshot_id(workspace: Workspace, data: str) -> str | None:
    """None for data that are no snapshot of the workspace: a file."""
    try:
        return get_snapshot(workspace, data).id
    except NotFoundError:
        return None


def inputs_of(
    workspace: Workspace, models: Iterable[tuple[str, str | None]], data: Iterable[str] = ()
) -> dict[str, str]:
    """Ref -> kind of models as `locate_model` gives them, and of snapshots or files."""
    inputs = {artifact or source: "artifact" if artifact else "model" for source, artifact in models}
    for name in data:
        snapshot = snapshot_id(workspace, name)
        inputs[snapshot or str(Path(name).expanduser().resolve())] = "snapshot" if snapshot else "file"
    return inputs


@contextmanager
def recorded_run(
    workspace: Workspace | None,
    kind: str,
    settings: Mapping[str, Any],
    *,
    model: tuple[str, str | None],
    data: Iterable[str] = (),
) -> Iterator[Run | None]:
    """A run record around a block of work on one model; None without a workspace."""
    if workspace is None:
        yield None
        return
    with start_run(workspace, kind, settings, inputs=inputs_of(workspace, [model], data)) as run:
        yield run
