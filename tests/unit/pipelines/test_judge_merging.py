"""Merging votes and opinions: symmetric in A and B, independent of order, and as the module states."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.annotation.votes import Tally, preference
from assay.domain import ANSWERS, Answer, swap_answer
from assay_pipelines.judging.judge import Opinion, Vote
from assay_pipelines.judging.merging import Preference, merge_opinions, merge_votes

answers = st.sampled_from(ANSWERS)
confidences = st.none() | st.floats(0, 1)
votes = st.lists(st.builds(Vote, answers, confidence=confidences, strength=st.none() | st.integers(0, 3)), min_size=1)
opinion_lists = st.lists(st.builds(lambda a, c: Opinion(a, c, ()), answers, confidences), max_size=7)


def swapped(given: Sequence[Vote]) -> list[Vote]:
    return [Vote(swap_answer(v.answer), confidence=v.confidence, strength=v.strength) for v in given]


def merged(opinions: Sequence[Opinion], weights: dict[str, float] | None = None) -> Tally[Preference]:
    return merge_opinions({str(n): opinion for n, opinion in enumerate(opinions)}, weights=weights)


@given(votes)
def test_exchanging_the_sides_exchanges_the_opinion(given: list[Vote]) -> None:
    one, other = merge_votes(given), merge_votes(swapped(given))
    assert (other.answer, other.confidence, other.strength) == (swap_answer(one.answer), one.confidence, one.strength)


@given(votes, st.randoms())
def test_the_order_of_votes_does_not_matter(given: list[Vote], random: object) -> None:
    shuffled = list(given)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = merge_votes(given), merge_votes(shuffled)
    assert (one.answer, one.confidence, one.strength) == (other.answer, other.confidence, other.strength)


@given(votes)
def test_an_opinion_has_the_most_votes_or_is_split(given: list[Vote]) -> None:
    opinion = merge_votes(given)
    counts = {c: sum(preference(v.answer) == c for v in given) for c in ("A", "B", "tie")}
    total = sum(counts.values())
    if total == 0:
        assert opinion.answer == "skip"
    elif len(given) > 1:
        top = max(counts.values())
        leaders = [c for c in counts if counts[c] == top]
        assert preference(opinion.answer) == (leaders[0] if len(leaders) == 1 else "tie")
        assert opinion.confidence == top / total


@pytest.mark.parametrize(
    ("given", "answer", "confidence"),
    [
        (["A", "A", "B"], "A", 2 / 3),
        (["A", "B"], "tie", 0.5),  # asked both ways, it took the same position twice
        (["A", "tie"], "tie", 0.5),
        (["both_bad", "both_bad", "A"], "both_bad", 2 / 3),
        (["both_bad", "both_good", "A"], "tie", 2 / 3),
        (["skip", "skip", "B"], "B", 1.0),
        (["skip", "skip"], "skip", None),
    ],
)
def test_self_consistency_of_known_votes(given: list[Answer], answer: Answer, confidence: float | None) -> None:
    opinion = merge_votes([Vote(a, sample=n) for n, a in enumerate(given)])
    assert (opinion.answer, opinion.confidence) == (answer, confidence)


def test_a_split_can_be_an_abstention_and_says_so() -> None:
    opinion = merge_votes([Vote("A", "AB"), Vote("B", "BA")], on_split="skip")
    assert opinion.answer == "skip"
    assert opinion.rationale == "its votes are split: 1 A, 1 B"


def test_strength_is_the_median_of_those_who_won() -> None:
    assert merge_votes([Vote("A", strength=3), Vote("A", strength=1), Vote("B", strength=3)]).strength == 1


@given(opinion_lists, st.lists(st.floats(0, 5), min_size=7, max_size=7))
def test_exchanging_the_sides_exchanges_the_merge(given: list[Opinion], numbers: list[float]) -> None:
    weights = {str(n): w for n, w in enumerate(numbers)}
    one = merged(given, weights)
    other = merged([Opinion(swap_answer(o.answer), o.confidence, ()) for o in given], weights)
    assert other.winner == (None if one.winner is None else swap_answer(one.winner))
    assert other.reason == one.reason


@given(opinion_lists, st.randoms())
def test_the_order_of_judges_does_not_matter(given: list[Opinion], random: object) -> None:
    shuffled = list(given)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(given).winner == merged(shuffled).winner


@given(opinion_lists)
def test_a_judge_that_agrees_never_overturns(given: list[Opinion]) -> None:
    before = merged(given)
    if before.winner is not None:
        after = merged([*given, Opinion(before.winner, 1.0, ())])
        assert after.winner == before.winner
        assert 0 < before.share <= 1


def test_majority_then_confidence_then_undecided() -> None:
    def of(*pairs: tuple[Answer, float | None]) -> Tally[Preference]:
        return merged([Opinion(answer, confidence, ()) for answer, confidence in pairs])

    assert of(("A", 0.1), ("A", 0.1), ("B", 1.0)).winner == "A"
    decided = of(("A", 0.9), ("B", 0.6))
    assert (decided.winner, decided.reason) == ("A", "confidence")
    assert of(("A", 0.6), ("B", None)).winner == "A"  # an unstated confidence counts 0.5
    assert (of(("A", 0.7), ("B", 0.7)).winner, of(("A", 0.7), ("B", 0.7)).reason) == (None, "split")
    assert of(("skip", 0.7)).reason == "no votes"


def test_an_answer_counts_with_its_judges_weight() -> None:
    assert (
        merged([Opinion("A", 1, ()), Opinion("B", 1, ()), Opinion("B", 1, ())], {"0": 3, "1": 1, "2": 1}).winner == "A"
    )
