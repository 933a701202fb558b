"""What group-scope objectives share: sums and means over groups, the pair of a group.

Leaves out: a row's own number (`ratios`), the two passes that spare whole groups in one micro-batch (`gradients`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_sum(values: Tensor, group: Tensor) -> Tensor:
    """[groups] sums of `values` [n]; differentiable. `group` [n] from `batch.group_index`, or a selection of one."""
    size = int(group.max()) + 1 if len(group) else 0
    return values.new_zeros(size).index_add(0, group, values)


def group_mean(values: Tensor, group: Tensor) -> Tensor:
    """[n] the mean of each row's group."""
    return (group_sum(values, group) / group_sum(torch.ones_like(values), group).clamp(min=1))[group]


def best_and_worst(reward: Tensor, group: Tensor) -> Tensor:
    """[pairs,2] the rows of the largest and the smallest reward of each group; the first of equals. Groups whose
    present rewards are all equal, or fewer than two, have no pair."""
    pairs = []
    for number in sorted(set(group.tolist())):
        rows = ((group == number) & ~reward.isnan()).nonzero().squeeze(1)
        if len(rows) > 1 and float(reward[rows].max()) > float(reward[rows].min()):
            pairs.append([int(rows[reward[rows].argmax()]), int(rows[reward[rows].argmin()])])
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
