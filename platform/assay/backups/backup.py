"""A consistent copy of a workspace while others work in it.

Covers: the redo log up to one line, from which the store is made again (the DuckDB file itself is not copied, so nobody
waits), the journal, SQLite files by their own backup, models, runs and reports; hard links to the last backup for what
has not changed; old backups beyond a number. Leaves out: putting one back (`assay.backups.restoring`).

A run in progress is copied as it is then. Whatever the log names was on the disk before its line was, and is copied
after it.
"""

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from assay import __version__
from assay.annotation.vote_journal import DAMAGED, FOLDED
from assay.backups.manifest import MANIFEST, CopiedFile, Manifest, backups_in, hash_of, read_manifest
from assay.errors import AssayError, BackendError, BadInputError
from assay.system.atomic_files import sync_folder
from assay.workspace import Workspace

BACKUPS = "backups"  #: in the workspace, where no other folder is named
_BLOCK = 1 << 20
_SPARE = 200_000_000  #: bytes that a backup leaves free
_TRIES = 3


@dataclass(frozen=True)
class BackupReport:
    """`linked`: bytes that the last backup had already, which take no room again. `removed`: older backups."""

    folder: Path
    manifest: Manifest
    linked: int
    removed: tuple[Path, ...]


def back_up(
    workspace: Workspace,
    to: Path | None = None,
    *,
    keep: int | None = None,
    advance: Callable[[int], object] = lambda n: None,
) -> BackupReport:
    """Copy everything to a new folder in `to` (default: `backups` in the workspace), complete or absent.

    `keep`: at most that many backups stay, the newest. `advance`: bytes copied. Raises BackendError when the disk is
    full or fails, or where the log is damaged; InterruptedError of `advance` ends it.
    """
    if keep is not None and keep < 1:
        raise BadInputError("at least one backup is kept", field="keep")
    target = (to or workspace.root / BACKUPS).expanduser().resolve()
    if not workspace.store.log.files():
        with workspace.store.unit():
            pass  # a store from before there was a log gets one
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    partial = target / f".{stamp}.part"
    try:
        target.mkdir(parents=True, exist_ok=True)
        _remove_partial(target)
        for attempt in range(1, _TRIES + 1):
            partial.mkdir()
            try:
                copy = _Copy(workspace, target, partial, advance)
                manifest = copy.run()
                break
            except FileNotFoundError:  # `assay rebuild --log` has just put another log in the place of this one
                if attempt == _TRIES:
                    raise
                shutil.rmtree(partial)
        with (partial / MANIFEST).open("w", encoding="utf-8") as stream:
            stream.write(manifest.to_json())
            stream.flush()
            os.fsync(stream.fileno())
        for folder, _, _ in os.walk(partial):
            sync_folder(Path(folder))
        partial.rename(target / stamp)
        sync_folder(target)
    except InterruptedError:  # by `advance`
        raise
    except OSError as error:
        raise BackendError(f"no backup in {target}: {error.filename or ''} {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return BackupReport(target / stamp, manifest, copy.linked, _remove_old(workspace, target, keep))


@dataclass
class _Copy:
    """One pass over the workspace. `previous`: path -> what the last backup has of it."""

    workspace: Workspace
    target: Path
    partial: Path
    advance: Callable[[int], object]
    files: dict[str, CopiedFile] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    linked: int = 0

    def run(self) -> Manifest:
        self._previous = self._last_backup()
        root = self.workspace.root
        migrations, units = self._log()
        journal = self.workspace.journal
        for folder in (journal, journal / FOLDED, journal / DAMAGED):  # in the order in which fold moves files
            for path in sorted(folder.glob("votes-*.jsonl")):
                with suppress(FileNotFoundError):
                    self._file(path)
        for path in sorted(root.glob("*.sqlite")):
            self._sqlite(path)
        for path in self._remaining_files():
            with suppress(FileNotFoundError):  # of a run in progress
                self._file(path)
        return Manifest(
            datetime.now(UTC).isoformat(timespec="seconds"),
            str(root),
            __version__,
            tuple(sorted(migrations)),
            units,
            tuple(self.files[name] for name in sorted(self.files)),
            tuple(self.left_out),
        )

    def _log(self) -> tuple[set[int], int]:
        """Copy the log up to its last line now. Raises BackendError for damage in it."""
        log = self.workspace.store.log
        migrations: set[int] = set()
        segments: dict[str, None] = {}
        last = None
        for unit in log.units():
            if unit.content is None:
                raise BackendError(
                    f"the log is damaged: {unit.damage}; `assay rebuild --log` writes it anew from the store"
                )
            last = unit.end
            migrations |= set(unit.content.get("migrations", ()))
            segments |= {entry["segment"]: None for entry in unit.content.get("tables", ()) if "segment" in entry}
        if last is None:
            raise BackendError(f"{log.folder} is empty: `assay rebuild --log` writes it from the store")
        for path in log.files():
            if path.name <= last.file:
                self._file(path, limit=last.offset if path.name == last.file else None)
        for name in segments:
            self._file(log.segments / name)
        return migrations, last.number

    def _remaining_files(self) -> Iterator[Path]:
        """Files that nothing above has copied, but the store's own and temporary ones."""
        root = self.workspace.root
        for folder, names, files in os.walk(root):
            here = Path(folder)
            for name in list(names):
                path = here / name
                if path.is_symlink():
                    self.left_out.append(path.relative_to(root).as_posix())
                if path.is_symlink() or self._is_excluded(path):
                    names.remove(name)
            for name in sorted(files):
                path = here / name
                passing = name.startswith(".") and name.endswith((".part", ".claim"))
                if not (passing or (here == root and name.startswith((".assay.duckdb", "assay.duckdb")))):
                    if here == root and ".sqlite" in name:
                        continue
                    yield path

    def _is_excluded(self, folder: Path) -> bool:
        root = self.workspace.root
        own = (root / BACKUPS, self.target, self.workspace.store.log.folder, self.workspace.journal)
        return folder in own or (folder.parent == root and folder.name.startswith(("assay.duckdb", ".assay.duckdb")))

    def _file(self, path: Path, *, limit: int | None = None) -> None:
        """Copy a file as far as it is written now, or link it to the last backup's copy of the same state."""
        name = path.relative_to(self.workspace.root).as_posix()
        copy = self.partial / name
        with path.open("rb") as source:
            state = os.fstat(source.fileno())
            size = state.st_size if limit is None else limit
            copy.parent.mkdir(parents=True, exist_ok=True)
            known = self._previous.get(name)
            if known is not None and (known.bytes, known.modified) == (size, state.st_mtime_ns):
                with suppress(OSError):
                    os.link(self._last / name, copy)
                    self.files[name] = known
                    self.linked += size
                    self.advance(size)
                    return
            self._require_room(size)
            digest, remaining = hashlib.sha256(), size
            with copy.open("wb") as sink:
                while remaining and (block := source.read(min(_BLOCK, remaining))):
                    digest.update(block)
                    sink.write(block)
                    remaining -= len(block)
                    self.advance(len(block))
                sink.flush()
                os.fsync(sink.fileno())
            os.chmod(copy, state.st_mode & 0o777)
        self.files[name] = CopiedFile(name, size - remaining, digest.hexdigest(), state.st_mtime_ns)

    def _sqlite(self, path: Path) -> None:
        """One state of a file that others write to."""
        name = path.name
        copy = self.partial / name
        self._require_room(path.stat().st_size)
        try:
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30.0)) as source,
                closing(sqlite3.connect(copy)) as sink,
            ):
                source.backup(sink)
                sink.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise BackendError(f"{path} cannot be copied: {error}") from error
        with copy.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.chmod(copy, path.stat().st_mode & 0o777)
        self.files[name] = CopiedFile(name, copy.stat().st_size, hash_of(copy), path.stat().st_mtime_ns)

    def _last_backup(self) -> dict[str, CopiedFile]:
        for backup in reversed(backups_in(self.target)):
            with suppress(AssayError):
                manifest = read_manifest(backup)
                if manifest.workspace == str(self.workspace.root):
                    self._last = backup
                    return {file.path: file for file in manifest.files}
        return {}

    def _require_room(self, size: int) -> None:
        if size > _BLOCK and shutil.disk_usage(self.target).free < size + _SPARE:
            raise BackendError(f"no backup in {self.target}: the disk has no room for {size / 1e6:.0f} MB more")


def _remove_old(workspace: Workspace, folder: Path, keep: int | None) -> tuple[Path, ...]:
    """Backups of this workspace beyond the newest `keep`."""
    if keep is None:
        return ()
    own = []
    for backup in backups_in(folder):
        with suppress(AssayError):
            if read_manifest(backup).workspace == str(workspace.root):
                own.append(backup)
    for backup in own[:-keep]:
        gone = backup.with_name(f".{backup.name}.part")  # first out of sight, so that no half of one is taken for one
        backup.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    return tuple(own[:-keep])


def _remove_partial(folder: Path) -> None:
    """What a killed process left, unless another one is at it now."""
    for path in folder.glob(".*.part"):
        if datetime.now(UTC).timestamp() - path.stat().st_mtime > 86_400:
            shutil.rmtree(path, ignore_errors=True)
