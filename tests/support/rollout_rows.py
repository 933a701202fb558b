"""Rollouts of given lengths, without a model, for tests of plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.protocols import UpdateContext


def rollouts(
    lengths: Sequence[int], *, width: int | None = None, uid: Sequence[str] | None = None, **fields: Any
) -> RolloutBatch:
    """Rows of one policy with a reward of 0; `fields` replace any of the batch's. `width`: padded to, at least."""
    rows, wide = len(lengths), max([*lengths, width or 0])
    mask = torch.arange(wide) < torch.tensor(lengths)[:, None]
    context = torch.ones(rows, 1, dtype=torch.bool)
    columns = {
        "uid": tuple(uid or map(str, range(rows))),
        "prompts": ((),) * rows,
        "responses": ("",) * rows,
        "gen_input_ids": context.long(),
        "gen_mask": context,
        "train_input_ids": context.long(),
        "train_mask": context,
        "tokens": torch.arange(rows * wide).reshape(rows, wide) * mask,
        "mask": mask,
        "loss_mask": mask,
        "logp_mu": torch.zeros(rows, wide),
        "version": torch.zeros(rows, dtype=torch.long),
        "token_version": torch.zeros(rows, wide, dtype=torch.long),
        "finished": torch.ones(rows, dtype=torch.bool),
        "truncated": torch.zeros(rows, dtype=torch.bool),
        "reward": torch.zeros(rows, dtype=torch.float64),
    }
    return RolloutBatch(**(columns | fields))


def context_of_rows(batch: RolloutBatch, **fields: Any) -> UpdateContext:
    """What an objective sees of all rows at once."""
    assert batch.adv is not None
    assert batch.logp_old is not None
    columns = {
        "adv": batch.adv,
        "mask": batch.mask,
        "loss_mask": batch.loss_mask,
        "logp_old": batch.logp_old,
        "logp_mu": batch.logp_mu,
        "entropy": batch.entropy,
        "rows": batch,
    }
    return UpdateContext(**(columns | fields))
