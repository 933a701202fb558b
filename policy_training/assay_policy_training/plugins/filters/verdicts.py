"""Verdicts of rows and groups for filters: right, wrong, the pass rate, whether anything varies.

Covers: the raw verifier result `acc`, and the composed reward only for prompts that have no verifier; rows without a
reward, or whose reward comes in a later step, are not counted. Shaped rewards are never read: a length term makes every
group vary. Leaves out: what to keep (the filters).
"""

import torch
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, group_moments


def verified_or_rewarded(batch: RolloutBatch) -> Tensor:
    """[B] float64: `acc`, or the composed reward where the row's whole group has no `acc`; NaN = not counted."""
    valid = batch.valid if batch.unfinished is None else batch.valid & ~batch.unfinished
    reward = batch.scored_reward.double()
    if batch.acc is None:
        return torch.where(valid, reward, torch.nan)
    acc = torch.where(valid, batch.acc.double(), torch.nan)
    verified, _, _, _ = group_moments(acc, batch.group, ddof=0)
    return torch.where(verified > 0, acc, torch.where(valid, reward, torch.nan))


def verdicts(batch: RolloutBatch, *, correct_above: float) -> Tensor:
    """[B] float64 1 = correct, 0 = wrong, NaN = not known. A row is correct above this reward where no row of its group
    has `acc`: the prompt has no verifier. Where others have it, the check of this row gave no verdict."""
    by_reward = (batch.scored_reward > correct_above).double()
    if batch.acc is None:
        return torch.where(batch.valid, by_reward, torch.nan)
    acc = batch.acc.double()
    verified, _, _, _ = group_moments(acc, batch.group, ddof=0)
    return torch.where(batch.valid, torch.where(verified > 0, acc, by_reward), torch.nan)


def group_rate(batch: RolloutBatch) -> Tensor:
    """[B] the mean of `verified_or_rewarded` over the row's group: the pass rate where there is a verifier; NaN where
    no row counts."""
    count, mean, _, _ = group_moments(verified_or_rewarded(batch), batch.group, ddof=0)
    return torch.where(count > 0, mean, torch.nan)


def group_varies(batch: RolloutBatch) -> Tensor:
    """[B] bool: not all counted rows of the group are judged alike; True for groups with fewer than two such rows."""
    count, _, _, spread = group_moments(verified_or_rewarded(batch), batch.group, ddof=0)
    return (count < 2) | (spread >= EQUAL_RANGE)
