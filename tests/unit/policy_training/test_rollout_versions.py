"""The records of rollouts whose response went on under newer weights: which tokens are of which version."""

from __future__ import annotations

import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay_policy_training.training.metrics import rollout_measures, rollout_records


def test_a_response_of_several_versions_lists_them() -> None:
    batch = rollouts([5, 3], prompts=((Message("user", "a"),), (Message("user", "b"),)), responses=("x", "y"))
    versions = torch.tensor([[2, 2, 3, 5, 5], [2, 2, 2, 0, 0]])
    batch = batch.with_(token_version=versions, version=torch.tensor([2, 2]), reward=torch.tensor([1.0, 0.0]).double())
    first, second = rollout_records(batch, torch.ones(2, dtype=torch.bool), None, step=4, policy="base")
    assert first["weights_version"] == second["weights_version"] == "base+2"
    assert first["weights_versions"] == [[2, 2], [3, 1], [5, 2]]
    assert "weights_versions" not in second


def test_the_tail_of_response_lengths_is_measured() -> None:
    batch = rollouts(list(range(1, 102))).with_(reward=torch.zeros(101).double())
    measures = rollout_measures(batch, torch.ones(101, dtype=torch.bool))
    assert (measures["length_p90"], measures["length_p99"], measures["length_max"]) == (91.0, 100.0, 101)
