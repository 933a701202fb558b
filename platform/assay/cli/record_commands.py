"""`assay runs`, `assay models` and `assay publish`: list, compare, remove and give away what a workspace holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.workspace_command import CommandResult, add_commands
from assay.workspace import Workspace

ForceOption = Annotated[bool, typer.Option("--force", help="Also where recorded runs depend on it.")]


def register(app: typer.Typer) -> None:
    runs = typer.Typer(invoke_without_command=True)
    runs.callback()(list_runs)
    runs.command("list", hidden=True)(list_runs)
    add_commands(runs, compare, show, note, remove=remove_run)
    app.add_typer(runs, name="runs")
    add_commands(app, publish)


def models_group() -> typer.Typer:
    """`assay models` without what other parts add to it."""
    models = typer.Typer(invoke_without_command=True)
    models.callback()(list_models)
    models.command("list", hidden=True)(list_models)
    add_commands(models, compare=compare_models, remove=remove_model)
    return models


def list_runs(
    context: typer.Context,
    kind: Annotated[str | None, typer.Option(help="Only runs of this kind, such as train or rl.")] = None,
    group: Annotated[str | None, typer.Option(help="Only trainings of one --seeds or --sweep.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Also archived ones.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The newest ones, at most.")] = 20,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest runs; show, note, compare or remove them.

    Example: `assay runs --kind rl`
    """
    if context.invoked_subcommand is not None:
        return
    from dataclasses import asdict

    from assay.runs import catalogue

    chosen = {"kind": kind, "group": group, "tag": tag, "archived": archived, "limit": limit}
    target = Workspace.find(workspace)
    rows = catalogue.list_runs(target, **chosen)  # type: ignore[arg-type]
    none = f"no such runs in {target.root}" if kind or group or tag else f"no runs in {target.root} yet"
    lines = [
        f"{run.id}  {run.kind:<12} {run.status:<11} {run.started}  "
        f"{'' if run.seconds is None else f'{run.seconds:.0f} s':>8}  {', '.join(run.models)}"
        + "".join(f" #{tag}" for tag in run.tags)
        + (" (files removed)" if run.removed else "")
        + (" (archived)" if run.archived else "")
        for run in rows
    ]
    emit({"runs": [asdict(run) for run in rows]}, "\n".join(lines) or none, as_json=as_json)


def show(workspace: Workspace, run: Annotated[str, typer.Argument(metavar="RUN")]) -> CommandResult:
    """Show a run's settings, metrics and note, and the end of its console output.

    Example: `assay runs show run-20261124-101500-3fa2c1`
    """
    from dataclasses import asdict

    from assay.runs import catalogue, console_log

    contents = catalogue.run_record(workspace, run)
    output = console_log.read_console(workspace.runs / run).lines[-20:]
    lines = [f"{run}  {contents.summary.kind}  {contents.summary.status}  {contents.summary.started}"]
    lines += [contents.summary.error or "", contents.summary.note, " ".join(f"#{tag}" for tag in contents.summary.tags)]
    for title, values in (("settings", contents.settings), ("metrics", contents.metrics)):
        lines += [f"{title}:", *(f"  {name}  {_text(value)}" for name, value in values.items())]
    lines += ["console:", *(f"  {line}" for line in output)] if output else []
    facts = {**asdict(contents.summary), "settings": contents.settings, "metrics": contents.metrics, "console": output}
    return CommandResult(facts, "\n".join(line for line in lines if line))


def note(
    workspace: Workspace,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...")],
    text: Annotated[str | None, typer.Option(help="The note; it takes the place of the one before.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Add this tag; may be repeated.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Take this tag away; may be repeated.")] = None,
    archive: Annotated[
        bool | None,
        typer.Option("--archive/--restore", help="Take it out of lists, or put it back.", show_default=False),
    ] = None,
) -> CommandResult:
    """Write about runs: a note, tags; archive them.

    Example: `assay runs note run-20261124-101500-3fa2c1 --tag best --text "lower rate, held"`
    """
    from dataclasses import asdict

    from assay.errors import BadInputError
    from assay.runs.notes import change_notes

    if text is None and not tag and not untag and archive is None:
        raise BadInputError("say what: --text, --tag, --untag, --archive or --restore")
    changes = {"note": text, "add_tags": tag or (), "remove_tags": untag or (), "archived": archive}
    notes = change_notes(workspace, runs, by="command line", **changes)  # type: ignore[arg-type]
    lines = [
        f"{run}  " + " ".join([*(f"#{tag}" for tag in one.tags), *(["archived"] if one.archived else []), one.note])
        for run, one in notes.items()
    ]
    return CommandResult({run: asdict(one) for run, one in notes.items()}, "\n".join(lines))


def compare(
    workspace: Workspace,
    first: Annotated[str, typer.Argument(metavar="RUN")],
    second: Annotated[str, typer.Argument(metavar="RUN")],
) -> CommandResult:
    """Show which settings and final metrics of two runs differ.

    Example: `assay runs compare run-20261124-101500-3fa2c1 run-20261124-113000-9b01d4`
    """
    from assay.runs.catalogue import compare_runs

    return _differences(compare_runs(workspace, first, second))


def compare_models(
    workspace: Workspace,
    first: Annotated[str, typer.Argument(metavar="MODEL", help="Name or id.")],
    second: Annotated[str, typer.Argument(metavar="MODEL")],
) -> CommandResult:
    """Show in which settings and final metrics the runs that made two models differ.

    Example: `assay models compare helpful-v1 helpful-v2`
    """
    from assay.runs.catalogue import compare_runs, run_of_model

    runs = [run_of_model(workspace, name) for name in (first, second)]
    return _differences(compare_runs(workspace, runs[0], runs[1]))


def _differences(differences: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> CommandResult:
    lines = []
    for title, values in differences.items():
        lines.append(f"{title}: {'equal' if not values else ''}".rstrip())
        width = max(map(len, values), default=0)
        lines += [f"  {name:<{width}}  {_text(a)}  ->  {_text(b)}" for name, (a, b) in values.items()]
    return CommandResult(dict(differences), "\n".join(lines))


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def remove_run(
    workspace: Workspace,
    run: Annotated[str, typer.Argument(metavar="RUN")],
    force: ForceOption = False,
) -> CommandResult:
    """Remove the folder of a run: logs, rollouts, checkpoints. Its record and the models that it made stay.

    Example: `assay runs remove run-20261124-101500-3fa2c1`
    """
    from assay.runs import catalogue

    size = catalogue.remove_run(workspace, run, force=force)
    return CommandResult({"removed": run, "bytes": size}, f"removed the files of {run} ({size / 1e6:.1f} MB)")


def list_models(
    context: typer.Context,
    kind: Annotated[str | None, typer.Option(help="Only reward_model or policy.")] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the models of the workspace, compare two, or remove one.

    Example: `assay models --kind policy`
    """
    if context.invoked_subcommand is not None:
        return
    from dataclasses import asdict

    from assay.runs import catalogue

    target = Workspace.find(workspace)
    rows = catalogue.list_models(target, kind=kind)
    none = f"no {kind or 'model'} in {target.root} yet"
    width = max((len(model.name) for model in rows), default=0)
    lines = [
        f"{model.name:<{width}}  {model.kind:<12} {model.bytes / 1e6:>9.1f} MB  {model.created}  "
        f"{model.run or ''}" + (" (files removed)" if model.removed else "")
        for model in rows
    ]
    emit({"models": [asdict(model) for model in rows]}, "\n".join(lines) or none, as_json=as_json)


def remove_model(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(help="Name or id.")],
    force: ForceOption = False,
) -> CommandResult:
    """Remove the files of a model of the workspace. Its record stays, and its name can be given again.

    Example: `assay models remove helpful-v1`
    """
    from assay.runs import catalogue

    size = catalogue.remove_model(workspace, name, force=force)
    return CommandResult({"removed": name, "bytes": size}, f"removed the files of {name} ({size / 1e6:.1f} MB)")


def publish(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Name or id of a reward model or policy.")],
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write it to this new folder.")] = None,
    hub: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="Push it to this repository.")] = None,
    public: Annotated[bool, typer.Option("--public", help="A repository made by --hub is for everybody.")] = False,
    revision: Annotated[str, typer.Option(metavar="BRANCH", help="Push to this branch.", show_default=False)] = "",
) -> CommandResult:
    """Write a model with its card to a folder, or push it to the model hub.

    $HF_TOKEN says who pushes; $HF_ENDPOINT names another hub. Example: `assay publish helpful-v1 --hub acme/helpful`
    """
    from assay.errors import BadInputError
    from assay.runs import publishing

    if (to is None) == (hub is None):
        raise BadInputError("say where: --to FOLDER or --hub OWNER/NAME")
    if to is not None:
        publishing.write_model(workspace, name, to)
        return CommandResult({"model": name, "folder": str(to)}, f"{name} with its card: {to}")
    url = publishing.push_model(workspace, name, str(hub), public=public, revision=revision)
    return CommandResult({"model": name, "url": url}, f"pushed {name}: {url}")
