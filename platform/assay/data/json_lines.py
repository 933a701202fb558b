"""JSON Lines, plain or compressed, read one line at a time with the row that every complaint must name.

Covers: UTF-8 and UTF-16 with their byte-order marks, blank lines, broken and too large lines as `RowError` (so that one
bad row costs one row and memory stays bounded), how far into the file the reader is. Leaves out: compression
(`assay.data.compression`), what the objects mean (`assay.data.conversation`).
"""

import codecs
import io
import json
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec

from assay.data.compression import ExpansionError, decompressed
from assay.errors import BadInputError

BOM = b"\xef\xbb\xbf"
ROW_BYTES = 32 * 2**20  #: a row may have so many; one of more is a reject
TOO_LARGE = f"the row is larger than {ROW_BYTES // 2**20} MiB"
_SKIP_BYTES = 1 << 20
_KEY_CHARACTERS = 100
_decode = msgspec.json.Decoder().decode
#: The end of every key, and of some texts.
_find_keys = re.compile(rb'"\s*:').findall


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

    A line of more than ROW_BYTES is cut to one byte more, which `parse_object` refuses. `position` and `size` are bytes
    of the file itself (compressed or not), for a progress bar. Raises BadInputError when the file cannot be opened or
    its compression is damaged; lines before the damage are yielded.
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
        number = 0
        with self._raw:
            try:
                stream = utf8_content(decompressed(self._raw))
                for number, line in enumerate(iter(partial(stream.readline, ROW_BYTES + 1), b""), start=1):
                    if len(line) > ROW_BYTES and not line.endswith(b"\n"):
                        _skip_line(stream)
                        yield number, line
                    elif line := (line.removeprefix(BOM) if number == 1 else line).strip():
                        yield number, line
            except (EOFError, OSError, zlib.error) as error:
                raise damaged(self.path, number, error) from error


def utf8_content(stream: IO[bytes]) -> IO[bytes]:
    """The stream as UTF-8 where it begins with the byte-order mark of UTF-16; any other stream as it is."""
    if not isinstance(stream, io.BufferedReader):
        stream = io.BufferedReader(stream)  # type: ignore[type-var]
    start = stream.peek(2)[:2]
    return io.BufferedReader(_Utf16(stream)) if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else stream


class _Utf16(io.RawIOBase):
    """UTF-16 with a byte-order mark, read as UTF-8; what is no UTF-16 becomes a replacement character."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = self._stream.read(len(buffer))
            self._left = self._decoder.decode(piece, final=not piece).encode("utf-8", "replace")
            if not piece and not self._left:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def damaged(path: Path, row: int, error: BaseException, *, what: str = "file") -> BadInputError:
    """The error of a file that cannot be read beyond `row`."""
    if isinstance(error, ExpansionError):
        return BadInputError(f"not read beyond row {row}: {error}", file=path)
    return BadInputError(f"the {what} is damaged after row {row} ({error}); the rows before were read", file=path)


def parse_object(line: bytes, *, nan_as_null: bool = False) -> dict[str, Any]:
    """One line as a JSON object. Raises RowError, also for a key that occurs twice.

    `nan_as_null`: NaN, which is no JSON but is how tables are often written where a value is missing, is null.
    """
    if len(line) > ROW_BYTES:
        raise RowError(TOO_LARGE)
    try:
        try:
            value = _decode(line)
        except (
            msgspec.MsgspecError,
            UnicodeDecodeError,
            RecursionError,
        ):  # the slower reader accepts more, or says why
            value = _slow_decode(line, nan_as_null)
        else:
            if len(_find_keys(line)) != _key_count(value):
                value = _slow_decode(line, nan_as_null)
    except UnicodeDecodeError as error:
        raise RowError("invalid UTF-8") from error
    except json.JSONDecodeError as error:
        raise RowError(f"broken JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise RowError("broken JSON (a number out of range, or nested too deeply)") from error
    if not isinstance(value, dict):
        raise RowError("not a JSON object")
    return value


def _slow_decode(line: bytes, nan_as_null: bool) -> Any:
    constant = _null_for_nan if nan_as_null else _no_constant
    return json.loads(line.decode("utf-8"), parse_constant=constant, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            field = key[:_KEY_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
            raise RowError("the key occurs twice", field=field)
        seen.add(key)
    raise AssertionError("fewer keys than pairs, and no key twice")


def _key_count(value: Any) -> int:
    """Keys of all objects in a decoded value. A text with a quote before a colon makes `_find_keys` count more."""
    count, pending = 0, [value]
    while pending:
        node = pending.pop()
        if type(node) is dict:
            count += len(node)
            pending += [child for child in node.values() if type(child) is dict or type(child) is list]
        elif type(node) is list:
            pending += [child for child in node if type(child) is dict or type(child) is list]
    return count


def _skip_line(stream: IO[bytes]) -> None:
    while (piece := stream.readline(_SKIP_BYTES)) and not piece.endswith(b"\n"):
        pass


def _null_for_nan(name: str) -> None:
    if name != "NaN":
        _no_constant(name)


def _no_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not JSON", "", 0)
