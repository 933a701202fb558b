"""Options and output that every command shares, so that they look and behave the same everywhere."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.errors import plain_reason

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        help="Workspace folder. Default: $ASSAY_WORKSPACE, else the nearest one at or above this folder.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


def emit(payload: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result: one JSON object for machines, or the text for people."""
    typer.echo(json.dumps(payload, ensure_ascii=False, default=str) if as_json else text)


def plain_message(error: typer.BadParameter) -> str:
    """With what the value must be, where a type's own reader refused it."""
    reasons: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return plain_reason(reasons[0]) if reasons else error.message
