"""Measures of policies on planted samples: the numbers that `docs/policy-training/measures.md` states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.errors import BadInputError
from assay_policy_training.measures.capability import PassAtKMeasure, Support
from assay_policy_training.measures.comparisons import ChainPassAtK, DistillationTable, RewardMatrix
from assay_policy_training.measures.evaluations import Seeds, TransferMatrix
from assay_policy_training.measures.formats import FormatShares
from assay_policy_training.measures.samples import PolicySample
from assay_policy_training.measures.tilted import Choices, TiltedDistance, tilted


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


def chained(*rows: tuple[bool | None, float | None]) -> list[PolicySample]:
    return [PolicySample("a", "r", passed, parts={"judge": judge}) for passed, judge in rows]


def test_a_right_answer_by_a_wrong_chain_fails() -> None:
    samples = chained((True, 0.9), (True, 0.1), (False, 0.9), (False, None))
    (row,) = ChainPassAtK(k=(1,)).measure({"p": samples}).table
    assert row["pass_at_k"] == 0.25
    assert PassAtKMeasure(k=(1,)).measure({"p": samples}).table[0]["pass_at_k"] == 0.5
    assert (row["right_answers"], row["wrong_chains"], row["unreadable"]) == (2, 1, 0)


def test_a_right_answer_whose_chain_has_no_verdict_is_counted_and_is_neither() -> None:
    (row,) = ChainPassAtK(k=(1,)).measure({"p": chained((True, 0.9), (True, None), (False, 0.2))}).table
    assert (row["pass_at_k"], row["unreadable"], row["unjudged"]) == (0.5, 1, 1)
    with pytest.raises(BadInputError, match="no part of the samples is called 'chain'; they have judge"):
        ChainPassAtK(judge="chain").measure({"p": chained((True, 0.9))})


def test_reinforcement_gains_accuracy_where_distillation_gains_capability() -> None:
    base = drawn("easy", 2, 2) + drawn("hard", 0, 4)
    reinforced = drawn("easy", 4, 0) + drawn("hard", 0, 4)
    distilled = drawn("easy", 2, 2) + drawn("hard", 1, 3)
    measured = DistillationTable().measure({"base": base, "rl": reinforced, "sft": distilled})
    rows = {(row["base_right"], row["policy"]): row for row in measured.table}
    assert (measured.facts["k"], rows["all", "base"]["prompts"]) == (4, 2)
    assert (rows["all", "rl"]["accuracy_change"], rows["all", "rl"]["capability_change"]) == (0.25, 0.0)
    assert (rows["all", "sft"]["accuracy_change"], rows["all", "sft"]["capability_change"]) == (0.125, 0.5)
    assert rows["never", "sft"]["capability"] == 1.0
    assert rows["sometimes", "rl"]["accuracy_change"] == 0.5
    assert ("always", "rl") not in rows


def test_the_matrix_of_policies_by_rewards_ranks_them_by_each_and_shows_what_is_missing() -> None:
    def scored(*rows: tuple[float | None, float, bool]) -> list[PolicySample]:
        return [PolicySample("a", "r", passed, parts={"trained": t, "other": o}) for t, o, passed in rows]

    policies = {
        "base": scored((0.0, 1.0, True), (None, 3.0, False)),
        "rl": scored((5.0, 0.0, False), (7.0, 0.0, False)),
    }
    rows = {(row["reward"], row["policy"]): row for row in RewardMatrix().measure(policies).table}
    assert (rows["trained", "rl"]["mean"], rows["trained", "rl"]["rank"]) == (6.0, 1)
    assert (rows["other", "rl"]["rank"], rows["verified", "rl"]["rank"]) == (2, 2)
    assert (rows["trained", "base"]["mean"], rows["trained", "base"]["missing"]) == (0.0, 1)
    with pytest.raises(BadInputError, match="no reward and no verdict"):
        RewardMatrix().measure({"p": [PolicySample("a", "r", None)]})


@pytest.mark.parametrize(
    ("response", "form"),
    [
        ("```python\nprint(1)\n```", "code"),
        ("def solve():\n    return 3", "code"),
        ("So \\boxed{7}.", "latex"),
        ('{"answer": 7}', "json"),
        ("| a | b |\n|---|---|", "table"),
        ("Plan:\n1. add\n2. halve", "numbered"),
        ("- one\n- two", "bullets"),
        ("We return to the class of numbers, from 3 to 7.", "prose"),
    ],
)
def test_formats_are_told_apart(response: str, form: str) -> None:
    rows = FormatShares().measure({"p": [PolicySample("a", response, None)]}).table
    assert [row["format"] for row in rows if row["share"]] == [form]


def test_shares_of_formats_are_by_step_and_say_how_often_each_is_right(tmp_path: Path) -> None:
    steps = [(1, "x=1", True), (1, "one", False), (2, "x=2", True), (2, "x=3", False), (3, "x=4", None)]
    samples = [PolicySample("a", text, passed, step=step) for step, text, passed in steps]
    file = tmp_path / "formats.yaml"
    file.write_text("equation: '='\n", encoding="utf-8")
    rows = FormatShares(file=str(file)).measure({"p": samples}).table
    by_row = {(row["step"], row["format"]): row for row in rows}
    assert [by_row[step, "equation"]["share"] for step in (1, 2, 3)] == [0.5, 1.0, 1.0]
    assert (by_row[2, "equation"]["pass_rate"], by_row[3, "equation"]["pass_rate"]) == (0.5, None)
    coarse = FormatShares(file=str(file), every=2).measure({"p": samples}).table
    assert [row["step"] for row in coarse if row["format"] == "equation"] == [0, 2]
    for text in ("- a list", "equation: '('", "equation: 3", ""):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BadInputError, match=str(file)):
            FormatShares(file=str(file)).measure({"p": samples})


def change(before: float, after: float) -> dict[str, object]:
    sides = {name: {"verifier": {"share": s}} for name, s in (("before", before), ("after", after))}
    return {**sides, "change": {"pass_rate": {"value": after - before, "low": 0.01, "high": 0.5}}}


def test_training_on_one_domain_is_shown_for_every_domain() -> None:
    maths = {"sets": {"maths": change(0.25, 0.75), "code": change(0.5, 0.5)}}
    code = {"sets": {"maths": change(0.25, 0.5), "code": change(0.5, 1.0)}}
    rows = TransferMatrix().measure({"maths": [maths], "code": [code, code, code]}).table
    by_row = {(row["trained_on"], row["evaluated_on"]): row for row in rows}
    assert by_row["maths", "code"]["change"] == 0.0
    assert (by_row["maths", "maths"]["change"], by_row["maths", "maths"]["low"]) == (0.5, 0.01)
    assert (by_row["code", "maths"]["change"], by_row["code", "maths"]["runs"]) == (0.25, 3)
    assert by_row["code", "maths"]["low"] is None  # three equal runs


def test_the_target_of_a_kl_penalty_is_the_tilted_reference() -> None:
    reference, rewards = np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 0.0])
    target = tilted(reference, rewards, 0.5)
    assert target == pytest.approx([0.171426, 0.760004, 0.06857], abs=1e-6)
    policies = {
        name: [Choices("a", ("x", "y", "z"), np.log(p) - 3, rewards)]
        for name, p in (("reference", reference), ("optimum", target), ("greedy", np.array([0.0, 1.0, 0.0]) + 1e-12))
    }
    first, best, greedy = TiltedDistance(beta=0.5).measure(policies).table
    assert (best["kl_to_target"], best["total_variation"]) == (pytest.approx(0.0, abs=1e-9), pytest.approx(0, abs=1e-9))
    assert first["kl_to_reference"] == pytest.approx(0.0, abs=1e-12)
    # Its objective is below the optimum's by beta times the divergence to the target.
    for row in (first, greedy):
        short = (best["reward"] - 0.5 * best["kl_to_reference"]) - (row["reward"] - 0.5 * row["kl_to_reference"])
        assert short == pytest.approx(0.5 * row["kl_to_target"], abs=1e-9)


def test_a_prompt_with_a_missing_reward_is_left_out_of_the_distance() -> None:
    logp = np.log([0.5, 0.5])
    groups = [
        Choices("a", ("x", "y"), logp, np.array([0.0, 1.0])),
        Choices("b", ("x", "y"), logp, np.array([0, np.nan])),
    ]
    rows = TiltedDistance().measure({"reference": groups, "policy": groups}).table
    assert [(row["prompts"], row["left_out"]) for row in rows] == [(1, 1), (1, 1)]
    with pytest.raises(BadInputError, match="no prompt has the reward"):
        TiltedDistance().measure({"reference": groups[1:], "policy": groups[1:]})
