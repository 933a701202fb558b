"""JSON Lines, one JSON array of objects, and arrays of objects in a JSON object."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from assay.data.compression import decompressed
from assay.data.json_lines import BOM, Lines, RowError, damaged, parse_object, utf8_content
from assay.errors import BadInputError
from assay_pipelines.importers.containers.container import Record, TextFile
from assay_pipelines.importers.containers.json_elements import ArrayError, JsonElements, arrays_of_objects, skip

SNIFF_BYTES = 1 << 16
_SPLITS = r"(train|valid|val|validation|dev|eval|test)(_\w+)?"
_ROWS_NAMES = r"data|rows|records|examples|instances|items|entries|results|" + _SPLITS
#: Names of members that hold rows, and the beginning of such a member.
_HOLDS_ROWS = re.compile(_ROWS_NAMES)
_USUAL_ARRAY = re.compile(rb'"(' + _ROWS_NAMES.encode() + rb')"\s*:\s*\[\s*\{')
_OPEN_LINE = re.compile(rb'\{\s*"[^"]*"\s*:\s*[\[{]?')


class JsonLines(TextFile):
    """One object a line. Rows count lines."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "JSON Lines")
        self._lines = Lines(path)

    def position(self) -> int:
        return self._lines.position // 1024

    def records(self) -> Iterator[Record]:
        self._lines = Lines(self.path)
        for row, line in self._lines:
            yield _record(row, line)


class JsonArray(TextFile):
    """An array of objects, over any number of lines. Rows count the elements."""

    def __init__(self, path: Path, description: str = "a JSON array", *, place: int | None = None) -> None:
        """`place`: where it begins in a JSON object."""
        super().__init__(path, description)
        self._place = place

    def records(self) -> Iterator[Record]:
        row = 0
        with self.path.open("rb") as self._raw:
            try:
                content = utf8_content(decompressed(self._raw))
                skip(content, self._place or 0)
                for row, element in enumerate(JsonElements(content, inner=self._place is not None), start=1):
                    yield _record(row, element)
            except (ArrayError, EOFError, OSError, zlib.error) as error:
                raise damaged(self.path, row, error, what="JSON array") from error


def _record(row: int, raw: bytes) -> Record:
    try:
        return row, parse_object(raw, nan_as_null=True), raw
    except RowError as error:
        return row, error, raw


def json_container(path: Path, split: str | None = None) -> JsonLines | JsonArray:
    """JSON Lines, a JSON array, or an array in a JSON object, by how the file begins.

    `split`: which array of an object is read; without it `train`, else one of the usual names, else the first.
    """
    lines = JsonLines(path)  # opens the file, and so complains early
    with path.open("rb") as raw:
        try:
            start = utf8_content(decompressed(raw)).read(SNIFF_BYTES).removeprefix(BOM).lstrip()
        except (EOFError, OSError, zlib.error):
            return lines  # reading it raises the error
    if start.startswith(b"["):
        return JsonArray(path)
    if not start.startswith(b"{") or not _may_hold_arrays(start):
        return lines
    with path.open("rb") as raw:
        try:
            places = arrays_of_objects(utf8_content(decompressed(raw)))
        except (ArrayError, EOFError, OSError, zlib.error):
            return lines
    names = list(places)
    if not names or (not _is_pretty(start) and not any(map(_HOLDS_ROWS.fullmatch, names))):
        return lines
    if split is not None and split not in names:
        raise BadInputError(f"there is no array {split!r}; there are {', '.join(names)}", file=path, field="split")
    usual = [name for name in names if _HOLDS_ROWS.fullmatch(name)]
    chosen = split or ("train" if "train" in names else (usual or names)[0])
    unread = ", ".join(name for name in names if name != chosen)
    remark = f"; there are also {unread}: --split" if unread else ""
    return JsonArray(path, f"the array {chosen!r} of a JSON object{remark}", place=places[chosen])


def _is_pretty(start: bytes) -> bool:
    """Whether the first line is no object of its own, but the beginning of one."""
    line = start.partition(b"\n")[0].strip()
    return line == b"{" or _OPEN_LINE.fullmatch(line) is not None


def _may_hold_arrays(start: bytes) -> bool:
    """Whether the file may be one object, by its first line: it goes on in the next, or is the only one and has an
    array of the usual name.
    """
    line, _, after = start.partition(b"\n")
    if _is_pretty(start):
        return True
    return not after.strip() and _USUAL_ARRAY.search(line) is not None
