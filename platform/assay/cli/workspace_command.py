"""Groups of commands on a workspace: `--workspace` finds it, `--json` chooses how the result is printed.

    def status(workspace: Workspace, snapshot: Annotated[str, typer.Argument()]) -> CommandResult: ...

    add_commands(group, status)

Leaves out: what prints while it runs, or needs no workspace: a command without that parameter is added as it is.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import Command
from assay.workspace import Workspace


@dataclass(frozen=True)
class CommandResult:
    """What a command prints: `payload` for machines, `text` for people. `exit_code`: of the process, afterwards."""

    payload: dict[str, Any]
    text: str
    exit_code: int = 0


def add_commands(group: typer.Typer, *commands: Command, **renamed: Command) -> None:
    """Add each by its function's name: `from_rollouts` as from-rollouts, `list_` as list; `renamed` by the keyword."""
    for word, command in {**{command.__name__: command for command in commands}, **renamed}.items():
        hints = get_type_hints(command, include_extras=True)
        on_workspace = hints.get("workspace") is Workspace
        name = word.rstrip("_").replace("_", "-")
        group.command(name)(_with_workspace(command, hints) if on_workspace else command)


def _with_workspace(command: Callable[..., CommandResult], hints: dict[str, Any]) -> Callable[..., None]:
    """The command with the options `--workspace` and `--json`, last, in place of its parameter `workspace`."""
    declared = [p for p in inspect.signature(command).parameters.values() if p.name != "workspace"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(p.replace(kind=keyword, annotation=hints[p.name]) for p in declared),
        inspect.Parameter("workspace", keyword, default=None, annotation=WorkspaceOption),
        inspect.Parameter("as_json", keyword, default=False, annotation=JsonOption),
    ]

    @wraps(command)
    def run(*, workspace: Path | None, as_json: bool, **options: Any) -> None:
        result = command(workspace=Workspace.find(workspace), **options)
        emit(result.payload, result.text, as_json=as_json)
        if result.exit_code:
            raise typer.Exit(result.exit_code)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
