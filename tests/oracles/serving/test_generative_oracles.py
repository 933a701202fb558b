"""The reference numbers of generative judges: RLBFF, GenRM, J1, RM-R1, JudgeBench, voting."""

from __future__ import annotations

import math
from typing import Any

import pytest

from assay.domain import Message
from assay.models.spec import Judging
from assay_policy_training.core.prompt import PromptItem
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_rm_training.generative.verdict_reward import VerdictReward, judge_prompts
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.engine import examine
from assay_serving.generative.pairwise import pair_outcome
from assay_serving.generative.templates import PAIRWISE, POINTWISE, RATING
from assay_serving.generative.verdict import read_verdict, tail_reward
from assay_serving.generative.voting import (
    both_orders,
    expected_rating,
    majority_at,
    mean_log_odds,
    right_by_and,
    right_by_sum,
)


def said(text: str, labels: tuple[str, ...], **logp: float) -> JudgeSample:
    return JudgeSample(text, True, 10, 5, read_verdict(text, labels), logp or None)


def test_the_reward_is_the_log_odds_at_the_judgement_token_wherever_else_yes_stands() -> None:
    # Logits (Yes 2.0, No -1.5, other 0.3) give log-probs -0.192998 and -3.692998: reward 3.5.
    normaliser = math.log(sum(math.exp(z) for z in (2.0, -1.5, 0.3)))
    answer = said("No, no and No.\nVerdict: Yes", ("Yes", "No"), Yes=2.0 - normaliser, No=-1.5 - normaliser)
    found = examine([answer], POINTWISE, Judging("pointwise", POINTWISE.hash))
    assert found.reward == pytest.approx(3.5, abs=1e-12)
    assert answer.logp is not None
    assert answer.logp["Yes"] == pytest.approx(-0.192998, abs=1e-6)


def test_a_rating_is_the_expected_value_over_the_renormalised_ratings() -> None:
    # Half of the mass is on no rating at all: it plays no part.
    assert expected_rating({"2": math.log(0.3), "10": math.log(0.2)}) == pytest.approx((2 * 0.3 + 10 * 0.2) / 0.5)
    certain = {label: 0.0 if label == "7" else -100.0 for label in RATING.labels}
    assert expected_rating(certain) == pytest.approx(7.0)


def test_rationales_are_averaged_by_probability() -> None:
    probabilities = (0.9, 0.6, 0.2, 0.7)
    odds = mean_log_odds([math.log(p / (1 - p)) for p in probabilities])
    assert 1 / (1 + math.exp(-odds)) == pytest.approx(0.6)


def test_unreadable_rationales_are_dropped_not_counted_as_a_half() -> None:
    labels = ("Yes", "No")
    good = [said("x\nVerdict: Yes", labels, Yes=math.log(0.9), No=math.log(0.1)) for _ in range(2)]
    found = examine([*good, said("no idea", labels)], POINTWISE, Judging("pointwise", POINTWISE.hash, 3, 0.7))
    assert found.reward == pytest.approx(math.log(9))
    assert found.faults == {"no_verdict": 1}


def _rewards(right_first: bool, right_second: bool) -> dict[str, list[float]]:
    row = JudgedRow((Message("user", "Q?"),), ("good", "bad"), "A")
    items: list[PromptItem] = judge_prompts([row], PAIRWISE)[0]
    texts = [f"x\nVerdict: {'A' if right_first else 'B'}", f"x\nVerdict: {'B' if right_second else 'A'}"]
    found = VerdictReward(PAIRWISE).score(items, texts)
    return {name: part.tolist() for name, part in found.parts.items()}


def test_consistency_needs_both_orders() -> None:
    assert _rewards(True, True)["consistency"] == [1.0, 1.0]
    assert _rewards(True, False)["consistency"] == [0.0, 0.0]
    assert _rewards(True, False)["verdict"] == [1.0, 0.0]


def test_the_tail_rule() -> None:
    tags: dict[str, Any] = {"right": "<answer>[[A]]</answer>", "wrong": "<answer>[[B]]</answer>"}
    assert tail_reward("x <answer>[[A]]</answer>", **tags) == 1
    assert tail_reward("<answer>[[A]]</answer> <answer>[[B]]</answer>", **tags) == -1
    assert tail_reward("<answer>[[A]]</answer>" + "z" * 100, **tags) == -1
    assert _rewards(True, False)["tail"] == [1.0, -1.0]


def test_both_orders_by_probability() -> None:
    assert both_orders(0.8, 0.4) == pytest.approx(0.7)
    labels = ("A", "B")
    first = said("x\nVerdict: A", labels, A=math.log(0.8), B=math.log(0.2))
    swapped = said("x\nVerdict: B", labels, A=math.log(0.4), B=math.log(0.6))
    found = pair_outcome([[first], [swapped]])
    assert found.probability == pytest.approx(0.7)
    assert found.decisions == ("A", "A")
    assert found.consistent


@pytest.mark.parametrize(
    ("first", "second", "by_and", "by_sum"),
    [
        ("A", "A", True, True),
        ("A", "B", False, False),
        ("A", "tie", False, True),
        ("A", None, False, True),
        ("tie", "tie", False, False),
        (None, None, False, False),
    ],
)
def test_rules_and_and_sum(first: Any, second: Any, by_and: bool, by_sum: bool) -> None:
    assert right_by_and(first, second, "A") is by_and
    assert right_by_sum(first, second, "A") is by_sum


def test_majority_of_independent_votes() -> None:
    """Drawn without replacement from very many votes of which 0.6 are right: the closed form for independent votes."""
    assert majority_at(60_000, 40_000, 0, 3) == pytest.approx(0.648, abs=1e-4)
    assert majority_at(60_000, 40_000, 0, 5) == pytest.approx(0.68256, abs=1e-4)
