"""`assay rebuild`: the store made anew."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit


def register(app: typer.Typer) -> None:
    app.command("rebuild")(rebuild)


def rebuild(
    log: Annotated[
        bool, typer.Option("--log", help="The other way round: write the log anew from a store that is sound.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a lost or damaged store anew from its log and the journal of votes. The old file is kept beside it.
    Exit code 1 when a part of the log could not be read; the rest is in the store.

    Example: `assay rebuild`
    """
    from assay.backups.rebuild import rebuild as make_anew
    from assay.store.rebuilding import rewrite_log
    from assay.workspace import Workspace

    here = Workspace.find(workspace)
    if log:
        rewrite_log(here.store)
        emit({"log": str(here.store.log.folder)}, f"log written anew: {here.store.log.folder}", as_json=as_json)
        return
    report = make_anew(here)
    held = ", ".join(f"{count} {table}" for table, count in report.rows.items())
    lines = [f"{here.store.path} made anew from {report.units} units of work: {held or 'no rows'}"]
    if report.votes:
        lines.append(f"{report.votes} votes came from the journal")
    if report.old_file is not None:
        lines.append(f"the old file is {report.old_file}; delete it when you do not need it any more")
    lines += [f"not readable: {problem}" for problem in report.problems]
    emit(report.to_dict(), "\n".join(lines), as_json=as_json)
    if report.problems:
        raise SystemExit(1)
