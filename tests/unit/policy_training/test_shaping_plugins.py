"""Shapers on whole batches: missing stays missing, rows in any order, groups by uid, memory that survives a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.score import Score, ScorePart
from assay_policy_training.core.batch import RolloutBatch, group_index
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.estimators.signed import Constant
from assay_policy_training.plugins.filters.groups import BestOfGroup, VariesAfterTruncation
from assay_policy_training.plugins.modulators.reward_scaling import RewardScaling
from assay_policy_training.plugins.protocols import RewardShaper, StepReport
from assay_policy_training.plugins.shaping.laser import Laser, LaserD, LaserDe
from assay_policy_training.plugins.shaping.length import (
    ConciseCorrect,
    CosineLength,
    KimiLength,
    Overlong,
    TruncatedReward,
)
from assay_policy_training.plugins.shaping.outcomes import response_limit
from assay_policy_training.plugins.shaping.par import ParReward
from assay_policy_training.plugins.shaping.repetition import RepetitionPenalty
from assay_policy_training.plugins.shaping.rlcr import CalibrationReward, stated_confidence
from assay_policy_training.plugins.shaping.rubric import Rubric
from assay_policy_training.plugins.shaping.trust import TrustedThinking
from assay_policy_training.recipe.slots import SLOTS

NAN = float("nan")
CONFIDENT = "<think>t</think><answer>a</answer><analysis>b</analysis><confidence>{}</confidence>"


def batch_of(
    uid: Sequence[str],
    reward: Sequence[float],
    *,
    lengths: Sequence[int] | None = None,
    acc: Sequence[float] | None = None,
    truncated: Sequence[int] | None = None,
    parts: Mapping[str, Sequence[float]] | None = None,
    tokens: Sequence[Sequence[int]] | None = None,
    **fields: Any,
) -> RolloutBatch:
    rows = len(uid)
    sizes = list(lengths or [len(t) for t in tokens or [[0] * 4] * rows])
    width = max(sizes)
    ids = torch.arange(rows * width).reshape(rows, width)
    for row, listed in enumerate(tokens or []):
        ids[row, : len(listed)] = torch.tensor(listed)
    mask = torch.arange(width) < torch.tensor(sizes)[:, None]
    context = torch.zeros(rows, 1, dtype=torch.long)
    cut = torch.tensor(list(truncated or [0] * rows)).bool()
    item = PromptItem((Message("user", "say hi"),), meta={"reference_rewards": [0.0, 1.0]})
    given = {
        "responses": ("x",) * rows,
        "items": (item,) * rows,
        "acc": None if acc is None else torch.tensor(acc, dtype=torch.float64),
        "r_parts": {name: torch.tensor(values, dtype=torch.float64) for name, values in (parts or {}).items()},
    }
    return RolloutBatch(
        uid=tuple(uid),
        prompts=(item.prompt,) * rows,
        gen_input_ids=context,
        gen_mask=context == 0,
        train_input_ids=context,
        train_mask=context == 0,
        tokens=ids,
        mask=mask,
        loss_mask=mask,
        logp_mu=torch.zeros(rows, width),
        version=torch.zeros(rows, dtype=torch.long),
        token_version=torch.zeros_like(ids),
        finished=~cut,
        truncated=cut,
        reward=torch.tensor(reward, dtype=torch.float64),
        **(given | fields),
    )


def rubric_score(*grades: float | None, gate: str | None = None, weights: Sequence[float] = (1.0, 0.5)) -> Score:
    parts = [
        ScorePart(f"item-{number}", value=grade, weight=weight, gate=gate if number == 0 else None)
        for number, (grade, weight) in enumerate(zip(grades, weights, strict=True))
    ]
    return Score(0.5, "rubric", "v1", "", tokens=1, truncated=False, parts=tuple(parts))


def mixed_batch() -> RolloutBatch:
    """Three groups, lengths and verdicts that differ, one row without a reward, one without a verdict."""
    confidences = [0.9, 0.2, 0.5, None, 1.0, 0.7, 0.1, 0.6, 0.3, 0.4, 0.8, 0.0]
    verdicts = [1.0, 0, 1, 0, 1, 1, 0, 0, 1, NAN, 0, 1]
    return batch_of(
        [f"g{i % 3}" for i in range(12)],
        [1.0, 0.0, 0.5, 0.2, NAN, 0.9, 0.1, 0.4, 1.0, 0.3, 0.6, 0.8],
        lengths=[4, 9, 6, 12, 5, 7, 12, 3, 8, 10, 2, 11],
        acc=verdicts,
        truncated=[0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0],
        parts={
            "verifier": [v if v == v else 0.5 for v in verdicts],
            "judged": [i / 12 for i in range(12)],
            "rubric": [0.5] * 12,
        },
        scores=tuple({"rubric": rubric_score(i / 12, (i % 5) / 4)} for i in range(12)),
        responses=tuple("none" if c is None else CONFIDENT.format(c) for c in confidences),
    )


SHAPERS: list[RewardShaper] = [
    Overlong(buffer=6),
    KimiLength(),
    ConciseCorrect(),
    TruncatedReward(),
    CosineLength(),
    RepetitionPenalty(n=2),
    RepetitionPenalty(n=2, form="sparse"),
    Laser(target=6),
    LaserD(shortest=2, longest=12, spacing=2),
    LaserDe(shortest=2, longest=6, spacing=2),
    ParReward(),
    ParReward(references="group"),
    CalibrationReward(),
    CalibrationReward(form="repository"),
    Rubric(),
    Rubric(saturation=0.0),
    TrustedThinking(thinking="judged"),
]


@pytest.mark.parametrize("shaper", SHAPERS, ids=lambda s: type(s).__name__)
def test_missing_stays_missing_and_the_order_of_rows_does_not_matter(shaper: RewardShaper) -> None:
    batch = mixed_batch()
    shaped = shaper.shape(batch)
    assert bool(shaped.scored_reward[4].isnan())
    assert not bool(shaped.scored_reward[[0, 1, 2, 5, 8]].isnan().any())
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    again = shaper.shape(batch.select(order))
    torch.testing.assert_close(again.outcome, shaped.outcome[order], equal_nan=True)
    assert shaped.uid == batch.uid


@pytest.mark.parametrize("shaper", SHAPERS, ids=lambda s: type(s).__name__)
def test_a_row_without_a_reward_changes_nothing_for_the_others(shaper: RewardShaper) -> None:
    batch = mixed_batch()
    others = [row for row in range(12) if row != 4]
    whole, without = shaper.shape(batch).outcome[others], shaper.shape(batch.select(others)).outcome
    torch.testing.assert_close(whole, without, equal_nan=True)


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        ("overlong", {"buffer": 0}, "buffer"),
        ("cosine", {"margin": -1}, "margin"),
        ("repetition", {"form": "often"}, "form"),
        ("repetition", {"discount": 1.5}, "discount"),
        ("kimi_length", {"coefficient": 0}, "coefficient"),
        ("laser", {"target": 0}, "target"),
        ("laser_d", {"shortest": 9, "longest": 8}, "longest"),
        ("par", {"references": "others"}, "references"),
        ("rlcr", {"form": "short"}, "form"),
        ("rubric", {"saturation": -1}, "saturation"),
        ("trust_grpo", {"decay": 0}, "decay"),
        ("dler", {"value": NAN}, "value"),
    ],
)
def test_wrong_settings_are_named(kind: str, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=field):
        SLOTS["shaping"].find(kind)(**settings)


def test_the_limit_is_the_longest_cut_response() -> None:
    """Padding from other batches does not move it, nor does a given token."""
    batch = batch_of("aab", [1.0, 1.0, 1.0], lengths=[8, 4, 12], truncated=[1, 0, 0])
    assert Overlong(buffer=4).shape(batch).scored_reward.tolist() == pytest.approx([0.0, 1.0, -1.0])
    assert Overlong(buffer=4, max_length=16).shape(batch).scored_reward.tolist() == [1.0, 1.0, 1.0]
    assert Overlong(buffer=400).shape(batch).scored_reward.tolist() == pytest.approx([0.0, 0.5, -0.5])


def test_truncated_rows_get_the_verifiers_zero() -> None:
    batch = batch_of("aabb", [1.0, 0.5, NAN, 1.0], truncated=[1, 0, 1, 0])
    assert TruncatedReward().shape(batch).scored_reward.tolist() == pytest.approx([0, 0.5, NAN, 1.0], nan_ok=True)
    same = batch_of("aabb", [1.0, 0.0, 1.0, 0.5], truncated=[1, 0, 0, 0])
    assert VariesAfterTruncation().keep(same).tolist() == [False, False, True, True]


def test_group_statistics_are_by_uid() -> None:
    batch = batch_of("abab", [0.0] * 4, lengths=[100, 10, 300, 30], acc=[1.0, 1, 1, 1])
    assert KimiLength(1.0).shape(batch).scored_reward.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5])
    assert ConciseCorrect(1.0).shape(batch).scored_reward.tolist() == pytest.approx([2, 2, 1, 1])


def test_unknown_correctness_is_missing_not_wrong() -> None:
    batch = batch_of("aa", [0.3, 0.3], acc=[NAN, 1.0])
    for shaper in (KimiLength(), CosineLength(), Laser(), CalibrationReward()):
        assert shaper.shape(batch).scored_reward.isnan().tolist() == [True, False]
    assert CosineLength().shape(batch_of("aa", [0.3, 0.3])).scored_reward.isnan().all()


def test_correctness_may_come_from_a_part() -> None:
    batch = batch_of("aa", [0.3, 0.3], lengths=[2, 2], parts={"math": [0.9, 0.1]})
    assert Laser(target=4, correct="math").shape(batch).scored_reward.tolist() == [1.5, -0.5]
    with pytest.raises(BadInputError, match="no reward part 'maths'"):
        Laser(correct="maths").shape(batch)


def test_repetition_is_dense_on_the_repeated_tokens() -> None:
    batch = batch_of("ab", [1.0, 1.0], tokens=[[5, 6, 5, 6, 7], [5, 6, 7]])
    dense = RepetitionPenalty(n=2, discount=1.0).shape(batch).dense
    assert dense is not None
    assert dense.tolist() == pytest.approx([pytest.approx([0, 0, -0.05, -0.05, 0]), pytest.approx([0] * 5)])
    found = RepetitionPenalty(n=2).shape(batch.with_(dense=torch.full((2, 5), 0.5, dtype=torch.float64)))
    assert found.dense is not None
    assert found.dense[1].tolist() == pytest.approx([0.5] * 5)
    assert RepetitionPenalty(n=2, form="sparse").shape(batch).scored_reward.tolist() == pytest.approx([0.9875, 1.0])


def test_par_takes_references_of_the_row_or_of_the_group() -> None:
    batch = batch_of("aab", [0.0, 1.0, 2.0])
    row = ParReward().shape(batch).scored_reward.tolist()
    assert row[0] == pytest.approx((0.5 + 0.268941) / 2, abs=1e-5)
    group = ParReward(references="group").shape(batch).scored_reward.tolist()
    assert group == pytest.approx([0.268941, 0.731059, NAN], abs=1e-5, nan_ok=True)
    bare = batch.with_(items=(PromptItem((Message("user", "x"),)),) * 3)
    assert bool(ParReward().shape(bare).scored_reward.isnan().all())
    wrong = batch.with_(items=(PromptItem((Message("user", "x"),), meta={"reference_rewards": ["a"]}),) * 3)
    with pytest.raises(BadInputError, match="reference_rewards"):
        ParReward().shape(wrong)


def test_par_only_sees_differences() -> None:
    batch = batch_of("aaa", [0.0, 1.0, 2.0])
    moved = batch.with_(reward=batch.scored_reward + 7.0)
    torch.testing.assert_close(
        ParReward(references="group").shape(batch).scored_reward,
        ParReward(references="group").shape(moved).scored_reward,
    )


@pytest.mark.parametrize(
    ("response", "stated"),
    [
        (CONFIDENT.format(0.8), 0.8),
        (CONFIDENT.format(" 1 "), 1.0),
        (CONFIDENT.format(0.2) + "<confidence>0.4</confidence>", 0.4),
        (CONFIDENT.format(1.2), None),
        (CONFIDENT.format("sure"), None),
        (CONFIDENT.format("nan"), None),
        ("<confidence>0.5</confidence>" + CONFIDENT.format("").split("<confidence>")[0], None),
        ("", None),
    ],
)
def test_stated_confidence(response: str, stated: float | None) -> None:
    assert stated_confidence(response, ("think", "answer", "analysis", "confidence")) == stated


def test_no_stated_confidence_is_the_worst_that_can_be_stated() -> None:
    batch = batch_of("aaa", [1.0, 0.0, 0.0], acc=[1.0, 0, 0], responses=("none", "none", CONFIDENT.format(1)))
    assert CalibrationReward().shape(batch).scored_reward.tolist() == [-1.0, -1.0, -1.0]
    assert CalibrationReward(form="repository").shape(batch).scored_reward.tolist() == [0.0, 0.0, 0.5]


def test_a_groups_own_items_count_by_what_it_does_not_meet_yet() -> None:
    """Numbers of the oracle of saturated weights; a negative item is satisfied where it is not met; two prompts have
    rubrics of their own."""
    grades = [(0.9, 0.2), (0.95, 0.4), (1.0, 0.6), (0.9, 0.8)]
    scores = [rubric_score(met, 1 - avoided, weights=(0.5, -0.5)) for met, avoided in grades]
    scores += [rubric_score(grade, weights=(1.0,)) for grade in (0.0, 1.0)]
    batch = batch_of("aaaabb", [0.0] * 6, parts={"rubric": [0.5] * 6}, scores=tuple({"rubric": s} for s in scores))
    expected = [-1.293073, -0.364022, 0.565029, 1.092066, -1.0, 1.0]
    assert Rubric().shape(batch).scored_reward.tolist() == pytest.approx(expected, abs=1e-6)


def test_gates_and_failed_items_of_a_rubric() -> None:
    scores = [
        rubric_score(1.0, 1.0),
        rubric_score(1.0, 0.0),
        rubric_score(0.0, 1.0, gate="veto"),
        rubric_score(1.0, None),
    ]
    batch = batch_of("aaaa", [0.0] * 4, parts={"rubric": [0.5] * 4}, scores=tuple({"rubric": s} for s in scores))
    shaped = Rubric(gated=-3.0).shape(batch).scored_reward.tolist()
    assert shaped[2:] == pytest.approx([-3.0, NAN], nan_ok=True)
    assert shaped[0] > shaped[1] > -3.0
    with pytest.raises(BadInputError, match="rubric"):
        Rubric().shape(batch_of("aa", [0.0] * 2, parts={"quality": [0.5] * 2}))
    plain = Score(0.5, "m", "v", "", tokens=1, truncated=False)
    without_items = batch_of("aa", [0.0] * 2, parts={"rubric": [0.5] * 2}, scores=({"rubric": plain},) * 2)
    with pytest.raises(BadInputError, match="has no items: give a rubric reward under that name"):
        Rubric().shape(without_items)


def test_thinking_of_a_decided_group_is_not_looked_at() -> None:
    parts = {"verifier": [1.0, 1.0, 1.0, 0.0], "judged": [NAN, 0.5, NAN, 0.5]}
    batch = batch_of("aabb", [0.0] * 4, parts=parts)
    found = TrustedThinking(thinking="judged").shape(batch).scored_reward
    assert found.tolist() == pytest.approx([1.0, 1.0, NAN, 0.15], nan_ok=True)


def report(step: int, batch: RolloutBatch) -> StepReport:
    return StepReport(step, {}, batch)


def restarted(plugin: Any, fresh: Any) -> Any:
    fresh.load_state_dict(json.loads(json.dumps(plugin.state_dict())))
    return fresh


def test_trust_fades_with_the_steps_and_resumes() -> None:
    batch = batch_of("ab", [0.0, 0.0], parts={"verifier": [0.5, 0.5], "judged": [1.0, 1.0]})
    plugin = TrustedThinking(thinking="judged", decay=10)
    assert plugin.shape(batch).scored_reward.tolist() == pytest.approx([0.8, 0.8])
    plugin.observe(report(10, batch))
    again = restarted(plugin, TrustedThinking(thinking="judged", decay=10))
    assert again.shape(batch).scored_reward.tolist() == pytest.approx([0.5 + 0.3 * 0.367879] * 2, abs=1e-5)


def monitored() -> RolloutBatch:
    """Groups of 3: 2 right (the very edge of "high"), 1 right ("medium"), none right."""
    return batch_of("aaabbbccc", [0.0] * 9, lengths=[2, 4, 9, 6, 11, 12, 10, 10, 10], acc=[1.0, 1, 0, 1, 0, 0, 0, 0, 0])


def test_laser_d_estimates_and_uses_targets_with_the_same_edges() -> None:
    """Released code: more than 2/3 is high where targets are estimated, at least 2/3 where they are used."""
    plugin = LaserD(shortest=2, longest=12, spacing=2, every=1)
    batch = monitored()
    before = plugin.shape(batch).scored_reward
    assert before.tolist() == [1.5, 1.5, -0.5, 1.5, -0.5, -0.5, -0.5, -0.5, -0.5]  # the longest candidate for all
    plugin.observe(report(1, batch))
    assert plugin.targets == {"high": 2, "medium": 6, "low": 10}
    assert plugin.shape(batch).scored_reward.tolist()[:4] == [1.5, 1.0, -0.5, 1.5]


def test_laser_d_hard_prompts_do_not_need_full_coverage() -> None:
    """A hard band of 12 rows a group with 3 right in 12: the first right answer is expected within a third of them.

    The released code expects 1 right answer of a hard group, so only full coverage will do, and it counts the wrong
    answers' lengths too.
    """
    uid = "a" * 12
    batch = batch_of(uid, [0.0] * 12, lengths=[4, 6, 8, *[12] * 9], acc=[1.0, 1, 1, *[0.0] * 9])
    ours, released = (LaserD(shortest=2, longest=12, spacing=2, every=1, released=flag) for flag in (False, True))
    for plugin in (ours, released):
        plugin.observe(report(1, batch))
    assert ours.targets == {"low": 4}
    assert released.targets == {"low": 12}


def test_laser_d_window_and_targets_survive_a_restart() -> None:
    whole = LaserD(shortest=2, longest=12, spacing=2, every=2)
    first = LaserD(shortest=2, longest=12, spacing=2, every=2)
    batch = monitored()
    for plugin in (whole, first):
        plugin.observe(report(1, batch))
    assert first.targets == {}
    again = restarted(first, LaserD(shortest=2, longest=12, spacing=2, every=2))
    for plugin in (whole, again):
        plugin.observe(report(2, batch))
    assert again.state_dict() == whole.state_dict()
    assert again.targets == {"high": 2, "medium": 6, "low": 10}


def test_laser_de_rewards_long_fresh_failures_only() -> None:
    plugin = LaserDe(shortest=2, longest=4, spacing=2, repetition_n=2)
    tokens = [[1, 2, 3, 4, 5, 6], [1, 2, 1, 2, 1, 2], [1, 2], [1, 2, 3, 4, 5, 6]]
    batch = batch_of("aaaa", [0.0] * 4, tokens=tokens, acc=[0.0, 0, 0, 1])
    assert plugin.shape(batch).scored_reward.tolist() == [0.0, -0.5, -0.5, 1.0]


def test_the_best_of_each_group_is_kept_and_counts_as_one() -> None:
    batch = batch_of("ababc", [0.1, NAN, 0.4, 0.2, NAN])
    keep = BestOfGroup().keep(batch)
    assert keep.tolist() == [False, False, True, True, False]
    adv, returns = Constant(2.0)(batch)
    assert returns is None
    assert adv[:, 0].tolist() == [2.0, 0.0, 2.0, 2.0, 0.0]


def test_advantages_are_scaled_by_their_prompts_demonstrations() -> None:
    """The prompt whose demonstration the rollouts are unlike counts more; one without a demonstration as it did."""
    metas = [
        {"references": ["a b"], "reference_rewards": [1.0]},
        {"references": ["c d"], "reference_rewards": [1.0]},
        {},
    ]
    rows = [PromptItem((Message("user", "x"),), meta=metas["abc".index(uid)]) for uid in "abcabc"]
    batch = batch_of("abcabc", [0.5] * 6, items=tuple(rows), responses=("a b",) * 6)
    batch = batch.with_(adv=torch.where(batch.mask, 1.0, 0.0))
    found = RewardScaling().modulate(batch)[:, 0]
    assert torch.equal(found[:3], found[3:])
    assert found[0] < 1 < found[1]
    assert found[2] == 1
    order = torch.tensor([5, 3, 1, 0, 2, 4])
    torch.testing.assert_close(RewardScaling().modulate(batch.select(order))[:, 0], found[order])
    assert batch.adv is not None
    nothing = batch.with_(reward=torch.full((6,), NAN, dtype=torch.float64))
    assert torch.equal(RewardScaling().modulate(nothing), batch.adv)


def test_a_given_start_does_not_count_towards_the_limit() -> None:
    """Six tokens given, at most four to write, three written."""
    forced = torch.arange(10).expand(2, 10) < 6
    own = (torch.arange(10) >= 6) & (torch.arange(10) < 9)
    batch = batch_of(["a", "a"], [1.0, 0.0], lengths=[10, 10])
    batch = batch.with_(mask=own.expand(2, 10), loss_mask=own.expand(2, 10), forced=forced)
    assert response_limit(batch, None) == 4
    shaped = Overlong(buffer=2, factor=1.0).shape(batch)
    assert shaped.scored_reward.tolist() == [0.5, -0.5], "halfway through the buffer"


@pytest.mark.parametrize("rows", [4, 400])
def test_groups_are_worked_out_once_a_batch_and_not_once_a_row(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rows of a group of two are one; the groups of a thousand rows would take a thousand passes over all."""
    calls: list[int] = []

    def counted(uid: Sequence[str], **options: Any) -> torch.Tensor:
        calls.append(len(uid))
        return group_index(uid, **options)

    monkeypatch.setattr("assay_policy_training.core.batch.group_index", counted)
    batch = batch_of([str(row // 2) for row in range(rows)], [float(row % 2) for row in range(rows)])
    shaped = ParReward(references="group").shape(batch).scored_reward
    assert shaped.tolist() == pytest.approx([0.268941, 0.731059] * (rows // 2), abs=1e-6)
    assert calls == [rows]
