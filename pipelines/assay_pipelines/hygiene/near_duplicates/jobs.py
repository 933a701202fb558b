"""What is computed of each shard of documents: band keys for the search, sets of shingles for the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay_pipelines.hygiene.near_duplicates.similarity import shingle_sets
from assay_pipelines.hygiene.near_duplicates.sketches import band_keys
from assay_pipelines.hygiene.tokens import Tokens, ngrams, tokenise

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_SLICE = 5_000  #: items shingled at once, which bounds memory


class Sketching:
    """Job: `keys` of each document, one a band."""

    def __init__(self, parts: int, shingle: int, bands: int, rows: int, seed: int) -> None:
        self._parts, self._shingle, self._banding = parts, shingle, (bands, rows, seed)

    def open(self) -> None:
        pass

    def map(self, shard: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        bands = self._banding[0]
        keys = [band_keys(items, shingles, self._parts, *self._banding)
                for items, shingles in _shingles(shard, self._parts, self._shingle)]  # fmt: skip
        flat = np.concatenate([np.empty((0, bands), np.uint64), *keys]).reshape(-1)
        return pa.table({"keys": pa.FixedSizeListArray.from_arrays(pa.array(flat), bands)})


class Shingling:
    """Job: the set of shingles of each part of each document, one a row."""

    def __init__(self, parts: int, shingle: int) -> None:
        self._parts, self._shingle = parts, shingle

    def open(self) -> None:
        pass

    def map(self, shard: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        sets = [shingle_sets(shingles) for _, shingles in _shingles(shard, self._parts, self._shingle)]
        ends = np.concatenate([[0], np.cumsum(np.concatenate([counts for counts, _ in sets]))])
        hashes = np.concatenate([hashes for _, hashes in sets])
        return pa.table({"shingles": pa.LargeListArray.from_arrays(pa.array(ends), pa.array(hashes))})


def _shingles(shard: pa.Table, parts: int, length: int) -> Iterator[tuple[npt.NDArray[np.int64], Tokens]]:
    """(item numbers, shingles of their parts): text `parts * k + p` is part p of the k-th item."""
    items = shard.column("item").to_numpy()
    texts = shard.column("texts").combine_chunks().flatten()
    for low in range(0, len(items), _SLICE):
        some = items[low : low + _SLICE]
        yield some, ngrams(tokenise(texts.slice(low * parts, len(some) * parts)), length, short=True)
