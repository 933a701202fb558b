"""Browsing: each filter's pages, in both orders and any sizes, are the rows that a plain reading of the store gives."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typed_rows import every_part, png
from typed_rows import filled as typed_filled

from assay import ids
from assay.annotation.item_answers import ItemAnswer, comparison_of, store_answers
from assay.browsing import walk as walking
from assay.browsing.comparison import comparison
from assay.browsing.facets import facets
from assay.browsing.filters import Filter
from assay.browsing.page import count, first_rows
from assay.browsing.walk import Cursor
from assay.domain import Judgment, prompt_of
from assay.errors import BadInputError, NotFoundError
from assay.score import Score, ScoreFailure
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments, insert_scores
from assay.workspace import Workspace

ROWS = 48
SOURCES, CATEGORIES, LANGUAGES = ("alpha", "beta", "gamma"), ("code", None, "maths", "chat"), ("en", "de")
LABELS = ("first", "second", "tie", None, "both_bad", "skip")


def pairs() -> list[dict[str, Any]]:
    rows = [
        {
            "row": n + 1,
            "messages": [
                {"role": "user", "content": f"Frage {n // 2}"},
                *(
                    [{"role": "assistant", "content": "Ja?"}, {"role": "user", "content": "weiter"}]
                    if n % 5 == 0
                    else []
                ),
            ],
            "first": f"first {n} " + ("with a Needle (50 %)" if n % 7 == 3 else "ÄÖÜ" if n % 11 == 0 else ""),
            "second": f"second {n}",
            "label": LABELS[n % len(LABELS)],
            "source": SOURCES[n * len(SOURCES) // ROWS],
            "record_id": f"#{n}",
            "category": CATEGORIES[n % len(CATEGORIES)],
            "language": LANGUAGES[n % len(LANGUAGES)],
        }
        for n in range(ROWS)
    ]
    # Seen in a second source, which says the contrary.
    again = [{**rows[n], "source": "delta", "label": "second", "category": "maths"} for n in (0, 12, 30)]
    return rows + again


@pytest.fixture(scope="module")
def filled(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Read only. Windows of a few rows, so that a page takes many."""
    workspace = Workspace.open(shutil.copytree(empty_workspace, tmp_path_factory.mktemp("browsing") / "workspace"))
    fill(workspace)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("FIRST", 4), ("FIRST_TEXT", 2), ("SEEDED", 2)):
            patch.setattr(walking, name, size)
        patch.setattr(walking, "FEW", 3)
        yield workspace


def fill(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(pairs(), schema=pair_schema()), None)
        rows = db.execute("SELECT comparison_id, response_a, response_b FROM comparisons ORDER BY rowid").fetchall()
        judges = [insert_annotator(db, "llm", name) for name in ("small", "large")]
        said = [
            Judgment(c, judge, "AB"[(n // 12 + k * (n % 3 == 0)) % 2], origin=origin)  # type: ignore[arg-type]
            for n, (c, _, _) in enumerate(rows)
            if n % 4 == 1
            for k, judge in enumerate(judges)
            for origin in ("", f"vote/{k}")
        ]
        insert_judgments(db, said, None)
        db.execute("INSERT INTO withdrawn_judgments VALUES (?, 'mistake', ?)", [said[0].id, datetime.now(UTC)])
        pools = ("gold", "silver", "discarded", "recycled", "pending")
        decided = [(c, pools[n % 5], n) for n, (c, _, _) in enumerate(rows) if n % 2 or n % 9 == 0]
        for _ in range(2):  # the later decision is in force, and has no label where the earlier one had
            insert_decisions(
                db,
                [
                    Decision(c, pool, "A" if n % 3 else None, "rule", "because", iteration=n % 2)  # type: ignore[arg-type]
                    for c, pool, n in decided
                ],
                None,
            )
            decided = [(c, "silver", n + 1) for c, _, n in decided if n % 4 == 0]
        insert_scores(
            db,
            [
                (response, ScoreFailure("too_long", "9") if n % 6 == 0 else Score(n / 10, "rm", "v", "t", 5, False))
                for n, (_, a, b) in enumerate(rows)
                if n % 3 == 0
                for response in (a, b)
            ],
            model="rm",
            version="v",
            template_hash="t",
            run_id=None,
        )


REFERENCE = """
    WITH said AS (
        SELECT comparison_id,
               bool_or(kind = 'source' AND answer = 'A') AS sa, bool_or(kind = 'source' AND answer = 'B') AS sb,
               bool_or(kind <> 'source' AND answer = 'A') AS oa, bool_or(kind <> 'source' AND answer = 'B') AS ob
        FROM opinions JOIN annotators USING (annotator_id) GROUP BY comparison_id)
    SELECT comparison_id FROM comparisons c JOIN pools p USING (comparison_id) LEFT JOIN said s USING (comparison_id)
    WHERE {where} ORDER BY c.rowid"""


def seen(column: str, *values: str) -> str:
    return f"comparison_id IN (SELECT comparison_id FROM origins WHERE {column} IN {(*values, '')})"


CASES: dict[str, tuple[Filter, str]] = {
    "everything": (Filter(), "true"),
    "source": (Filter(sources=("gamma",)), seen("source", "gamma")),
    "second source": (Filter(sources=("delta",)), seen("source", "delta")),
    "category": (Filter(categories=("maths", "chat")), seen("category", "maths", "chat")),
    "origins": (
        Filter(sources=("delta", "beta"), categories=("maths",), languages=("en",)),
        f"{seen('source', 'delta', 'beta')} AND {seen('category', 'maths')} AND {seen('language', 'en')}",
    ),
    "unverified": (Filter(pools=("unverified",)), "p.pool = 'unverified'"),
    "pools": (Filter(pools=("gold", "silver")), "p.pool IN ('gold', 'silver')"),
    "label": (Filter(labels=("A",)), "p.label = 'A'"),
    "tie": (Filter(labels=("tie",)), "p.label = 'tie'"),
    "no label": (
        Filter(labels=("none",), pools=("silver", "unverified")),
        "p.label IS NULL AND p.pool IN ('silver', 'unverified')",
    ),
    "conflict": (Filter(conflict="any"), "(sa OR oa) AND (sb OR ob)"),
    "sources disagree": (Filter(conflict="sources"), "sa AND sb"),
    "annotators disagree": (Filter(conflict="annotators"), "oa AND ob"),
    "against the source": (
        Filter(conflict="against_source", pools=("silver", "discarded", "gold")),
        "(sa AND ob OR sb AND oa) AND p.pool IN ('silver', 'discarded', 'gold')",
    ),
    "reward": (
        Filter(scored_by="rm", reward_low=1.0, reward_high=3.0),
        """EXISTS (SELECT 1 FROM scores x WHERE x.response_id IN (c.response_a, c.response_b)
            AND x.reward BETWEEN 1 AND 3)""",
    ),
    "another model": (Filter(scored_by="other"), "false"),
    "text of a response": (
        Filter(text="needle (50 %)"),
        """EXISTS (SELECT 1 FROM responses r WHERE r.response_id IN (c.response_a, c.response_b)
            AND contains(lower(content), 'needle (50 %)'))""",
    ),
    "text in another case": (
        Filter(text="äöü", pools=("unverified",)),
        """p.pool = 'unverified' AND EXISTS (SELECT 1 FROM responses r
            WHERE r.response_id IN (c.response_a, c.response_b) AND content LIKE '%ÄÖÜ%')""",
    ),
    "text of a prompt": (
        Filter(text="FRAGE 1"),
        "EXISTS (SELECT 1 FROM prompts q WHERE q.prompt_id = c.prompt_id AND q.messages[1].content LIKE 'Frage 1%')",
    ),
    "no such text": (Filter(text="." * 5), "false"),
    "record": (Filter(id="#7"), seen("record_id", "#7")),
    "no such id": (Filter(id="c-" + "0" * 32), "false"),
}


FIELDS = fields(Filter)


def paged(workspace: Workspace, wanted: Filter, *, limit: int, seconds: float, **options: Any) -> list[str]:
    found: list[str] = []
    after: Cursor | None = None
    for _ in range(1000):
        with workspace.store.unit() as db:
            page = first_rows(db, wanted, after=after, limit=limit, seconds=seconds, **options)
        assert len(page.rows) <= limit
        found += [row.comparison_id for row in page.rows]
        if page.after is None:
            assert page.examined == page.total
            return found
        assert page.examined < page.total
        after = Cursor.parse(str(page.after))
    raise AssertionError("no end")


@pytest.mark.parametrize("case", CASES)
def test_pages_and_counts_are_those_of_a_plain_query(filled: Workspace, case: str) -> None:
    wanted, where = CASES[case]
    with filled.store.unit() as db:
        expected = [row[0] for row in db.execute(REFERENCE.format(where=where)).fetchall()]
        labels = dict(db.execute("SELECT comparison_id, {'pool': pool, 'label': label} FROM pools").fetchall())
    assert bool(expected) == ("no such" not in case and case != "another model")
    assert paged(filled, wanted, limit=5, seconds=0.0) == expected
    assert paged(filled, wanted, limit=100, seconds=10.0) == expected
    assert paged(filled, wanted, limit=7, seconds=0.0, order="newest") == expected[::-1]
    with filled.store.unit() as db:
        for row in first_rows(db, wanted, limit=100, seconds=10).rows:
            assert {"pool": row.pool, "label": row.label} == labels[row.comparison_id]
    total, after = 0, None
    while True:
        with filled.store.unit() as db:
            part = count(db, wanted, after=after, seconds=0.0)
        total += part.matches
        if (after := part.after) is None:
            break
    assert total == len(expected)


TOGETHER = (
    ("category", "reward"),
    ("tie", "category"),
    ("tie", "source"),
    ("label", "conflict"),
    ("sources disagree", "second source"),
    ("sources disagree", "unverified"),
    ("text of a prompt", "reward"),
    ("text of a response", "pools"),
    ("annotators disagree", "source", "text of a response"),
)


@pytest.mark.parametrize("names", TOGETHER, ids=" and ".join)
def test_pages_of_filters_together_are_those_of_a_plain_query(filled: Workspace, names: tuple[str, ...]) -> None:
    """Whichever of them names the candidates, the others are asked of them."""
    asked = [(field.name, getattr(CASES[name][0], field.name), field.default) for name in names for field in FIELDS]
    wanted = Filter(**{name: value for name, value, default in asked if value != default})
    where = " AND ".join(f"({CASES[name][1]})" for name in names)
    with filled.store.unit() as db:
        expected = [row[0] for row in db.execute(REFERENCE.format(where=where)).fetchall()]
    assert expected
    assert paged(filled, wanted, limit=2, seconds=0.0) == expected
    assert paged(filled, wanted, limit=3, seconds=10.0, order="newest") == expected[::-1]


def test_a_search_answers_in_its_time_with_a_match_at_once(filled: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock by which each look at it takes 0.1 s: a window 0.2 s."""
    ticks = iter(range(1000))
    monkeypatch.setattr("assay.browsing.walk.time.monotonic", lambda: next(ticks) / 10)
    wanted, where = CASES["text of a response"]
    with filled.store.unit() as db:
        places = dict(db.execute("SELECT comparison_id, rowid FROM comparisons").fetchall())
        expected = [row[0] for row in db.execute(REFERENCE.format(where=where)).fetchall()]
        assert places[expected[0]] >= 2, "the first window has no match"
        nothing = first_rows(db, wanted, limit=100, seconds=0.1)
        assert (nothing.rows, nothing.examined) == ([], 2), "one window; and how far it came"
        page = first_rows(db, wanted, limit=100, seconds=1.1)
        assert [row.comparison_id for row in page.rows] == expected[: len(page.rows)]
        assert 0 < len(page.rows) < len(expected), "shown before the rest is searched for"
        rest = first_rows(db, wanted, limit=100, seconds=1000.0, after=page.after)
        assert [row.comparison_id for row in page.rows + rest.rows] == expected


def test_windows_grow_where_they_are_quick_and_shrink_where_they_are_not() -> None:
    some, text = Filter(sources=("a",)), Filter(text="a")
    assert walking._next_size(4096, some, took=0.02, seconds=0.15) == 16384
    assert walking._next_size(walking.LARGEST, some, took=0.02, seconds=0.15) == walking.LARGEST
    assert walking._next_size(1024, text, took=0.02, seconds=0.15) == 16384
    assert walking._next_size(16384, text, took=0.2, seconds=0.15) == 16384
    assert walking._next_size(16384, text, took=0.5, seconds=0.15) == 4096
    assert walking._next_size(1024, text, took=9.0, seconds=0.15) > walking.FIRST_TEXT, "still known as not the first"


def test_ids_of_each_kind_lead_to_their_comparisons(filled: Workspace) -> None:
    with filled.store.unit() as db:
        c, p, a, j = db.execute(
            """SELECT comparison_id, prompt_id, response_a, judgment_id
               FROM comparisons JOIN judgments USING (comparison_id) LIMIT 1"""
        ).fetchall()[0]
        for name in (c, a, j):
            assert [row.comparison_id for row in first_rows(db, Filter(id=name), seconds=10).rows] == [c]
        of_prompt = {
            r[0] for r in db.execute("SELECT comparison_id FROM comparisons WHERE prompt_id = ?", [p]).fetchall()
        }
        assert {row.comparison_id for row in first_rows(db, Filter(id=p), seconds=10).rows} == of_prompt


def test_a_row_shows_where_the_text_is(filled: Workspace) -> None:
    with filled.store.unit() as db:
        (row, *_) = first_rows(db, Filter(text="NEEDLE"), seconds=10).rows
        side = row.a if row.a.found else row.b
        assert side.found
        assert "Needle" in side.text
        assert [row.prompt.found, row.a.found, row.b.found].count(True) == 1
        (earlier, *_) = [r for r in first_rows(db, Filter(text="ja?"), seconds=10).rows if r.turns == 3]
        assert earlier.prompt.text == "Ja?"
        shown = first_rows(db, Filter(), seconds=10).rows[5]
        assert (shown.prompt.text, shown.turns) == ("weiter", 3)


def test_bad_filters_are_refused() -> None:
    for bad in ({"pools": ("bronze",)}, {"labels": ("C",)}, {"conflict": "all"}, {"reward_low": 1.0}):
        with pytest.raises(BadInputError):
            Filter(**bad)
    with pytest.raises(BadInputError):
        Cursor.parse("1; DROP TABLE comparisons")


def test_facets_are_the_stores(filled: Workspace) -> None:
    with filled.store.unit() as db:
        found = facets(db)
    assert found.comparisons == ROWS
    assert {v.value: v.origins for v in found.sources} == {"alpha": 16, "beta": 16, "gamma": 16, "delta": 3}
    assert [m.model for m in found.models] == ["rm"]


def test_a_comparison_has_all_that_is_known_of_it(filled: Workspace) -> None:
    with filled.store.unit() as db:
        (name,) = db.execute(
            "SELECT comparison_id FROM withdrawn_judgments JOIN judgments USING (judgment_id)"
        ).fetchall()[0]
        found = comparison(db, name)
        pool, label = db.execute("SELECT pool, label FROM pools WHERE comparison_id = ?", [name]).fetchall()[0]
        assert (found.pool, found.label) == (pool, label)
        assert found.prompt_id == ids.prompt_id(prompt_of([asdict(turn) for turn in found.prompt]))
        assert found.a.response_id == ids.response_id(found.prompt_id, found.a.content) < found.b.response_id
        assert [j.kind for j in found.judgments] == ["source", "llm", "llm", "llm", "llm"]
        assert sum(j.vote for j in found.judgments) == 2
        assert [j.withdrawn_reason for j in found.judgments if j.withdrawn_at] == ["mistake"]
        assert [o.source for o in found.origins] == ["alpha"]
        (scored,) = db.execute("SELECT comparison_id FROM comparisons WHERE rowid = 12").fetchall()[0]
        failed = comparison(db, scored)
        assert [(s.side, s.reward, s.error) for s in failed.scores] == [
            ("A", None, "too_long: 9"),
            ("B", None, "too_long: 9"),
        ]
        with pytest.raises(NotFoundError):
            comparison(db, "c-nothing")


def test_a_comparison_has_typed_messages_and_every_kind_of_label(tmp_path: Path) -> None:
    workspace = typed_filled(tmp_path, *every_part(picture=png()))
    now = "2026-01-02T03:04:05Z"
    with workspace.store.unit() as db:
        pairs = db.execute("SELECT comparison_id, prompt_id FROM comparisons ORDER BY 1").fetchall()
        ((typed, text),) = db.execute("SELECT response_id, content FROM responses WHERE turns IS NOT NULL").fetchall()
        others = db.execute("SELECT response_id FROM responses WHERE turns IS NULL ORDER BY 1").fetchall()
        prompt, (one, two) = pairs[0][1], (row[0] for row in others)
        order = [(typed, one, "A"), (typed, two, "A"), (one, two, "tie")]
        judged = []
        for better, worse, answer in order:
            keys, is_b = comparison_of(prompt, better, worse)
            judged.append({**keys, "answer": {True: "B", False: "A"}[is_b] if answer == "A" else answer})
        rating = {"response_id": typed, "aspect": "truth", "low": 0, "high": 3, "value": 2.0}
        mark = {"response_id": typed, "start": 0, "end": 9, "label": "slip"}
        about = {"annotator": "grace", "kind": "human"}
        answers = [
            ItemAnswer("q", prompt, "ranking", labels={"judgments": judged}, **about),  # type: ignore[arg-type]
            ItemAnswer("q", typed, "rating", labels={"ratings": [rating]}, **about),  # type: ignore[arg-type]
            ItemAnswer("q", typed, "spans", labels={"marks": [mark]}, rationale="why", **about),  # type: ignore[arg-type]
        ]
        assert store_answers(db, [(answer, now) for answer in answers]) == 3
        shown = comparison(db, pairs[0][0])
    assert ids.prompt_id(prompt_of([asdict(turn) for turn in shown.prompt])) == prompt
    assert [turn.role for turn in shown.prompt] == ["system", "developer", "user"]
    sides = {side.response_id: side for side in (shown.a, shown.b)}
    assert sides.pop(typed).turns is not None
    assert [side.turns for side in sides.values()] == [None]
    letter = "A" if shown.a.response_id == typed else "B"
    (rated, marked), (ranked,) = shown.labels, shown.rankings
    assert (rated.side, rated.annotator, rated.aspect, rated.value, rated.high) == (letter, "grace", "truth", 2.0, 3.0)
    assert (rated.words, marked.aspect) == (None, None)
    assert (marked.side, marked.step, marked.label, marked.words) == (letter, None, "slip", text[:9])
    assert marked.rationale == "why"
    assert (ranked.responses, {ranked.place_a, ranked.place_b}) == (3, {1, 2})
    assert ranked.place_a == (1 if letter == "A" else 2)


def test_votes_on_the_pairs_of_a_prompt_are_no_ranking(tmp_path: Path) -> None:
    workspace = typed_filled(tmp_path, *every_part(picture=png()))
    with workspace.store.unit() as db:
        names = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons").fetchall()]
        grace = insert_annotator(db, "human", "grace")
        insert_judgments(db, [Judgment(name, grace, "A", origin="queue/pairs/1") for name in names], None)
        assert comparison(db, names[0]).rankings == []
