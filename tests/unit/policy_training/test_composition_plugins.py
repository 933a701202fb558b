"""Compositions of reward parts: what counts and is missing, memory learned from steps, directions told and recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.compositions.constrained import Constrained
from assay_policy_training.plugins.compositions.dynamic import GradientWeighting, HypervolumeWeighting
from assay_policy_training.plugins.compositions.gated import ConsistencyReward, GatedAccumulation, SoftPenalties
from assay_policy_training.plugins.compositions.maxmin import MaxMin
from assay_policy_training.plugins.compositions.weighted import Directional
from assay_policy_training.plugins.contexts.direction import DrawnDirection
from assay_policy_training.plugins.estimators.constrained import ConstrainedMixture
from assay_policy_training.plugins.protocols import ReportsMetrics, RewardComposition, Stateful, StepReport, UsesPolicy
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.slots import SLOTS

NAN = float("nan")
CPU = torch.device("cpu")


def parts(**columns: Sequence[float]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in columns.items()}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=64)


@pytest.fixture(scope="module")
def drawn(policy: Policy) -> RolloutBatch:
    items = [PromptItem((Message("user", text),)) for text in ("a", "b")]
    return TransformersSampler(policy, Sampling(max_new_tokens=6)).rollout(items, 4, seed=1, version=0)


def told(batch: RolloutBatch, step: int, **columns: Sequence[float]) -> StepReport:
    """A step whose rows have these parts, as often as it takes."""
    rows = len(batch)
    found = {name: torch.tensor([*values] * rows, dtype=torch.float64)[:rows] for name, values in columns.items()}
    rewarded = batch.with_(r_parts=found, reward=torch.zeros(rows, dtype=torch.float64))
    return StepReport(step, {}, rewarded, rewarded)


def learning() -> list[Any]:
    return [
        Constrained({"a": 0.5, "b": 0.5}),
        HypervolumeWeighting({"a": 1.0, "b": 0.5}),
        MaxMin({"a": 1.0, "b": 1.0}),
        GradientWeighting(("a", "b"), accumulate=2),
    ]


ALL: list[RewardComposition] = [
    *learning(),
    GatedAccumulation(("a", "b"), {"a": 0.0}),
    ConsistencyReward("a", "b", "c"),
    SoftPenalties("a", ("b",)),
    Directional("a", "b"),
    Directional("a", "b", degrees_part="c"),
]


@pytest.mark.parametrize("composition", ALL, ids=lambda c: type(c).__name__)
def test_a_part_that_counts_and_is_missing_makes_the_reward_missing(composition: RewardComposition) -> None:
    found = composition(parts(a=[1.0, NAN, 0.5, 0.9], b=[0.5, 0.2, NAN, 0.3], c=[1.0, 1.0, 1.0, 1.0]))
    assert found.isnan().tolist() == [False, True, True, False]
    order = torch.tensor([3, 2, 1, 0])
    shuffled = composition(parts(a=[0.9, 0.5, NAN, 1.0], b=[0.3, NAN, 0.2, 0.5], c=[1.0] * 4))
    torch.testing.assert_close(shuffled, found[order], equal_nan=True)
    with pytest.raises(BadInputError, match=r"no reward part 'b'"):
        composition(parts(a=[1.0], c=[1.0]))


def test_a_part_behind_a_closed_gate_may_be_missing() -> None:
    gated = GatedAccumulation(("a", "b", "c"), {"a": 0.5, "b": 0.5})
    found = gated(parts(a=[0.2, 0.8, 0.8, NAN], b=[NAN, 0.4, NAN, 1.0], c=[NAN, NAN, 0.1, 0.1]))
    assert found.tolist() == pytest.approx([0.2, 1.2, NAN, NAN], nan_ok=True)
    led = ConsistencyReward("a", "b", "c")(parts(a=[0.0, 1.0], b=[NAN, NAN], c=[1.0, 1.0]))
    assert led.tolist() == pytest.approx([0.5, NAN], nan_ok=True)


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        ("gated", {"levels": ("a",)}, "levels"),
        ("gated", {"levels": ("a", "b"), "thresholds": {"b": 0.0}}, "thresholds"),
        ("soft_penalties", {"reward": "a"}, "penalties"),
        ("constrained", {}, "thresholds"),
        ("constrained", {"thresholds": {"a": 1.0}, "constraint": "at_most"}, "constraint"),
        ("constrained", {"thresholds": {"a": 1.0}, "momentum": 1.0}, "momentum"),
        ("hypervolume", {"weights": {"a": 1.0}, "scale": {"a": 0.0}}, "scale.a"),
        ("hypervolume", {"weights": {"a": 1.0}, "minimised": ("b",)}, "minimised"),
        ("gradient_weights", {"parts": ("a", "a")}, "parts"),
        ("maxmin", {"mixture": {"a": 1.0}}, "mixture"),
        ("maxmin", {"mixture": {"a": 1.0, "b": 1.0}, "spread": 2.0}, "spread"),
        ("dpa", {"degrees": NAN}, "degrees"),
    ],
)
def test_wrong_settings_are_named(kind: str, settings: Mapping[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=field):
        SLOTS["reward"].find(kind)(**settings)


@pytest.mark.parametrize("slot", ["reward", "estimator"])
@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "thresholds"),
        ({"thresholds": {"a": NAN}}, "thresholds"),
        ({"thresholds": {"a": 1.0}, "constraint": "at_most"}, "constraint"),
        ({"thresholds": {"a": 1.0}, "momentum": 1.0}, "momentum"),
        ({"thresholds": {"a": 1.0}, "lr": 0.0}, "lr"),
    ],
)
def test_constraints_name_the_section_that_they_stand_in(slot: str, settings: Mapping[str, Any], field: str) -> None:
    with pytest.raises(BadInputError) as wrong:
        SLOTS[slot].find("constrained")(**settings)
    assert wrong.value.field == f"{slot}.{field}"


def test_a_mixture_names_its_own_section_for_a_part_that_is_not_there(drawn: RolloutBatch) -> None:
    plugin = ConstrainedMixture({"nowhere": 1.0})
    step = told(drawn, 1, a=[0.0] * len(drawn))
    batch = step.batch.with_(logp_old=drawn.logp_mu, logp_ref=drawn.logp_mu, reward=step.batch.r_parts["a"])
    for call in (lambda: plugin(batch), lambda: plugin.observe(step)):
        with pytest.raises(BadInputError) as wrong:
            call()
        assert wrong.value.field == "estimator"


@pytest.mark.parametrize("number", range(4), ids=[type(c).__name__ for c in learning()])
def test_memory_survives_a_restart(number: int, policy: Policy, drawn: RolloutBatch) -> None:
    """Three steps, and one step, a restart and two more, come to the same state and rewards."""
    reports = [
        told(drawn, 1, a=[0.1, 0.9, 0.3], b=[1.0, 0.2, 0.4]),
        told(drawn, 2, a=[0.5, 0.6, 0.9], b=[0.3, NAN, 0.1]),
        told(drawn, 3, a=[0.7, 0.2, 0.8], b=[0.9, 0.8, 0.2]),
    ]
    whole, first, again = (learning()[number] for _ in range(3))
    fresh = json.dumps(whole.state_dict())
    for plugin in (whole, first, again):
        assert isinstance(plugin, Stateful)
        if isinstance(plugin, UsesPolicy):
            plugin.attach(policy)
    for step in reports:
        whole.observe(step)
    first.observe(reports[0])
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step in reports[1:]:
        again.observe(step)
    assert again.state_dict() == whole.state_dict()
    assert all(isinstance(plugin, ReportsMetrics) for plugin in (whole, again))
    assert again.numbers() == whole.numbers()
    assert json.dumps(whole.state_dict()) != fresh
    sample = parts(a=[0.3, 0.5], b=[0.1, 0.9])
    assert torch.equal(again(sample), whole(sample))


def test_a_multiplier_falls_above_its_threshold_and_rises_below(drawn: RolloutBatch) -> None:
    plugin = Constrained({"a": 0.5, "b": 0.5}, momentum=0.0)
    before = dict(plugin.multipliers)
    plugin.observe(told(drawn, 1, a=[0.9], b=[0.1]))
    assert plugin.multipliers["a"] < before["a"]
    assert plugin.multipliers["b"] > before["b"]
    assert sum(plugin.weights.values()) == pytest.approx(1.0, abs=0.05)


def test_a_constraint_without_a_score_leaves_its_multiplier(drawn: RolloutBatch) -> None:
    plugin = Constrained({"a": 0.5, "b": 0.5})
    before = dict(plugin.multipliers)
    plugin.observe(told(drawn, 1, a=[0.9], b=[NAN]))
    assert plugin.multipliers["b"] == before["b"]
    assert plugin.multipliers["a"] != before["a"]


def test_constrained_rewards_are_standardised_by_the_run_so_far(drawn: RolloutBatch) -> None:
    """A part on a scale of hundreds counts no more than one on a scale of one."""
    plugin = Constrained({"a": 0.5, "b": 50.0})
    plugin.observe(told(drawn, 1, a=[0.0, 1.0], b=[0.0, 100.0]))
    weights = plugin.weights
    found = plugin(parts(a=[1.0, 0.5], b=[50.0, 100.0]))
    assert found.tolist() == pytest.approx([weights["a"], weights["b"]])


def test_the_kl_counts_more_as_thresholds_are_met(drawn: RolloutBatch) -> None:
    """Of two rewards with weights g the KL has 2 - sum g; a missing row gets nothing and changes nothing."""
    part = [0.0, 1.0, 2.0, NAN, 0.5, 1.5, 1.0, 1.0]
    step = told(drawn, 1, a=part, b=[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]).batch
    noise = torch.randn(drawn.mask.shape, generator=torch.Generator().manual_seed(2))
    batch = step.with_(logp_old=drawn.logp_mu, logp_ref=drawn.logp_mu + noise, reward=step.r_parts["a"])
    plugin = ConstrainedMixture({"a": 0.5, "b": 0.5})
    adv, returns = plugin(batch)
    assert returns is None
    assert not adv[3].any()
    others = [row for row in range(8) if row != 3]
    torch.testing.assert_close(plugin(batch.select(others))[0], adv[others])
    plugin.multipliers = {"a": 20.0, "b": 20.0}  # both count in full: nothing is left for the KL
    moved = batch.with_(logp_ref=drawn.logp_mu)
    torch.testing.assert_close(plugin(batch)[0], plugin(moved)[0], atol=1e-6, rtol=1e-5)
    plugin.multipliers = {"a": -20.0, "b": -20.0}  # neither counts
    only_kl = plugin(batch)[0]
    torch.testing.assert_close(plugin(moved)[0], torch.zeros(drawn.mask.shape), atol=1e-6, rtol=0)
    assert float(only_kl[batch.mask & batch.valid[:, None]].mean()) == pytest.approx(0, abs=1e-6)
    plugin.observe(told(drawn, 1, a=[0.9], b=[0.1]))
    again = ConstrainedMixture({"a": 0.5, "b": 0.5})
    again.load_state_dict(json.loads(json.dumps(plugin.state_dict())))
    assert torch.equal(again(batch)[0], plugin(batch)[0])
    assert again.numbers() == plugin.numbers()


def test_hypervolume_counts_for_the_next_step(drawn: RolloutBatch) -> None:
    plugin = HypervolumeWeighting({"a": 1.0, "b": 0.0}, minimised=("b",), reference={"b": 1.0})
    sample = parts(a=[1.0], b=[NAN])
    assert float(plugin(sample)) == 1.0
    plugin.observe(told(drawn, 1, a=[0.5], b=[0.7]))  # b is minimised: 0.3 better than the reference
    assert plugin.front == [[0.5, pytest.approx(0.3)]]
    assert float(plugin(sample)) == pytest.approx(0.5 + 1.5 * 0.148885, abs=1e-5)  # tanh(0.15)
    plugin.observe(told(drawn, 2, a=[0.4], b=[0.8]))
    assert float(plugin(sample)) == 0.5  # dominated
    plugin.observe(told(drawn, 3, a=[0.9], b=[0.1]))
    assert len(plugin.front) == 1  # the old point is dominated by the new


def test_maxmin_trains_the_worst_group_of_the_step_before(drawn: RolloutBatch) -> None:
    plugin = MaxMin({"a": 3.0, "b": 1.0}, scale={"b": 10.0})
    sample = parts(a=[1.0, NAN], b=[10.0, 20.0])
    assert plugin(sample).tolist() == pytest.approx([1.0, NAN], nan_ok=True)  # the mixture
    plugin.observe(told(drawn, 1, a=[0.5], b=[4.0]))  # 0.4 on the common scale
    assert plugin.worst == "b"
    assert plugin(sample).tolist() == pytest.approx([1.0, 2.0])  # a counts no more, so it may be missing
    plugin.observe(told(drawn, 2, a=[NAN], b=[9.0]))
    assert plugin.worst == "b"
    spread = MaxMin({"a": 3.0, "b": 1.0}, spread=0.4)
    spread.observe(told(drawn, 1, a=[0.1], b=[0.4]))
    assert spread.weights == pytest.approx({"a": 0.9, "b": 0.1})


def test_gradient_weights_follow_the_policys_gradients(policy: Policy, drawn: RolloutBatch) -> None:
    """Rewards that agree outweigh one against them, whatever their scale."""
    plugin = GradientWeighting(("a", "b", "c"), rate=0.1)
    plugin.attach(policy)
    up = [0.1, 0.9, 0.3, 0.6, 0.2]
    plugin.observe(told(drawn, 1, a=up, b=[20 * v for v in up], c=[-v for v in up]))
    assert plugin.weights["a"] == pytest.approx(plugin.weights["b"], rel=1e-4)
    assert plugin.weights["c"] < 0.99 * plugin.weights["a"]
    assert sum(plugin.weights.values()) == pytest.approx(1)
    assert all(p.grad is None for p in policy.trainable().values())


def test_gradients_are_those_of_the_policy(policy: Policy, drawn: RolloutBatch) -> None:
    """Against weights moved along one of them: the mean advantage-weighted log-prob rises by the inner product."""
    plugin = GradientWeighting(("a", "b"), normalise=False)
    plugin.attach(policy)
    advantages = [torch.tensor(values, dtype=torch.float64) for values in ([1.0, -1] * 4, [0.5] * 8)]
    gradients = plugin._gradients(drawn, advantages)

    def gain(number: int) -> float:
        with torch.no_grad():
            logp = policy.scores(drawn, temperature=1.0).logp.double()
        return float((advantages[number][:, None] * logp * drawn.mask).sum() / drawn.mask.sum())

    selected, step = list(policy.trainable().values()), 1e-3
    before = [gain(0), gain(1)]
    pieces = torch.split(gradients[0], [p.numel() for p in selected])
    with torch.no_grad():
        for p, piece in zip(selected, pieces, strict=True):
            p.add_(step * piece.view_as(p))
    rises = [(gain(number) - before[number]) / step for number in range(2)]
    with torch.no_grad():
        for p, piece in zip(selected, pieces, strict=True):
            p.sub_(step * piece.view_as(p))
    assert rises == pytest.approx((gradients @ gradients[0]).tolist(), rel=0.05, abs=1e-2)


def test_gradient_weights_do_not_depend_on_micro_batches(policy: Policy, drawn: RolloutBatch) -> None:
    found = []
    for rows in (1, 3, 8):
        plugin = GradientWeighting(("a", "b"), rate=1.0, micro_batch_rows=rows, layers=("layers.1",))
        plugin.attach(policy)
        plugin.observe(told(drawn, 1, a=[0.1, 0.9, 0.3], b=[0.2, 0.1, 0.7, 0.4]))
        found.append(list(plugin.weights.values()))
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    assert found[2] == pytest.approx(found[0], abs=1e-5)
    assert found[0] != pytest.approx([0.5, 0.5], abs=1e-4)


def test_layers_that_do_not_exist_are_named(policy: Policy) -> None:
    with pytest.raises(BadInputError, match=r"no trained weight holds layers\.99"):
        GradientWeighting(("a", "b"), layers=("layers.99",)).attach(policy)


def test_each_prompt_is_told_its_own_direction(tmp_path: Path) -> None:
    items = [PromptItem((Message("user", "hi"),)), PromptItem((Message("system", "Be kind."), Message("user", "hi")))]
    plugin = DrawnDirection(low=-45, high=0, seed=1)
    shown = plugin.first(items)
    angles = [item.meta["direction"] for item in shown]
    assert all(-45 <= angle <= 0 for angle in angles)
    assert angles[0] != angles[1]
    assert [item.prompt for item in shown] == [item.prompt for item in items]  # what rewards read
    context = shown[1].generation_context
    assert context == shown[1].training_context
    assert context[0].text.startswith("Be kind.\nWeigh your answer: helpfulness ")
    assert [message.role for message in shown[0].generation_context] == ["system", "user"]
    again = DrawnDirection(low=-45, high=0, seed=1)
    again.load_state_dict(json.loads(json.dumps(plugin.state_dict())))
    assert [i.meta["direction"] for i in again.first(items)] == [i.meta["direction"] for i in plugin.first(items)]


@pytest.mark.parametrize("settings", [{"low": 10.0, "high": 0.0}, {"low": -200.0}, {"attributes": ("one",)}])
def test_wrong_directions_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="contexts"):
        DrawnDirection(**settings)
