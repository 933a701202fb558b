"""What a batch and a micro-batch say where a stage asks for what no earlier one has filled in."""

from __future__ import annotations

import pytest
import torch
from rollout_rows import context_of_rows, rollouts

STAGES = [
    ("reward", "scored_reward"),
    ("adv", "estimated_adv"),
    ("returns", "estimated_returns"),
    ("values", "critic_values"),
    ("logp_old", "scored_logp_old"),
    ("logp_ref", "scored_logp_ref"),
    ("entropy", "scored_entropy"),
]


@pytest.mark.parametrize(("field", "name"), STAGES)
def test_a_batch_gives_what_a_stage_has_filled_in_and_refuses_before(field: str, name: str) -> None:
    found = torch.arange(4.0).reshape(2, 2)
    batch = rollouts([2, 2]).with_(**{field: found})
    assert getattr(batch, name) is found
    with pytest.raises(ValueError, match="there are no"):
        getattr(batch.with_(**{field: None}), name)


@pytest.mark.parametrize(
    ("field", "name"), [("logp_ref", "scored_logp_ref"), ("entropy", "scored_entropy"), ("rows", "given_rows")]
)
def test_a_micro_batch_does_so_too(field: str, name: str) -> None:
    batch = rollouts([2], adv=torch.zeros(1, 2), logp_old=torch.zeros(1, 2), entropy=torch.ones(1, 2))
    there = context_of_rows(batch, logp_ref=torch.ones(1, 2))
    assert getattr(there, name) is getattr(there, field)
    with pytest.raises(ValueError, match="there are no"):
        getattr(context_of_rows(batch, **{field: None}), name)
