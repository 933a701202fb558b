"""KL to the reference as a penalty inside the reward, token by token, with a fixed or an adaptive coefficient.

Covers: the penalty on every token the policy generated, made of the log-probs of the old policy (no gradient), and the
controller that keeps the KL of a response near a target. Leaves out: KL as a loss (`auxiliary.kl`).

Sources: InstructGPT arXiv 2203.02155; the controller arXiv 1909.08593. k1 and k3 have the true KL as their mean, k2 has
not (tests/oracles).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.ratios import kl_estimate
from assay_policy_training.core.settings import StatefulSettings
from assay_policy_training.plugins.protocols import StepReport

KL_ESTIMATORS = ("k1", "k2", "k3", "abs")
#: The controller's relative error is cut to +- this.
ERROR_LIMIT = 0.2


def adapted(coefficient: float, kl: float, *, target: float, horizon: float, rows: int) -> float:
    """The coefficient after `rows` responses with a mean KL of `kl` nats each."""
    error = max(-ERROR_LIMIT, min(ERROR_LIMIT, kl / target - 1))
    return coefficient * (1 + error * rows / horizon)


@dataclass
class KlInReward(StatefulSettings, section="shaping"):
    """S3: dense -= coefficient x KL kl_estimate of each token. `target` (nats a response): None = a fixed coefficient.

    Of an adaptive one `coefficient` is the first value, and the step's rollouts decide the next step's.
    """

    coefficient: Annotated[float, Ge(0)] = 0.01
    estimator: str = "k1"
    target: Annotated[float | None, Gt(0)] = None
    horizon: Annotated[float, Gt(0)] = 10_000.0  #: responses
    current: float = field(init=False, default=0.0)
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "logp_ref"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in KL_ESTIMATORS:
            raise BadInputError(f"one of {', '.join(KL_ESTIMATORS)}, not {self.estimator!r}", field="shaping.estimator")
        self.current = self.coefficient

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        penalty = self.current * self._kl(batch)
        return batch.with_(dense=-penalty if batch.dense is None else batch.dense - penalty)

    def observe(self, report: StepReport) -> None:
        rows = report.trained
        if self.target is None or rows is None or rows.logp_old is None or not len(rows):
            return
        kl = float(self._kl(rows).sum(1).mean())
        self.current = adapted(self.current, kl, target=self.target, horizon=self.horizon, rows=len(rows))

    def _kl(self, batch: RolloutBatch) -> Tensor:
        """[B,T] float64, 0 where the mask is off."""
        kl = kl_estimate(self.estimator, batch.scored_logp_old.double(), batch.scored_logp_ref.double())
        return torch.where(batch.mask, kl, 0.0)
