"""Near-duplicates: parts against plain Python, planted ones found, what is kept and why, gold, ranked lists."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.compute.local import LocalExecutor
from assay.errors import BadInputError
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.hygiene.near_duplicates import documents
from assay_pipelines.hygiene.near_duplicates import search as search_module
from assay_pipelines.hygiene.near_duplicates.jobs import Sketching
from assay_pipelines.hygiene.near_duplicates.search import (
    NearDuplicateConfig,
    NearDuplicateReport,
    cluster,
    connected,
    discard_near_duplicates,
    find_near_duplicates,
    keep,
)
from assay_pipelines.hygiene.near_duplicates.similarity import ShingleSets, shingle_sets
from assay_pipelines.hygiene.near_duplicates.sketches import (
    BandFiles,
    band_keys,
    banding,
    candidate_probability,
    candidates,
)
from assay_pipelines.hygiene.tokens import ngrams, tokenise


def put(workspace: Workspace, *pairs: tuple[str, str, str]) -> list[str]:
    """(prompt, chosen, rejected) -> the comparison ids in that order."""
    rows = [
        {
            "row": number,
            "messages": [{"role": "user", "content": prompt}],
            "first": first,
            "second": second,
            "label": "first",
            "source": "test",
            "record_id": f"{number:06d}",
        }
        for number, (prompt, first, second) in enumerate(pairs)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
        found = db.execute("SELECT comparison_id FROM origins ORDER BY record_id").fetchall()
    return [row[0] for row in found]


def words(chance: random.Random, count: int) -> str:
    return " ".join(f"w{chance.randrange(5000)}" for _ in range(count))


def changed(text: str, at: int) -> str:
    parts = text.split()
    parts[at] = "other"
    return " ".join(parts)


def search(workspace: Workspace, run_id: str = "run-1", **options: Any) -> NearDuplicateReport:
    return find_near_duplicates(workspace, NearDuplicateConfig(**options), run_id)


def members(workspace: Workspace, run_id: str = "run-1") -> dict[str, tuple[str | None, float | None, str]]:
    """item -> (kept, similarity, cluster)"""
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT item_id, kept_id, similarity, cluster_id FROM near_duplicates WHERE run_id = ?", [run_id]
        ).fetchall()
    return {item: (kept, similarity, cluster) for item, kept, similarity, cluster in rows}


def shingle_set(text: str) -> frozenset[tuple[str, ...]]:
    parts = text.split()
    runs = {tuple(parts[i : i + 3]) for i in range(len(parts) - 2)}
    return frozenset(runs or ({tuple(parts)} if parts else set()))


def jaccard(left: str, right: str) -> float:
    x, y = shingle_set(left), shingle_set(right)
    return len(x & y) / len(x | y) if x | y else 1.0


some_texts = st.lists(st.lists(st.sampled_from("abc"), max_size=8).map(" ".join), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(some_texts)
def test_similarity_is_the_jaccard_of_the_shingle_sets(some: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        sets = ShingleSets(Path(folder) / "sets", 1)
        sets.add(*shingle_sets(ngrams(tokenise(pa.array(some, pa.string())), 3, short=True)))
        left, right = (
            np.array(side) for side in zip(*[(i, j) for i in range(len(some)) for j in range(len(some))], strict=True)
        )
        found, crossed = sets.open(np.arange(len(some))).similarity(left, right)
    assert found.tolist() == [jaccard(some[i], some[j]) for i, j in zip(left, right, strict=True)]
    assert not crossed.any()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    ),
    st.data(),
)
def test_components_and_choice_are_those_of_one_by_one(
    graph: tuple[int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    nodes, edges = graph
    edges = [(x, y) for x, y in edges if x != y]
    left, right = (np.array([e[k] for e in edges], np.int64) for k in (0, 1))
    label = list(range(nodes))
    for _ in range(nodes):
        for x, y in edges:
            label[x] = label[y] = min(label[x], label[y])
    assert connected(nodes, left, right).tolist() == label
    always = np.array(data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
    kept = set(np.flatnonzero(always).tolist())
    near = {x: {y for e in edges for y in e if x in e and y != x} for x in range(nodes)}
    for node in range(nodes):
        if not near[node] & kept:
            kept.add(node)
    assert set(np.flatnonzero(keep(nodes, left, right, always)).tolist()) == kept


def test_a_chain_keeps_its_far_end() -> None:
    """0 ~ 1 ~ 2 with 0 unlike 2: what goes is itself similar to what stays."""
    first, second = np.array([0, 1]), np.array([1, 2])
    found = cluster(
        first, second, np.array([0.9, 0.8]), np.array([False, True]), rank=np.arange(3), gold=np.zeros(3, bool)
    )
    assert found.item.tolist() == [0, 1, 2]
    assert found.cluster.tolist() == [0, 0, 0]
    assert found.nearest_kept.tolist() == [-1, 0, -1]
    assert found.similarity.tolist()[1] == 0.9


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_reach_the_threshold(threshold: float) -> None:
    bands, rows = banding(threshold)
    assert bands * rows <= 128
    assert candidate_probability(threshold, bands, rows) >= 0.995


def test_equal_sketches_are_candidates_whoever_is_preferred(tmp_path: Path) -> None:
    texts = ["a b c d e", "x y z u v", "a b c d e", "", "", "a b c d e f"]
    files = BandFiles(tmp_path, 21)
    files.add(band_keys(np.arange(6), ngrams(tokenise(pa.array(texts)), 3, short=True), 1, 21, 6, 42))
    found = candidates(files, np.array([2, 5, 0, 1, 3, 4]))
    assert (0, 2) in zip(found.first.tolist(), found.second.tolist(), strict=True)
    assert not {3, 4} & {*found.first.tolist(), *found.second.tolist()}, "texts without a word are like nothing"


def test_planted_near_duplicates_are_found_and_nothing_else(workspace: Workspace) -> None:
    chance = random.Random(0)
    pairs, planted = [], set()
    for number in range(300):
        pair = (words(chance, 40), words(chance, 60), words(chance, 60))
        pairs.append(pair)
        if number % 3 == 0:  # one word of each part: 3 of about 58 or 38 shingles differ
            prompt, first, second = (changed(text, chance.randrange(len(text.split()))).upper() for text in pair)
            pairs.append((prompt, first, second))
            planted.add(len(pairs) - 1)
    ids = put(workspace, *pairs)
    report = search(workspace)
    assert (report.items, report.clusters, report.members, report.extra) == (400, 100, 200, 100)
    found = members(workspace)
    for number in planted:
        kept, similarity, _ = found[ids[number]]
        other = number - 1
        if kept is None:  # the two have changed places in the store
            number, other = other, number
            kept, similarity, _ = found[ids[number]]
        assert kept == ids[other]
        parts = zip(pairs[number], pairs[other], strict=True)
        assert similarity == pytest.approx(min(jaccard(x.lower(), y.lower()) for x, y in parts))
    config = NearDuplicateConfig()
    assert discard_near_duplicates(workspace, config, "run-1") == 100
    assert discard_near_duplicates(workspace, config, "run-1") == 0
    with workspace.store.unit() as db:
        pools = dict(db.execute("SELECT pool, count(*) FROM pools GROUP BY pool").fetchall())
        reasons = db.execute("SELECT reason FROM pools WHERE pool = 'discarded'").fetchall()
    assert pools == {"unverified": 300, "discarded": 100}
    assert all("near-duplicate of c-" in r and "of 3-word shingles" in r for (r,) in reasons)
    assert search(workspace, "run-2").members == 0


@pytest.mark.slow
def test_processes_find_what_this_process_finds_and_a_resumed_search_sketches_nothing_twice(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PAGE", 16)
    chance = random.Random(7)
    pairs = [(words(chance, 30), words(chance, 40), words(chance, 40)) for _ in range(40)]
    near = [(prompt, changed(first, 5), changed(second, 9)) for prompt, first, second in pairs[::3]]
    put(workspace, *pairs, *near, ("", "", ""), ("?", "!", "."))
    report = search(workspace)
    assert (report.items, report.extra) == (56, 14)
    config = NearDuplicateConfig()
    apart = find_near_duplicates(workspace, config, "run-2", executor=LocalExecutor(2))
    assert apart == report
    assert members(workspace, "run-2") == members(workspace)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search_module, "candidates", interrupt)
        with pytest.raises(KeyboardInterrupt):
            search(workspace, "run-3")
    assert members(workspace, "run-3") == {}
    with monkeypatch.context() as patch:
        patch.setattr(Sketching, "map", interrupt)
        search(workspace, "run-3")
    assert members(workspace, "run-3") == members(workspace)
    with monkeypatch.context() as patch:
        patch.setattr(search_module, "candidates", interrupt)
        with pytest.raises(KeyboardInterrupt):
            search(workspace, "run-4")
    put(workspace, *pairs[1:2], *near[:1], (pairs[1][0], changed(pairs[1][1], 3), changed(pairs[1][2], 3)))
    assert search(workspace, "run-4").items == 57, "another pool is another search"


def test_a_ranked_list_is_no_near_duplicate_but_swapped_sides_are(workspace: Workspace) -> None:
    chance = random.Random(1)
    prompt, a, b, c = words(chance, 200), words(chance, 50), words(chance, 50), words(chance, 50)
    put(workspace, (prompt, a, b), (prompt, a, c), (prompt, b, c))
    assert search(workspace).members == 0, "each pair has another response"
    put(workspace, (f"{prompt} more", changed(b, 3), changed(a, 5)))
    report = search(workspace, "run-2")
    assert report.members == 2
    assert report.opposite == 1, "it prefers the other of the two"


def test_gold_stays_and_is_what_others_are_compared_with(workspace: Workspace) -> None:
    chance = random.Random(2)
    base = (words(chance, 40), words(chance, 60), words(chance, 60))
    ids = put(workspace, *[(base[0], base[1], changed(base[2], at)) for at in range(5)])
    with workspace.store.unit() as db:
        insert_decisions(db, [Decision(ids[3], "gold", "A", "vote", "unanimous")], None)
        insert_decisions(db, [Decision(ids[4], "gold", "A", "vote", "unanimous")], None)
    report = search(workspace)
    assert (report.clusters, report.members, report.extra) == (1, 5, 3)
    found = members(workspace)
    assert {item for item, (kept, _, _) in found.items() if kept is None} == {ids[3], ids[4]}
    assert {kept for kept, _, _ in found.values()} <= {None, ids[3], ids[4]}
    assert discard_near_duplicates(workspace, NearDuplicateConfig(), "run-1") == 3


def test_over_prompts_all_comparisons_of_a_prompt_go_or_stay(workspace: Workspace) -> None:
    chance = random.Random(3)
    prompt = words(chance, 60)
    ids = put(
        workspace,
        (prompt, "a", "b"),
        (prompt, "c", "d"),
        (changed(prompt, 30), "e", "f"),
        (changed(prompt, 30), "g", "h"),
        (words(chance, 60), "i", "j"),
    )
    report = search(workspace, over="prompt")
    assert (report.items, report.clusters, report.extra) == (3, 1, 1)
    assert discard_near_duplicates(workspace, NearDuplicateConfig(over="prompt"), "run-1") == 2
    with workspace.store.unit() as db:
        gone = {row[0] for row in db.execute("SELECT comparison_id FROM pools WHERE pool = 'discarded'").fetchall()}
    assert gone in ({ids[0], ids[1]}, {ids[2], ids[3]})


def test_a_large_group_keeps_one(workspace: Workspace) -> None:
    chance = random.Random(4)
    text = words(chance, 100)
    put(workspace, *[(text, "yes of course", f"no {'!' * n}") for n in range(40)])
    report = search(workspace)
    assert (report.clusters, report.members, report.extra) == (1, 40, 39)


def test_nothing_and_wrong_options(workspace: Workspace) -> None:
    assert search(workspace) == NearDuplicateReport(0)
    assert search(workspace, "run-2", over="prompt") == NearDuplicateReport(0)
    for options, message in (
        ({"threshold": 0.0}, "must be above 0, not 0"),
        ({"threshold": 1.5}, "must be at most 1, not 1.5"),
        ({"shingle": 0}, "at least 1"),
        ({"over": "response"}, "one of pair, prompt"),
    ):
        with pytest.raises(BadInputError, match=message):
            NearDuplicateConfig(**options)


def test_words_have_the_same_hash_in_every_process() -> None:
    import xxhash

    hashes = tokenise(pa.array(["Stable, stable words", "", "words"])).hashes.tolist()
    assert hashes == [xxhash.xxh3_64_intdigest(word) for word in (b"stable", b"stable", b"words", b"words")]
    assert xxhash.xxh3_64_intdigest(b"") == 0x2D06800538D394C2  # published test vector
