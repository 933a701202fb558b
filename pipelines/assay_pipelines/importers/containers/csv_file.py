"""CSV with a header, in any encoding and with any delimiter (tabs for .tsv), which are detected. Rows count records
after the header, not lines.

UTF-8 wherever the file has more valid UTF-8 than bytes that are none: rows with such bytes are rejected one by one.
Else the encoding is what charset-normalizer finds likeliest among those that tables are written in.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

from charset_normalizer import from_bytes

from assay.data.compression import decompressed
from assay.data.json_lines import ROW_BYTES, TOO_LARGE, RowError, damaged
from assay.errors import BadInputError
from assay_pipelines.importers.containers.container import Record, TextFile

PIECE = 1 << 20


class Csv(TextFile):
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


CHUNK = 1 << 18
SEARCHED_BYTES = 256 * 2**20  #: how far into a file the first text that is not ASCII is looked for
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAMPLE_RECORDS = 50
#: Single-byte Windows code pages and the usual ones of East Asia; others are too easily taken for one another.
_ENCODINGS = [
    *("cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class TextForm:
    """`encoding`: a codec's name. `delimiter`: one character."""

    encoding: str
    delimiter: str

    @property
    def description(self) -> str:
        """What is not the usual form of CSV, in words."""
        words = [] if self.delimiter == "," else [DELIMITERS.get(self.delimiter, repr(self.delimiter))]
        words += [] if self.encoding == "utf-8-sig" else [self.encoding.replace("_", "-")]
        return ", ".join(words)


def detect_form(stream: IO[bytes], *, delimiter: str | None, encoding: str | None = None) -> TextForm:
    """The form of a table from its beginning; `delimiter` and `encoding`: as given by the caller.

    Raises BadInputError for an encoding that does not exist.
    """
    start = stream.read(CHUNK)
    if encoding is None:
        encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
        encoding = encoding or _detected(_pieces(start, stream))
    else:
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise BadInputError(f"no encoding is named {encoding!r}", field="encoding") from error
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return TextForm(encoding, delimiter or _delimiter(decoder.decode(start)))


def _pieces(start: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    read = 0
    while start and read < SEARCHED_BYTES:
        yield start
        read += len(start)
        start = stream.read(CHUNK)


def _detected(pieces: Iterator[bytes]) -> str:
    sample = b""
    for piece in pieces:
        if sample or not piece.isascii():
            sample += piece
            if len(sample) >= CHUNK:
                break
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    text = decoder.decode(sample)
    invalid = sum("\udc80" <= character <= "\udcff" for character in text)
    valid = sum(character > "\x7f" for character in text) - invalid
    if invalid <= valid:
        return "utf-8-sig"
    matches = from_bytes(sample, cp_isolation=_ENCODINGS)
    best = matches.best()
    if best is None:
        return "utf-8-sig"
    like_best = [match for match in matches if (match.chaos, match.coherence) == (best.chaos, best.coherence)]
    names = {name for match in like_best for name in (match.encoding, *match.could_be_from_charset)}
    return "cp1252" if "cp1252" in names else best.encoding


def _delimiter(text: str) -> str:
    """The delimiter with which most records have as many fields as the header; of equal ones that with most fields."""

    def fit(delimiter: str) -> tuple[float, int]:
        counts: list[int] = []
        try:
            for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
                counts.append(len(record))
                if len(counts) > SAMPLE_RECORDS:
                    break
        except csv.Error:
            pass
        if len(counts) > 2:
            counts.pop()  # the sample may end within it
        if not counts or counts[0] < 2:
            return 0.0, 0
        return sum(count == counts[0] for count in counts) / len(counts), counts[0]

    return max(DELIMITERS, key=fit)
