"""`assay init`, `assay doctor`, `assay lineage`: the commands of the platform itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import JsonOption, emit


def register(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the new workspace.")] = Path("."),
    as_json: JsonOption = False,
) -> None:
    """Make a workspace: a folder with a store, ready for data.

    Example: `assay init my-rewards && cd my-rewards`
    """
    from assay.workspace import Workspace

    workspace = Workspace.create(folder)
    emit({"workspace": str(workspace.root)}, f"workspace ready at {workspace.root}", as_json=as_json)
