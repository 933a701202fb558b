"""The redo log: every change of the store, on the disk before the store commits it, so that the store can be made anew.

Covers: the files of the log, one line a unit of work, fsynced; their check sums; rotation; rows of a large change as
Parquet segments that a line refers to. Leaves out: which rows a unit changed (`assay.store.change_capture`), applying
them (`assay.store.replay`). Appending needs the store's own lock: the caller holds the DuckDB file open.

    log/units-0000000001.jsonl       lines of units 1, 2, ...; a new file past ROTATE_BYTES
    log/segments/0000000042-scores.parquet

A line is one mark, a blank or `-`, then `{"check": ..., "unit": {...}}`. A `-` voids the unit: the store refused to
commit it. The mark is overwritten in place, which a full disk permits too. A torn last line was never acknowledged.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import ids
from assay.errors import BackendError
from assay.system.atomic_files import sync_folder

ROTATE_BYTES = 16_000_000
_FILE = re.compile(r"units-(\d{10})\.jsonl")
_VOID, _VALID = b"-", b" "
_BLOCK = 1 << 20


@dataclass(frozen=True)
class LogPosition:
    """The end of unit `number`: its file's name, and the offset in bytes after its line."""

    number: int
    file: str
    offset: int


@dataclass(frozen=True)
class LoggedUnit:
    """One line. `content` is None where it cannot be read: `damage` says why."""

    end: LogPosition
    content: dict[str, Any] | None
    void: bool = False
    damage: str = ""


@dataclass(frozen=True)
class RedoLog:
    """The log in `folder`, which need not be there yet."""

    folder: Path

    @property
    def segments(self) -> Path:
        return self.folder / "segments"

    def files(self) -> list[Path]:
        """In the order they were written."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if _FILE.fullmatch(entry.name))
        except FileNotFoundError:
            return []
        return [self.folder / name for name in names]

    def ends_at(self, position: LogPosition) -> bool:
        """Whether nothing comes after it; costs one listing of the folder."""
        files = self.files()
        return bool(files) and files[-1].name == position.file and files[-1].stat().st_size == position.offset

    def units(self, after: LogPosition | None = None) -> Iterator[LoggedUnit]:
        """Every line after a position, void and damaged ones too. A torn last line is left out.

        Raises BackendError where the log does not reach `after`.
        """
        files = self.files()
        offset, number = 0, 0
        if after is None:
            files = files[self._base(files) :]
        else:
            files = [path for path in files if path.name >= after.file]
            if not files or files[0].name != after.file or files[0].stat().st_size < after.offset:
                raise BackendError(f"{self.folder} ends before the store")
            offset, number = after.offset, after.number
        for path in files:
            first = int(path.name[6:16])
            if number and offset == 0 and first != number + 1:
                number = first - 1
                yield LoggedUnit(LogPosition(number, path.name, 0), None, damage=f"a file before {path.name} is gone")
            number = number or first - 1
            with path.open("rb") as stream:
                stream.seek(offset)
                for line in stream:
                    if not line.endswith(b"\n"):
                        break  # torn
                    offset += len(line)
                    number += 1
                    yield _decoded(line, LogPosition(number, path.name, offset))
            offset = 0

    def _base(self, files: list[Path]) -> int:
        """Index of the last file that begins with a base: all rows of the store, so that nothing before it counts."""
        for index in range(len(files) - 1, 0, -1):
            with files[index].open("rb") as stream:
                unit = _decoded(stream.readline(), LogPosition(int(files[index].name[6:16]), files[index].name, 0))
            if unit.content is not None and unit.content.get("base") and not unit.void:
                return index
        return 0

    def cut_torn(self) -> None:
        """Remove what a killed process left of a last line. The caller holds the store."""
        for path in self.files()[-1:]:
            with path.open("rb+") as stream:
                size = stream.seek(0, os.SEEK_END)
                whole = _end_of_lines(stream, size)
                if whole < size:
                    stream.truncate(whole)
                    os.fsync(stream.fileno())

    def append(self, content: dict[str, Any], number: int, *, new_file: bool = False) -> LogPosition:
        """Write unit `number`; on the disk on return. Raises BackendError when the disk fails; the log is then as it
        was."""
        line = _encoded({"number": number, **content})
        files = [] if new_file else self.files()
        path = files[-1] if files and files[-1].stat().st_size < ROTATE_BYTES else None
        try:
            if path is None:
                path = self.folder / f"units-{number:010d}.jsonl"
                self.folder.mkdir(exist_ok=True)
            is_new = not path.exists()
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(handle).st_size
                try:
                    unwritten = line
                    while unwritten:
                        unwritten = unwritten[os.write(handle, unwritten) :]
                    os.fsync(handle)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(handle, size)
                        os.fsync(handle)
                    raise
            finally:
                os.close(handle)
            if is_new:
                sync_folder(self.folder)
                sync_folder(self.folder.parent)
        except OSError as error:
            raise BackendError(
                f"cannot write {path or self.folder}: {error.strerror or error}; the last step was not stored, "
                "run it again"
            ) from error
        return LogPosition(number, path.name, size + len(line))

    def problems(self) -> Iterator[str]:
        """One line for each line that cannot be read and each segment that is missing or of another size."""
        for unit in self.units():
            if unit.content is None:
                yield unit.damage
                continue
            for entry in () if unit.void else unit.content.get("tables", ()):
                if "segment" in entry:
                    path = self.segments / entry["segment"]
                    size = path.stat().st_size if path.exists() else None
                    if size is None:
                        yield f"{path.name} is gone"
                    elif size != entry["bytes"]:
                        yield f"{path.name} has {size} bytes instead of {entry['bytes']}"

    def is_void(self, unit_end: LogPosition) -> bool:
        """Whether the unit that ends there is marked as one that the store did not commit."""
        with (self.folder / unit_end.file).open("rb") as stream:
            stream.seek(_start_of_last_line(stream, unit_end.offset))
            return stream.read(1) == _VOID

    def set_void(self, unit_end: LogPosition, *, void: bool) -> None:
        """Mark the unit that ends there as one that the store did not commit, or as one that it did after all."""
        with (self.folder / unit_end.file).open("rb+") as stream:
            stream.seek(_start_of_last_line(stream, unit_end.offset))
            stream.write(_VOID if void else _VALID)
            stream.flush()
            os.fsync(stream.fileno())

    def segment(self, number: int, table: str) -> Path:
        self.segments.mkdir(parents=True, exist_ok=True)
        return self.segments / f"{number:010d}-{table}.parquet"

    def drop_before(self, position: LogPosition) -> None:
        """Remove what a base at `position`, the first line of its file, has made superfluous."""
        for path in self.files():
            if path.name < position.file:
                path.unlink()
        for path in self.segments.glob("*.parquet"):
            if path.name[:10].isdigit() and int(path.name[:10]) < position.number:
                path.unlink()


def checksum(path: Path) -> tuple[int, str]:
    """Size in bytes and CRC-32 of a file: against damage, not against intent."""
    crc = size = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            crc, size = zlib.crc32(block, crc), size + len(block)
    return size, f"{crc:08x}"


def _encoded(unit: dict[str, Any]) -> bytes:
    text = _canonical(unit)
    return _VALID + f'{{"check":"{ids.digest(text)}","unit":{text}}}\n'.encode("ascii")


def _decoded(line: bytes, end: LogPosition) -> LoggedUnit:
    void = line[:1] == _VOID
    try:
        record = json.loads(line[1:])
        unit = record["unit"]
        if line[:1] in (_VOID, _VALID) and ids.digest(_canonical(unit)) == record["check"]:
            if unit["number"] != end.number:
                return LoggedUnit(end, None, damage=f"unit {unit['number']} where {end.number} should be")
            return LoggedUnit(end, unit, void)
    except (ValueError, KeyError, TypeError):
        pass
    return LoggedUnit(end, None, damage=f"unit {end.number} in {end.file} cannot be read")


def _canonical(unit: dict[str, Any]) -> str:
    return json.dumps(unit, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _end_of_lines(stream: Any, size: int) -> int:
    """Offset after the last newline before `size`, 0 if there is none."""
    at, block = size, 4096  # most lines are short
    while at > 0:
        low = max(0, at - block)
        block = _BLOCK
        stream.seek(low)
        found = stream.read(at - low).rfind(b"\n")
        if found >= 0:
            return int(low + found + 1)
        at = low
    return 0


def _start_of_last_line(stream: Any, end: int) -> int:
    return _end_of_lines(stream, end - 1)
