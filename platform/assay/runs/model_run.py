"""Recorded runs that make a model: the model's reserved name, the plan that `--resume` reads, files of a resumed run.

Covers: valid names, versions of a name in use, one run per name. Leaves out: the run record (`record.py`), what is
trained and how its state is saved.

With `force` a model whose name is in use becomes NAME-v2, -v3, ...; names reserved by other runs are skipped, too.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from assay.errors import BadInputError, NotFoundError
from assay.runs.record import Run, start_run
from assay.system.atomic_files import replacing
from assay.system.name_lock import locked_name
from assay.workspace import Workspace

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")


class RunPlan:
    """Base of the settings of a run, sufficient to resume it: a dataclass, stored as JSON in the run's folder."""

    plan_file: ClassVar[str] = "plan.json"
    run_name: ClassVar[str]  #: what such a run is called in messages

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def write(self, folder: Path) -> None:
        with replacing(folder / self.plan_file) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read_payload(cls, workspace: Workspace, run_id: str) -> dict[str, Any]:
        """The stored JSON. Raises NotFoundError for another kind of run."""
        path = workspace.runs / run_id / cls.plan_file
        if not path.is_file():
            raise NotFoundError(f"{run_id} is not a {cls.run_name} of {workspace.root}; assay runs lists them")
        payload: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return payload


def model_folder(workspace: Workspace, name: str, *, force: bool | None = None) -> Path:
    """The folder of a model of this name. `force` None: the command has no --force.

    Raises BadInputError for an invalid name, and for one in use unless `force`.
    """
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is not a model name: letters, digits, and . _ + - after the first")
    folder = workspace.models / name
    if folder.exists() and not force:
        hint = "" if force is None else ", or --force to write a new version of it"
        raise BadInputError(f"a model {name!r} exists; choose another --name{hint}")
    return next(version for version in _versions(folder) if not version.exists())


@contextmanager
def reserved_folder(
    workspace: Workspace, name: str, *, force: bool | None = None
) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """The folder, reserved for the block, and a function that records the reserving run.

    Raises as `model_folder`, and BadInputError where another run is making a model of this name, unless `force`.
    """
    model_folder(workspace, name, force=force)
    with ExitStack() as stack:
        for folder in _versions(workspace.models / name):
            if folder.exists():
                continue
            try:
                set_owner = stack.enter_context(locked_name(folder))
            except BadInputError:
                if not force:
                    raise
                continue
            if not folder.exists():
                break
            stack.close()  # the other run has just finished
            model_folder(workspace, name, force=force)
        yield folder, set_owner


@contextmanager
def model_run(
    workspace: Workspace,
    kind: str,
    name: str,
    settings: Mapping[str, Any],
    *,
    force: bool | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Iterator[tuple[Run, Path]]:
    """A run record and the folder of the model that the run makes, reserved for the block. Raises as
    `reserved_folder`."""
    with (
        reserved_folder(workspace, name, force=force) as (folder, set_owner),
        start_run(workspace, kind, settings, inputs=inputs) as run,
    ):
        set_owner(run.id)
        yield run, folder


def copy_run_files(old: Path, new: Path, *, linked: Iterable[str], copied: Iterable[str]) -> None:
    """Copy files of an interrupted run to the run that resumes it; the old run is not changed.

    `linked`: files and folders that are only ever replaced as a whole, so hard links will do. Missing ones are skipped.
    """
    for name in linked:
        source, target = old / name, new / name
        if source.is_dir():
            try:
                shutil.copytree(source, target, copy_function=os.link)
            except OSError:
                shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.is_file():
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)
    for name in copied:
        if (old / name).is_file():
            shutil.copyfile(old / name, new / name)


def _versions(folder: Path) -> Iterator[Path]:
    yield folder
    for version in count(2):
        yield folder.with_name(f"{folder.name}-v{version}")
