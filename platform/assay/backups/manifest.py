"""What a backup holds: one JSON file with every file's size and hash, written last.

Covers: writing, reading and checking a manifest, the backups in a folder. Leaves out: making a backup
(`assay.backups.backup`) and putting one back (`assay.backups.restoring`).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from assay.errors import BadInputError, NotFoundError
from assay.store.schema import require_known

MANIFEST = "backup.json"
FORMAT = 1


@dataclass(frozen=True)
class CopiedFile:
    """`path`: within the workspace, with `/`. `modified`: nanoseconds since 1970, of the original."""

    path: str
    bytes: int
    sha256: str
    modified: int


@dataclass(frozen=True)
class Manifest:
    """`units`: number of the last unit of work in the copied log. `migrations`: of the schema. `left_out`: links
    to other folders, which are not followed."""

    created: str
    workspace: str
    assay_version: str
    migrations: tuple[int, ...]
    units: int
    files: tuple[CopiedFile, ...]
    left_out: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def read_manifest(backup: Path) -> Manifest:
    """Raises NotFoundError for a folder that is no backup, BadInputError for a manifest that cannot be read or that a
    newer Assay wrote."""
    path = backup / MANIFEST
    try:
        payload: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"{backup} is not a backup: it has no {MANIFEST}") from error
    except (OSError, ValueError) as error:
        raise BadInputError(f"not readable: {error}", file=path) from error
    version = payload.get("format") if isinstance(payload, dict) else None
    if not isinstance(version, int) or version > FORMAT:
        raise BadInputError(f"backup format {version!r}, this Assay reads {FORMAT}: upgrade Assay", file=path)
    try:
        files = tuple(CopiedFile(**file) for file in payload.pop("files"))
        lists: dict[str, Any] = {name: tuple(payload.pop(name)) for name in ("migrations", "left_out")}
        manifest = Manifest(files=files, **lists, **payload)
    except (TypeError, KeyError) as error:
        raise BadInputError(f"not the manifest of a backup: {error}", file=path) from error
    for file in manifest.files:
        parts = PurePosixPath(file.path)
        if parts.is_absolute() or ".." in parts.parts:
            raise BadInputError(f"a path that leaves the workspace: {file.path!r}", file=path)
    require_known(frozenset(manifest.migrations))
    return manifest


def problems_of(backup: Path, manifest: Manifest) -> Iterator[str]:
    """One line for every file that is missing, of another size or of other content."""
    for file in manifest.files:
        path = backup / file.path
        try:
            if path.stat().st_size != file.bytes:
                yield f"{file.path}: {path.stat().st_size} bytes, {file.bytes} when it was copied"
            elif hash_of(path) != file.sha256:
                yield f"{file.path}: its content has changed since it was copied"
        except OSError as error:
            yield f"{file.path}: {error.strerror or error}"


def backups_in(folder: Path) -> list[Path]:
    """Complete backups, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and (path / MANIFEST).is_file())


def newest_in(folder: Path) -> Path:
    """The folder itself where it is a backup, else the newest backup in it. Raises NotFoundError."""
    resolved = folder.expanduser().resolve()
    if (resolved / MANIFEST).is_file():
        return resolved
    if not (backups := backups_in(resolved)):
        raise NotFoundError(f"no backup at {resolved}; make one with: assay backup")
    return backups[-1]


def hash_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
