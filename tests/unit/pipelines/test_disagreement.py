"""Two raters on the same pairs: scores and judgments, ties, order, filters, items of a queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.domain import Judgment
from assay.errors import BadInputError, NotFoundError
from assay.score import Score
from assay.store.records import insert_annotator, insert_judgments, insert_scores
from assay.workspace import Workspace
from assay_pipelines.curation.disagreement import (
    ContradictionFilter,
    Rater,
    agreement_of,
    contradictions,
    known_annotators,
    most_in_common,
    queue_items,
)

Fill = Callable[[int], list[str]]


def score(workspace: Workspace, version: str, margins: dict[str, float], principle: str | None = None) -> Rater:
    """Scores of both sides of each comparison whose margin A - B is as given."""
    with workspace.store.unit() as db:
        rows = db.execute("SELECT comparison_id, response_a, response_b FROM comparisons").fetchall()
        sides = {comparison: (a, b) for comparison, a, b in rows}
        scores = [
            (response, Score(reward, "rm", version, "t", 5, False, principle=principle, uncertainty=0.5))
            for comparison, margin in margins.items()
            for response, reward in zip(sides[comparison], (1.0 + margin, 1.0), strict=True)
        ]
        asked = [principle] * len(scores)
        insert_scores(db, scores, model="rm", version=version, template_hash="t", run_id=None, principles=asked)
    return Rater(version, "t", principle or "")


def judge(workspace: Workspace, answers: dict[str, tuple[str, float | None]]) -> Rater:
    with workspace.store.unit() as db:
        annotator = insert_annotator(db, "llm", "judge@1")
        insert_judgments(
            db,
            [Judgment(c, annotator, answer, confidence=sure) for c, (answer, sure) in answers.items()],  # type: ignore[arg-type]
            None,
        )
    return Rater(annotator_id=annotator)


@pytest.mark.parametrize(
    "rater", [Rater("v", "t"), Rater("v", "t", "Is it true: yes or no?"), Rater(annotator_id="a-1")]
)
def test_a_reference_reads_back(rater: Rater) -> None:
    assert Rater.parse(rater.reference) == rater


@pytest.mark.parametrize("wrong", ["", "scores:", "scores:v:t", "judgments:", "models:v:t:", "scores::t:"])
def test_what_is_no_reference_is_refused(wrong: str) -> None:
    with pytest.raises(BadInputError, match="is neither"):
        Rater.parse(wrong)


def test_agreement_counts_each_pair_once(workspace: Workspace, fill_comparisons: Fill) -> None:
    ids = fill_comparisons(5)
    one = score(workspace, "one", dict(zip(ids, (1.0, 2.0, -1.0, 0.0, 3.0), strict=True)))
    two = score(workspace, "two", dict(zip(ids[:4], (1.0, -2.0, 1.0, 1.0), strict=True)))
    with workspace.store.unit() as db:
        labels = dict(db.execute("SELECT comparison_id, label FROM pools").fetchall())
        found = agreement_of(db, one, two)
        pairs, total = contradictions(db, one, two, ContradictionFilter())
        mine, _ = contradictions(db, one, two, ContradictionFilter(supports="first"))
        gold, _ = contradictions(db, one, two, ContradictionFilter(pool="gold"))
        with pytest.raises(NotFoundError, match="nothing of scores:three"):
            agreement_of(db, one, Rater("three", "t"))
    assert (found.common, found.agree, found.disagree, found.tied) == (4, 1, 2, 1)
    assert found.share == pytest.approx(1 / 3)
    assert found.interval is not None
    assert found.interval.low < 1 / 3 < found.interval.high
    assert (found.first, found.second) == ("rm@one", "rm@two")
    assert [pair.comparison_id for pair in pairs] == [ids[1], ids[2]]  # by the less sure of the two
    assert total == 2
    assert gold == []
    expected = [c for c, prefers in ((ids[1], "A"), (ids[2], "B")) if labels[c] == prefers]
    assert [pair.comparison_id for pair in mine] == expected
    assert found.supports["first"] == len(expected)
    first = pairs[0].first
    assert (first.prefers, first.margin, first.reward_a, first.uncertainty_a) == ("A", 2.0, 3.0, 0.5)
    assert first.probability is None  # nothing was calibrated
    assert first.relative_margin == pytest.approx(2.0 / (6.0 / 4) ** 0.5)


def test_judgments_are_raters_too(workspace: Workspace, fill_comparisons: Fill) -> None:
    ids = fill_comparisons(6)
    model = score(workspace, "one", dict.fromkeys(ids, 1.0))
    said = (("B", 0.9), ("B", None), ("both_bad", 0.8), ("skip", None), ("B", 0.0), ("B", 1.0))
    judged = judge(workspace, dict(zip(ids, said, strict=True)))
    with workspace.store.unit() as db:
        found = agreement_of(db, model, judged)
        pairs, _ = contradictions(db, model, judged, ContradictionFilter(order="second"))
        annotators = known_annotators(db)
    assert (found.common, found.disagree, found.tied) == (5, 4, 1)
    assert {p.comparison_id: p.second.probability for p in pairs} == {ids[0]: 0.9, ids[1]: None, ids[4]: 0, ids[5]: 1}
    assert [p.comparison_id for p in pairs[2:]] == [ids[0], ids[4]]  # the surest first
    assert {p.second.prefers for p in pairs} == {"B"}
    assert [(a.kind, a.name, a.opinions) for a in annotators] == [("source", "filled", 6), ("llm", "judge@1", 5)]


def test_the_two_to_begin_with_are_models_that_share_the_most(workspace: Workspace, fill_comparisons: Fill) -> None:
    """Not the two with the most scores, nor another principle of one model, nor a judge, while two models share any."""
    ids = fill_comparisons(8)
    apart = [score(workspace, "one", dict.fromkeys(ids[:4], 1.0)), score(workspace, "two", dict.fromkeys(ids[4:], 1.0))]
    judged = judge(workspace, dict.fromkeys(ids, ("A", None)))
    with workspace.store.unit() as db:
        assert most_in_common(db, apart) is None
        assert most_in_common(db, apart[:1]) is None
        assert most_in_common(db, [*apart, judged]) == (apart[0], judged)
    third = score(workspace, "three", dict.fromkeys(ids[3:6], 1.0))  # one with the first, two with the second
    same = [score(workspace, "four", dict.fromkeys(ids, 1.0), principle=asked) for asked in ("Short?", "True?")]
    with workspace.store.unit() as db:
        assert most_in_common(db, [*apart, third, judged]) == (apart[1], third)
        assert most_in_common(db, [judged, *same]) == (judged, same[0])
        assert most_in_common(db, [*apart, *same]) == (apart[0], same[0])


def test_raters_with_nothing_in_common_agree_on_nothing(workspace: Workspace, fill_comparisons: Fill) -> None:
    ids = fill_comparisons(4)
    first, second = score(workspace, "one", {ids[0]: 1.0}), score(workspace, "two", {ids[1]: -1.0})
    with workspace.store.unit() as db:
        found = agreement_of(db, first, second)
    assert (found.common, found.agree, found.disagree, found.tied) == (0, 0, 0, 0)
    assert found.share is None


def test_scores_by_another_principle_are_another_rater(workspace: Workspace, fill_comparisons: Fill) -> None:
    ids = fill_comparisons(2)
    plain = score(workspace, "one", dict.fromkeys(ids, 1.0))
    short = score(workspace, "one", dict.fromkeys(ids, -1.0), "The response is short.")
    with workspace.store.unit() as db:
        found = agreement_of(db, plain, short)
    assert (found.agree, found.disagree) == (0, 2)
    assert found.second == "rm@one by 'The response is short.'"


def test_items_say_that_they_disagree_and_keep_who_prefers_what_for_later(
    workspace: Workspace, fill_comparisons: Fill
) -> None:
    ids = fill_comparisons(3)
    one = score(workspace, "one", dict(zip(ids, (1.0, -5.0, 1.0), strict=True)))
    two = score(workspace, "two", dict(zip(ids, (-1.0, 5.0, 1.0), strict=True)))
    with workspace.store.unit() as db:
        items = queue_items(db, one, two, [ids[0], ids[1], ids[0]], " ask twice ")
        with pytest.raises(BadInputError, match=f"do not disagree on {ids[2]}"):
            queue_items(db, one, two, ids, "")
    assert [item.comparison_id for item in items] == [ids[1], ids[0]]
    assert items[0].priority > items[1].priority
    assert items[0].reason == "two raters prefer different responses: ask twice"
    assert [(o.judge, o.answer, o.rationale) for o in items[0].opinions or ()] == [
        ("rm@one", "B", "margin 5"),
        ("rm@two", "A", "margin 5"),
    ]


def test_filters_are_checked() -> None:
    for name, value in (("pool", "golden"), ("supports", "both"), ("order", "margin")):
        with pytest.raises(BadInputError, match=name):
            ContradictionFilter(**{name: value})  # type: ignore[arg-type]
