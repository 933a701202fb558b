"""Measures of policies on planted samples: the numbers that `docs/policy-training/measures.md` states."""

from __future__ import annotations

import pytest

from assay.errors import BadInputError
from assay_policy_training.measures.capability import PassAtKMeasure, Support
from assay_policy_training.measures.evaluations import Seeds
from assay_policy_training.measures.samples import PolicySample


def planted(prompt: str, *responses: tuple[str, bool | None]) -> list[PolicySample]:
    return [PolicySample(prompt, text, passed) for text, passed in responses]


def drawn(prompt: str, right: int, wrong: int) -> list[PolicySample]:
    return planted(prompt, *[("yes", True)] * right, *[("no", False)] * wrong)


def test_pass_at_k_of_a_policy_is_the_mean_over_prompts_and_its_change_is_paired() -> None:
    base = drawn("a", 3, 13) + drawn("b", 0, 16)
    trained = drawn("a", 16, 0) + drawn("b", 0, 16)
    rows = PassAtKMeasure(k=(1, 4)).measure({"base": base, "trained": trained}).table
    by_row = {(row["policy"], row["k"]): row for row in rows}
    assert by_row["base", 4]["pass_at_k"] == pytest.approx(0.607143 / 2, abs=1e-6)
    assert by_row["base", 1]["pass_at_k"] == pytest.approx(3 / 32)
    assert by_row["trained", 4]["change"] == pytest.approx(0.5 - 0.607143 / 2, abs=1e-6)
    assert by_row["trained", 4]["low"] is None  # two prompts


def test_a_sample_without_a_verdict_is_not_wrong_and_a_prompt_with_too_few_is_left_out() -> None:
    samples = drawn("a", 1, 1) + planted("a", ("?", None)) + drawn("b", 1, 3)
    assert len(PassAtKMeasure().measure({"p": samples}).table) == 2  # k = 1, 2: what every prompt has
    (row,) = PassAtKMeasure(k=(4,)).measure({"p": samples}).table
    assert (row["pass_at_k"], row["prompts"], row["left_out"], row["unjudged"]) == (1.0, 1, 1, 1)
    with pytest.raises(BadInputError, match="no sample has a verdict"):
        PassAtKMeasure().measure({"p": planted("a", ("?", None))})
    with pytest.raises(BadInputError, match="numbers from 1"):
        PassAtKMeasure(k=(0,))


def test_a_planted_lost_answer_is_reported() -> None:
    base = planted("a", *[("so 7", True)] * 8, *[("thus  12", True)] * 8) + planted("b", ("1", False))
    trained = planted("a", *[("hence 7", True)] * 16) + planted("b", ("1", True))
    measured = Support(answer=r"(\d+)").measure({"base": base, "trained": trained})
    (row,) = measured.table
    assert (row["kept"], row["lost"], row["gained"]) == (1, 1, 1)
    assert (row["retention"], row["discovery"], row["net_change"]) == (0.5, 0.5, 0.0)
    assert (row["prompts_lost"], row["prompts_gained"]) == (0, 1)
    lost, gained = measured.facts["answers"]
    assert (lost["change"], lost["prompt_id"], lost["answer"], lost["share"]) == ("lost", "a", "12", 0.5)
    assert lost["other_at_most"] == pytest.approx(1 - 0.05 ** (1 / 16))
    assert lost["beyond_chance"]
    assert gained["answer"] == "1"
    # One sample of the base does not show that it never gives the answer.
    assert gained["other_at_most"] == pytest.approx(0.95)


def test_support_is_of_prompts_that_both_have_and_needs_two_policies() -> None:
    base, trained = drawn("a", 1, 0) + drawn("b", 1, 0), drawn("a", 1, 0)
    (row,) = Support().measure({"base": base, "trained": trained}).table
    assert (row["kept"], row["lost"], row["prompts"], row["left_out"]) == (1, 0, 1, 1)
    with pytest.raises(BadInputError, match="compares policies"):
        Support().measure({"base": base})
    for pattern, reason in (("(", "no regular expression"), ("x", "has no group")):
        with pytest.raises(BadInputError, match=reason):
            Support(answer=pattern)


def evaluation(**shares: float | None) -> dict[str, object]:
    sets = {
        name: {"after": {"verifier": None if share is None else {"share": share}, "reward_mean": 2.0}}
        for name, share in shares.items()
    }
    return {"sets": sets, "after": next(iter(sets.values()))["after"]}


def test_seeds_are_summarised_by_their_interquartile_mean_and_compared_run_by_run() -> None:
    eight = [evaluation(held=share) for share in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1)]
    better = [evaluation(held=share) for share in (0.7, 0.8, 0.9)]
    first, second = Seeds().measure({"grpo": eight, "ppo": better}).table
    assert (first["iqm"], first["mean"], first["runs"]) == (pytest.approx(0.35), pytest.approx(0.3875), 8)
    assert first["low"] < 0.35 < first["high"]
    assert second["better_than_base"] == pytest.approx(7 / 8)
    (row,) = Seeds(figure="reward").measure({"grpo": eight}).table
    assert (row["iqm"], row["low"]) == (2.0, None)


def test_a_set_that_one_run_lacks_is_left_out_and_counted() -> None:
    runs = [evaluation(maths=0.5, code=0.1), evaluation(maths=0.7, code=None)]
    measured = Seeds().measure({"grpo": runs})
    assert measured.facts == {"base": "grpo", "sets": ["maths"], "sets_left_out": 1}
    assert measured.table[0]["mean"] == pytest.approx(0.6)
    with pytest.raises(BadInputError, match="no evaluation set has the pass_rate"):
        Seeds().measure({"grpo": [evaluation(maths=None)]})
