"""Functions that several shapers share: which rows are right, the length limit, the range within a group.

Leaves out: means and deviations of a group (`core.batch.group_moments`).
"""

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.compositions.weighted import named_part

#: A reward part that says whether a row is right does so from here on.
RIGHT_FROM = 0.5


def correctness(batch: RolloutBatch, part: str | None = None) -> Tensor:
    """[B] float64: 1 right, 0 wrong, NaN unknown. `part`: the reward part that says it; None = `acc`.

    Never read off a composed or shaped reward. Raises BadInputError for a part that no source gives.
    """
    if part is not None:
        values = reward_part(batch, part)
        return torch.where(values.isnan(), torch.nan, (values >= RIGHT_FROM).double())
    if batch.acc is None:
        return torch.full((len(batch),), torch.nan, dtype=torch.float64)
    return batch.acc.double()


def reward_part(batch: RolloutBatch, name: str) -> Tensor:
    """[B] float64. Raises BadInputError for a part that no source gives."""
    return named_part(batch.r_parts, name, field="shaping")


def response_limit(batch: RolloutBatch, setting: int | None) -> int:
    """Most tokens that a response of this step may have: as set, else the length of the longest truncated row, else the
    batch's width.

    Samplers pad rows to `max_new_tokens`; those that do not (windows, recorded responses) need the setting.
    """
    if setting is not None:
        return setting
    cut = batch.lengths[batch.truncated]
    if len(cut) and int(cut.max()) > 0:
        return int(cut.max())
    forced_width = 0 if batch.forced is None else int(batch.forced.sum(1).max())  # tokens that turns start with
    return int(batch.mask.shape[1]) - forced_width


def group_range(values: Tensor, member: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest of `values` [B] among the rows of each row's group that are `member` [B]; inf and -inf where
    there are none."""
    size = int(group.max()) + 1 if len(group) else 0
    infinite = torch.full((size,), torch.inf, dtype=torch.float64)
    values = values.double()
    low = infinite.scatter_reduce(0, group, torch.where(member, values, torch.inf), "amin")
    high = (-infinite).scatter_reduce(0, group, torch.where(member, values, -torch.inf), "amax")
    return low[group], high[group]
