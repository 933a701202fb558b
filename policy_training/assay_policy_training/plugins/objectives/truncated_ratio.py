"""Objectives that weigh -A log theta by a detached, truncated ratio, so that no token loses its gradient: CISPO, AIPO.

Covers: CISPO, theta / old, whose cap is given in one of two units that released code calls by the same name: `cap_abs`
is the largest ratio itself (TRL), `eps_high` its distance from 1 (verl, the paper); AIPO, theta / mu, without an old
policy. Their values are no surrogate to watch: the sign follows log theta. Leaves out: masks (`divergence_mask`).

Sources: CISPO arXiv 2506.13585; AIPO (LlamaRL) arXiv 2505.24034.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import truncated_is
from assay_policy_training.plugins.protocols import Scope, UpdateContext


@dataclass(frozen=True)
class Cispo:
    """S9, token scope: -sg(clamp(theta / old, floor, cap)) A log theta. Give the cap in one unit.

    `eps_low`: the floor is 1 - eps_low; None = no floor.
    """

    eps_high: float | None = None
    cap_abs: float | None = None
    eps_low: float | None = None
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        if (self.eps_high is None) == (self.cap_abs is None):
            raise BadInputError("give either eps_high (cap 1 + eps_high) or cap_abs", field="objective.eps_high")
        if self.cap_abs is not None and not self.cap_abs >= 1:
            raise BadInputError(f"must be at least 1, not {self.cap_abs}", field="objective.cap_abs")
        if self.eps_high is not None and not self.eps_high >= 0:
            raise BadInputError(f"must not be negative, not {self.eps_high}", field="objective.eps_high")
        if self.eps_low is not None and not 0 <= self.eps_low <= 1:
            raise BadInputError(f"must be in [0, 1], not {self.eps_low}", field="objective.eps_low")

    @property
    def cap(self) -> float:
        """The largest ratio that counts in full."""
        return self.cap_abs if self.cap_abs is not None else 1 + (self.eps_high or 0.0)

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = truncated_is(logp, context.logp_old, None)
        weight = ratio.clamp(max=self.cap)
        if self.eps_low is not None:
            weight = weight.clamp(min=1 - self.eps_low)
        return -weight * context.adv * logp, {"clip_fraction": (weight != ratio).float()}


@dataclass(frozen=True)
class Aipo:
    """S9, token scope: -sg(min(theta / mu, cap)) A log theta. `cap`: usual 2 to 10; None = not truncated."""

    cap: float | None = 5.0
    corrects_behaviour: ClassVar[bool] = True
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_mu"})

    def __post_init__(self) -> None:
        if self.cap is not None and not self.cap > 0:
            raise BadInputError(f"must be above 0, not {self.cap}", field="objective.cap")

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = truncated_is(logp, context.logp_mu, None)
        weight = truncated_is(logp, context.logp_mu, self.cap)
        return -weight * context.adv * logp, {"clip_fraction": (weight < ratio).float()}
