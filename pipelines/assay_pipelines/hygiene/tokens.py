"""Texts as hashed words or characters, and their n-grams, as flat NumPy arrays: no Python loop over texts.

Words are in Unicode form NFKC and lower case, without zero-width and other format characters, letters of other scripts
that look like Latin ones as those (Unicode's confusables, UTS 39); every character but letters, digits and combining
marks separates them. The targets of Markdown links are left out.
Unit `character` takes the characters of those words one by one. The hashes (xxh3) are the same in every process.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    import pyarrow as pa

    Hashes = npt.NDArray[np.uint64]
    Offsets = npt.NDArray[np.int64]

Unit = Literal["word", "character"]
_SEPARATOR = r"[^\p{L}\p{M}\p{N}]+"
#: Format characters (zero-width, direction, soft hyphen, tags), variation selectors, the grapheme joiner.
_INVISIBLE = r"[\p{Cf}\x{034F}\x{180B}-\x{180F}\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}\x{115F}\x{1160}\x{3164}]+"
_LINK_TARGET = r"\]\([^()\s]*\)"
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, so that multiplying modulo 2^64 loses nothing
SLICE_BYTES = 8_000_000  #: texts are hashed in slices of about this size, so that memory does not grow with a page


def _ascii_table() -> bytes:
    """Lower-case letters, digits and the bytes of UTF-8 sequences unchanged, every other byte a space."""
    return bytes(
        byte + 32 if 65 <= byte <= 90 else byte if byte >= 128 or chr(byte).isalnum() else 32 for byte in range(256)
    )


_ASCII = _ascii_table()


@dataclass(frozen=True)
class Tokens:
    """`hashes[offsets[i]:offsets[i + 1]]` are those of text i; `offsets` has one entry more than texts."""

    hashes: Hashes
    offsets: Offsets

    @property
    def counts(self) -> Offsets:
        return self.offsets[1:] - self.offsets[:-1]


def normalised(texts: pa.Array | pa.ChunkedArray) -> pl.Series:
    """Lower-case words with spaces (one or several) between them; null becomes empty."""
    import polars as pl
    import pyarrow as pa

    series = pl.Series("text", texts, dtype=pl.String).fill_null("")
    linked = series.str.contains("](", literal=True)
    if linked.any():
        series = _changed(series, linked, lambda some: some.str.replace_all(_LINK_TARGET, "] "))
    other = series.str.len_bytes() != series.str.len_chars()
    if other.any():
        series = _changed(series, other, _latin_look)
    # ASCII texts as bytes: a table look-up on the buffer is many times faster than a regular expression
    arrow = series.rechunk().to_arrow().cast(pa.large_string())
    _, offsets, buffer = arrow.buffers()
    if buffer is None or arrow.offset:
        arrow = pa.concat_arrays([arrow])
        _, offsets, buffer = arrow.buffers()
    translated = buffer.to_pybytes().translate(_ASCII) if buffer is not None else b""
    table = pa.LargeStringArray.from_buffers(len(arrow), offsets, pa.py_buffer(translated))
    return pl.Series("text", table)


def _changed(series: pl.Series, which: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """The series with `change` applied to the rows `which`."""
    return series.scatter(which.arg_true(), change(series.filter(which)))


def _latin_look(series: pl.Series) -> pl.Series:
    """Texts with characters beyond ASCII: their words as the module's text says."""
    plain = series.str.replace_all(_INVISIBLE, "").str.normalize("NFKC").str.replace_all(_INVISIBLE, "")
    letters = look_alikes()
    alike = plain.str.contains(f"[{''.join(letters)}]")
    if alike.any():
        # a replaced letter may carry a mark that its Latin form composes with
        plain = _changed(plain, alike, lambda some: some.str.replace_many(letters).str.normalize("NFKC"))
    return plain.str.to_lowercase().str.replace_all(_SEPARATOR, " ")


def words_of(text: pl.Series) -> pl.Series:
    """Lists of words of normalised texts."""
    import polars as pl

    return text.str.split(" ").list.eval(pl.element().filter(pl.element() != ""))


def tokenise(texts: pa.Array | pa.ChunkedArray, unit: Unit = "word") -> Tokens:
    """Hash every word, or every character, of every text."""
    import numpy as np

    parts = [_characters(part) if unit == "character" else _words(part) for part in _slices(normalised(texts))]
    if not parts:
        return Tokens(np.empty(0, np.uint64), np.zeros(1, np.int64))
    counts = np.concatenate([part.counts for part in parts])
    return Tokens(np.concatenate([part.hashes for part in parts]), _offsets(counts))


def ngrams(tokens: Tokens, n: int, *, short: bool = False) -> Tokens:
    """The hashes of all runs of `n` tokens within one text, in order: the run at position i is entry i of its text.

    A text of fewer tokens has none; with `short` it has one, of all its tokens, if there are any.
    """
    import numpy as np

    counts = tokens.counts
    run_counts = np.maximum(counts - n + 1, 0)
    if len(tokens.hashes) >= n:
        full = _polynomial(tokens.hashes, n)
        long = counts >= n
        np.add.at(mark := np.zeros(len(tokens.hashes) + 1, np.int32), tokens.offsets[:-1][long], 1)
        np.add.at(mark, (tokens.offsets[1:] - n + 1)[long], -1)
        starts = np.cumsum(mark)[: len(full)] > 0  # a run may not start in the last n - 1 tokens of a text
        hashes = full[starts]
    else:
        hashes = np.empty(0, np.uint64)
    if not short:
        return Tokens(hashes, _offsets(run_counts))
    few = (counts > 0) & (counts < n)
    out_counts = np.where(few, 1, run_counts)
    offsets = _offsets(out_counts)
    out = np.empty(int(offsets[-1]), np.uint64)
    full_length = np.ones(len(out), bool)
    full_length[offsets[:-1][few]] = False
    out[full_length] = hashes
    for length in range(1, n):
        of_length = counts == length
        at = tokens.offsets[:-1][of_length]
        run_hash = np.full(len(at), length, np.uint64)
        for step in range(length):
            run_hash = run_hash * np.uint64(_MULTIPLIER) + tokens.hashes[at + step]
        out[offsets[:-1][of_length]] = run_hash
    return Tokens(out, offsets)


def whole_texts(tokens: Tokens) -> Hashes:
    """One hash of each text's token sequence (0 for a text without any): equal texts, equal hashes."""
    import numpy as np

    counts = tokens.counts
    position = np.arange(len(tokens.hashes), dtype=np.int64) - np.repeat(tokens.offsets[:-1], counts)
    powers = np.full(int(counts.max(initial=0)) + 1, _MULTIPLIER, np.uint64).cumprod()
    weighted = np.concatenate([[np.uint64(0)], np.cumsum(tokens.hashes * powers[position])])
    sums: Hashes = weighted[tokens.offsets[1:]] - weighted[tokens.offsets[:-1]]
    return sums


def _polynomial(hashes: Hashes, n: int) -> Hashes:
    """sum of h[i + j] * M^(n - 1 - j) modulo 2^64, for every i."""
    import numpy as np

    total = len(hashes) - n + 1
    sums = hashes[:total].copy()
    for step in range(1, n):
        sums *= np.uint64(_MULTIPLIER)
        sums += hashes[step : step + total]
    return sums


def _words(text: pl.Series) -> Tokens:
    import numpy as np
    import pyarrow as pa
    import xxhash

    lists = text.str.split(" ")
    lengths = lists.list.len().to_numpy().astype(np.int64)
    flat = lists.explode()
    different = flat.to_arrow().dictionary_encode()
    hash_of = xxhash.xxh3_64_intdigest
    hashes = np.fromiter(map(hash_of, different.dictionary.cast(pa.large_binary()).to_pylist()), np.uint64)
    hashes = hashes[different.indices.to_numpy()]
    filled = (flat.str.len_bytes() > 0).to_numpy()
    running = np.concatenate([[0], np.cumsum(filled)])
    return Tokens(hashes[filled], running[_offsets(lengths)])


def _characters(text: pl.Series) -> Tokens:
    import numpy as np

    joined = "".join(text.to_list())
    points = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    filled = points != 32
    running = np.concatenate([[0], np.cumsum(filled)])
    offsets = running[_offsets(text.str.len_chars().to_numpy().astype(np.int64))]
    mixed = points[filled].astype(np.uint64) + np.uint64(1)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)  # the finaliser of SplitMix64, so that neighbours are far apart
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return Tokens(mixed, offsets)


def _slices(text: pl.Series) -> Iterator[pl.Series]:
    import numpy as np

    if not len(text):
        return
    size = np.cumsum(text.str.len_bytes().to_numpy().astype(np.int64))
    cuts = np.searchsorted(size, np.arange(SLICE_BYTES, int(size[-1]), SLICE_BYTES))
    edges = [0, *sorted({int(cut) for cut in cuts} - {0}), len(text)]
    for low, high in pairwise(edges):
        yield text[low:high]


def _offsets(counts: Offsets) -> Offsets:
    import numpy as np

    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@cache
def look_alikes() -> dict[str, str]:
    """Letter that is not ASCII -> the ASCII letter that it looks like, for texts in form NFKC.

    A capital goes the way of its small letter, so that both cases of a word stay one: \u0406, which looks like l, is i.
    """
    from confusable_homoglyphs.confusables import confusables_data

    letters: dict[str, str] = {}
    for letter, alike in confusables_data.items():
        if len(letter) == 1 and not letter.isascii() and letter.isalpha() and _stays(letter):
            latin = [one["c"] for one in alike if len(one["c"]) == 1 and one["c"].isascii() and one["c"].isalpha()]
            if latin:
                letters[letter] = latin[0]
    return {letter: letters.get(letter.lower(), latin) for letter, latin in letters.items()}


def _stays(letter: str) -> bool:
    return unicodedata.normalize("NFKC", letter) == letter
