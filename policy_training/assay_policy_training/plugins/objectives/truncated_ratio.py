"""Objectives that weigh -A log theta by a detached, truncated ratio, so that no token loses its gradient: CISPO, AIPO.

Covers: CISPO, theta / old, whose cap is given in one of two units that released code calls by the same name: `cap_abs`
is the largest ratio itself (TRL), `eps_high` its distance from 1 (verl, the paper); AIPO, theta / mu, without an old
policy. Their values are no surrogate to watch: the sign follows log theta. Leaves out: masks (`divergence_mask`).

Sources: CISPO arXiv 2506.13585; AIPO (LlamaRL) arXiv 2505.24034.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.ratios import truncated_is
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import Scope, UpdateContext


@dataclass(frozen=True)
class Cispo(RecipeSettings, section="objective"):
    """S9, token scope: -sg(clamp(theta / old, floor, cap)) A log theta. Give the cap in one unit.

    `eps_low`: the floor is 1 - eps_low; None = no floor.
    """

    eps_high: Annotated[float | None, Ge(0)] = None
    cap_abs: Annotated[float | None, Ge(1)] = None
    eps_low: Annotated[float | None, Ge(0), Le(1)] = None
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.eps_high is None) == (self.cap_abs is None):
            raise BadInputError("give either eps_high (cap 1 + eps_high) or cap_abs", field="objective.eps_high")

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
class Aipo(RecipeSettings, section="objective"):
    """S9, token scope: -sg(min(theta / mu, cap)) A log theta. `cap`: usual 2 to 10; None = not truncated."""

    cap: Annotated[float | None, Gt(0)] = 5.0
    corrects_behaviour: ClassVar[bool] = True
    scope: ClassVar[Scope] = "token"
    needs: ClassVar[frozenset[str]] = frozenset({"logp_mu"})

    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
        ratio = truncated_is(logp, context.logp_mu, None)
        weight = truncated_is(logp, context.logp_mu, self.cap)
        return -weight * context.adv * logp, {"clip_fraction": (weight < ratio).float()}
