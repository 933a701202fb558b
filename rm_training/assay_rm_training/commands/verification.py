"""`assay verify`: check that a checkpoint gives the same scores however they are computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit


def register(app: typer.Typer) -> None:
    """Add the command `verify`."""
    app.command("verify")(verify)


def verify(
    model: Annotated[str, typer.Argument(help="Reward model: a name or id of the workspace, a folder, a hub id.")],
    data: Annotated[
        str | None, typer.Option(help="Pairs to score: snapshot or file. Default: a few sentences.", show_default=False)
    ] = None,
    responses: Annotated[int, typer.Option(min=2, help="Responses compared.")] = 16,
    principle: Annotated[
        str | None, typer.Option(help="Principle to score under, for models that take one.", show_default=False)
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Allowed absolute difference plus this share of the reward.")] = 1e-4,
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16, float16 or auto; only float32 is recorded.")
    ] = "float32",
    device: DeviceOption = "auto",
    no_write: Annotated[bool, typer.Option("--no-write", help="Leave the model's spec and card as they are.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Write a spec for a model folder from elsewhere, which has none.")
    ] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the parity gate again: loaded twice, alone and in a batch, padded left and right, stock class, vLLM.

    Exits with 5 where a check fails; the failure is recorded in the model's spec, and commands refuse to load it by
    default. vLLM is compared where $ASSAY_VLLM_PYTHON names the Python of its environment.

    Example: `assay verify helpful`
    """
    from rich.console import Console
    from rich.table import Table

    from assay.errors import BackendError, NotFoundError
    from assay.workspace import Workspace
    from assay_rm_training.runs.verify import VerificationConfig, verify_model

    here: Workspace | None = None
    try:
        here = Workspace.find(workspace)
    except NotFoundError:
        if workspace is not None:
            raise
    config = VerificationConfig(
        model, data, responses, principle, device, dtype, tolerance, write=not no_write, adopt=adopt
    )
    verification = verify_model(here, config)
    payload = {
        "model": verification.model,
        "version": verification.version,
        "parity": verification.parity,
        "checks": [asdict(check) for check in verification.checks],
        "written": str(verification.written) if verification.written else None,
        "run_id": verification.run_id,
    }
    if as_json:
        emit(payload, "", as_json=True)
    else:
        table = Table(
            "equality", "", "largest difference", "responses", title=f"{verification.model} {verification.version}"
        )
        for check in verification.checks:
            outcome = (check.detail or "holds") if check.passed else f"FAILS: {check.detail}"
            table.add_row(check.name, outcome, f"{check.largest:.2g}", str(check.compared))
        Console().print(table)
        where = f", written to {verification.written}" if verification.written else ""
        typer.echo(f"parity {verification.parity}{where}")
    if not verification.passed:
        raise typer.Exit(BackendError.exit_code)
