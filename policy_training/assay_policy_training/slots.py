"""The slots of the training loop: what a method may plug in, and what it must say about itself.

Covers: the protocols of the slots that the loop calls, the values they exchange, and the start-up check that every
tensor a plug-in needs can be supplied. A method is one or more plug-ins; none edits the loop. Stateful plug-ins
implement `Stateful` and are in every checkpoint. Order inside a step:

    S0 prompts -> S2 sample -> S3 reward -> S4 filter -> score -> S6 estimator
      -> [minibatches: S9 objective -> S10 aggregate -> S11 auxiliary losses] -> S13 schedule, S16 metrics

Leaves out: the slots nobody plugs into yet. S1 (contexts) belongs before S2: `RolloutBatch` keeps the context that was
generated from apart from the one trained on. S5 (behaviour correction), S7 (modulators) and S8 (token weights) belong
between S6 and S9, on `logp_mu`, `adv`, `loss_mask`; S12 (critic) fills `values`; S14/S15 (asynchrony, replay) stand
where S2 is called and read `version`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from assay.domain import Prompt
from assay.errors import BadInputError
from assay.score import Score, ScoreFailure
from assay_policy_training.aggregation import Counts
from assay_policy_training.batch import RolloutBatch
from assay_serving.verifiers import Constraint

Scope: TypeAlias = Literal["token", "sequence", "group"]


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt, with the constraints a verifier can check (empty: `acc` is missing for its rows)."""

    prompt: Prompt
    constraints: tuple[Constraint, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepReport:
    """What a step tells its stateful plug-ins when it ends."""

    step: int  #: 1-based
    metrics: Mapping[str, float]
    batch: RolloutBatch  #: as drawn, before rows were dropped


@dataclass(frozen=True)
class UpdateContext:
    """What an objective or auxiliary loss sees of one micro-batch; all [b,T], detached."""

    adv: Tensor
    mask: Tensor
    loss_mask: Tensor
    logp_old: Tensor
    logp_mu: Tensor
    logp_ref: Tensor | None = None
    entropy: Tensor | None = None


@dataclass(frozen=True)
class Rewards:
    """Named reward parts of B rows."""

    parts: Mapping[str, Tensor]  #: name -> [B] float64, NaN = missing
    failures: Sequence[tuple[ScoreFailure, ...]]  #: per row, why parts are missing
    scores: Sequence[Mapping[str, Score]]  #: per row, part -> the whole score, where a model gave it


@runtime_checkable
class Stateful(Protocol):
    """A plug-in with memory: what it needs to go on after a restart as if there had been none. JSON-ready."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class PromptSource(Stateful, Protocol):
    """S0."""

    def next(self, n: int) -> list[PromptItem]: ...
    def observe(self, report: StepReport) -> None: ...


class Sampler(Protocol):
    """S2. `seed` alone decides the draw; `version` stamps the rows."""

    def rollout(self, items: Sequence[PromptItem], group_size: int, *, seed: int, version: int) -> RolloutBatch: ...


class RewardSource(Protocol):
    """S3. Never raises for a row that could not be scored: its part is NaN and its failure says why."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards: ...


class GroupFilter(Protocol):
    """S4. [B] bool, the rows to train on."""

    def keep(self, batch: RolloutBatch) -> Tensor: ...


class AdvantageEstimator(Protocol):
    """S6. (adv [B,T], returns [B,T] or None) from rewards [B] (NaN = missing), token rewards, values, mask, group."""

    @property
    def needs(self) -> frozenset[str]: ...
    def __call__(
        self, reward: Tensor, token_reward: Tensor, values: Tensor | None, mask: Tensor, group: Tensor
    ) -> tuple[Tensor, Tensor | None]: ...


class PolicyObjective(Protocol):
    """S9. (loss [b,T], per-token reports [b,T]); `logp` is theta's and carries the gradient."""

    @property
    def scope(self) -> Scope: ...
    @property
    def needs(self) -> frozenset[str]: ...
    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]: ...


class LossAggregator(Protocol):
    """S10. A micro-batch's share of the loss of a batch whose counts are given."""

    @property
    def needs(self) -> frozenset[str]: ...
    def __call__(self, loss: Tensor, loss_mask: Tensor, counts: Counts) -> Tensor: ...


class AuxLoss(Protocol):
    """S11. Added as coefficient x aggregate(loss)."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> frozenset[str]: ...
    @property
    def coefficient(self) -> float: ...
    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor: ...


class Schedule(Protocol):
    """S13. The value to use in `step` (1-based)."""

    def value(self, name: str, step: int) -> float: ...


class Metrics(Protocol):
    """S16. Reads a finished step, writes nothing but its own numbers."""

    def measure(self, report: StepReport) -> dict[str, float]: ...


def negotiate(plugins: Iterable[object], supplied: Iterable[str]) -> frozenset[str]:
    """The union of all `needs`. Raises BadInputError naming the first plug-in whose need nobody supplies."""
    offer = frozenset(supplied)
    union: frozenset[str] = frozenset()
    for plugin in plugins:
        needs: frozenset[str] = getattr(plugin, "needs", frozenset())
        if lacking := needs - offer:
            raise BadInputError(
                f"{type(plugin).__name__} needs {', '.join(sorted(lacking))}, "
                f"which this set-up does not supply (it has {', '.join(sorted(offer))})"
            )
        union |= needs
    return union
