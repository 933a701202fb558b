"""VERL's shaping of advantages by the effective rank of a response's hidden states.

Covers: the rank (ER), its velocity (ERV) and acceleration (ERA) over growing prefixes, exact (the released code takes
a low-rank approximation); a bonus for rows above the running means, which adds at most |A| / kappa to an
advantage and never flips its sign. The running means are memory: the first step only fills them. Leaves out:
hidden states of other layers than the last.

Memory: hidden states [B,T,d] of the whole step lie on the CPU; each prefix costs an eigendecomposition of
min(n, d)^2, so `max_tokens` bounds the length. Ranks are at most min(n, d): short rows are low.

Source: arXiv 2509.23808, code hf618/VERL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.settings import StatefulSettings

INDICATORS = ("er", "erv", "era")
LARGEST_DEVIATION = 5.0


def effective_rank(states: Tensor) -> float:
    """exp of the entropy of the singular values of `states` [n,d], centred and normalised to sum 1.

    0 for fewer than two states, 1 for states that are all equal.
    """
    if len(states) < 2:
        return 0.0
    centred = states.double() - states.double().mean(0)
    gram = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    share = singular / (singular.sum() + 1e-8)
    return float((-(share * (share + 1e-8).log()).sum()).exp())


def prefix_ranks(states: Tensor, *, stride: int) -> list[float]:
    """Effective ranks of the first stride, 2 stride, ... states, and of all where the last stride ends before."""
    ends = list(range(stride, len(states) + 1, stride))
    if ends and ends[-1] < len(states) - 1:
        ends.append(len(states))
    return [effective_rank(states[:end]) for end in ends]


def velocities(ranks: Sequence[float]) -> tuple[list[float], list[float]]:
    """ERV_j = ER_j - mean of the ER before it, for j >= 1; ERA = differences of consecutive ERV."""
    velocity = [rank - sum(ranks[:number]) / number for number, rank in enumerate(ranks) if number]
    return velocity, [later - sooner for sooner, later in pairwise(velocity)]


def indicators(states: Tensor, *, stride: int) -> tuple[float, float, float]:
    """ER of all `states` [n,d], mean ERV, mean ERA; 0 where there are too few prefixes."""
    velocity, acceleration = velocities(prefix_ranks(states, stride=stride))

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    return effective_rank(states), mean(velocity), mean(acceleration)


def bonus(indicators: Mapping[str, Tensor], running: Mapping[str, float], *, scale: float) -> Tensor:
    """[B] scale (beta tanh(dev_ER) + (1 - beta) tanh(dev_ERV)), beta = sigmoid(1.5 dev_ERA), where
    dev_x = (x - running x) / (|running x| + 1e-8), cut to +-5."""
    deviation = {
        name: ((indicators[name] - running[name]) / (abs(running[name]) + 1e-8)).clamp(
            -LARGEST_DEVIATION, LARGEST_DEVIATION
        )
        for name in INDICATORS
    }
    beta = (1.5 * deviation["era"]).sigmoid()
    return scale * (beta * deviation["er"].tanh() + (1 - beta) * deviation["erv"].tanh())


def with_bonus(adv: Tensor, extra: Tensor, *, kappa: float) -> Tensor:
    """A + min(relu(extra), |A| / kappa), elementwise."""
    return adv + torch.minimum(extra.clamp(min=0), adv.abs() / kappa)


class EffectiveRank(StatefulSettings, section="modulators"):
    """S7: `with_bonus`. `ema`: how much of a step's mean enters the running means (.3 in the paper's text, .7 in code).

    `scale_by_reward`: the bonus fades as the running mean reward, on a scale of -1..1, nears 1.
    """

    stride: Annotated[int, Ge(1)] = 40
    max_tokens: Annotated[int, Ge(2)] = 512
    kappa: Annotated[float, Gt(1)] = 2.0
    ema: Annotated[float, Gt(0), Le(1)] = 0.3
    scale_by_reward: bool = False
    running: dict[str, float] = field(init=False, default_factory=dict)
    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})

    def modulate(self, batch: RolloutBatch) -> Tensor:
        """Called once a step: the running means move on."""
        adv, rows = batch.estimated_adv, batch.valid & batch.mask.any(1)
        if not bool(rows.any()):
            return adv
        indicators = self._indicators(batch, rows)
        means = {name: float(values[rows].mean()) for name, values in indicators.items()}
        means["reward"] = float(batch.outcome[rows].mean().clamp(-1, 1))
        if self.running:
            scale = 1 - (self.running["reward"] + 1) / 2 if self.scale_by_reward else 1.0
            extra = torch.where(rows, bonus(indicators, self.running, scale=scale), 0.0)
            adv = with_bonus(adv, extra[:, None].float() * batch.mask, kappa=self.kappa)
        self.running = {
            name: value if name not in self.running else (1 - self.ema) * self.running[name] + self.ema * value
            for name, value in means.items()
        }
        return adv

    def _indicators(self, batch: RolloutBatch, rows: Tensor) -> dict[str, Tensor]:
        columns = torch.zeros(len(batch), len(INDICATORS), dtype=torch.float64)
        for row in rows.nonzero().squeeze(1).tolist():
            states = batch.extras["hidden"][row][batch.mask[row]][: self.max_tokens]
            columns[row] = torch.tensor(indicators(states, stride=self.stride), dtype=torch.float64)
        return {name: columns[:, number] for number, name in enumerate(INDICATORS)}
