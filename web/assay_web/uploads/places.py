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
    root = workspace.root.resolve()
    return [root / FOLDER, root / DATA, *(each.resolve() for each in settings.import_roots)]


def importable(workspace: Workspace, settings: WebSettings, name: str) -> str:
    """The name as `assay data import` takes it: `hf:NAME`, or a path, which may be relative to the workspace.

    Raises ForbiddenError for a path outside of `roots_of`, NotFoundError for one that is not there, BadInputError for
    what is no name of a data set.
    """
    if name.startswith(HUB):
        data_set = name.removeprefix(HUB)
        if not _HUB_NAME.fullmatch(data_set) or ".." in data_set or _is_local(workspace, data_set):
            raise BadInputError("a data set of the hub is called owner/name")
        return name
    try:
        path = (workspace.root / name).resolve()
        roots = roots_of(workspace, settings)
        below = [path.relative_to(root).parts for root in roots if path.is_relative_to(root)]
        if not any(all(not part.startswith(".") for part in parts) for parts in below):
            raise ForbiddenError(f"only files of these folders can be imported here: {', '.join(map(str, roots))}")
        if not path.exists():
            raise NotFoundError("there is no such file")
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a zero byte, links in a circle
        raise BadInputError("that can be no file's name") from error
    return workspace.stored_path(path)


def _is_local(workspace: Workspace, name: str) -> bool:
    """Whether `datasets` would read a folder of this machine under the name."""
    return Path(name).exists() or (workspace.root / name).exists()


def server_files(workspace: Workspace, settings: WebSettings) -> list[str]:
    """Files on the server that may be imported beside uploads, as `importable` takes them; at most MOST_FILES."""
    folders = roots_of(workspace, settings)[1:]
    return [workspace.stored_path(path) for path in islice(_files(folders), MOST_FILES)]


def _files(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        for parent, children, names in os.walk(folder):
            children[:] = sorted(child for child in children if not child.startswith("."))
            yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))
