"""The nearest vectors by cosine: exact in bounded memory, and approximate (faiss's inverted file on disk) past a size.

Both rescore the vectors they return in float64 and break ties by id, so that a result does not depend on block size,
threads or order.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from assay.errors import BackendError, BadInputError

#: float32 products of unit rows are off by about 1e-7 (worst case 2e-5 at 384 places): what is closer than this to the
#: k-th best is scored again in float64 before anything is cut.
SLACK = 1e-4
_RESCORE = 32_768
_FIRST, _TILE = 1_024, 2_048


@dataclass(frozen=True)
class IndexConfig:
    """`approximate_above`: past this many vectors the inverted file answers; 0 = always exact. `block`: vectors read
    at once. `queries`: rows of one matrix product. `probes`: share of the inverted file's lists that a query
    looks into. `shard`: vectors of one file of the inverted file; one is in memory while it is filled. `seed`: of
    k-means."""

    approximate_above: int = 1_000_000
    block: int = 16_384
    queries: int = 256
    probes: float = 0.05
    shard: int = 500_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("block", "queries", "shard"):
            if getattr(self, name) < 1:
                raise BadInputError("must be 1 or more", field=name)
        if not 0 < self.probes <= 1:
            raise BadInputError("must be a share above 0, at most 1", field="probes")


class Vectors(Protocol):
    """`ids` sorted and unique; `blocks` (in any order, each position once) and `take` give rows of length 1."""

    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def dimension(self) -> int: ...
    def blocks(self, size: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]: ...
    def take(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]: ...


class ArrayVectors:
    """Vectors in memory."""

    def __init__(self, ids: Sequence[str], rows: npt.NDArray[np.float32]) -> None:
        if len(ids) != len(rows) or len(set(ids)) != len(ids):
            raise BadInputError(f"{len(ids)} ids ({len(set(ids))} different) for {len(rows)} vectors")
        order = sorted(range(len(ids)), key=lambda i: ids[i])
        self.ids: Sequence[str] = [ids[i] for i in order]
        self._rows = np.ascontiguousarray(rows[order], dtype=np.float32) if order else rows
        self.dimension = int(rows.shape[1]) if rows.ndim == 2 else 0

    def blocks(self, size: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        for start in range(0, len(self.ids), size):
            part = self._rows[start : start + size]
            yield np.arange(start, start + len(part), dtype=np.int64), part

    def take(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self._rows[positions]


#: For each query its neighbours as (id, similarity), nearest first.
Neighbours = list[list[tuple[str, float]]]


class Index(Protocol):
    def nearest(
        self, queries: npt.NDArray[np.float32], k: int | Sequence[int], *, exclude: Set[str] = frozenset()
    ) -> Neighbours:
        """The k nearest of each query ([n, dimension], rows of length 1; `k` one number or one for each query).

        `exclude`: ids that are never returned. Fewer than k are returned only where fewer exist.
        """


class ExactIndex:
    """Every vector is compared. Memory: one block of vectors and one of similarities, whatever the size of the pool."""

    def __init__(self, vectors: Vectors, config: IndexConfig | None = None) -> None:
        self.vectors, self.config = vectors, config or IndexConfig()

    def nearest(
        self, queries: npt.NDArray[np.float32], k: int | Sequence[int], *, exclude: Set[str] = frozenset()
    ) -> Neighbours:
        counts = _counts(queries, k, self.vectors)
        left_out = _positions(self.vectors.ids, exclude)
        rows32 = np.ascontiguousarray(queries, dtype=np.float32)
        active = np.flatnonzero(counts)
        parts = [active[at : at + self.config.queries] for at in range(0, len(active), self.config.queries)]
        best = [_Best(counts[part]) for part in parts]
        for places, rows in _tiles(self.vectors, self.config.block) if parts else ():
            allowed = ~np.isin(places, left_out) if len(left_out) else None
            for part, so_far in zip(parts, best, strict=True):
                near = rows32[part] @ rows.T
                if allowed is not None:
                    near[:, ~allowed] = -np.inf
                bar = (so_far.bar(near) - SLACK).astype(np.float32)
                # np.nonzero is 20 times slower in two dimensions than in one
                q, r = np.divmod(np.flatnonzero(near >= bar[:, None]), near.shape[1])
                so_far.add(q, places[r], _exact(queries, part[q], rows, r))
        return _neighbours(len(counts), parts, best, self.vectors.ids)


class ApproximateIndex:
    """faiss's inverted file in shards on disk: k-means cells of vectors in 8 bits a dimension, of which a query looks
    into the nearest few; what it finds is scored by the vectors themselves.

    Chosen over graph indexes (HNSW) because a pool is indexed once for a few thousand queries: building it takes about
    as long as answering a thousand queries exactly, a graph ten times that. Shards share the cells, so that their
    merged answer is that of one index. In memory: the vectors that the cells are learned from (64 a cell, sqrt(n)
    cells) and one shard; the files are mapped, and their pages can be evicted.
    """

    def __init__(self, vectors: Vectors, config: IndexConfig | None = None, folder: Path | None = None) -> None:
        """Trains and writes the index; its files in `folder` (default: the system's) are unlinked once mapped.

        Raises BackendError without the faiss library.
        """
        try:
            import faiss
        except ImportError as error:
            raise BackendError(f"the approximate index needs faiss: pip install 'assay[embed]' ({error})") from error
        self.vectors, self.config = vectors, config or IndexConfig()
        n = len(vectors.ids)
        if not n:
            raise BadInputError("there is no vector to index")
        self.lists = max(1, min(round(np.sqrt(n)), n // 39))  # faiss wants 39 points a cell to train on
        empty = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(vectors.dimension),
            vectors.dimension,
            self.lists,
            faiss.ScalarQuantizer.QT_8bit,
            faiss.METRIC_INNER_PRODUCT,
        )
        empty.cp.seed = self.config.seed + 1
        empty.cp.spherical = True
        generator = np.random.default_rng(self.config.seed)
        sample = np.sort(generator.choice(n, size=min(n, 64 * self.lists), replace=False))
        empty.train(np.ascontiguousarray(vectors.take(sample)))
        self.probes = max(1, round(self.config.probes * self.lists))
        self._faiss, self._shards = faiss, list[Any]()
        self._index = faiss.IndexShards(vectors.dimension)
        self._index.successive_ids = False  # the ids are positions already
        with tempfile.TemporaryDirectory(dir=folder) as files:
            filling = faiss.clone_index(empty)
            for positions, rows in vectors.blocks(self.config.block):
                filling.add_with_ids(np.ascontiguousarray(rows), positions)
                if filling.ntotal >= self.config.shard:
                    self._map(filling, Path(files))
                    filling = faiss.clone_index(empty)
            self._map(filling, Path(files))

    def _map(self, shard: Any, folder: Path) -> None:
        file = str(folder / str(len(self._shards)))
        self._faiss.write_index(shard, file)
        self._shards.append(self._faiss.read_index(file, self._faiss.IO_FLAG_MMAP))
        self._index.add_shard(self._shards[-1])

    def nearest(
        self, queries: npt.NDArray[np.float32], k: int | Sequence[int], *, exclude: Set[str] = frozenset()
    ) -> Neighbours:
        counts = _counts(queries, k, self.vectors)
        active = np.flatnonzero(counts)
        parts = [active[at : at + self.config.queries] for at in range(0, len(active), self.config.queries)]
        best = [_Best(counts[part]) for part in parts]
        left_out = _positions(self.vectors.ids, exclude)
        parameters = self._faiss.SearchParametersIVF()
        parameters.nprobe = self.probes
        if len(left_out):
            parameters.sel = self._faiss.IDSelectorNot(self._faiss.IDSelectorBatch(left_out))
        for part, so_far in zip(parts, best, strict=True):
            batch = np.ascontiguousarray(queries[part], dtype=np.float32)
            deep = 2 * int(counts[part].max()) + 8  # a few more, so that near ties are settled by the exact scores
            _, positions = self._index.search(batch, deep, params=parameters)
            q, r = np.nonzero(positions >= 0)
            places, where = np.unique(positions[q, r], return_inverse=True)
            if len(places):
                so_far.add(q, positions[q, r], _exact(queries, part[q], self.vectors.take(places), where))
        return _neighbours(len(counts), parts, best, self.vectors.ids)


def open_index(vectors: Vectors, config: IndexConfig | None = None, folder: Path | None = None) -> Index:
    """Exact up to `approximate_above` vectors, approximate past them, with files in `folder`."""
    config = config or IndexConfig()
    if config.approximate_above and len(vectors.ids) > config.approximate_above:
        return ApproximateIndex(vectors, config, folder)
    return ExactIndex(vectors, config)


class _Best:
    """The best so far of some queries, as flat arrays sorted by query, then similarity, then position."""

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        """`counts`: number of neighbours of each query."""
        self._counts = counts
        self.query: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.place: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.score: npt.NDArray[np.float64] = np.empty(0, dtype=np.float64)
        self._kth = np.full(len(counts), -np.inf)  # similarity of the k-th best, -inf while there are fewer

    def bar(self, near: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """The similarity that a new vector must reach; `near`: [queries, vectors], the similarities to a tile."""
        bar = self._kth.copy()
        fresh = np.flatnonzero(np.isneginf(bar))
        k = int(self._counts.max())
        if len(fresh) and k < near.shape[1]:  # no full list yet: at least the k-th best of this tile
            some = near[fresh, : max(_FIRST, 2 * k)]
            bar[fresh] = np.partition(some, some.shape[1] - k, axis=1)[:, some.shape[1] - k]
        raised: npt.NDArray[np.float64] = np.maximum(bar, -2.0)  # keeps what is excluded (-inf) out
        return raised

    def add(
        self, query: npt.NDArray[np.int64], position: npt.NDArray[np.int64], score: npt.NDArray[np.float64]
    ) -> None:
        if not len(query):
            return
        query = np.concatenate([self.query, query])
        position = np.concatenate([self.place, position])
        score = np.concatenate([self.score, score])
        order = np.lexsort((position, -score, query))
        query, position, score = query[order], position[order], score[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query, side="left")
        keep = rank < self._counts[query]
        self.query, self.place, self.score = query[keep], position[keep], score[keep]
        last = rank[keep] == self._counts[self.query] - 1
        self._kth[self.query[last]] = self.score[last]


def _neighbours(
    queries: int, parts: Sequence[npt.NDArray[np.int64]], best: Sequence[_Best], ids: Sequence[str]
) -> Neighbours:
    neighbours: Neighbours = [[] for _ in range(queries)]
    for part, so_far in zip(parts, best, strict=True):
        for query, position, score in zip(
            part[so_far.query].tolist(), so_far.place.tolist(), so_far.score.tolist(), strict=True
        ):
            neighbours[query].append((ids[position], score))
    return neighbours


def _tiles(vectors: Vectors, block: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    """Blocks cut to tiles that fit a processor's cache."""
    for places, rows in vectors.blocks(block):
        for start in range(0, len(rows), _TILE):
            yield places[start : start + _TILE], rows[start : start + _TILE]


def _exact(
    queries: npt.NDArray[np.float32],
    query: npt.NDArray[np.int64],
    rows: npt.NDArray[np.float32],
    row: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """queries[query[i]] . rows[row[i]] in float64, each sum in the same order."""
    scores = np.empty(len(query), dtype=np.float64)
    for start in range(0, len(query), _RESCORE):
        part = slice(start, start + _RESCORE)
        scores[part] = (queries[query[part]].astype(np.float64) * rows[row[part]]).sum(axis=1)
    return scores


def _counts(queries: npt.NDArray[np.float32], k: int | Sequence[int], vectors: Vectors) -> npt.NDArray[np.int64]:
    counts = np.full(len(queries), k, dtype=np.int64) if isinstance(k, int) else np.asarray(k, dtype=np.int64)
    if len(counts) != len(queries):
        raise BadInputError(f"{len(counts)} values of k for {len(queries)} queries", field="k")
    if len(counts) and counts.min() < 0:
        raise BadInputError("must not be negative", field="k")
    if len(queries) and vectors.ids and queries.shape[1] != vectors.dimension:
        raise BadInputError(
            f"queries of {queries.shape[1]} dimensions, vectors of {vectors.dimension}: different encoders"
        )
    return np.minimum(counts, len(vectors.ids))


def _positions(ids: Sequence[str], excluded: Set[str]) -> npt.NDArray[np.int64]:
    places = ((bisect_left(ids, name), name) for name in excluded)
    return np.array([at for at, name in places if at < len(ids) and ids[at] == name], dtype=np.int64)
