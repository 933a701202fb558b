"""What may be imported from the pages: uploads, files of the workspace's folder `data` and of folders that the server
was started with, data sets of the hub.

Nothing else of the workspace, which holds accounts and keys, and nothing outside of it. Leaves out: what the files hold
(`assay_pipelines.importers`).
"""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from assay.errors import BadInputError, ForbiddenError, NotFoundError
from assay.workspace import Workspace
from assay_web.settings import WebSettings
from assay_web.uploads.upload_folder import FOLDER

DATA = "data"  #: where files are put on the server for people to import
HUB = "hf:"
MOST_FILES = 500
_HUB_NAME = re.compile(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?")


def roots_of(workspace: Workspace, settings: WebSettings) -> list[Path]:
    """Folders whose files may be imported."""
    return [workspace.root / FOLDER, workspace.root / DATA, *(root.resolve() for root in settings.import_roots)]


def importable(workspace: Workspace, settings: WebSettings, place: str) -> str:
    """The place as `assay data import` takes it: `hf:NAME`, or a path, which may be relative to the workspace.

    Raises ForbiddenError for a path outside of `roots_of`, NotFoundError for one that is not there, BadInputError for
    what is no name of a data set.
    """
    if place.startswith(HUB):
        name = place.removeprefix(HUB)
        if not _HUB_NAME.fullmatch(name) or ".." in name or Path(name).exists() or (workspace.root / name).exists():
            raise BadInputError("a data set of the hub is called owner/name")
        return place
    try:
        path = (workspace.root / place).resolve()
        roots = roots_of(workspace, settings)
        if not any(path.is_relative_to(root) for root in roots) or any(part.startswith(".") for part in path.parts):
            raise ForbiddenError(f"only files of these folders can be imported here: {', '.join(map(str, roots))}")
        if not path.exists():
            raise NotFoundError("there is no such file")
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a zero byte, links in a circle
        raise BadInputError("that can be no file's name") from error
    return workspace.stored_path(path)


def server_files(workspace: Workspace, settings: WebSettings) -> list[str]:
    """Files on the server that may be imported beside uploads, as `importable` takes them; at most MOST_FILES."""
    folders = roots_of(workspace, settings)[1:]
    return [workspace.stored_path(path) for path in islice(_files(folders), MOST_FILES)]


def _files(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for parent, children, names in os.walk(folder):
            children[:] = sorted(child for child in children if not child.startswith("."))
            yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))
