"""`assay init`, `assay doctor`, `assay lineage`: the commands of the platform itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli import durability_commands
from assay.cli.options import JsonOption, WorkspaceOption, emit

if TYPE_CHECKING:
    from rich.tree import Tree

    from assay.runs.lineage import LineageNode

WHOLE_LINES = 10_000  #: columns; a terminal wraps what is longer than its own


def register(app: typer.Typer) -> None:
    app.command("init")(init)
    app.command("doctor")(doctor)
    app.command("lineage")(lineage)
    durability_commands.register(app)


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


def doctor(
    remove_stages: Annotated[
        bool, typer.Option("--remove-stages", help="First remove interrupted bulk work that no process is at.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is installed, which device there is, what is missing and how to get it, and whether the workspace
    is sound. Exit code 1 when something required is missing or wrong.

    Example: `assay doctor --json`
    """
    from dataclasses import asdict

    from assay.compute.stage import abandoned_stages, remove_stage
    from assay.doctor import examine
    from assay.workspace import Workspace

    here = Workspace.find_optional(workspace)  # the machine can be examined without one
    if here is not None and remove_stages:
        for folder in abandoned_stages(here):
            remove_stage(folder)
    checks = list(examine(here))
    healthy = all(check.state in ("ok", "optional") for check in checks)
    marks = {"ok": "ok", "optional": "--", "missing": "MISSING", "problem": "PROBLEM"}
    lines = [
        f"{marks[c.state]:>8}  {c.name}: {c.detail}" + (f"  [{c.fix}]" if c.fix and c.state != "ok" else "")
        for c in checks
    ]
    if here is None:
        lines.append("      --  workspace: none here; make one with: assay init")
    emit({"healthy": healthy, "checks": [asdict(check) for check in checks]}, "\n".join(lines), as_json=as_json)
    if not healthy:
        raise SystemExit(1)


def lineage(
    id: Annotated[str, typer.Argument(help="Any id, or the name of a snapshot, an artifact or an imported file.")],
    depth: Annotated[int, typer.Option(min=1, help="Steps to walk in each direction.")] = 6,
    width: Annotated[int, typer.Option(min=1, help="Neighbours to show of each relation.")] = 5,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what something came from and what came of it: vote, decision, snapshot, checkpoint, score, rollout.

    Example: `assay lineage s-0e9c122f9cf72f5685b30f822bcffa09`
    """
    from assay.runs.lineage import lineage as trace
    from assay.workspace import Workspace

    here = Workspace.find(workspace)
    up = trace(here, id, "up", depth=depth, width=width)
    down = trace(here, id, "down", depth=depth, width=width)
    if as_json:
        payload: dict[str, Any] = {"id": up.id, "kind": up.kind, "about": up.about}
        payload |= {"came_from": up.to_dict().get("branches", []), "came_of_it": down.to_dict().get("branches", [])}
        emit(payload, "", as_json=True)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.tree import Tree

    tree = Tree(f"[bold]{escape(up.id)}[/] {escape(up.about)}")
    for title, root in (("came from", up), ("came of it", down)):
        branch = tree.add(f"[bold]{title}[/]")
        _draw(branch, root)
        if not root.branches:
            branch.add("(nothing recorded)")
    # rich cuts a tree's lines to the console's width, 80 in a pipe: half an id or a path is of no use to anyone.
    Console(soft_wrap=True, highlight=False, width=WHOLE_LINES).print(tree)


def _draw(tree: "Tree", node: "LineageNode") -> None:
    from rich.markup import escape

    for branch in node.branches:
        for child in branch.nodes:
            again = " (above)" if child.repeated else ""
            about = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in child.about)
            text = f"[dim]{escape(branch.relation)}[/] {escape(child.id)} {escape(about)}{again}"
            _draw(tree.add(text), child)
        if branch.more:
            tree.add(f"[dim]{escape(branch.relation)}[/] … and {branch.more} more")
