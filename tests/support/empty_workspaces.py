"""New workspaces for tests: copies of one that each process makes once, for the migrations take 0.3 s of CPU time."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from assay.workspace import Workspace


@cache
def empty_workspace_folder() -> Path:
    """A workspace as it is made, to be copied and not changed."""
    folder = Path(tempfile.mkdtemp(prefix="empty-workspace-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Workspace.create(folder / "workspace").root


def new_workspace(folder: Path) -> Workspace:
    """A new, empty workspace in a folder that is not there yet."""
    return Workspace.open(shutil.copytree(empty_workspace_folder(), folder))
