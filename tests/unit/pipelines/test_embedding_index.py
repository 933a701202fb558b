"""The indexes: exact equals a plain sort, whatever the blocks; the approximate one finds nearly all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_pipelines.embedding.index import ApproximateIndex, ArrayVectors, ExactIndex, IndexConfig, open_index

Rows = npt.NDArray[np.float32]


def unit_rows(generator: np.random.Generator, n: int, dimension: int, *, distinct: int | None = None) -> Rows:
    """`distinct`: rows are drawn from that many different ones, so that there are exact ties."""
    rows = generator.standard_normal((distinct or n, dimension)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[generator.integers(0, distinct, n)] if distinct else rows


def by_sorting(ids: list[str], rows: Rows, query: Rows, k: int, exclude: set[str]) -> list[tuple[str, float]]:
    scores = [(float(np.sum(query.astype(np.float64) * row)), name) for name, row in zip(ids, rows, strict=True)]
    ranked = sorted((-score, name) for score, name in scores if name not in exclude)
    return [(name, -score) for score, name in ranked[:k]]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    dimension=st.integers(2, 9),
    ties=st.booleans(),
    block=st.integers(1, 70),
    at_once=st.integers(1, 5),
    ks=st.lists(st.integers(0, 12), min_size=1, max_size=7),
    left_out=st.integers(0, 10),
)
def test_exact_equals_a_plain_sort(
    seed: int, n: int, dimension: int, ties: bool, block: int, at_once: int, ks: list[int], left_out: int
) -> None:
    generator = np.random.default_rng(seed)
    rows = unit_rows(generator, n, dimension, distinct=3 if ties else None)
    ids = [f"c-{i:03d}" for i in generator.permutation(n)]
    queries = unit_rows(generator, len(ks), dimension)
    exclude = set(ids[:left_out])
    index = ExactIndex(ArrayVectors(ids, rows), IndexConfig(block=block, queries=at_once))
    found = index.nearest(queries, ks, exclude=exclude)
    assert found == [by_sorting(ids, rows, q, k, exclude) for q, k in zip(queries, ks, strict=True)]


def test_equal_vectors_come_in_the_order_of_their_ids() -> None:
    rows = np.tile(np.array([[1.0, 0.0]], dtype=np.float32), (50, 1))
    ids = [f"c-{i:02d}" for i in range(50)][::-1]
    found = ExactIndex(ArrayVectors(ids, rows), IndexConfig(block=7)).nearest(rows[:1], 3)
    assert found == [[("c-00", 1.0), ("c-01", 1.0), ("c-02", 1.0)]]


def test_wrong_shapes_are_refused() -> None:
    rows = unit_rows(np.random.default_rng(0), 4, 3)
    index = ExactIndex(ArrayVectors(["a", "b", "c", "d"], rows))
    with pytest.raises(BadInputError, match="different encoders"):
        index.nearest(unit_rows(np.random.default_rng(0), 2, 5), 1)
    with pytest.raises(BadInputError, match="2 values of k for 1 queries"):
        index.nearest(rows[:1], [1, 1])
    with pytest.raises(BadInputError, match="different"):
        ArrayVectors(["a", "a"], rows[:2])


def test_no_queries_and_no_vectors_are_no_error() -> None:
    rows = unit_rows(np.random.default_rng(0), 4, 3)
    assert ExactIndex(ArrayVectors(["a", "b", "c", "d"], rows)).nearest(rows[:0], 3) == []
    assert ExactIndex(ArrayVectors([], rows[:0])).nearest(rows[:2], 3) == [[], []]


class TestApproximate:
    """faiss is an extra; without it these skip."""

    @pytest.fixture(autouse=True)
    def _faiss(self) -> None:
        pytest.importorskip("faiss", reason="faiss-cpu is not installed: pip install 'assay[embed]'")

    def clustered(self) -> tuple[list[str], Rows, Rows]:
        generator = np.random.default_rng(3)
        centres = generator.standard_normal((60, 24))
        rows = centres[generator.integers(0, 60, 4_000)] + 0.4 * generator.standard_normal((4_000, 24))
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return [f"c-{i:04d}" for i in generator.permutation(4_000)], rows, rows[:80]

    def test_finds_nearly_all_of_the_exact_answer(self) -> None:
        ids, rows, queries = self.clustered()
        config = IndexConfig(approximate_above=1_000, probes=0.2)
        approximate = open_index(ArrayVectors(ids, rows), config)
        assert isinstance(approximate, ApproximateIndex)
        truth = ExactIndex(ArrayVectors(ids, rows)).nearest(queries, 8)
        found = approximate.nearest(queries, 8)
        shared = sum(len({n for n, _ in a} & {n for n, _ in b}) for a, b in zip(truth, found, strict=True))
        assert shared / (80 * 8) > 0.95

    def test_is_deterministic_and_leaves_out_what_it_is_told_to(self) -> None:
        ids, rows, queries = self.clustered()
        config = IndexConfig(approximate_above=1_000)
        exclude = set(ids[:500])
        ks = [number % 4 for number in range(80)]
        answers = [open_index(ArrayVectors(ids, rows), config).nearest(queries, ks, exclude=exclude) for _ in range(2)]
        assert answers[0] == answers[1]
        assert [len(answer) for answer in answers[0]] == ks
        assert not exclude & {name for answer in answers[0] for name, _ in answer}

    def test_looking_into_every_list_is_exact(self) -> None:
        ids, rows, queries = self.clustered()
        vectors = ArrayVectors(ids, rows)
        whole = ApproximateIndex(vectors, IndexConfig(probes=1.0)).nearest(queries, 5)
        assert whole == ExactIndex(vectors).nearest(queries, 5)

    @pytest.mark.parametrize("shard", [1, 900, 2_000])
    def test_shards_answer_as_one_index_over_everything(self, shard: int, tmp_path: Path) -> None:
        ids, rows, queries = self.clustered()
        vectors, exclude = ArrayVectors(ids, rows), set(ids[::7])
        whole = ApproximateIndex(vectors, IndexConfig(block=500)).nearest(queries, 6, exclude=exclude)
        sharded = ApproximateIndex(vectors, IndexConfig(block=500, shard=shard), tmp_path)
        assert sharded.nearest(queries, 6, exclude=exclude) == whole
        assert not list(tmp_path.iterdir())
