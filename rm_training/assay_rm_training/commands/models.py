"""`assay models`: the platform's list and removal, and the check of one reward model."""

from dataclasses import asdict
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.record_commands import models_group


def register(app: typer.Typer) -> None:
    group = models_group()
    group.command("check")(check_model)
    app.add_typer(group, name="models")


def check_model(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Reward model: a name or id, a folder, a hub id.")],
    adapter: Annotated[
        str | None, typer.Option(metavar="FORM", help="Published form that its files do not tell; or file.py:Name.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a reward model is read here, what it can be asked, and that its scores hold however they are computed.

    Exits with 5 where an equality fails. A model that cannot be read says which form it looks like and what is missing.

    Example: `assay models check RLHFlow/ArmoRM-Llama3-8B-v0.1`
    """
    from assay.errors import BackendError
    from assay.workspace import Workspace
    from assay_rm_training.runs.model_check import check_model as check
    from assay_serving.model_config import ModelConfig

    config = ModelConfig(name, device=device, adapter=adapter, allow_failed_parity=True)
    report = check(Workspace.find_optional(workspace), config)
    rows = [
        ("form", f"{report.form} (written from: {report.source})" if report.source else report.form),
        ("reads", report.reads),
        ("read at", " then ".join(repr(token) for token in report.read_at)),
        ("example", repr(report.example)),
        ("template", report.template),
        ("length", f"{report.length} tokens"),
        ("parts", ", ".join(report.parts)),
        ("asked for", "; ".join(report.questions)),
        ("note", report.note),
    ]
    lines = [f"{report.model} {report.version}", *(f"  {title:<10} {text}" for title, text in rows if text)]
    for parity in report.checks:
        outcome = "holds" if parity.passed else f"FAILS: {parity.detail}"
        lines.append(f"  {parity.name}: {outcome} (largest difference {parity.largest:.2g} of {parity.compared})")
    emit(asdict(report), "\n".join(lines), as_json=as_json)
    if not report.passed:
        raise typer.Exit(BackendError.exit_code)
