"""The elements of one JSON array, or the members of one object, as bytes, one at a time.

The whole is never in memory, nor is an element too large. Only brackets, quotes and commas are looked at. Whether an
element is JSON is for its reader to say.
"""

import re
from collections.abc import Iterator
from typing import Protocol

import msgspec

from assay.data.json_lines import BOM, ROW_BYTES

CHUNK = 1 << 18
NAME_BYTES = 1 << 16  #: of a member's name with the beginning of its value
_in_text = re.compile(rb'["\\]').search
_in_element = re.compile(rb'["{}\[\]]').search
_between = re.compile(rb'["{}\[\],]').search
_member = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:\s*(?P<value>\[\s*[{\]])?', re.DOTALL).match


class ReadableBytes(Protocol):
    """A stream, or what reads like one."""

    def read(self, size: int = -1, /) -> bytes: ...


class ArrayError(ValueError):
    """What is read is not one JSON array or object."""


class JsonElements:
    """Iterates once over the elements of the array in `stream`, without the white space around them.

    An element of more than `most` bytes is cut to one byte more. `brackets`: those of an object for its members.
    `inner`: the array stands in something larger. `place`: where in the stream the last element began. Raises
    ArrayError after the last complete element of an array that does not end, or, if not `inner`, is followed by
    something.
    """

    def __init__(
        self, stream: ReadableBytes, *, brackets: bytes = b"[]", inner: bool = False, most: int = ROW_BYTES
    ) -> None:
        self._stream, self._inner, self._most = stream, inner, most
        self._opening, self._closing = brackets[:1], brackets[1:]
        self._pieces: list[bytes] = []
        self._bytes = self._space = self._before = self.place = 0

    def __iter__(self) -> Iterator[bytes]:
        chunk = self._first_chunk()
        start = at = 1
        begun = self._before + 1
        depth, in_text, first = 0, False, True
        while chunk:
            search = _in_text if in_text else _in_element if depth else _between
            match = search(chunk, at)
            if match is None:
                self._keep(chunk[start:])
                start, at = 0, max(at - len(chunk), 0)  # an escaped character may begin the next chunk
                self._before += len(chunk)
                chunk = self._stream.read(CHUNK)
                continue
            at, mark = match.end(), match[0]
            if in_text:
                if mark == b'"':
                    in_text = False
                else:
                    at += 1
            elif mark == b'"':
                in_text = True
            elif mark in b"{[":
                depth += 1
            elif depth:
                depth -= 1
            elif mark not in (b",", self._closing):
                raise ArrayError("a closing brace without its opening one")
            else:
                self._keep(chunk[start : match.start()])
                element = self._take(begun)
                if element or mark == b"," or not first:
                    yield element
                if mark == self._closing:
                    if not self._inner:
                        self._require_end(chunk[at:])
                    return
                first, start, begun = False, at, self._before + at
        raise ArrayError("the array does not end")

    def _first_chunk(self) -> bytes:
        chunk = read = self._stream.read(CHUNK)
        chunk = chunk.removeprefix(BOM)
        while chunk and not (chunk := chunk.lstrip()):
            self._before += len(read)
            chunk = read = self._stream.read(CHUNK)
        self._before += len(read) - len(chunk)
        if not chunk.startswith(self._opening):
            raise ArrayError("not an array" if self._opening == b"[" else "not an object")
        return chunk

    def _keep(self, piece: bytes) -> None:
        if not self._pieces:
            space = len(piece)
            piece = piece.lstrip()
            self._space += space - len(piece)
        if piece and self._bytes <= self._most:
            piece = piece[: self._most + 1 - self._bytes]
            self._pieces.append(piece)
            self._bytes += len(piece)

    def _take(self, begun: int) -> bytes:
        element = b"".join(self._pieces)
        self.place = begun + self._space
        self._pieces, self._bytes, self._space = [], 0, 0
        return element if len(element) > self._most else element.rstrip()

    def _require_end(self, rest: bytes) -> None:
        while not rest.strip():
            rest = self._stream.read(CHUNK)
            if not rest:
                return
        raise ArrayError("something follows the array")


def arrays_of_objects(stream: ReadableBytes) -> dict[str, int]:
    """Of one JSON object the members whose values are arrays that begin with an object, or are empty: where in the
    stream each array begins. Raises ArrayError for what is no object, or is followed by something."""
    places: dict[str, int] = {}
    members = JsonElements(stream, brackets=b"{}", most=NAME_BYTES)
    for member in members:
        match = _member(member)
        if match is None:
            raise ArrayError("a name without a value")
        try:
            name = msgspec.json.decode(match[1], type=str)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ArrayError("a name that is no text") from error
        if match["value"]:
            places.setdefault(name, members.place + match.start("value"))
    return places


def skip(stream: ReadableBytes, count: int) -> None:
    """Read past so many bytes."""
    while count > 0 and (piece := stream.read(min(count, CHUNK))):
        count -= len(piece)
