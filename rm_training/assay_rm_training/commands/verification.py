"""`assay verify`: check that a checkpoint gives the same scores however they are computed."""

from dataclasses import asdict, replace
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_rm_training.run_settings import VerificationConfig


@settings_options(VerificationConfig, exclude=("write",))
def verify(
    config: VerificationConfig,
    no_write: Annotated[bool, typer.Option("--no-write", help="Leave the model's spec and card as they are.")] = False,
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

    from assay.errors import BackendError
    from assay.workspace import Workspace
    from assay_rm_training.runs.verify import verify_model

    verification = verify_model(Workspace.find_optional(workspace), replace(config, write=not no_write))
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
