"""The elements of one JSON array as bytes, one at a time: the array is never in memory, nor is an element too large.

Only brackets, quotes and commas are looked at. Whether an element is JSON is for its reader to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from assay.data.json_lines import BOM, ROW_BYTES

CHUNK = 1 << 18
_in_text = re.compile(rb'["\\]').search
_in_element = re.compile(rb'["{}\[\]]').search
_between = re.compile(rb'["{}\[\],]').search


class ArrayError(ValueError):
    """What is read is not one JSON array."""


class JsonElements:
    """Iterates once over the elements of the array in `stream`, without the white space around them.

    An element of more than ROW_BYTES is cut to one byte more. Raises ArrayError after the last complete element of an
    array that does not end, or is followed by something.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._pieces: list[bytes] = []
        self._bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        chunk = self._first_chunk()
        start = at = chunk.index(b"[") + 1
        depth, in_text, first = 0, False, True
        while chunk:
            search = _in_text if in_text else _in_element if depth else _between
            match = search(chunk, at)
            if match is None:
                self._keep(chunk[start:])
                start, at = 0, max(at - len(chunk), 0)  # an escaped character may begin the next chunk
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
            elif mark == b"}":
                raise ArrayError("a closing brace without its opening one")
            else:
                self._keep(chunk[start : match.start()])
                element = self._take()
                if element or mark == b"," or not first:
                    yield element
                if mark == b"]":
                    self._require_end(chunk[at:])
                    return
                first, start = False, at
        raise ArrayError("the array does not end")

    def _first_chunk(self) -> bytes:
        chunk = self._stream.read(CHUNK).removeprefix(BOM)
        while chunk and not (chunk := chunk.lstrip()):
            chunk = self._stream.read(CHUNK)
        if not chunk.startswith(b"["):
            raise ArrayError("not an array")
        return chunk

    def _keep(self, piece: bytes) -> None:
        if piece and self._bytes <= ROW_BYTES:
            piece = piece[: ROW_BYTES + 1 - self._bytes]
            self._pieces.append(piece)
            self._bytes += len(piece)

    def _take(self) -> bytes:
        element = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        return element if len(element) > ROW_BYTES else element.strip()

    def _require_end(self, rest: bytes) -> None:
        while not rest.strip():
            rest = self._stream.read(CHUNK)
            if not rest:
                return
        raise ArrayError("something follows the array")
