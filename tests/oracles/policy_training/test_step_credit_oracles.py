"""Credit by step: GRPO with process supervision, TP-GRPO's thoughts, a prover's progress, values given in the run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollout_rows import rollouts

from assay.errors import BadInputError
from assay.score import Score
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.steps import split_steps, with_step_values
from assay_policy_training.plugins.estimators.step_rewards import ProcessGrpo, Thoughts, process_grpo, thoughts
from assay_policy_training.plugins.estimators.step_values import StepValues
from assay_policy_training.plugins.modulators.steps import BlockProgress

PLAIN = Score(0.0, "m", "v", "t", 1, truncated=False)


def stepped(
    values: list[list[float] | None], rewards: list[float], start: float | None = None, **fields: Any
) -> RolloutBatch:
    """Rows of one group with two tokens a step."""
    lengths = [2 * len(row or [0.0]) for row in values]
    scores = tuple({} if row is None else {"process": with_step_values(PLAIN, row, start)} for row in values)
    columns: dict[str, Any] = {
        "uid": ["g"] * len(values),
        "segment": torch.arange(max(lengths)).div(2, rounding_mode="floor").expand(len(values), -1),
        "scores": scores,
        "reward": torch.tensor(rewards, dtype=torch.float64),
        "r_parts": {"process": torch.tensor([torch.nan if row is None else row[-1] for row in values])},
    }
    return rollouts(lengths, **(columns | fields))


def test_process_grpo_by_hand() -> None:
    """Steps (.9, .3) and (.6): mean .6, deviation .3; a step's advantage is its own and all later ones."""
    assert process_grpo([[0.9, 0.3], [0.6]], eps=0.0) == [pytest.approx([0.0, -1.0]), pytest.approx([0.0])]
    assert process_grpo([[0.3, 0.9], [0.6]], eps=0.0) == [pytest.approx([0.0, 1.0]), pytest.approx([0.0])]
    batch = stepped([[0.9, 0.3], [0.6], None], [1.0, 0.0, 1.0])
    adv, _ = ProcessGrpo(eps=0.0)(batch)
    assert adv.tolist() == [pytest.approx([0, 0, -1, -1], abs=1e-6), [0.0] * 4, [0.0] * 4]
    mixed, _ = ProcessGrpo(eps=0.0, outcome=2.0)(batch.with_(reward=torch.tensor([1.0, 0.0, torch.nan]).double()))
    assert mixed[0].tolist() == pytest.approx([2**0.5, 2**0.5, 2**0.5 - 1, 2**0.5 - 1], abs=1e-6)
    with pytest.raises(BadInputError, match="process"):
        ProcessGrpo()(batch.with_(r_parts={}))
    elsewhere = batch.with_(segment=torch.arange(4).expand(3, -1), adv=torch.zeros(3, 4))
    with pytest.raises(BadInputError, match=r"estimator\.separator.*4 steps, and 2 values"):
        ProcessGrpo()(elsewhere)
    with pytest.raises(BadInputError, match=r"modulators\.separator.*4 steps, and 2 values"):
        BlockProgress().modulate(elsewhere)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=2, max_size=5), st.floats(-3, 3))
def test_process_grpo_ignores_a_common_level(rows: list[list[float]], level: float) -> None:
    moved = process_grpo([[value + level for value in row] for row in rows])
    flat = [value for row in rows for value in row]
    if max(flat) - min(flat) > 1e-3:
        for row, other in zip(process_grpo(rows), moved, strict=True):
            assert row == pytest.approx(other, abs=1e-4)
        assert sum(row[0] for row in moved) == pytest.approx(0, abs=1e-6)  # from the first step on: all of the rewards


def test_thoughts_are_the_suffix_sums() -> None:
    """Outcomes (1,0,0,1): accuracy .5, o = (1,-1,-1,1); (+,-,last) earn (.5,-.5,1): sums (1, .5, 1)."""
    assert thoughts([True, False, True], right=True, outcome=1.0, bonus=0.5) == [1.0, 0.5, 1.0]
    assert thoughts([True, True, False, False, True], right=True, outcome=1.0, bonus=0.5) == [1.0, 1.0, 0.5, 0.5, 1.0]
    assert thoughts([False, True, False], right=False, outcome=-1.0, bonus=0.5) == [-1.0, 0.0, -1.0]
    values: list[list[float] | None] = [[0.9, 0.1, 0.8], [0.2, 0.7, 0.1], [0.4], [0.9]]
    adv, _ = Thoughts(eps=0.0)(stepped(values, [1.0, 0.0, 0.0, 1.0]))
    assert adv[:, ::2].tolist() == [[1.0, 0.5, 1.0], [-1.0, 0.0, -1.0], [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    same, _ = Thoughts()(stepped(values, [1.0] * 4))
    assert not same.any()  # a group of equal outcomes says nothing, as in GRPO


def test_progress_under_a_prover_telescopes() -> None:
    """Q of the prover (.2, .5, .4, .9): A (.3, -.1, .5); effective with alpha 5 and Q (.3, .4, .6): (1.8, -.1, 3.1)."""
    batch = stepped([[0.5, 0.4, 0.9]], [1.0], start=0.2)
    adv = torch.tensor([[0.3, 0.3, 0.4, 0.4, 0.6, 0.6]])
    effective = BlockProgress(alpha=5.0).modulate(batch.with_(adv=adv))
    assert effective[0, ::2].tolist() == pytest.approx([1.8, -0.1, 3.1])
    assert (effective - adv)[0, ::2].sum() / 5 == pytest.approx(0.7)


def test_values_of_the_run_give_the_advantages_of_recorded_ones() -> None:
    """Q_0 .5, Q (.6, .5, .1, .1): A (.1, -.1, -.4, 0); without a stated start it is the group's mean first value."""
    batch = stepped([[0.6, 0.5, 0.1, 0.1]], [0.0], start=0.5)
    adv, _ = StepValues(values="part")(batch)
    assert adv[0, ::2].tolist() == pytest.approx([0.1, -0.1, -0.4, 0.0])
    quiet, _ = StepValues(values="part", samples=16)(batch)
    assert quiet[0, ::2].tolist() == pytest.approx([0.0, 0.0, -0.4, 0.0])
    both, _ = StepValues(values="part")(stepped([[0.6, 1.0], [0.2, 0.0], None], [1.0, 0.0, 1.0]))
    assert both[:, ::2].tolist() == [pytest.approx([0.2, 0.4]), pytest.approx([-0.2, -0.2]), [0.0, 0.0]]


@given(st.text(alphabet="ab \n", max_size=30))
def test_steps_joined_are_the_text(text: str) -> None:
    assert "".join(split_steps(text)) == text
