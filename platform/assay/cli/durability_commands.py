"""`assay backup`, `restore`, `rebuild`: copies of a workspace, and a store made anew."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.workspace_command import CommandResult, add_commands
from assay.workspace import Workspace


def register(app: typer.Typer) -> None:
    backups = typer.Typer(name="backup", invoke_without_command=True)
    backups.callback()(backup)
    backups.command("verify")(verify)
    add_commands(backups, list_)
    app.add_typer(backups)
    app.command("restore")(restore)
    add_commands(app, rebuild)


ToOption = Annotated[
    Path | None,
    typer.Option(
        "--to",
        help="Folder of the backups. Default: backups/ in the workspace; better on another disk.",
        show_default=False,
    ),
]


def backup(
    context: typer.Context,
    to: ToOption = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Remove older backups beyond this many.")] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the workspace while others work in it: log, journal, queues, accounts, models, runs, reports.

    Example: `assay backup --to /mnt/backups/project --keep 7`
    """
    if context.invoked_subcommand is not None:
        return
    from dataclasses import asdict

    from assay.backups.backup import back_up

    report = back_up(Workspace.find(workspace), to, keep=keep)
    manifest = report.manifest
    lines = [
        f"{report.folder}: {len(manifest.files)} files, {manifest.size / 1e6:.1f} MB "
        f"({report.linked / 1e6:.1f} MB shared with the backup before it), up to unit of work {manifest.units}"
    ]
    lines += [f"left out, a link to another folder: {name}" for name in manifest.left_out]
    lines += [f"removed {folder}" for folder in report.removed]
    payload = asdict(report) | {"bytes": manifest.size}
    emit(payload, "\n".join(lines), as_json=as_json)


def verify(
    folder: Annotated[Path, typer.Argument(help="A backup, or a folder of backups: then the newest.")],
    as_json: JsonOption = False,
) -> None:
    """Compare every file of a backup with its hash. Exit code 1 when one differs.

    Example: `assay backup verify /mnt/backups/project`
    """
    from assay.backups.manifest import newest_in, problems_of, read_manifest

    chosen = newest_in(folder)
    manifest = read_manifest(chosen)
    problems = list(problems_of(chosen, manifest))
    text = f"{chosen}: {len(manifest.files)} files, {manifest.size / 1e6:.1f} MB, " + (
        f"{len(problems)} damaged" if problems else "all as they were copied"
    )
    emit(
        {"backup": str(chosen), "files": len(manifest.files), "bytes": manifest.size, "problems": problems},
        "\n".join([text, *problems]),
        as_json=as_json,
    )
    if problems:
        raise SystemExit(1)


def list_(workspace: Workspace, to: ToOption = None) -> CommandResult:
    """The backups of a workspace, oldest first.

    Example: `assay backup list`
    """
    from assay.backups.backup import BACKUPS
    from assay.backups.manifest import backups_in, read_manifest

    folder = to or workspace.root / BACKUPS
    rows = [(path, read_manifest(path)) for path in backups_in(folder)]
    payload = [
        {"backup": str(path), "created": made.created, "files": len(made.files), "bytes": made.size}
        for path, made in rows
    ]
    lines = [f"{path}  {made.created}  {len(made.files)} files  {made.size / 1e6:.1f} MB" for path, made in rows]
    return CommandResult({"backups": payload}, "\n".join(lines) or f"no backups in {folder}")


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup, or a folder of backups: then the newest.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the workspace to make; new or empty.")],
    as_json: JsonOption = False,
) -> None:
    """Make a workspace from a backup, checked against its hashes; the store is made from its log.

    Example: `assay restore /mnt/backups/project my-rewards`
    """
    from assay.backups.manifest import newest_in
    from assay.backups.restoring import restore as make

    workspace, report = make(newest_in(backup), folder)
    held = ", ".join(f"{count} {table}" for table, count in report.rows.items())
    lines = [f"workspace restored at {workspace.root}: {held or 'no rows'}"]
    lines += [f"not readable: {problem}" for problem in report.problems]
    payload = {"workspace": str(workspace.root), **report.to_dict()}
    emit(payload, "\n".join(lines), as_json=as_json)
    if report.problems:
        raise SystemExit(1)


def rebuild(
    workspace: Workspace,
    log: Annotated[
        bool, typer.Option("--log", help="The other way round: write the log anew from a store that is sound.")
    ] = False,
) -> CommandResult:
    """Make a lost or damaged store anew from its log and the journal of votes. The old file is kept beside it.
    Exit code 1 when a part of the log could not be read; the rest is in the store.

    Example: `assay rebuild`
    """
    from assay.backups.rebuild import rebuild as make_anew
    from assay.store.rebuilding import rewrite_log

    store = workspace.store
    if log:
        rewrite_log(store)
        return CommandResult({"log": str(store.log.folder)}, f"log written anew: {store.log.folder}")
    report = make_anew(workspace)
    held = ", ".join(f"{count} {table}" for table, count in report.rows.items())
    lines = [f"{store.path} made anew from {report.units} units of work: {held or 'no rows'}"]
    if report.votes:
        lines.append(f"{report.votes} votes came from the journal")
    if report.old_file is not None:
        lines.append(f"the old file is {report.old_file}; delete it when you do not need it any more")
    lines += [f"not readable: {problem}" for problem in report.problems]
    return CommandResult(report.to_dict(), "\n".join(lines), exit_code=1 if report.problems else 0)
