"""Reading in pages: cuts, scattered texts and repeats make no difference to what cleaning and deduplication decide."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from empty_workspaces import new_workspace

from assay.browsing import pair_pages
from assay.browsing.pair_pages import PairPages
from assay.compute.scratch_store import row_pages, scratch
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.hygiene import cleaning, pair_keys
from assay_pipelines.hygiene.cleaning import CleanConfig, clean
from assay_pipelines.hygiene.deduplication import DedupCounts, dedup
from assay_pipelines.hygiene.discarding import discard

Row = tuple[str, str, str, str]


def put(workspace: Workspace, rows: list[Row], source: str = "test") -> None:
    table = [
        {
            "row": number,
            "messages": [{"role": "user", "content": prompt}],
            "first": first,
            "second": second,
            "label": label,
            "source": source,
            "record_id": str(number),
        }
        for number, (prompt, first, second, label) in enumerate(rows)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(table, schema=pair_schema()), None)


def messy(count: int) -> list[Row]:
    """Pairs with duplicates in case and space, contradictions and broken ones; the originals come first."""
    chance = random.Random(0)
    rows: list[Row] = [(f"Prompt {n}", f"Good {n}", f"bad {n}", "first") for n in range(count)]
    for n in range(0, count, 3):
        rows.append((f"prompt  {n}", f"GOOD {n}", f"bad {n} ", "first"))
    for n in range(1, count, 9):
        rows.append((f"PROMPT {n}", f"Good {n}", f"bad {n}", "second"))
    for n in range(count // 10):
        rows += [(f"Prompt {n}", f"Same {n}", f"same  {n}", "first"), (f"Prompt {n}", f"bell \x07{n}", "x", "first")]
    late = rows[count:]
    chance.shuffle(late)
    return rows[:count] + late


def decisions(workspace: Workspace) -> list[tuple[str, str, str]]:
    with workspace.store.unit() as db:
        return db.execute("SELECT comparison_id, rule, reason FROM decisions ORDER BY ALL").fetchall()


def small_pages(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    whole = PairPages.pages
    monkeypatch.setattr(PairPages, "pages", lambda self, page=rows, only="": whole(self, page=page, only=only))
    monkeypatch.setattr(pair_keys, "_ROWS", rows)
    monkeypatch.setattr("assay_pipelines.hygiene.deduplication._ROWS", rows)
    monkeypatch.setattr("assay_pipelines.hygiene.discarding._PAGE", rows)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "count"), [(4, 12), (17, 45)])
def test_the_cut_into_pages_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, rows: int, count: int
) -> None:
    found: list[tuple[dict[str, int], DedupCounts, list[tuple[str, str, str]]]] = []
    for cut in (False, True):
        workspace = new_workspace(tmp_path_factory.mktemp("ws") / "ws")
        put(workspace, messy(count))
        with monkeypatch.context() as patch:
            if cut:
                small_pages(patch, rows)
            found.append((clean(workspace, CleanConfig(), None), dedup(workspace, None), decisions(workspace)))
            assert dedup(workspace, None) == DedupCounts(0, 0, 0), "a second time there is nothing left"
    assert found[0] == found[1]
    cleaned, counts, _ = found[0]
    assert cleaned["identical_responses"] == cleaned["control_characters"] == count // 10
    pairs = set(range(0, count, 3))
    opposed = set(range(1, count, 9))
    assert counts.contradictions == 2 * len(opposed)
    assert counts.duplicates == len(pairs - opposed)


def test_every_comparison_is_read_once_with_its_own_texts(workspace: Workspace) -> None:
    """Also where prompts and responses lie elsewhere in their tables: a second source repeats the first's prompts."""
    put(workspace, [(f"p{n}", f"a{n}", f"b{n}", "first") for n in range(40)])
    put(workspace, [(f"p{39 - n}", f"a{39 - n}", f"c{n}", "first") for n in range(40)], source="second")
    with workspace.store.unit() as db:
        truth = db.execute(
            """SELECT c.comparison_id, p.messages[1].content, a.content, b.content FROM comparisons c
               JOIN prompts p USING (prompt_id) JOIN responses a ON a.response_id = c.response_a
               JOIN responses b ON b.response_id = c.response_b"""
        ).fetchall()
    with scratch(workspace) as own:
        pages = pair_pages.pair_pages(workspace, own)
        read = []
        for page in pages.pages(page=7):
            assert page.num_rows <= 7
            read += [(r["comparison_id"], r["messages"][0]["content"], r["a"], r["b"]) for r in page.to_pylist()]
        some = [row["item"] for page in pages.pages(page=7, only="item % 3 = 0") for row in page.to_pylist()]
    assert sorted(read) == sorted(truth)
    assert sorted(some) == list(range(0, 80, 3))


def test_positions_that_changed_are_only_slower(workspace: Workspace) -> None:
    put(workspace, [(f"p{n}", f"a{n}", f"b{n}", "first") for n in range(20)])
    with scratch(workspace) as own:
        pages = pair_pages.pair_pages(workspace, own)
        own.db.execute("UPDATE pair_places SET a_row = 0, b_row = 0")
        assert sum(page.num_rows for page in pages.pages(page=5)) == 20


def test_the_store_is_free_between_pages_and_the_scratch_file_goes(workspace: Workspace) -> None:
    put(workspace, [(f"p{n}", f"a{n}", f"b{n}", "first") for n in range(30)])
    seen = 0

    def others_work(count: int) -> None:
        nonlocal seen
        seen += count
        with workspace.store.unit() as db:
            db.execute("SELECT count(*) FROM comparisons").fetchall()

    clean(workspace, CleanConfig(), None, advance=others_work)
    dedup(workspace, None, advance=others_work)
    assert seen == 60
    folder = workspace.root / "scratch"
    assert not list(folder.iterdir())
    abandoned = folder / "999999999-killed"
    abandoned.mkdir()
    with scratch(workspace) as own:
        assert own.folder.exists()
        assert not abandoned.exists()
    with pytest.raises(ZeroDivisionError), scratch(workspace) as own:
        own.number(f"SELECT {1 // 0}")
    assert not list(folder.iterdir())


def test_rows_added_meanwhile_are_not_read(workspace: Workspace) -> None:
    put(workspace, [(f"p{n}", f"a{n}", f"b{n}", "first") for n in range(10)])
    query = "SELECT prompt_id FROM prompts WHERE rowid BETWEEN $low AND $high"
    read = 0
    for page in row_pages(workspace, "prompts", query, page=4):
        read += page.num_rows
        put(workspace, [(f"q{read}", "a", "b", "first")])
    assert read == 10


def test_discarding_leaves_alone_what_it_should(workspace: Workspace) -> None:
    put(workspace, [(f"p{n}", f"a{n}", f"b{n}", "first") for n in range(6)])
    with workspace.store.unit() as db:
        ids = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]
        pools: list[tuple[int, Callable[[str], Decision]]] = [
            (0, lambda c: Decision(c, "gold", "A", "vote", "x")),
            (1, lambda c: Decision(c, "silver", "A", "model", "x")),
            (2, lambda c: Decision(c, "discarded", None, "other", "x")),
            (3, lambda c: Decision(c, "discarded", None, "rule", "x")),
            (3, lambda c: Decision(c, "silver", "A", "review", "put back")),
        ]
        for place, decide in pools:
            insert_decisions(db, [decide(ids[place])], None)
    rows = pa.table({"comparison_id": ids, "reason": ["because"] * 6})
    assert discard(workspace, rows, "rule", None, leave=("gold", "silver")) == 2
    assert discard(workspace, rows, "rule", None) == 1, "silver that the rule has not had yet"
    assert discard(workspace, rows, "rule", None) == 0


def test_an_empty_store_has_nothing_to_clean(workspace: Workspace) -> None:
    assert set(clean(workspace, CleanConfig(), None).values()) == {0}
    assert dedup(workspace, None) == DedupCounts(0, 0, 0)
    assert cleaning.CleanConfig().rules()
