"""HAPO's sampler: the temperature of each token follows the entropy of the distribution it is drawn from.

T = T0 (1 + spread h), with h in [-1, 1] of `token_weights.entropy_scale`: uncertain tokens are sampled hotter, certain
ones colder. The scale is that of the tokens of the last step, so the first step is drawn at T0; it is in checkpoints.
Log-probs are recorded under the temperature actually used, while the trainer scores at T0: the difference is a mismatch
of sampler and trainer, which a correction (e.g. `token_tis`) accounts for.

Source: HAPO arXiv 2509.16591.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.token_weights.entropy import EntropyScale


def temperature_factors(logits: Tensor, scale: EntropyScale, spread: float) -> Tensor:
    """[N,1] factors 1 + spread h of logits [N,V] that are already divided by T0."""
    logp = logits.log_softmax(-1)
    entropy = -torch.where(logp.isinf(), 0.0, logp.exp() * logp).sum(-1)
    return (1 + spread * scale.normalised(entropy))[:, None]


class EntropyTemperatureSampler(TransformersSampler):
    """S2 with a temperature for each token. Stateful; learns from each step's entropies under old."""

    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def __init__(self, policy: Policy, sampling: Sampling, *, spread: float) -> None:
        super().__init__(policy, sampling)
        self.spread = spread
        self.scale: EntropyScale | None = None

    def adjusted(self, logits: Tensor) -> Tensor:
        return logits if self.scale is None else logits / temperature_factors(logits, self.scale, self.spread)

    def observe(self, report: StepReport) -> None:
        """Steps in which nothing was trained on leave the scale as it is."""
        if report.trained is not None and report.trained.entropy is not None:
            self.scale = EntropyScale.of(report.trained.entropy, report.trained.mask) or self.scale

    def state_dict(self) -> dict[str, Any]:
        return {"scale": None if self.scale is None else asdict(self.scale)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scale = None if state["scale"] is None else EntropyScale(**state["scale"])


class EntropyTemperature(RecipeSettings, section="sampler"):
    """S2. `spread`: largest relative change of the temperature."""

    spread: Annotated[float, Ge(0), Lt(1)] = 0.05

    @property
    def draws_otherwise(self) -> str:
        return "the sampler's temperature differs from token to token, the trainer's does not" if self.spread else ""

    def open(self, policy: Policy, sampling: Sampling) -> EntropyTemperatureSampler:
        return EntropyTemperatureSampler(policy, sampling, spread=self.spread)
