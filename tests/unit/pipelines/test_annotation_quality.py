"""Measures and flags of one annotator, on votes made up to have known answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from assay.domain import Answer
from assay.statistics.intervals import wilson
from assay_pipelines.annotation.quality.annotators import AnnotatorQuality, annotator_quality
from assay_pipelines.annotation.question_types.question_type import outcome_of
from assay_pipelines.annotation.votes import QueueVote, majority


def vote(comparison: int, who: str, answer: Answer, **more: Any) -> QueueVote:
    return QueueVote(f"j-{comparison}-{who}-{more.get('role')}", f"c-{comparison}", who, answer, **more)


def quality_of(votes: list[QueueVote], who: str) -> AnnotatorQuality:
    return next(q for q in annotator_quality(votes) if q.annotator == who)


def test_gold_checks_and_the_wilson_interval() -> None:
    votes = [vote(n, "ann", "A" if n < 3 else "B", check_label="A") for n in range(20)]
    votes.append(vote(20, "ann", "skip", rationale="later", check_label="A"))
    found = quality_of(votes, "ann")
    assert (found.checks, found.passed) == (20, 3)
    assert found.accuracy == wilson(3, 20)
    assert found.flags == ("misses gold checks: 3 of 20 right",)
    assert found.compared == 0, "checks are not compared with others"


def test_few_votes_earn_no_flag() -> None:
    found = quality_of([vote(1, "ann", "B", check_label="A"), vote(2, "ann", "tie", seconds=0.1)], "ann")
    assert found.flags == ()


def test_agreement_with_the_majority_of_the_others() -> None:
    votes = []
    for n in range(30):
        votes += [vote(n, "ann", "A"), vote(n, "bob", "A"), vote(n, "cy", "B")]
    assert quality_of(votes, "cy").agreed == 0
    assert quality_of(votes, "cy").compared == 30
    assert quality_of(votes, "cy").flags == ("disagrees with the others: 0 of 30 as their majority",)
    assert quality_of(votes, "ann").compared == 0, "bob and cy have no majority"
    alone = quality_of([vote(1, "ann", "A")], "ann")
    assert alone.agreement is None


@pytest.mark.parametrize(("first_share", "flagged"), [(0.5, False), (0.9, True), (0.1, True)])
def test_position_bias(first_share: float, flagged: bool) -> None:
    dice = random.Random(1)
    votes = []
    for n in range(200):
        order = dice.choice(["AB", "BA"])
        wants_first = n < 200 * first_share
        answer: Answer = "A" if wants_first == (order == "AB") else "B"
        votes.append(vote(n, "ann", answer, shown_order=order))
    found = quality_of(votes, "ann")
    assert found.first == round(200 * first_share)
    assert any("prefers a side" in flag for flag in found.flags) == flagged


def test_ties_skips_and_speed() -> None:
    votes = [vote(n, "ann", "both_bad", seconds=0.5) for n in range(20)]
    votes += [vote(n, "ann", "skip", rationale="cannot_decide", seconds=0.7) for n in range(20, 40)]
    found = quality_of(votes, "ann")
    assert (found.ties, found.skips, found.votes) == (20, 20, 40)
    assert found.median_seconds == pytest.approx(0.6)
    assert [flag.split(":")[0] for flag in found.flags] == ["very fast", "mostly ties", "skips much"]


def test_an_item_passed_on_is_no_vote() -> None:
    votes = [vote(1, "ann", "A"), vote(2, "ann", "skip", rationale="broken: no text")]
    votes += [vote(n, "ann", "skip", rationale="not_for_me") for n in range(3, 20)]
    found = quality_of(votes, "ann")
    assert (found.votes, found.skips, found.passed_on) == (2, 1, 17)
    assert found.flags == ("skips much: 18 of 19",)


def test_adjudications_are_nobody_s_quality() -> None:
    assert annotator_quality([vote(1, "dora", "A", role="blind")]) == []


def test_outcomes_and_majorities() -> None:
    assert [outcome_of(a, None) for a in ("A", "B", "tie", "both_good", "both_bad")] == ["A", "B", "tie", "tie", "tie"]
    assert outcome_of("skip", "cannot_decide: both the same") == "undecided"
    assert outcome_of("skip", "later") is None
    assert outcome_of("skip", None) is None
    ties = [vote(1, "a", "both_good"), vote(1, "b", "both_bad"), vote(1, "c", "A")]
    assert (majority(ties).winner, majority(ties).weights) == ("tie", {"tie": 2, "A": 1})
    assert majority([vote(1, "a", "A"), vote(1, "b", "B")]).winner is None
    assert majority([]).winner is None
