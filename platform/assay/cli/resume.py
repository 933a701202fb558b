"""What commands that resume a run share: refusing changed settings, data files by absolute path, the resume hint.

Leaves out: saving and reading the state that a run resumes from.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from assay.workspace import Workspace


def is_given(context: typer.Context, option: str) -> bool:
    """Whether the option stands on the command line or in its environment variable."""
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def refuse_changes(context: typer.Context, changeable: Collection[str], flags: Mapping[str, str] | None = None) -> None:
    """Raises BadInputError where an option is given that a resumed run cannot change. `flags`: option -> its flag,
    where that is not the option's name."""
    from assay.errors import BadInputError

    def flag(option: str) -> str:
        return (flags or {}).get(option, f"--{option.replace('_', '-')}")

    changed = [flag(option) for option in context.params if option not in changeable and is_given(context, option)]
    if changed:
        raise BadInputError(
            f"a resumed run keeps its settings; leave out {', '.join(sorted(changed))}", field="--resume"
        )


def absolute_file(data: str) -> str:
    """A file by its absolute path, so that --resume finds it from any folder; any other name as it is."""
    path = Path(data).expanduser()
    return str(path.resolve()) if path.is_file() else data


@contextmanager
def resume_hint(
    workspace: "Workspace", command: str, *, is_saved: Callable[[Path], bool], option: str, placed: bool = False
) -> Iterator[None]:
    """Around `assay COMMAND`: after Ctrl-C, print the command that resumes the run.

    `is_saved`: whether a run's folder has a saved state; `option`: the one that sets how often it is saved. `placed`:
    other processes do the run, of which `is_saved` must then know that it is this command's.
    """
    from assay.runs.process import process_of

    def is_own(folder: Path) -> bool:
        return placed or ((process := process_of(folder)) is not None and process.pid == os.getpid())

    before = set(workspace.runs.glob("*"))
    try:
        yield
    except KeyboardInterrupt:
        saved = sorted(
            folder for folder in set(workspace.runs.glob("*")) - before if is_own(folder) and is_saved(folder)
        )
        hint = f"resume with: assay {command} --resume {saved[-1].name}" if saved else None
        typer.echo(hint or f"stopped before the first saved state ({option})", err=True)
        raise
