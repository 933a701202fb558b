"""The alarm for over-optimisation: its numbers, that it sees no later step, how often it rings on noise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.watch.alarm import (
    DEFAULT_LIMITS,
    SIGNALS,
    AlarmLimits,
    OverOptimisationAlarm,
    SignalSet,
    alarm_numbers,
    alarms,
)
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.held_out_reward import HeldOutReward, WatchSettings
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase

LIMITS = AlarmLimits.load()


def history(
    steps: int, seed: int, *, hacked_from: int | None = None, correlation: float = 0.5
) -> list[dict[str, float]]:
    """Rows with autocorrelated noise, a slow gain of both rewards and a slow KL; from a step on only the reward trained
    on gains, the other falls, and text repeats."""
    draw, rows, noise = np.random.default_rng(seed), [], np.zeros(6)
    for step in range(1, steps + 1):
        noise = correlation * noise + np.sqrt(1 - correlation**2) * draw.normal(size=6)
        gain = 0.005 * step
        hacked = max(0, step - hacked_from) if hacked_from is not None else 0
        rows.append(
            {
                "step": step,
                "reward_mean": 0.5 + gain + 0.02 * noise[0] + 0.1 * hacked,
                "reward_std": 0.3,
                "held_out_reward_mean": 0.5 + gain + 0.03 * noise[1] - 0.03 * hacked,
                "held_out_reward_std": 0.3,
                "held_out_agreement": 0.7 + 0.05 * noise[2] - 0.05 * hacked,
                "ensemble_spread": 0.2 * float(np.exp(0.1 * noise[3] + 0.1 * hacked)),
                "kl_k3": 0.005 * step + 0.1 * hacked,
                "length_mean": 20 + 0.5 * noise[4],
                "repeated_trigrams": max(0.0, 0.02 + 0.005 * noise[5]) + 0.03 * hacked,
            }
        )
    return rows


def test_signals_are_deviations_from_the_first_steps() -> None:
    """By hand: first = 2, window = 1."""
    limits = AlarmLimits(2, 1, 10.0, dict.fromkeys(SIGNALS, 0.1), (SignalSet("one", {"gap": 2.0, "fall": 1.0}, 4.0),))
    rows = [
        {"step": 1, "reward_mean": 0.0, "reward_std": 0.5, "held_out_reward_mean": 0.4, "held_out_reward_std": 0.2},
        {"step": 2, "reward_mean": 0.0, "reward_std": 0.5, "held_out_reward_mean": 0.6, "held_out_reward_std": 0.2},
        {"step": 3, "reward_mean": 1.0, "reward_std": 0.1, "held_out_reward_mean": 0.3, "held_out_reward_std": 0.1},
    ]
    numbers = alarm_numbers(rows, limits)
    # gap: (0 - -0.5), (0 - 0.5), then 1/0.5 - (0.3 - 0.5)/0.2 = 3; deviation of the first two 0.7071
    assert numbers["alarm_signal_gap"] == pytest.approx(3 / 0.5**0.5)
    assert numbers["alarm_signal_fall"] == pytest.approx((0.6 - 0.3) / (0.02**0.5))  # from the best, 0.6
    assert numbers["alarm_signal_reward"] == pytest.approx(2 / 0.1)  # the floor
    assert numbers["alarm_score"] == pytest.approx((2 * 3 / 0.5**0.5 + 0.3 / 0.02**0.5) / 4)
    assert (numbers["alarm"], numbers["alarm_good_step"]) == (1.0, 2.0)
    assert alarm_numbers(rows[:2], limits) == {"alarm": 0, "alarm_good_step": 2}
    assert "alarm_signal_kl" not in numbers


@given(seed=st.integers(0, 10_000), end=st.integers(1, 14), later=st.floats(-1e6, 1e6))
@settings(max_examples=25, deadline=None)
def test_no_later_row_changes_an_alarm(seed: int, end: int, later: float) -> None:
    rows = history(15, seed, hacked_from=8)
    changed = rows[:end] + [{**row, "reward_mean": later, "held_out_reward_mean": -later} for row in rows[end:]]
    assert alarms(rows[:end], LIMITS) == alarms(rows, LIMITS)[:end] == alarms(changed, LIMITS)[:end]


@pytest.mark.slow
@pytest.mark.parametrize("without", [(), ("ensemble_spread",), ("held_out_agreement", "kl_k3")])
def test_it_rings_on_a_reward_that_is_gamed_and_not_on_noise(without: tuple[str, ...]) -> None:
    """20 runs of 26 steps each. The fall of the held-out mean is 0.3 at step 22."""

    def rung(seed: int, hacked_from: int | None) -> int | None:
        rows = history(26, seed, hacked_from=hacked_from)
        rows = [{name: value for name, value in row.items() if name not in without} for row in rows]
        return next(
            (int(row["step"]) for row, n in zip(rows, alarms(rows, LIMITS), strict=True) if n.get("alarm")), None
        )

    false_alarms = [rung(seed, None) for seed in range(20)]
    assert sum(step is not None for step in false_alarms) <= 1
    detected = [rung(seed, 12) for seed in range(20)]
    assert sum(step is not None and 12 < step <= 22 for step in detected) >= 18


def test_another_reward_model_changes_no_alarm() -> None:
    """One that gives 3 + 0.5 x the reward from step 8 on, and one that gives 1 + 4 x that from step 11 on."""
    rows = history(15, 5, hacked_from=8)
    swapped = []
    for row in rows:
        step = int(row["step"])
        level, scale = (0.0, 1.0) if step < 8 else (3.0, 0.5) if step < 11 else (13.0, 2.0)
        swap = {7: {"swap_level": 3.0, "swap_scale": 0.5}, 10: {"swap_level": 1.0, "swap_scale": 4.0}}.get(step, {})
        units = {"reward_mean": level + scale * row["reward_mean"]}
        units |= {name: scale * row[name] for name in ("reward_std", "ensemble_spread")}
        swapped.append({**row, **units, **swap})
    for before, after in zip(alarms(rows, LIMITS), alarms(swapped, LIMITS), strict=True):
        assert after == pytest.approx(before)


def test_a_run_that_no_set_of_signals_is_for_has_no_alarm() -> None:
    rows = [{"step": row["step"], "kl_k3": row["kl_k3"]} for row in history(8, 0)]
    numbers = alarms(rows, LIMITS)
    assert not any("alarm" in each for each in numbers)
    assert "alarm_signal_kl" in numbers[-1]


def test_numbers_that_are_missing_or_not_finite_count_neither_way() -> None:
    rows: list[dict[str, Any]] = history(14, 3)
    rows[9] = {"step": 10, "reward_mean": float("nan")}
    last = alarms(rows, LIMITS)[-1]
    assert all(np.isfinite(value) for value in last.values())
    assert last["alarm"] == 0


def test_a_restart_forgets_nothing() -> None:
    rows, whole, first, second = history(12, 1), *(OverOptimisationAlarm() for _ in range(3))

    def measured(plugin: OverOptimisationAlarm, part: list[dict[str, float]]) -> list[dict[str, float]]:
        none: Any = None
        return [plugin.measure(StepReport(int(row["step"]), row, none)) for row in part]

    expected = measured(whole, rows)
    before = measured(first, rows[:7])
    second.load_state_dict(first.state_dict())
    assert before + measured(second, rows[7:]) == expected == alarms(rows, LIMITS)


@pytest.mark.parametrize("text", ["first: 5", "sets: [", "first: x", "[]"])
def test_limits_that_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "limits.yaml").write_text(text)
    with pytest.raises(BadInputError, match=r"limits\.yaml"):
        OverOptimisationAlarm(limits=str(path))


def test_a_signal_that_does_not_exist_is_named(tmp_path: Path) -> None:
    text = DEFAULT_LIMITS.read_text() + "  mine:\n    threshold: 1\n    weights: {entropie: 1}\n"
    (path := tmp_path / "limits.yaml").write_text(text)
    with pytest.raises(BadInputError, match="entropie; they are reward"):
        AlarmLimits.load(path)


def test_a_run_stops_on_it_and_returns_to_the_last_good_checkpoint(tmp_path: Path) -> None:
    """In a real run it reads what `--watch` measured in the same step. This threshold is below any KL at all."""
    limits = tmp_path / "limits.yaml"
    floors = ", ".join(f"{name}: 0.1" for name in SIGNALS)
    limits.write_text(
        f"{{first: 2, window: 1, cap: 10, floors: {{{floors}}}, "
        "sets: {any: {threshold: 1.0e-9, weights: {kl: 1, fall: 0}}}}"
    )
    rule = "stop=[{kind: out_of_bounds, metric: alarm, above: 0.5, patience: 1}]"
    recipe = load_recipe("dr_grpo", [f"metrics=[{{kind: alarm, limits: {limits}}}]", rule, "steps=6"])
    sampling = replace(recipe.sampling, prompts_per_step=1, group_size=4, max_new_tokens=6)
    optimisation = replace(recipe.optimisation, lr=1e-2)
    recipe = replace(recipe, sampling=sampling, optimisation=optimisation, checkpoint_every=1)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=True)
    item = PromptItem((Message("user", "say hi"),), (AllLowercase(),))
    watch = HeldOutReward([VerifierReward()], tmp_path, WatchSettings(share=1.0))
    source = recipe.source.open([item], seed=0, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [VerifierReward()], tmp_path, extra=[watch])
    rows = trainer.train()
    assert len(rows) == 3
    assert [row["alarm"] for row in rows] == [0, 0, 1]
    assert trainer.returned_to == rows[-1]["alarm_good_step"] <= 2
    assert "alarm was above 0.5" in (trainer.stopped or "")
    assert "alarm_signal_fall" in rows[-1]
    assert alarms(rows, AlarmLimits.load(limits))[-1]["alarm_score"] == rows[-1]["alarm_score"]


@pytest.mark.parametrize(("steady", "rings"), [(True, False), (False, True)])
def test_episodes_that_become_short_are_no_sign_while_the_goal_does_not_fall(steady: bool, rings: bool) -> None:
    rows = [
        {**row, "length_mean": row["length_mean"] * (0.3 if row["step"] > 5 else 1), "turns_mean": 2.0}
        for row in history(16, 2, hacked_from=None if steady else 8)
    ]
    assert any(numbers.get("alarm") for numbers in alarms(rows, LIMITS)) is rings
    without = [{name: value for name, value in row.items() if name != "turns_mean"} for row in rows]
    assert any(numbers.get("alarm") for numbers in alarms(without, LIMITS))  # of single turns it is a sign
