"""The protocols of the training loop's slots: what a method can plug in, and what a plug-in must declare.

Covers: the protocols that the loop calls, the values they exchange, and the start-up check that every tensor a plug-in
needs can be supplied. A method is one or more plug-ins; none edits the loop. A plug-in is a dataclass
whose fields are its settings in a recipe; one with memory implements `Stateful` (and `Tensors`), is in every
checkpoint, and receives each step's report by `observe`. Order inside a step:

    S0 prompts -> S1 contexts -> S2 sample -> S3 reward parts, composed -> S4 filter (may ask for more)
      -> score (old, reference, extras) -> S3 shaping -> S12 values -> S5 correction -> S6 estimator -> S7 modulators
      -> S15 replay -> [minibatches: S8 token weights, S9 objective -> S10 aggregate -> S11 auxiliary losses]
      -> S12 critic's update -> S13 schedules, S14 publishing, S16 metrics

A plug-in that works on a whole batch (S3 to S8's `prepare`) always sees every row of the step, those of other ranks
included, so its statistics are global by construction.

Names in `needs` and who supplies them: `logp_old`, `entropy` (always); `logp_mu` (every sampler but those that list it
in `lacks`, name -> what would supply it); `logp_ref` (a reference is loaded); `values` (a critic);
`action_values` (a critic of turns, in `extras`); `sum_pi_sq`, `max_pi`, `mean_logp`, `hidden` (`logprobs`, in
`extras`, of old on the batch and of theta in the context);
`entropy_gradient` (the context's entropy is differentiable); `teacher_kl` (a teacher is named; in `extras`,
differentiable in the context).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.score import Score, ScoreFailure
from assay_policy_training.core.aggregation import LossCounts
from assay_policy_training.core.batch import RolloutBatch, required
from assay_policy_training.core.config import Asynchrony, Optimisation
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling

Scope: TypeAlias = Literal["token", "sequence", "group"]


@dataclass(frozen=True)
class StepReport:
    """The report that plug-ins receive at the end of a step."""

    step: int  #: 1-based
    metrics: Mapping[str, float]
    batch: RolloutBatch  #: as collected, before rows were dropped
    trained: RolloutBatch | None = None  #: the rows that were trained on, with `adv` and all else; None = none


@dataclass(frozen=True)
class UpdateContext:
    """What an objective or auxiliary loss sees of one micro-batch; [b,T], detached unless noted, on theta's device."""

    adv: Tensor
    mask: Tensor
    loss_mask: Tensor
    logp_old: Tensor
    logp_mu: Tensor
    logp_ref: Tensor | None = None
    entropy: Tensor | None = None  #: of theta; differentiable where a plug-in needs `entropy_gradient`
    extras: Mapping[str, Tensor] = field(default_factory=dict)  #: of theta, see `logprobs`
    rows: RolloutBatch | None = None  #: the micro-batch itself, on the CPU: rewards, sources, extras of old

    @property
    def scored_logp_ref(self) -> Tensor:
        """[b,T] `logp_ref`, where the recipe has a reference (else ValueError)."""
        return required(self.logp_ref, "log-probs of the reference")

    @property
    def scored_entropy(self) -> Tensor:
        """[b,T] `entropy`, where a plug-in needs it (else ValueError)."""
        return required(self.entropy, "entropies of the policy")

    @property
    def given_rows(self) -> RolloutBatch:
        """`rows`, which the trainer sets (else ValueError)."""
        return required(self.rows, "rows of the micro-batch")


@dataclass(frozen=True)
class Rewards:
    """Named reward parts of B rows."""

    parts: Mapping[str, Tensor]  #: name -> [B] float64, NaN = missing
    failures: Sequence[tuple[ScoreFailure, ...]]  #: per row, why parts are missing
    scores: Sequence[Mapping[str, Score]]  #: per row, part -> the whole score, where a model gave it

    @classmethod
    def of(cls, name: str, outcomes: Sequence[float | Score | ScoreFailure]) -> Rewards:
        """One part: for each row its number or score, or why it is missing."""
        numbers = [
            math.nan if isinstance(o, ScoreFailure) else o.reward if isinstance(o, Score) else float(o)
            for o in outcomes
        ]
        return cls(
            {name: torch.tensor(numbers, dtype=torch.float64)},
            [(outcome,) if isinstance(outcome, ScoreFailure) else () for outcome in outcomes],
            [{name: outcome} if isinstance(outcome, Score) else {} for outcome in outcomes],
        )


@runtime_checkable
class Stateful(Protocol):
    """A plug-in with memory: its state in a checkpoint, JSON-ready."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Tensors(Protocol):
    """A plug-in with weights: nested containers of tensors and numbers, for the checkpoint."""

    def tensors(self) -> dict[str, Any]: ...
    def load_tensors(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class UsesPolicy(Protocol):
    """A plug-in that works with the policy itself: its tokenizer, its gradients."""

    def attach(self, policy: Policy) -> None:
        """Called once, before the first step."""
        ...


@runtime_checkable
class Observer(Protocol):
    """A plug-in that receives the report of each step."""

    def observe(self, report: StepReport) -> None: ...


@runtime_checkable
class ReportsMetrics(Protocol):
    """A plug-in that adds numbers of its memory to the metrics of each step."""

    def numbers(self) -> Mapping[str, float]:
        """Their values during the step that ends: called before `observe`."""
        ...


@runtime_checkable
class PreparesBatch(Protocol):
    """An objective that needs statistics of the whole batch: called once a step after S8's, before the first update.

    Tensors that it needs are then of old. Its results go into `extras`, and come back in `UpdateContext.rows`.
    """

    def prepare(self, batch: RolloutBatch) -> RolloutBatch: ...


@runtime_checkable
class ChecksRecipe(Protocol):
    """A plug-in that refuses some recipes: raises BadInputError naming the key that is wrong."""

    def check_recipe(self, recipe: RecipeView) -> None: ...


class PromptSource(Stateful, Protocol):
    """S0, opened."""

    def next(self, n: int) -> list[PromptItem]: ...
    def observe(self, report: StepReport) -> None: ...


class PromptOrder(Protocol):
    """S0, as a recipe describes it: opened on the run's prompts. `policy` for orders that look at its hidden states."""

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: Policy) -> PromptSource: ...


@dataclass(frozen=True)
class ResampleRequest:
    """S1 asks for more rows of a prompt. `replace`: they replace the group's rows, else they join them."""

    uid: str  #: of the group
    item: PromptItem
    replace: bool = True


class ContextPolicy(Protocol):
    """S1. What the policy sees of a prompt, at first and after a group failed."""

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        """The items in their first context, one for each."""
        ...

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """After round `round` (from 1), what to generate again; empty = nothing. `batch` has `acc` and reward parts."""
        ...


@runtime_checkable
class TaskContext(Protocol):
    """A context that is part of the task, rather than help in training: an evaluation applies it too."""

    def evaluated(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        """The items as an evaluation shows them, the same every time."""
        ...


class Sampler(Protocol):
    """S2. `seed` decides the rollouts: one number for each item's group, which then depends on no other group, or one
    from which they follow. `version` is recorded in the rows. `sampling` may change between steps."""

    sampling: Sampling

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch: ...


@runtime_checkable
class StreamingSampler(Protocol):
    """A sampler that yields the rows of `rollout` before all are complete, in order, in parts of whole groups."""

    def stream(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> Iterator[RolloutBatch]: ...


class TurnGeneration(Protocol):
    """Rows that are drawn turn by turn, all begun. `tokens`, `mask` (drawn), `logp`: [rows, limit]."""

    @property
    def tokens(self) -> Tensor: ...
    @property
    def mask(self) -> Tensor: ...
    @property
    def logp(self) -> Tensor: ...
    @property
    def busy(self) -> bool:
        """Whether a row waits or is under generation."""
        ...

    def step(self) -> list[int]:
        """Generate on; returns the rows whose turn has ended since."""
        ...

    def turn(self, row: int) -> list[int]:
        """The tokens of its last turn."""
        ...

    def remaining(self, row: int) -> int:
        """Tokens that it may still have."""
        ...

    def resume(self, row: int, observed: Sequence[int]) -> None:
        """Another turn, after the tokens `observed`; fewer than are `remaining`."""
        ...

    def forget(self, row: int) -> None:
        """It has no further turn."""

    def close(self) -> None: ...  # nothing is generated any more, rows that wait are given up


@runtime_checkable
class TurnSampler(Protocol):
    """A sampler that environments can go with."""

    def turns(
        self,
        contexts: Sequence[Sequence[int]],
        group_size: int,
        places: Sequence[tuple[int, int]],
        turn_tokens: int | None,
    ) -> TurnGeneration:
        """`group_size` rows after each context (tokens), which end where a turn does. `places`: of each row, its
        group's seed and its index in it. `turn_tokens`: of a turn, at most."""
        ...


@runtime_checkable
class PlaysEpisodes(Protocol):
    """A sampler that plays episodes its own way, rather than each from its prompt to its end."""

    def in_environment(self, environment: Any, limits: Any) -> Sampler:
        """`environment`: its settings; `limits`: `EpisodeLimits`."""
        ...


class SamplerPlan(Protocol):
    """S2, as a recipe describes it."""

    def open(self, policy: Policy, sampling: Sampling) -> Sampler: ...


@runtime_checkable
class ActorEngines(Protocol):
    """A sampler plan that has an engine for each rollout actor; the trainer opens none."""

    def check_actors(self, actors: int) -> None:
        """Raises AssayError where there are not so many engines, or where they are not alike."""
        ...

    def for_actor(self, index: int) -> SamplerPlan:
        """The plan of one actor. Raises ActorLostError where its engine does not answer."""
        ...


@runtime_checkable
class CarriesRows(Protocol):
    """A sampler whose rows may continue in later steps (`unfinished`, without a reward until they are complete).

    `rollout` returns the carried rows, under their uids, before the new ones.
    """

    def carried(self) -> int:
        """Rows that the next step begins with."""
        ...


@runtime_checkable
class PublishesWeights(Protocol):
    """S14: a sampler with its own copy of the weights, which `publish` replaces by the policy's, in all processes
    together. Raises BackendError when a log-prob of them disagrees with the trainer's."""

    def publish(self, policy: Policy, version: int) -> None: ...
    def release(self) -> None:
        """A step's rollouts are complete: give memory to its update, until weights are published again."""


@runtime_checkable
class RewardSource(Protocol):
    """S3. Never raises for a row that could not be scored: its part is NaN and its failure has the reason.

    May be called in another thread, for a portion of a step's rows, before earlier steps are trained; except a source
    with memory (`Stateful`, `Observer`), or with `whole_batch = True` because it compares rows. In several threads at
    once only with `concurrent = True`.
    """

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards: ...


class RewardComposition(Protocol):
    """S3. Parts (name -> [B] float64, NaN = missing) to one reward [B]; missing where a part that counts is."""

    def __call__(self, parts: Mapping[str, Tensor]) -> Tensor: ...


class RewardShaper(Protocol):
    """S3, after the filter. Returns the batch with another `reward` [B], or with `dense` [B,T] added to.

    Sees whole groups, lengths, `acc`, the scorer's log-probs. A missing reward stays missing.
    """

    @property
    def needs(self) -> frozenset[str]: ...
    def shape(self, batch: RolloutBatch) -> RolloutBatch: ...


class GroupFilter(Protocol):
    """S4. [B] bool, the rows to train on. Reads raw `acc` and reward parts, before shaping.

    `rounds`: how often a step may request prompts until enough groups are kept; 1 = no refilling.
    """

    @property
    def rounds(self) -> int: ...
    def keep(self, batch: RolloutBatch) -> Tensor: ...


@dataclass(frozen=True)
class Correction:
    """The result of a behaviour correction; both [B,T]."""

    weight: Tensor  #: float32, detached: multiplies the token losses
    keep: Tensor  #: bool: where the gradient stays; `mask` is left alone
    metrics: Mapping[str, float] = field(default_factory=dict)


class BehaviourCorrection(Protocol):
    """S5. From old and mu (`logp_old`, `logp_mu`, `mask`) of the whole batch."""

    @property
    def needs(self) -> frozenset[str]: ...
    def correct(self, batch: RolloutBatch) -> Correction: ...


class AdvantageEstimator(Protocol):
    """S6. (adv [B,T] float32, returns [B,T] or None). Reads `outcome` or `token_reward`, `group`, `mask`, `values`."""

    @property
    def needs(self) -> frozenset[str]: ...
    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, Tensor | None]: ...


class AdvantageModulator(Protocol):
    """S7. Changes `batch.adv`; returns `adv` [B,T]."""

    @property
    def needs(self) -> frozenset[str]: ...
    def modulate(self, batch: RolloutBatch) -> Tensor: ...


class TokenWeight(Protocol):
    """S8. `prepare`, once a step on the whole batch, may narrow `loss_mask`; `weight` [b,T] multiplies token losses."""

    @property
    def needs(self) -> frozenset[str]: ...
    def prepare(self, batch: RolloutBatch) -> RolloutBatch: ...
    def weight(self, logp: Tensor, context: UpdateContext) -> Tensor | None: ...


class PolicyObjective(Protocol):
    """S9, scope token or sequence. (loss [b,T], per-token reports [b,T]); theta's `logp` carries the gradient."""

    @property
    def scope(self) -> Scope: ...
    @property
    def needs(self) -> frozenset[str]: ...
    def loss(self, logp: Tensor, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]: ...


class GroupObjective(Protocol):
    """S9, scope group: the loss depends on theta through one number a row, so groups need not fit in a micro-batch.

    The loop computes all numbers without a gradient, differentiates `batch_loss` by them, and back-propagates
    sum_i dL/ds_i s_i micro-batch by micro-batch: exactly the gradient of the whole.
    """

    @property
    def scope(self) -> Scope: ...
    @property
    def needs(self) -> frozenset[str]: ...
    def row_scores(self, logp: Tensor, context: UpdateContext) -> Tensor:
        """[b], differentiable."""
        ...

    def batch_loss(self, scores: Tensor, rows: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        """The loss of a minibatch (whole groups), differentiable in `scores` [n], and its reports."""
        ...


class LossAggregator(Protocol):
    """S10. A micro-batch's share of the loss of a batch whose counts are given."""

    @property
    def needs(self) -> frozenset[str]: ...
    def __call__(self, loss: Tensor, loss_mask: Tensor, counts: LossCounts) -> Tensor: ...


class AuxiliaryLoss(Protocol):
    """S11. Added as coefficient x aggregate(loss over `loss_mask`), or over `own_mask(batch)` [B,T] where it
    has one, with its own denominators."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> frozenset[str]: ...
    @property
    def coefficient(self) -> float: ...
    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor: ...


@runtime_checkable
class AdaptiveLoss(Protocol):
    """An auxiliary loss whose coefficient follows the batch: it sees all rows of a step before the first update."""

    def steer(self, batch: RolloutBatch) -> Mapping[str, float]:
        """Returns metrics of the step."""
        ...


class Critic(Stateful, Tensors, Protocol):
    """S12, opened. One that also values what was done has `action_values`, of the form of `values`."""

    def values(self, batch: RolloutBatch) -> Tensor:
        """[B,T] float32, detached, 0 where the mask is off."""
        ...

    def update(self, batch: RolloutBatch, *, step: int, seed: int) -> dict[str, float]:
        """Fit to `returns`; returns its metrics."""
        ...

    def warming(self, step: int) -> bool:
        """Whether only the critic learns in this step."""
        ...


class CriticPlan(Protocol):
    """S12, as a recipe describes it."""

    def open(self, policy: Policy) -> Critic: ...


class Schedule(Protocol):
    """S13. The value of a setting in `step` (1-based) from its value so far. Names: lr, max_new_tokens, temperature."""

    def value(self, name: str, value: float, step: int) -> float: ...


class Replay(Protocol):
    """S15. The batch to train on, from the step's batch (with `adv`): other rows may join, tagged by `source`."""

    def mix(self, batch: RolloutBatch) -> RolloutBatch: ...


class StepMetrics(Protocol):
    """S16. Reads a finished step, returns metrics. One with `reads_metrics = True` is called after the others, and
    finds their numbers in `report.metrics`. The first process measures; one with `joined = True` is called in all, as
    it makes passes of a policy that may be divided."""

    def measure(self, report: StepReport) -> dict[str, float]: ...


class StopRule(Protocol):
    """S16. Why the run should end after a step with these metrics; None = continue."""

    def reason(self, row: Mapping[str, Any]) -> str | None: ...


@dataclass(frozen=True)
class Course:
    """How a run goes on after a step. `stop`: why it ends, with `good` by the weights of that step's checkpoint.
    `take_up`: the newest checkpoint no later than this step gives weights and optimiser from now on; steps, logs and
    plug-ins go on. `good`: the last step known to be good, whose checkpoint is kept."""

    stop: str | None = None
    take_up: int | None = None
    good: int | None = None


@runtime_checkable
class SteersRun(Protocol):
    """S16, of a run beside its recipe: asked after every step, before a checkpoint of it is made."""

    def course(self) -> Course: ...


@runtime_checkable
class ShapesRewards(Protocol):
    """S16, of a run beside its recipe, that also shapes rewards: after the recipe's shapers, see `RewardShaper`."""

    def shape(self, batch: RolloutBatch) -> RolloutBatch: ...


class RecipeView(Protocol):
    """What a plug-in may read of the recipe that it is part of (`ChecksRecipe`)."""

    @property
    def estimator(self) -> AdvantageEstimator: ...
    @property
    def objective(self) -> PolicyObjective | GroupObjective: ...
    @property
    def aggregation(self) -> LossAggregator: ...
    @property
    def contexts(self) -> ContextPolicy | None: ...
    @property
    def environment(self) -> object | None: ...
    @property
    def reward(self) -> RewardComposition: ...
    @property
    def sampler(self) -> SamplerPlan: ...
    @property
    def filters(self) -> Sequence[GroupFilter]: ...
    @property
    def shaping(self) -> Sequence[RewardShaper]: ...
    @property
    def critic(self) -> CriticPlan | None: ...
    @property
    def corrections(self) -> Sequence[BehaviourCorrection]: ...
    @property
    def token_weights(self) -> Sequence[TokenWeight]: ...
    @property
    def schedules(self) -> Sequence[Schedule]: ...
    @property
    def sampling(self) -> Sampling: ...
    @property
    def asynchrony(self) -> Asynchrony: ...
    @property
    def optimisation(self) -> Optimisation: ...


def negotiate(
    plugins: Iterable[object], supplied: Iterable[str], lacks: Mapping[str, str] | None = None
) -> frozenset[str]:
    """The union of all `needs`. Raises BadInputError naming the first plug-in whose need is not met, and what
    would supply it (`lacks`)."""
    offer = frozenset(supplied)
    union: frozenset[str] = frozenset()
    for plugin in plugins:
        needs: frozenset[str] = getattr(plugin, "needs", frozenset())
        if lacking := needs - offer:
            raise BadInputError(
                f"{type(plugin).__name__} needs {', '.join(sorted(lacking))}, "
                f"which this set-up does not supply (it has {', '.join(sorted(offer))})"
                + "".join(f"; {name}: {(lacks or {})[name]}" for name in sorted(lacking & (lacks or {}).keys()))
            )
        union |= needs
    return union
