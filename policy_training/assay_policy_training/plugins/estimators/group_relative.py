"""Advantages relative to a group: a baseline from its rows, and a scale of the group, the batch or none.

GRPO, Dr. GRPO, RLOO, each with its spread (`ddof`, `eps`), single-row and all-equal groups stated, grouped by uid, in
any order of rows; a missing reward (NaN) takes no part in its group's statistics and gets advantage 0 (the loop also
takes it out of the loss). Leaves out: critics and GAE, normalising over the batch. Sources: GRPO arXiv 2402.03300; Dr.
GRPO arXiv 2503.20783; RLOO arXiv 2402.14740.

Lite PPO: the group's mean as baseline, the whole batch's deviation as scale. Covers: rewards centred by group and
divided by the deviation (ddof 1, over rows) of all centred rewards of the batch, so that groups which hardly vary are
not blown up. Leaves out: its token-mean loss and plain PPO clip (settings). Source: "Tricks or Traps", arXiv
2508.08221, recalled: the paper may take the deviation of the rewards themselves.

NGRPO: a virtual best row in every group, so that groups in which everything is wrong push away from it. Covers: mean
and deviation over the rows and one virtual row of reward `r_max` (ddof 1 over n + 1). Leaves out: its asymmetric clip
(a setting of `ppo_clip`), dropping groups that are all correct (`filters.drop_solved`). Advantages of a group no longer
sum to 0: on the whole they push probabilities down, so watch the entropy. Source: arXiv 2509.18851, code
nangongrui-ngr/NGRPO.

OPO: the group's mean reward weighted by length as baseline. Source: arXiv 2505.23585, as in verl's opo estimator. Under
the assumption that a row's gradient energy grows with its length this baseline is the one of least variance.

Pass@k: only the best row of a group learns, by how far it is ahead of the second. Source: arXiv 2503.19595, as in
verl's grpo_passk estimator.

HAPO's token-level group average: a group's mean and deviation count every row as often as it has tokens. A_i = (R_i -
mean) / (std + eps) with the mean and the deviation (ddof 0) over all tokens of the group. A group with a row further
than `outlier` deviations out gets GRPO's advantages instead. Single-row and all-equal groups and missing rewards get 0.
Source: HAPO arXiv 2509.16591.
"""

from collections import defaultdict
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import EQUAL_RANGE, RolloutBatch, dr_grpo, group_moments, rloo
from assay_policy_training.core.settings import RecipeSettings


def grpo(reward: Tensor, group: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean) / (std + eps) over the group; 0 for single-row and all-equal groups and missing rewards."""
    count, mean, deviation, spread = group_moments(reward, group, ddof=ddof)
    advantage = (reward.double() - mean) / (deviation + eps)
    flat = (count < 2) | (spread < EQUAL_RANGE) | torch.isnan(reward)
    return torch.where(flat, 0.0, advantage)


def over_tokens(advantage: Tensor, mask: Tensor) -> Tensor:
    """[B] to [B,T] float32: the row's advantage on each of its own tokens, 0 elsewhere."""
    return (advantage[:, None] * mask).float()


class Grpo(RecipeSettings, section="estimator"):
    """S6: `grpo` on every token. ddof 1 as in verl and TRL; eps 1e-6 (verl; TRL takes 1e-4)."""

    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(grpo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps), batch.mask), None


class DrGrpo(RecipeSettings, section="estimator"):
    """S6: `dr_grpo` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(dr_grpo(batch.outcome, batch.group), batch.mask), None


class Rloo(RecipeSettings, section="estimator"):
    """S6: `rloo` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(rloo(batch.outcome, batch.group), batch.mask), None


def lite_ppo(reward: Tensor, group: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean of the group) / (std of all such differences + eps); 0 for single-row groups and missing rewards.

    Single rows and missing rewards are not in the deviation either. All 0 where every group is constant.
    """
    centred = dr_grpo(reward, group)
    count, _, _, spread = group_moments(reward, group, ddof=0)
    counted = (count > 1) & ~torch.isnan(reward)
    if int(counted.sum()) <= ddof or bool((spread[counted] < EQUAL_RANGE).all()):
        return torch.zeros_like(centred)
    return centred / (centred[counted].std(correction=ddof) + eps)


class LitePpo(RecipeSettings, section="estimator"):
    """S6: `lite_ppo` on every token."""

    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(lite_ppo(batch.outcome, batch.group, ddof=self.ddof, eps=self.eps), batch.mask), None


def ngrpo(reward: Tensor, group: Tensor, *, r_max: float = 1.0, eps: float = 1e-6) -> Tensor:
    """[B] (R - mean') / (std' + eps), where mean' and std' (ddof 1) also count one row of reward `r_max`.

    0 for single-row groups, for groups whose rows all have `r_max`, and for missing rewards.
    """
    count, mean, deviation, spread = group_moments(reward, group, ddof=0)
    wider_mean = (count * mean + r_max) / (count + 1)
    squares = count * deviation**2 + count / (count + 1) * (r_max - mean) ** 2
    wider_deviation = (squares / count.clamp(min=1)).sqrt()
    flat = (count < 2) | torch.isnan(reward) | ((spread < EQUAL_RANGE) & ((r_max - mean).abs() < EQUAL_RANGE))
    return torch.where(flat, 0.0, (reward.double() - wider_mean) / (wider_deviation + eps))


class Ngrpo(RecipeSettings, section="estimator"):
    """S6: `ngrpo` on every token. `r_max`: the largest reward there can be, after shaping."""

    r_max: float = 1.0
    eps: Annotated[float, Ge(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        """Raises BadInputError for a reward above `r_max`: it is then not the largest."""
        outcome = batch.outcome
        if bool((outcome > self.r_max + EQUAL_RANGE).any()):
            largest = float(outcome[~outcome.isnan()].max())
            raise BadInputError(
                f"a row earned {largest:.6g}, more than the largest reward {self.r_max:.6g}", field="estimator.r_max"
            )
        return over_tokens(ngrpo(outcome, batch.group, r_max=self.r_max, eps=self.eps), batch.mask), None


def opo(reward: Tensor, lengths: Tensor, group: Tensor) -> Tensor:
    """[B] R - sum(L R) / sum(L) over the group; 0 for single-row groups and missing rewards. Equal rewards give 0.

    `lengths` [B]: the tokens the policy generated. verl gives a single row its reward; here it is 0.
    """
    present = ~torch.isnan(reward)
    filled = torch.where(present, reward.double(), 0.0)
    weight = lengths.double() * present
    size = int(group.max()) + 1 if len(group) else 0
    empty = torch.zeros(size, dtype=torch.float64)
    total = empty.index_add(0, group, weight)
    baseline = empty.index_add(0, group, weight * filled) / torch.where(total > 0, total, 1.0)
    count, _, _, _ = group_moments(reward, group, ddof=0)
    return torch.where(present & (count > 1), filled - baseline[group], 0.0)


class Opo(RecipeSettings, section="estimator"):
    """S6: `opo` on every token."""

    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return over_tokens(opo(batch.outcome, batch.lengths, batch.group), batch.mask), None


def pass_at_k(reward: Tensor, group: Tensor, *, by_std: bool = False, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """[B] largest - second largest reward of the group for its best row, 0 for the others.

    `by_std`: divided by (deviation + eps) of the group. 0 for single-row groups, where the two best are equal, and for
    missing rewards.
    """
    rows: dict[int, list[int]] = defaultdict(list)
    for row in (~torch.isnan(reward)).nonzero().squeeze(1).tolist():
        rows[int(group[row])].append(row)
    advantage = torch.zeros(len(reward), dtype=torch.float64)
    for members in rows.values():
        if len(members) < 2:
            continue
        best, second = torch.topk(reward[members].double(), 2).values.tolist()
        if best - second >= EQUAL_RANGE:
            advantage[members[int(reward[members].argmax())]] = best - second
    if by_std:
        _, _, deviation, _ = group_moments(reward, group, ddof=ddof)
        advantage = advantage / (deviation + eps)
    return torch.where(advantage == 0, 0.0, advantage)


class PassAtK(RecipeSettings, section="estimator"):
    """S6: `pass_at_k` on every token; k is the group's size."""

    by_std: bool = False
    ddof: Annotated[int, Ge(0), Le(1)] = 1
    eps: Annotated[float, Gt(0)] = 1e-6
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = pass_at_k(batch.outcome, batch.group, by_std=self.by_std, ddof=self.ddof, eps=self.eps)
        return over_tokens(advantage, batch.mask), None


def token_level(
    reward: Tensor, lengths: Tensor, group: Tensor, *, eps: float = 1e-6, outlier: float = 5.0, ddof: int = 1
) -> Tensor:
    """[B] float64; `reward` [B] with NaN = missing, `lengths` [B] tokens, `group` [B]. `ddof`: of GRPO's fall-back."""
    reward = reward.double()
    present = ~torch.isnan(reward)
    size = int(group.max()) + 1 if len(group) else 0
    weight = torch.where(present, lengths.double(), 0.0)
    filled = torch.where(present, reward, 0.0)

    def mean_of(values: Tensor) -> Tensor:
        total = torch.zeros(size, dtype=torch.float64, device=reward.device)
        tokens = total.clone().index_add(0, group, weight).clamp(min=1)
        return (total.index_add(0, group, weight * values) / tokens)[group]

    centred = filled - mean_of(filled)
    z = centred / (mean_of(centred**2).sqrt() + eps)
    z = torch.where(present, z, 0.0)
    extreme = torch.zeros(size, dtype=torch.float64, device=reward.device).scatter_reduce(0, group, z.abs(), "amax")
    count, _, _, spread = group_moments(reward, group, ddof=0)
    z = torch.where(extreme[group] >= outlier, grpo(reward, group, ddof=ddof, eps=eps), z)
    return torch.where((count < 2) | (spread < EQUAL_RANGE) | ~present, 0.0, z)


class TokenLevel(RecipeSettings, section="estimator"):
    """S6: `token_level` on every token."""

    eps: Annotated[float, Ge(0)] = 1e-6
    outlier: Annotated[float, Gt(0)] = 5.0
    group_relative: ClassVar[bool] = True

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        advantage = token_level(batch.outcome, batch.lengths, batch.group, eps=self.eps, outlier=self.outlier)
        return over_tokens(advantage, batch.mask), None
