"""JSON Lines, plain or compressed, read one line at a time with the row that every complaint must name.

Covers: `.gz` and `.zst`, a byte-order mark, blank lines, broken lines as `RowError` (so that one bad row costs one
row), how far into the file the reader is. Leaves out: what the objects mean (`assay.data.conversation`).
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec

from assay.errors import BadInputError

_decode = msgspec.json.Decoder().decode
GZIP_MAGIC, ZSTD_MAGIC, BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"


class RowError(BadInputError):
    """One row is wrong. `reason` has no data in it, so that equal faults can be counted; `detail` says which part
    of the row, where not all of it is.
    """

    def __init__(self, reason: str, *, field: str | None = None) -> None:
        self.reason = reason
        self.detail: str | None = None
        super().__init__(reason, field=field)


class Lines:
    """The lines of a file as (1-based row, bytes without the line break); blank lines count but are not yielded.

    `position` and `size` are bytes of the file itself (compressed or not), for a progress bar. Raises
    BadInputError when the file cannot be opened or its compression is damaged; lines before the damage are yielded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._raw = path.open("rb")
        except FileNotFoundError as error:
            raise BadInputError("no such file", file=path) from error
        except OSError as error:
            raise BadInputError(f"cannot be read: {error.strerror}", file=path) from error
        self.size = path.stat().st_size

    @property
    def position(self) -> int:
        return self.size if self._raw.closed else self._raw.tell()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        with self._raw, decompressed(self._raw) as stream:
            lines = enumerate(stream, start=1)
            number = 0
            while True:
                try:
                    number, line = next(lines)
                except StopIteration:
                    return
                except (EOFError, OSError, zlib.error) as error:
                    raise BadInputError(
                        f"the file is damaged after row {number} ({error}); the rows before were read", file=self.path
                    ) from error
                if number == 1:
                    line = line.removeprefix(BOM)
                if line := line.strip():
                    yield number, line


def parse_object(line: bytes) -> dict[str, Any]:
    """One line as a JSON object. Raises RowError."""
    try:
        try:
            value = _decode(line)
        except (
            msgspec.MsgspecError,
            UnicodeDecodeError,
            RecursionError,
        ):  # the slower reader accepts more, or says why
            value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RowError("invalid UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowError(f"broken JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise RowError("broken JSON (a number out of range, or nested too deeply)") from error
    if not isinstance(value, dict):
        raise RowError("not a JSON object")
    return value


def decompressed(raw: IO[bytes]) -> IO[bytes]:
    """The stream's content, whether gzip, zstd or plain, told by its first bytes."""
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 18)
    if magic == ZSTD_MAGIC:
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"), 1 << 18)
    return raw


def _no_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not JSON", "", 0)
