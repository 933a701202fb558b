"""MinHash sketches (rensa) cut into bands, and the pairs of items that share a band: the candidates.

Memory holds one band at a time (24 bytes per item). Two items of Jaccard similarity s share a band of r rows with
probability s^r, and any of b bands with 1 - (1 - s^r)^b (Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay_pipelines.hygiene.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PERMUTATIONS = 128
RECALL = 0.995  #: probability with which a pair exactly at the threshold becomes a candidate
NEIGHBOURS = 3  #: in a band's group each item is paired with the first, and with so many before it
_MULTIPLIER = 0x9E3779B97F4A7C15


def banding(threshold: float) -> tuple[int, int]:
    """(bands, rows per band): the most rows, hence the fewest candidates, that reach RECALL at the threshold."""
    for rows in range(PERMUTATIONS, 1, -1):
        bands = PERMUTATIONS // rows
        if candidate_probability(threshold, bands, rows) >= RECALL:
            return bands, rows
    return PERMUTATIONS, 1


def candidate_probability(similarity: float, bands: int, rows: int) -> float:
    return float(1 - (1 - similarity**rows) ** bands)


@dataclass
class BandFiles:
    """Item i's key of each band, at position i of the band's file. Items are added in order."""

    folder: Path
    bands: int
    items: int = 0

    def add(self, keys: npt.NDArray[np.uint64]) -> None:
        """`keys`: (items, bands)"""
        import numpy as np

        for band in range(self.bands):
            with self._file(band).open("ab") as stream:
                stream.write(np.ascontiguousarray(keys[:, band]).data)
        self.items += len(keys)

    def keys(self, band: int) -> npt.NDArray[np.uint64]:
        import numpy as np

        return np.fromfile(self._file(band), np.uint64)

    def _file(self, band: int) -> Path:
        return self.folder / f"band-{band}.u64"


def band_keys(
    items: npt.NDArray[np.int64], shingles: Tokens, parts: int, bands: int, rows: int, seed: int
) -> npt.NDArray[np.uint64]:
    """(items, bands). `shingles`: `parts` texts an item; the item's sketch is that of all of them together."""
    import numpy as np
    import rensa

    offsets = shingles.offsets[::parts].astype(np.uint64)
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(shingles.hashes, offsets, PERMUTATIONS, seed)
    digests = np.array(matrix.to_rows(), np.uint32).reshape(-1, PERMUTATIONS)
    cut = digests[:, : bands * rows].reshape(-1, bands, rows)
    keys = np.full(cut.shape[:2], seed, np.uint64)
    for row in range(rows):
        keys *= np.uint64(_MULTIPLIER)
        keys += cut[:, :, row]
        keys ^= keys >> np.uint64(29)
    empty = offsets[1:] == offsets[:-1]
    keys[empty] = (items[empty].astype(np.uint64) * np.uint64(_MULTIPLIER))[:, None]  # nothing to compare: unique
    return keys


@dataclass(frozen=True)
class CollidingPairs:
    """Pairs of items, `first` before `second` by number, each once. `large_groups`: keys shared by so many items that
    not all of their pairs are candidates."""

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    large_groups: int


def candidates(files: BandFiles, preference: npt.NDArray[np.int64]) -> CollidingPairs:
    """Items that share a key. Of a large group, each is paired with the most preferred, and with its neighbours."""
    import numpy as np

    packed: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    large = 0
    for band in range(files.bands):
        keys = files.keys(band)[preference]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        same = np.concatenate([[False], keys[1:] == keys[:-1]])
        if not same.any():
            continue
        members = np.flatnonzero(same | np.concatenate([same[1:], [False]]))
        same, item = same[members], preference[order[members]]
        start = np.maximum.accumulate(np.where(same, 0, np.arange(len(same))))
        at = np.arange(len(same))
        pairs = [_pack(item[start[same]], item[same])]
        for step in range(1, NEIGHBOURS + 1):
            inside = np.flatnonzero(at - step > start)
            pairs.append(_pack(item[inside], item[inside - step]))
        large += int(np.sum(np.bincount(start)[np.unique(start)] > NEIGHBOURS + 2))
        packed = np.unique(np.concatenate([packed, *pairs]))
    return CollidingPairs(
        (packed >> np.uint64(32)).astype(np.int64), (packed & np.uint64(0xFFFFFFFF)).astype(np.int64), large
    )


def _pack(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    import numpy as np

    low, high = np.minimum(first, second).astype(np.uint64), np.maximum(first, second).astype(np.uint64)
    packed: npt.NDArray[np.uint64] = np.unique((low << np.uint64(32)) | high)
    return packed
