"""Filters of groups and rows: the keep tables [DAPO keep] and [ODF keep]; what they read; rounds are bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.filters.groups import (
    DropSolved,
    DynamicSampling,
    EnoughValid,
    GuidedMixed,
    OnlineDifficulty,
    RejectZeroAdvantage,
)
from assay_policy_training.plugins.filters.rows import OnlyCorrect, OnlyWrong, OverlongFilter
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.token_weights.entropy import NotTruncated
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase, MaxWords, MinWords

NAN = float("nan")


def judged(groups: Sequence[Sequence[float]], **fields: Any) -> RolloutBatch:
    """One row an entry of `acc`; rewards carry a length term, so that no group's reward is constant."""
    acc = torch.tensor([value for group in groups for value in group], dtype=torch.float64)
    uid = [str(number) for number, group in enumerate(groups) for _ in group]
    reward = torch.nan_to_num(acc) + 0.01 * torch.arange(len(acc)).double()
    return rollouts([2] * len(acc), uid=uid, **({"acc": acc, "reward": reward} | fields))


def kept_groups(plugin: Any, batch: RolloutBatch) -> list[int]:
    """Per group 1 = all rows stay, 0 = all go."""
    keep = plugin.keep(batch)
    found = []
    for group in range(int(batch.group.max()) + 1):
        rows = keep[batch.group == group]
        assert rows.all() or not rows.any(), "a group is cut in two"
        found.append(int(rows.all()))
    return found


def share(correct: int, size: int) -> list[float]:
    return [1.0] * correct + [0.0] * (size - correct)


@pytest.mark.parametrize("plugin", [DynamicSampling(), RejectZeroAdvantage()])
def test_keep_table_of_dapo(plugin: Any) -> None:
    assert kept_groups(plugin, judged([share(n, 4) for n in (0, 1, 4, 3)])) == [0, 1, 0, 1]


def test_keep_table_of_online_difficulty() -> None:
    assert kept_groups(OnlineDifficulty(), judged([share(n, 16) for n in (1, 4, 8, 12, 15)])) == [0, 1, 1, 1, 0]


def test_ngrpo_drops_groups_without_a_fault_only() -> None:
    assert kept_groups(DropSolved(), judged([share(n, 4) for n in (0, 1, 4, 3)])) == [1, 1, 0, 1]


def test_the_composed_reward_counts_only_without_a_verifier() -> None:
    """Bug of the field: a filter that reads a shaped reward keeps every group."""
    solved = judged([share(4, 4), [NAN] * 4, [NAN] * 4])
    reward = torch.tensor([1.0, 1.01, 1.02, 1.03, 0.3, 0.3, 0.3, 0.3, 0.3, 0.7, 0.3, 0.3], dtype=torch.float64)
    batch = solved.with_(reward=reward)
    assert kept_groups(DynamicSampling(), batch) == [0, 0, 1]
    assert kept_groups(OnlineDifficulty(), batch) == [0, 1, 1]
    assert kept_groups(DynamicSampling(), batch.with_(acc=None)) == [1, 0, 1]


def test_constant_groups_are_found_at_any_reward() -> None:
    """Released code tests for rewards of exactly 0 or 1, and lets a constant .3 through."""
    batch = judged([[NAN] * 3, [NAN] * 3]).with_(acc=None)
    batch = batch.with_(reward=torch.tensor([0.3, 0.3, 0.3 + 1e-9, 0.3, 0.3, 0.31], dtype=torch.float64))
    assert kept_groups(RejectZeroAdvantage(), batch) == [0, 1]


@pytest.mark.parametrize("size", [3, 5, 7])
def test_groups_of_any_size_stay_whole(size: int) -> None:
    """Released code cuts the kept rows to a multiple of the world size, in the middle of a group."""
    batch = judged([share(1, size), share(0, size), share(2, size)])
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(size))
    assert sum(kept_groups(RejectZeroAdvantage(), batch.select(order))) == 2
    assert RejectZeroAdvantage().keep(batch).sum() == 2 * size


def test_missing_rewards_are_not_counted() -> None:
    batch = judged([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert batch.reward is not None
    reward = batch.reward.clone()
    reward[2] = torch.nan  # the only wrong row of the first group could not be scored
    assert kept_groups(DynamicSampling(), batch.with_(reward=reward)) == [0, 1]
    keep = EnoughValid().keep(batch.with_(reward=reward)) & OnlyWrong().keep(batch.with_(reward=reward))
    assert keep.tolist() == [False, False, False, False, True, True]


@pytest.mark.parametrize(
    "plugin",
    [DynamicSampling(), RejectZeroAdvantage(), DropSolved(), OnlineDifficulty(), OverlongFilter(), GuidedMixed()],
)
def test_rows_without_a_reward_never_stay(plugin: Any) -> None:
    """Alone in a recipe: they would count in denominators, and towards the groups that a step draws."""
    batch = judged([[1.0, 0.0, NAN], [NAN] * 3], reward=torch.tensor([1.0, 0.0, *[NAN] * 4], dtype=torch.float64))
    assert plugin.keep(batch).tolist() == [True, True, False, False, False, False]


def test_a_row_alone_cannot_be_constant() -> None:
    assert kept_groups(DynamicSampling(), judged([[1.0], [0.0]])) == [1, 1]


def test_rows_that_continue_later_stay() -> None:
    going_on = torch.tensor([True, True, False, False])
    batch = judged([[NAN, NAN], [0.0, 0.0]], unfinished=going_on, truncated=going_on)
    for plugin in (DynamicSampling(), OnlineDifficulty(low=0.4), DropSolved(), OverlongFilter()):
        assert plugin.keep(batch)[:2].all(), type(plugin).__name__


def test_signed_filters_split_the_rows() -> None:
    batch = judged([[1.0, 0.0], [NAN]], reward=torch.tensor([0.1, 0.9, 0.9], dtype=torch.float64))
    assert OnlyCorrect().keep(batch).tolist() == [True, False, True]
    assert OnlyWrong().keep(batch).tolist() == [False, True, False]
    assert OnlyWrong(correct_above=0.95).keep(batch).tolist() == [False, True, True]


def test_a_check_without_a_verdict_is_not_settled_by_the_reward() -> None:
    batch = judged([[1.0, 0.0, NAN]], reward=torch.tensor([0.1, 0.9, 0.9], dtype=torch.float64))
    assert OnlyCorrect().keep(batch).tolist() == [True, False, False]
    assert OnlyWrong().keep(batch).tolist() == [False, True, False]


def test_truncated_rows_are_dropped_or_masked() -> None:
    cut = torch.tensor([True, False, False])
    batch = judged([[1.0, 0.0, 1.0]], truncated=cut)
    assert OverlongFilter().keep(batch).tolist() == [False, True, True]
    masked = NotTruncated().prepare(batch)
    assert masked.loss_mask.any(1).tolist() == [False, True, True]
    assert torch.equal(masked.mask, batch.mask)


@pytest.mark.parametrize("make", [DynamicSampling, OnlineDifficulty, DropSolved])
def test_rounds_have_a_cap(make: Any) -> None:
    assert make(max_rounds=3).rounds == 3
    with pytest.raises(BadInputError, match=r"filters\.max_rounds"):
        make(max_rounds=0)


def test_the_band_must_be_one() -> None:
    with pytest.raises(BadInputError, match=r"filters\.low"):
        OnlineDifficulty(low=0.8, high=0.2)


def test_a_step_draws_on_until_it_has_enough_and_logs_all_that_it_drew(tmp_path: Path) -> None:
    """Of prompts that are never solved, always solved, or sometimes, only the last are trained on."""
    recipe = load_recipe("grpo")
    sampling = replace(recipe.sampling, prompts_per_step=2, group_size=4, max_new_tokens=8)
    filters = (EnoughValid(), DynamicSampling(max_rounds=3))
    recipe = replace(recipe, sampling=sampling, filters=filters, steps=2, checkpoint_every=0)
    checks = [(MinWords(500),), (MaxWords(500),), (AllLowercase(),)]
    items = [PromptItem((Message("user", f"Prompt {n}"),), checks[n % 3]) for n in range(9)]
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=True)
    trainer = PolicyLoop(recipe, policy, ShuffledPrompts(items, seed=0), [VerifierReward()], tmp_path)
    rows = trainer.train()
    records = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert max(row["rounds"] for row in rows) > 1
    for row in rows:
        assert row["rounds"] <= 3
        assert row["prompts_drawn"] * 4 == row["rollouts"]
        mine = [record for record in records if record["step"] == row["step"]]
        assert len(mine) == row["rollouts"]
        assert row["verifier_pass_rate"] == pytest.approx(sum(r["verified"] for r in mine) / len(mine))
        trained = {record["uid"] for record in mine if record["trained"]}
        for uid in {record["uid"] for record in mine}:
            seen = {record["verified"] for record in mine if record["uid"] == uid}
            assert (len(seen) == 2) == (uid in trained)
