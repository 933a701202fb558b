"""CSV with a header, in any encoding and with any delimiter (`text_form`; tabs for .tsv). Rows count records after the
header, not lines.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from assay.data.compression import decompressed
from assay.data.json_lines import ROW_BYTES, TOO_LARGE, RowError, damaged
from assay.errors import BadInputError
from assay_pipelines.importers.containers.container import Record, TextFile
from assay_pipelines.importers.containers.text_form import TextForm, detect_form

PIECE = 1 << 20


class Csv(TextFile):
    """A CSV file."""

    def __init__(self, path: Path, *, encoding: str | None = None) -> None:
        """`encoding`: None: detected."""
        super().__init__(path, "CSV")
        delimiter = "\t" if ".tsv" in path.suffixes else None
        with path.open("rb") as raw:
            try:
                self._form = detect_form(decompressed(raw), delimiter=delimiter, encoding=encoding)
            except (EOFError, OSError, zlib.error):  # reading it raises the error
                self._form = TextForm(encoding or "utf-8-sig", delimiter or ",")
        self._delimiter = self._form.delimiter
        form = self._form.description
        self.description += f" ({form})" if form else ""
        csv.field_size_limit(sys.maxsize)  # `_Text` bounds the record

    def columns(self) -> list[str] | None:
        with self.path.open("rb") as raw:
            try:
                names = list(csv.DictReader(self._text(raw), delimiter=self._delimiter).fieldnames or [])
            except csv.Error as error:
                raise BadInputError(f"the header is broken ({error})", file=self.path, row=1) from error
            except (EOFError, OSError, zlib.error) as error:
                raise BadInputError(f"the file is damaged in its header ({error})", file=self.path) from error
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInputError("the header names the column twice", file=self.path, field=twice)
        return names

    def _text(self, raw: Any) -> _Text:
        # surrogateescape: bytes that are no UTF-8 become lone surrogates, which the layouts reject row by row
        errors = "surrogateescape" if self._form.encoding == "utf-8-sig" else "replace"
        stream = io.TextIOWrapper(decompressed(raw), encoding=self._form.encoding, errors=errors, newline="")
        return _Text(stream, self._delimiter)

    def records(self) -> Iterator[Record]:
        with self.path.open("rb") as self._raw:
            text = self._text(self._raw)
            reader = csv.DictReader(text, delimiter=self._delimiter, restkey="")
            row = 0
            while True:
                row += 1
                try:
                    record = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield row, RowError(f"broken CSV ({error})"), None
                    continue
                except (EOFError, OSError, zlib.error) as error:
                    raise damaged(self.path, row - 1, error) from error
                finally:
                    too_large = text.end_record()
                if too_large:
                    yield row, RowError(TOO_LARGE), None
                elif "" in record and isinstance(record[""], list):
                    yield row, RowError("more fields than the header"), json.dumps(record).encode()
                else:
                    yield row, record, None


class _Text:
    """The lines of a stream for csv's reader. Of a record of more than ROW_BYTES only the shape goes on, so that the
    reader comes to its end: each run of characters that mean nothing to it becomes one."""

    def __init__(self, stream: TextIO, delimiter: str) -> None:
        self._stream = stream
        self._runs = re.compile(f'[^"\\r\\n{delimiter}]+')
        self._characters = 0
        self._shape = 0

    def end_record(self) -> bool:
        """Whether the record that ended was too large. The next begins."""
        too_large = self._characters > ROW_BYTES
        self._characters = self._shape = 0
        return too_large

    def __iter__(self) -> _Text:
        return self

    def __next__(self) -> str:
        pieces: list[str] = []
        while piece := self._stream.readline(PIECE):
            self._characters += len(piece)
            if self._characters > ROW_BYTES:
                pieces = [self._runs.sub("x", part) for part in (*pieces, piece)]
                self._shape += len(pieces[-1])
                if self._shape > ROW_BYTES:
                    raise OSError("a record without end: is a quote missing?")
            else:
                pieces.append(piece)
            if piece.endswith(("\n", "\r")):
                break
        if not pieces:
            raise StopIteration
        return "".join(pieces)
