"""`assay label-studio ...`: create, push, pull, serve-webhook, status."""

import json
import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption
from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import CommandResult, add_commands
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.config import ProjectConfig

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="LABEL_STUDIO_URL",
        help="Address of the Label Studio server; needed where the workspace knows projects of several.",
        show_default=False,
    ),
]
ProjectArgument = Annotated[
    str | None, typer.Argument(metavar="[PROJECT]", help="Title or number; not needed where there is only one.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="Let people vote in Label Studio: make a project, push comparisons, pull votes. "
        "The key is read from $LABEL_STUDIO_API_KEY and never stored.",
    )
    add_commands(group, create, push, pull, serve_webhook, status)
    app.add_typer(group, name="label-studio")


@settings_options(ProjectConfig, exclude=("seed", "guideline"))
def create(
    workspace: Workspace,
    config: ProjectConfig,
    title: Annotated[str, typer.Argument(help="Title of the new project.")],
    server: Annotated[
        str, typer.Option("--server", envvar="LABEL_STUDIO_URL", help="Address, e.g. http://localhost:8080.")
    ],
    seed: Annotated[
        int | None,
        typer.Option(help="Of the order in which the two are shown; random if left out.", show_default=False),
    ] = None,
    guideline: Annotated[
        Path | None,
        typer.Option(help="File with the instruction that people read first.", show_default=False),
    ] = None,
) -> CommandResult:
    """Make a project on a Label Studio server, with a labelling configuration that can say a tie.

    Example: `assay label-studio create "HH, round 1" --server http://localhost:8080 --overlap 2`
    """
    from assay_pipelines.annotation.label_studio.connection import connect, server_address
    from assay_pipelines.annotation.label_studio.project import create_project

    config = replace(
        config,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        guideline=_text(guideline) if guideline is not None else "",
    )
    address = server_address(server)
    client = connect(address)
    with start_run(workspace, "label-studio-create", {"server": address, "title": title, **asdict(config)}) as run:
        project = create_project(workspace, client, address, title, config, run.id)
        run.metrics["project"] = project.id
    return CommandResult(
        {"run": run.id, "server": address, "project": project.id, "url": project.url, **asdict(config)},
        f"project {project.id}, {title!r}: {project.url}\nnext: assay label-studio push {project.id}",
    )


def push(
    workspace: Workspace,
    project: ProjectArgument = None,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", help="Only this pool; repeatable. Default: unverified and pending.")
    ] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Only this source; repeatable.")] = None,
    category: Annotated[list[str] | None, typer.Option("--category", help="Only this category; repeatable.")] = None,
    comparison: Annotated[
        list[str] | None, typer.Option("--comparison", help="Only this comparison, by id; repeatable.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many new tasks.", min=1, show_default=False)] = None,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Send judges' opinions too, which the task table shows to annotators.")
    ] = False,
    server: ServerOption = None,
) -> CommandResult:
    """Push comparisons as tasks, each shown in a random, recorded order; what is there already is not pushed again.

    Example: `assay label-studio push "HH, round 1" --source hh --limit 500`
    """
    from assay.data.snapshots import Selection
    from assay_pipelines.annotation.label_studio.connection import connect
    from assay_pipelines.annotation.label_studio.project import find_project
    from assay_pipelines.annotation.label_studio.push import count_comparisons
    from assay_pipelines.annotation.label_studio.push import push as push_comparisons

    target = find_project(workspace, project, _address(server))
    selection = Selection(tuple(pool or ("unverified", "pending")), tuple(source or ()), tuple(category or ()))
    comparison_ids = tuple(comparison or ())
    total = count_comparisons(workspace, selection, comparison_ids)
    client = connect(target.server)
    settings = {
        "project": target.url,
        "selection": asdict(selection),
        "comparisons": len(comparison_ids),
        "limit": limit,
    }
    with (
        start_run(workspace, "label-studio-push", settings) as run,
        progress_bar("pushing", min(total, limit or total), unit="comparisons") as advance,
    ):
        report = push_comparisons(
            workspace,
            client,
            target,
            selection,
            run.id,
            comparisons=comparison_ids,
            limit=limit,
            predictions=predictions,
            on_progress=advance,
        )
        run.metrics.update(asdict(report))
    taken_up = f"; {report.taken_up} tasks of a push that was interrupted were taken up" if report.taken_up else ""
    return CommandResult(
        {"run": run.id, "project": target.id, "url": target.url, **asdict(report)},
        f"{report.pushed} tasks pushed with {report.predictions} predictions, {report.known} were there already"
        f"{taken_up}\nvote at {target.url}",
    )


def pull(workspace: Workspace, project: ProjectArgument = None, server: ServerOption = None) -> CommandResult:
    """Bring votes in: new ones, edits (the earlier vote is withdrawn), deletions (likewise). Safe to repeat.

    Example: `assay label-studio pull "HH, round 1"`
    """
    from assay_pipelines.annotation.label_studio.connection import connect
    from assay_pipelines.annotation.label_studio.project import find_project
    from assay_pipelines.annotation.label_studio.pull import pull as pull_votes

    target = find_project(workspace, project, _address(server))
    client = connect(target.server)
    with (
        start_run(workspace, "label-studio-pull", {"project": target.url}) as run,
        progress_bar("pulling", None, unit="tasks") as advance,
    ):
        report = pull_votes(workspace, client, target, run.id, on_progress=advance)
        run.metrics.update(asdict(report))
    total = asdict(report.counts)
    for name, number in asdict(report.events.counts).items():
        total[name] += number
    return CommandResult(
        {"run": run.id, "project": target.id, "url": target.url, **asdict(report)},
        _pulled(report.tasks, report.annotations, report.events.events, total),
    )


def serve_webhook(
    server: ServerOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8010,
    register_at: Annotated[
        str | None,
        typer.Option(
            "--register",
            metavar="URL",
            help="Make Label Studio send the events of every project of this workspace to this address of ours.",
            show_default=False,
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Receive votes as they are cast; an event is acknowledged when it is on the disk.

    Label Studio must send the secret in $ASSAY_LABEL_STUDIO_SECRET; --register tells it to.

    Example: `assay label-studio serve-webhook --port 8010 --register http://this-machine:8010`
    """
    import logging

    from assay.errors import NotFoundError
    from assay.http.listening import claim_port, url_of
    from assay.http.running import serve_until_stopped
    from assay_pipelines.annotation.label_studio.connection import connect
    from assay_pipelines.annotation.label_studio.project import NONE_YET, find_project, list_projects
    from assay_pipelines.annotation.label_studio.webhook import (
        PATH,
        Folder,
        create_app,
        register_webhook,
        webhook_secret,
    )

    ws = Workspace.find(workspace)
    secret = webhook_secret()
    projects = list_projects(ws, _address(server))
    if not projects:
        raise NotFoundError(NONE_YET)
    address = projects[0].server
    if any(p.server != address for p in projects):
        find_project(ws, None)  # says which there are
    listening = claim_port(host, port)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    target = (register_at.rstrip("/") if register_at else url_of(listening)) + PATH
    registered = 0
    if register_at:  # the socket is open already: what Label Studio sends before the server runs waits there
        client = connect(address)
        registered = sum(register_webhook(client, p, target, secret) for p in projects)
    with Folder(ws) as folder:

        def announce() -> None:
            payload: dict[str, Any] = {"url": target, "server": address, "projects": [p.id for p in projects]}
            suffix = f"; registered for {registered} more" if register_at else ""
            text = f"waiting at {target} for the votes of {len(projects)} projects on {address}{suffix}  (Ctrl-C stops)"
            typer.echo(json.dumps(payload) if as_json else text)

        serve_until_stopped(create_app(ws, address, secret, folder), listening, announce)


def status(workspace: Workspace) -> CommandResult:
    """Show the workspace's Label Studio projects: tasks, votes that stand, votes withdrawn, what could not be read.

    Example: `assay label-studio status`
    """
    from assay_pipelines.annotation.label_studio.project import NONE_YET
    from assay_pipelines.annotation.label_studio.pull import label_studio_status

    projects, waiting = label_studio_status(workspace)
    lines = []
    for p in projects:
        lines.append(f"{p.title} ({p.template}): {p.server}/projects/{p.project_id}")
        typical = f", typically {p.seconds:.0f} s each" if p.seconds is not None else ""
        lines.append(f"  {p.answered} of {p.tasks} tasks answered by {p.people} people{typical}")
        lines.append("  votes: " + (", ".join(f"{n} {answer}" for answer, n in p.votes.items()) or "none"))
        if p.withdrawn:
            lines.append(f"  {p.withdrawn} earlier votes were edited or deleted there and do not count")
        lines += [f"  {n} noted: {note}" for note, n in p.notes.items()]
    if waiting:
        lines.append(f"{waiting} webhook events wait: assay label-studio pull")
    return CommandResult(
        {"projects": [asdict(p) for p in projects], "waiting_events": waiting}, "\n".join(lines) or NONE_YET
    )


def _address(server: str | None) -> str | None:
    from assay_pipelines.annotation.label_studio.connection import server_address

    return server_address(server) if server is not None else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError("is not UTF-8", file=path) from error


def _pulled(tasks: int, annotations: int, events: int, total: dict[str, int]) -> str:
    parts = [f"{total['votes']} new votes", f"{total['withdrawn']} earlier ones withdrawn"]
    if total["unreadable"]:
        parts.append(f"{total['unreadable']} annotations are no votes (assay label-studio status says why)")
    if total["foreign"]:
        parts.append(f"{total['foreign']} annotations of tasks that are not this workspace's left alone")
    waited = f", after {events} webhook events" if events else ""
    return f"{', '.join(parts)}; {annotations} annotations on {tasks} tasks there{waited}"
