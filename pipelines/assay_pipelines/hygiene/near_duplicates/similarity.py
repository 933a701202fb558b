"""Exact Jaccard similarity of candidate pairs, part by part, from shingle sets in a file.

Two comparisons are as similar as their least similar part: min(J(prompt, prompt'), the better of the two ways to match
responses), a match being as good as its worse response. So two pairs that share a long prompt and one response,
as every ranked list gives them, are no near-duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay_pipelines.hygiene.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_PAGE = 1 << 14  #: pairs, or texts, at once: their number and a hash share 64 bits
_HASH_BITS = 49  # two shingles of one pair of texts are confused with probability 2^-49


@dataclass
class ShingleSets:
    """Sets of 49-bit hashes, sorted, one after the other in a file; `parts` sets an item, items in ascending order."""

    file: Path
    parts: int
    counts: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, counts: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> None:
        """As `shingle_sets` gives them."""
        with self.file.open("ab") as stream:
            stream.write(hashes.data)
        self.counts.append(counts)

    def open(self, items: npt.NDArray[np.int64]) -> ReadableShingleSets:
        """`items`: whose sets they are."""
        import numpy as np

        counts = np.concatenate(self.counts) if self.counts else np.empty(0, np.int64)
        hashes = np.memmap(self.file, np.uint64, "r") if counts.sum() else np.empty(0, np.uint64)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return ReadableShingleSets(items, offsets, hashes, self.parts)


def shingle_sets(shingles: Tokens) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """(sizes of the texts' sets, their sorted 49-bit hashes, one set after the other)"""
    import numpy as np

    texts = len(shingles.offsets) - 1
    counts: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    sets: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    for low in range(0, texts, _PAGE):
        high = min(low + _PAGE, texts)
        hashes = shingles.hashes[shingles.offsets[low] : shingles.offsets[high]]
        owner = np.repeat(np.arange(high - low, dtype=np.uint64), shingles.counts[low:high])
        keys = np.unique((owner << np.uint64(_HASH_BITS)) | (hashes >> np.uint64(64 - _HASH_BITS)))
        counts.append(np.bincount((keys >> np.uint64(_HASH_BITS)).astype(np.int64), minlength=high - low))
        sets.append(keys & np.uint64((1 << _HASH_BITS) - 1))
    return np.concatenate(counts), np.concatenate(sets)


@dataclass(frozen=True)
class ReadableShingleSets:
    items: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint64]
    parts: int

    def similarity(
        self, first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """(similarity, crossed) of pairs of items. `crossed`: response A of one is like B of the other."""
        import numpy as np

        values: list[npt.NDArray[np.float64]] = [np.empty(0)]
        crossed: list[npt.NDArray[np.bool_]] = [np.empty(0, bool)]
        for low in range(0, len(first), _PAGE):
            x = np.searchsorted(self.items, first[low : low + _PAGE]) * self.parts
            y = np.searchsorted(self.items, second[low : low + _PAGE]) * self.parts
            value = self.jaccard(x, y)
            cross: npt.NDArray[np.bool_] = np.zeros(len(x), bool)
            if self.parts == 3:
                straight = np.minimum(self.jaccard(x + 1, y + 1), self.jaccard(x + 2, y + 2))
                swapped = np.minimum(self.jaccard(x + 1, y + 2), self.jaccard(x + 2, y + 1))
                cross = swapped > straight
                value = np.minimum(value, np.maximum(straight, swapped))
            values.append(value)
            crossed.append(cross)
        return np.concatenate(values), np.concatenate(crossed)

    def jaccard(self, x: npt.NDArray[np.int64], y: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The similarity of sets by number, pair by pair; two empty sets have similarity 1."""
        import numpy as np

        keys = np.sort(np.concatenate([self._keys(x), self._keys(y)]), kind="stable")
        twice = keys[1:][keys[1:] == keys[:-1]] >> np.uint64(_HASH_BITS)
        both = np.bincount(twice.astype(np.int64), minlength=len(x))
        size = self.offsets[1:] - self.offsets[:-1]
        union = size[x] + size[y] - both
        return np.where(union == 0, 1.0, both / np.maximum(union, 1))

    def _keys(self, sets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """The hashes of the sets in order, each prefixed with the set's position in `sets`."""
        import numpy as np

        counts = self.offsets[sets + 1] - self.offsets[sets]
        ends = np.cumsum(counts)
        position = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        values = self.data[np.repeat(self.offsets[sets], counts) + position]
        owner = np.repeat(np.arange(len(sets), dtype=np.uint64), counts)
        keys: npt.NDArray[np.uint64] = (owner << np.uint64(_HASH_BITS)) | values
        return keys
