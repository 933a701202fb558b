"""What a critic predicts of a token's state, and its loss: one number, or a distribution over bins.

Covers: the squared error with PPO's value clipping, the HL-Gauss categorical value and its cross-entropy. Leaves out:
the network below (`value_model`).

Sources: value clipping as in verl and OpenAI's baselines; HL-Gauss arXiv 2403.03950.
"""

from typing import Annotated, Protocol

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.settings import RecipeSettings


def clipped_value_loss(value: Tensor, old: Tensor, target: Tensor, *, clip: float | None) -> tuple[Tensor, Tensor]:
    """Per-token loss 1/2 max((v - R)^2, (v_old + clip(v - v_old, +-c) - R)^2), and where the clip decided it (bool)."""
    free = (value - target) ** 2
    if clip is None:
        return free / 2, torch.zeros_like(free, dtype=torch.bool)
    bounded = (old + (value - old).clamp(-clip, clip) - target) ** 2
    return torch.maximum(free, bounded) / 2, bounded > free


def hl_gauss(target: Tensor, edges: Tensor, *, sigma: float) -> Tensor:
    """[..., K] probabilities: a normal distribution around each target, cut to the range and renormalised.

    `edges` [K+1], rising. A target outside the range counts as the end that is nearest.
    """
    inside = target.double().clamp(edges[0], edges[-1])
    below: Tensor = torch.special.ndtr((edges.double() - inside[..., None]) / sigma)
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


class ValueHead(Protocol):
    """Reads `outputs` numbers a token."""

    @property
    def outputs(self) -> int: ...
    def value(self, raw: Tensor) -> Tensor:
        """[..., outputs] -> [...]."""
        ...

    def loss(self, raw: Tensor, old: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of each token [...], and whether a limit took part (bool)."""
        ...


class Scalar(RecipeSettings, section="critic"):
    """One number. `clip`: how far a value may move from the rollouts' own in one step; None = freely."""

    clip: Annotated[float | None, Gt(0)] = 0.2
    outputs: int = 1

    def value(self, raw: Tensor) -> Tensor:
        return raw.squeeze(-1)

    def loss(self, raw: Tensor, old: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return clipped_value_loss(self.value(raw), old, target, clip=self.clip)


class HlGauss(RecipeSettings, section="critic"):
    """Logits of `outputs` equal bins from `low` to `high`; the value is the mean of their centres.

    The limit reported is a return outside the range, which counts as its nearest end.
    """

    outputs: Annotated[int, Ge(2)] = 51
    low: float = 0.0
    high: float = 1.0
    sigma_bins: Annotated[float, Gt(0)] = 0.75  #: deviation of the target's distribution, in bin widths

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise BadInputError(f"low {self.low} must be below high {self.high}", field="critic.low")

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.outputs

    def edges(self, device: torch.device) -> Tensor:
        return torch.linspace(self.low, self.high, self.outputs + 1, dtype=torch.float64, device=device)

    def value(self, raw: Tensor) -> Tensor:
        edges = self.edges(raw.device)
        centres = ((edges[1:] + edges[:-1]) / 2).to(raw)
        return (raw.softmax(-1) * centres).sum(-1)

    def loss(self, raw: Tensor, old: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        target_distribution = hl_gauss(target, self.edges(raw.device), sigma=self.sigma_bins * self.width).to(raw)
        outside = (target < self.low) | (target > self.high)
        return -(target_distribution * raw.log_softmax(-1)).sum(-1), outside
