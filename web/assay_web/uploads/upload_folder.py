"""The folder `uploads` of a workspace: files received in pieces, resumed after any interruption, kept once.

A piece counts once it is on the disk whole; what came of the next one is dropped. The digest of a file is the SHA-256
of the SHA-256 digests of its pieces of PIECE bytes, one after the other: browsers can compute it without reading the
file into memory. Leaves out: who may upload (`routes`), what a file holds (`assay_pipelines.importers`).

    uploads/NAME                    complete files
    uploads/.parts/ID.json          an upload; of a complete one, whose it is and its digest
    uploads/.parts/ID.part, ID.sha  what has arrived, and the digests of its pieces
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter, ValidationError

from assay.errors import BadInputError, ConflictError, NotFoundError
from assay.system.atomic_files import replacing
from assay_web.settings import UploadLimits

FOLDER, PARTS = "uploads", ".parts"
PIECE = 4 << 20
_DIGEST = hashlib.sha256().digest_size
ABANDONED_S = 7 * 86400.0  #: an upload without a piece for so long is dropped
NAME_BYTES = 150
_UNSAFE = re.compile(r"[^\w .()+=@,-]")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFullError(BadInputError):
    """The file does not fit; nothing of it is kept."""


@dataclass(frozen=True)
class Upload:
    """`modified`: of the file, as its browser says, in milliseconds. `file`: its name in the folder, when complete."""

    id: str
    name: str
    size: int
    modified: int
    by: str
    begun: float
    digest: str | None = None
    file: str | None = None


_UPLOADS = TypeAdapter(Upload)


@dataclass(frozen=True)
class UploadedFile:
    """A complete file; `by` and `at` are None for one that was put there by other means."""

    name: str
    size: int
    at: float
    by: str | None


class UploadFolder:
    """Of one workspace. Processes and threads may share it: a piece is received under a lock of its upload."""

    def __init__(self, workspace: Path, limits: UploadLimits) -> None:
        self.root, self.limits = workspace / FOLDER, limits

    @cached_property
    def _parts(self) -> Path:
        folder = self.root / PARTS
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def room(self) -> int:
        """Bytes that one more file may have now: what the disk has left beside the uploads that go on."""
        awaited = sum(upload.size - self.offset(upload) for upload in self.unfinished())
        free = shutil.disk_usage(self._parts).free - self.limits.spare_bytes - awaited
        return max(0, min(free, self.limits.most_bytes))

    def files(self) -> list[UploadedFile]:
        """The newest first."""
        by_name = {upload.file: upload for upload in self._uploads() if upload.file}
        paths = [path for path in self.root.glob("*") if path.is_file() and not path.name.startswith(".")]
        files = []
        for path in paths:
            stat, upload = path.stat(), by_name.get(path.name)
            files.append(UploadedFile(path.name, stat.st_size, stat.st_mtime, upload.by if upload else None))
        return sorted(files, key=lambda file: -file.at)

    def unfinished(self) -> list[Upload]:
        return [upload for upload in self._uploads() if upload.file is None]

    def get(self, upload_id: str) -> Upload:
        """Raises NotFoundError."""
        upload = _read(self._parts / f"{upload_id}.json")
        if upload is None:
            raise NotFoundError("this upload is not known here any more: choose the file again")
        return upload

    def path_of(self, name: str) -> Path:
        """The path of a complete file. Raises NotFoundError."""
        path = self.root / name
        if name != clean_name(name) or not path.is_file() or path.is_symlink():
            raise NotFoundError("there is no such file among the uploads")
        return path

    def begin(self, name: str, size: int, modified: int, digest: str | None, by: str) -> Upload:
        """A new upload; the one of the same file that the person has begun; or, where the digest is that of a complete
        file, that one. Raises BadInputError for a file that is empty or too large, DiskFullError."""
        if size == 0:
            raise BadInputError("the file is empty")
        if size > self.limits.most_bytes:
            raise BadInputError(f"the file has {_gb(size)}; the limit is {_gb(self.limits.most_bytes)}")
        name = clean_name(name)
        with self._locked():
            self._drop_abandoned()
            if digest and (complete := self._complete(size, digest)) is not None:
                return complete
            for upload in self.unfinished():
                if (upload.by, upload.name, upload.size, upload.modified) == (by, name, size, modified):
                    return self._finish(upload) if self.offset(upload) == size else upload
            if size > (room := self.room()):
                raise DiskFullError(
                    f"the file has {_gb(size)} and the disk has room for {_gb(room)}: free some space first"
                )
            upload = Upload(secrets.token_hex(8), name, size, modified, by, time.time())
            self._write(upload)
            return upload

    def offset(self, upload: Upload) -> int:
        """Bytes that are safely here."""
        if upload.file is not None:
            return upload.size
        digests, part = (self._parts / f"{upload.id}.{ending}" for ending in ("sha", "part"))
        try:
            return min(digests.stat().st_size // _DIGEST * PIECE, part.stat().st_size)
        except FileNotFoundError:
            return 0

    @contextmanager
    def piece(self, upload: Upload, offset: int) -> Iterator["Piece"]:
        """Write the next piece: it counts if the block ends and it is whole. Raises ConflictError while another one is
        received or for another offset; DiskFullError, when the upload is dropped for the space it takes."""
        if upload.file is not None or offset != self.offset(upload):
            raise ConflictError(f"the upload goes on at byte {self.offset(upload)}")
        with (self._parts / f"{upload.id}.part").open("r+b" if offset else "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConflictError("another piece of this file is on its way") from None
            upload = self.get(upload.id)  # another may have ended between
            if upload.file is not None or offset != self.offset(upload):
                raise ConflictError(f"the upload goes on at byte {self.offset(upload)}")
            expected = min(PIECE, upload.size - offset)
            file.truncate(offset)
            file.seek(offset)
            piece = Piece(file, expected)
            try:
                if shutil.disk_usage(self._parts).free < self.limits.spare_bytes // 2 + expected:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                yield piece
                piece.check_whole()
                os.fdatasync(file.fileno())
                with (self._parts / f"{upload.id}.sha").open("ab") as digests:
                    digests.write(piece.digest())
                    digests.flush()
                    os.fdatasync(digests.fileno())
            except OSError as error:
                if error.errno not in _FULL:
                    file.truncate(offset)
                    raise
                self._drop(upload)
                raise DiskFullError("the disk is full: nothing of the file was kept; free some space first") from error
            except BaseException:
                file.truncate(offset)
                raise
            if offset + expected == upload.size:
                with self._locked():
                    self._finish(upload)

    def discard(self, upload: Upload) -> None:
        """Drop an unfinished upload."""
        self._drop(upload)

    def remove(self, name: str) -> None:
        """Delete a complete file. What was imported from it stays. Raises NotFoundError."""
        self.path_of(name).unlink()
        for upload in self._uploads():
            if upload.file == name:
                self._drop(upload)

    def _finish(self, upload: Upload) -> Upload:
        """Give the file its name; one that is there already under another is kept once."""
        digest = hashlib.sha256((self._parts / f"{upload.id}.sha").read_bytes()).hexdigest()
        same = self._complete(upload.size, digest)
        upload = replace(upload, digest=digest, file=same.file if same else _free_name(self.root, upload.name))
        self._write(upload)
        self._settle(upload, keep=same is None)
        return upload

    def _settle(self, upload: Upload, *, keep: bool) -> None:
        part = self._parts / f"{upload.id}.part"
        if keep and upload.file is not None:
            with suppress(FileNotFoundError):  # it has its name by another's hand
                part.replace(self.root / upload.file)
        part.unlink(missing_ok=True)
        (self._parts / f"{upload.id}.sha").unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._parts / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _complete(self, size: int, digest: str | None) -> Upload | None:
        """A complete upload of this content whose file is still as it was."""
        for upload in self._uploads():
            if upload.file is not None and (upload.size, upload.digest) == (size, digest):
                path = self.root / upload.file
                if path.is_file() and path.stat().st_size == size:
                    return upload
        return None

    def _uploads(self) -> list[Upload]:
        uploads = [upload for path in self._parts.glob("*.json") if (upload := _read(path)) is not None]
        for upload in uploads:
            if (
                upload.file is not None and (self._parts / f"{upload.id}.part").exists()
            ):  # killed before it had its name
                self._settle(upload, keep=not (self.root / upload.file).exists())
        return uploads

    def _write(self, upload: Upload) -> None:
        try:
            with replacing(self._parts / f"{upload.id}.json") as temporary:
                temporary.write_bytes(_UPLOADS.dump_json(upload))
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFullError("the disk is full: free some space first") from error
            raise

    def _drop(self, upload: Upload) -> None:
        for ending in ("json", "part", "sha"):
            (self._parts / f"{upload.id}.{ending}").unlink(missing_ok=True)

    def _drop_abandoned(self) -> None:
        for upload in self.unfinished():
            part = self._parts / f"{upload.id}.part"
            if time.time() - max(upload.begun, part.stat().st_mtime if part.exists() else 0.0) > ABANDONED_S:
                self._drop(upload)


class Piece:
    """What arrives of a piece, written through to the file."""

    def __init__(self, file: BinaryIO, expected: int) -> None:
        self._file, self._left, self._digest = file, expected, hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        """Raises BadInputError for more than the piece has."""
        if len(chunk) > self._left:
            raise BadInputError("the piece is longer than what is left of the file")
        self._file.write(chunk)
        self._digest.update(chunk)
        self._left -= len(chunk)

    def check_whole(self) -> None:
        """Raises BadInputError."""
        self._file.flush()
        if self._left:
            raise BadInputError(f"{self._left} bytes of the piece did not arrive")

    def digest(self) -> bytes:
        return self._digest.digest()


def clean_name(name: str) -> str:
    """A file's name without folders, control and special characters, leading dots and dashes; at most NAME_BYTES, with
    its endings."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    name = _UNSAFE.sub("_", name.encode("utf-8", "replace").decode()).strip(" ").lstrip(".- ")
    suffix = "".join(Path(name).suffixes[-2:])[-20:]
    stem = name.removesuffix(suffix)
    while len((stem + suffix).encode()) > NAME_BYTES:
        stem = stem[:-1]
    return (stem + suffix).lstrip(".- ") or "upload"


def _free_name(folder: Path, name: str) -> str:
    suffix = "".join(Path(name).suffixes[-2:])
    stem, free, number = name.removesuffix(suffix), name, 1
    while (folder / free).exists():
        number += 1
        free = f"{stem}-{number}{suffix}"
    return free


def _read(path: Path) -> Upload | None:
    try:
        return _UPLOADS.validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _gb(size: int) -> str:
    for unit, bytes_of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_of:
            return f"{size / bytes_of:.3g} {unit}"
    return f"{size} bytes"
