"""How a table is written as text: its encoding and the character between its fields, detected.

UTF-8 wherever the file has more valid UTF-8 than bytes that are none: rows with such bytes are rejected one by one.
Else the encoding is what charset-normalizer finds likeliest among those that tables are written in.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from charset_normalizer import from_bytes

from assay.errors import BadInputError

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
