"""The name of a new reward model: valid names, its folder, and reserving it during a run.

With `force` a model whose name is in use becomes NAME-v2, -v3, ...; names reserved by other runs are skipped, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from assay.errors import BadInputError
from assay.system.name_lock import claimed
from assay.workspace import Workspace

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")


def model_folder(workspace: Workspace, name: str, *, force: bool) -> Path:
    """The folder of a model of this name. Raises BadInputError for an invalid name, and for one in use unless
    `force`."""
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is not a model name: letters, digits, and . _ + - after the first")
    folder = workspace.models / name
    if folder.exists() and not force:
        raise BadInputError(f"a model {name!r} exists; choose another --name, or --force to write a new version of it")
    return next(version for version in _versions(folder) if not version.exists())


@contextmanager
def reserved_folder(workspace: Workspace, name: str, *, force: bool) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """The folder, reserved for the block, and a function that records the reserving run.

    Raises as `model_folder`, and BadInputError where another run is making a model of this name, unless `force`.
    """
    model_folder(workspace, name, force=force)
    with ExitStack() as stack:
        for folder in _versions(workspace.models / name):
            if folder.exists():
                continue
            try:
                record_holder = stack.enter_context(claimed(folder))
            except BadInputError:
                if not force:
                    raise
                continue
            if not folder.exists():
                break
            stack.close()  # the other run has just finished
            model_folder(workspace, name, force=force)
        yield folder, record_holder


def _versions(folder: Path) -> Iterator[Path]:
    yield folder
    for version in count(2):
        yield folder.with_name(f"{folder.name}-v{version}")
