"""Advantages by the steps of a row: EMPG, MRT's progress.

EMPG: each step of a row is weighted by the policy's confidence, plus a bonus for a confident next step. Covers: the
entropy of a step (the mean over its generated tokens, under old), normalised over all steps of the batch; the factor of
each step's own, never one for the whole batch; the bonus for the step that follows; centring over steps. A step is a
`segment` (the tokens between two observations); rows of one turn are cut into steps at a separator. Source: arXiv
2509.09265, its equations from secondary sources; zeta as in a third-party port.

MRT: every block of thinking is credited with the progress that it made. Source: "Optimizing Test-Time Compute via Meta
RL Fine-Tuning", arXiv 2503.07572 (abstract and summaries; alpha is not published). progress_j = J_j - J_{j-1}, where
J_j is the success probability if the answer had to be given after block j. The sum of all progress telescopes to J_k -
J_0, so as one number a row it is a shifted outcome: each block's own tokens get its own. Leaves out: measuring J. In an
environment answers are forced (`samplers.forced_answers`), else values of prefixes stand for it, as a part gives them.
J_0 is what the part says of the prompt (`prover:`), else the mean of the group's J_1: what a block achieved beyond the
others' first.

PAV is the same sum with J of a prover other than the policy: Q(s, a) + alpha A_mu(s, a) of each step, arXiv 2410.08146
(abstract and notes), where the estimator's advantage stands for Q.
"""

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.steps import SEPARATOR, by_token, segments, segments_of, start_values, step_values
from assay_policy_training.plugins.shaping.outcomes import reward_part


def empg(
    adv: Tensor, entropy: Tensor, mask: Tensor, segment: Tensor | None, *, k: float, k_next: float, zeta: float
) -> Tensor:
    """[B,T] float64, on `mask`: A g_s + zeta f_(s+1), less its mean over the steps s of all rows.

    Hn = (H - min) / (max - min + 1e-8) over all steps, g = exp(-k Hn) / mean of it over steps, f = exp(-k_next Hn), 0
    after a row's last step. `segment` [B,T] int64 or None. Steps of one entropy have g = 1.
    """
    mask = mask.bool()
    if not bool(mask.any()):
        return torch.zeros_like(adv, dtype=torch.float64)
    rows = torch.arange(len(mask))[:, None].expand_as(mask)
    number = torch.zeros_like(rows) if segment is None else segment.long()
    keys = (rows * (int(number.max()) + 1) + number)[mask]
    steps, step = torch.unique(keys, return_inverse=True)  # ascending: by row, then by number
    row_of = torch.zeros_like(steps).scatter(0, step, rows[mask])
    tokens = torch.bincount(step, minlength=len(steps)).double()

    def mean_of(values: Tensor) -> Tensor:
        return torch.zeros(len(steps), dtype=torch.float64).index_add(0, step, values) / tokens

    level = mean_of(entropy.double()[mask])
    level = (level - level.min()) / (level.max() - level.min() + 1e-8)
    confidence = (-k * level).exp()
    confidence = confidence / confidence.mean()
    following = torch.zeros_like(confidence)
    following[:-1] = torch.where(row_of[1:] == row_of[:-1], (-k_next * level[1:]).exp(), 0.0)
    changed = adv.double()[mask] * confidence[step] + zeta * following[step]
    changed = changed - mean_of(changed).mean()
    return torch.zeros_like(adv, dtype=torch.float64).masked_scatter(mask, changed)


class Empg(RecipeSettings, section="modulators", frozen=False):
    """S7: `empg`. Rows without a reward take no part."""

    k: Annotated[float, Ge(0)] = 1.0
    k_next: Annotated[float, Ge(0)] = 1.0
    zeta: Annotated[float, Ge(0)] = 0.1
    separator: str = SEPARATOR  #: of the steps of rows without segments; empty = such a row is one step
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    def modulate(self, batch: RolloutBatch) -> Tensor:
        adv, entropy, mask = batch.estimated_adv, batch.scored_entropy, batch.mask & batch.valid[:, None]
        segment = batch.segment
        if segment is None and self.separator:
            assert self._tokenizer is not None  # attached before the first step
            segment = segments(self._tokenizer, batch, self.separator)
        modulated = empg(adv, entropy, mask, segment, k=self.k, k_next=self.k_next, zeta=self.zeta)
        return modulated.float()


def progress(success: Sequence[float]) -> list[float]:
    """J_0..J_k to J_j - J_{j-1} of each of the k blocks."""
    return [after - before for before, after in pairwise(success)]


class BlockProgress(RecipeSettings, section="modulators", frozen=False):
    """S7: the advantage plus alpha x the progress of the token's own block, of PAV a prover's. Rows without block
    values, or without a reward, stay as they are."""

    alpha: Annotated[float, Ge(0)] = 0.2
    part: str = "process"
    separator: str = SEPARATOR
    _tokenizer: Any = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.separator:
            raise BadInputError("must not be empty", field="modulators.separator")

    def attach(self, policy: Policy) -> None:
        self._tokenizer = policy.tokenizer

    def modulate(self, batch: RolloutBatch) -> Tensor:
        reward_part(batch, self.part)
        segment = segments_of(self._tokenizer, batch, self.separator)
        values, valid = step_values(batch, self.part), batch.valid.tolist()
        start = start_values(batch, self.part).tolist()
        adv = batch.estimated_adv.clone()
        for row, listed in enumerate(values):
            if listed is None or not valid[row]:
                continue
            by_block, generated = progress([start[row], *listed]), batch.mask[row]
            adv[row, generated] += self.alpha * by_token(
                by_block, segment[row, generated], field="modulators.separator"
            )
        return adv
