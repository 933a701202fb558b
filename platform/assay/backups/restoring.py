"""A workspace from a backup.

Covers: checking the copy, copying it to a new folder, making the store from its log with this Assay's schema. Leaves
out: merging into a workspace that is there.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from assay.backups.manifest import problems_of, read_manifest
from assay.backups.rebuild import RebuildReport, rebuild
from assay.errors import BackendError, BadInputError
from assay.system.atomic_files import replacing_folder
from assay.workspace import MARKER, Workspace


def restore(
    backup: Path, folder: Path, *, advance: Callable[[int], object] = lambda n: None
) -> tuple[Workspace, RebuildReport]:
    """Make the workspace `folder`, which must be new or empty, from a backup. A kill leaves no folder of that name.

    `advance`: bytes copied. Raises NotFoundError for what is no backup, BadInputError for one of a newer Assay or a
    folder that has files, BackendError for a copy that is damaged.
    """
    manifest = read_manifest(backup)
    target = folder.expanduser().resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInputError("is not empty; a backup is restored to a new folder", file=target)
    if problems := list(problems_of(backup, manifest)):
        more = f", and {len(problems) - 1} more files" if len(problems) > 1 else ""
        raise BackendError(f"{backup} is damaged: {problems[0]}{more}; take another backup")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(target, ours=MARKER) as temporary:
        for name in ("models", "runs", "reports", "journal"):
            (temporary / name).mkdir()
        for file in manifest.files:
            copy = temporary / file.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(backup / file.path, copy)
            shutil.copymode(backup / file.path, copy)
            advance(file.bytes)
        report = rebuild(Workspace.open(temporary))
    return Workspace.open(target), report
