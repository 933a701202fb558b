"""Rows of rollouts without a model, for the oracles of advantages and penalties."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch


def batch_of(mask: Tensor, reward: list[float], uid: list[str] | None = None, **fields: Any) -> RolloutBatch:
    """A batch of which only what estimators read is filled in."""
    rows, context = len(mask), torch.ones(len(mask), 1, dtype=torch.bool)
    return RolloutBatch(
        uid=tuple(uid or map(str, range(rows))),
        prompts=((),) * rows,
        responses=("",) * rows,
        gen_input_ids=context.long(),
        gen_mask=context,
        train_input_ids=context.long(),
        train_mask=context,
        tokens=mask.long(),
        mask=mask,
        loss_mask=fields.pop("loss_mask", mask),
        logp_mu=fields.pop("logp_mu", torch.zeros(mask.shape)),
        version=torch.zeros(rows, dtype=torch.long),
        token_version=torch.zeros(mask.shape, dtype=torch.long),
        finished=fields.pop("finished", torch.ones(rows, dtype=torch.bool)),
        truncated=fields.pop("truncated", torch.zeros(rows, dtype=torch.bool)),
        reward=torch.tensor(reward, dtype=torch.float64),
        **fields,
    )
