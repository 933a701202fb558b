"""A recipe: how a policy is trained, as frozen data whose parts are the plug-ins.

Covers: the sections, and which combinations are refused. Leaves out: reading and writing (`loading`), what differs
between runs (the policy, the reward, the prompts), which the command line names.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from assay.errors import BadInputError
from assay.models.chat.options import ChatOptions
from assay_policy_training.core.aggregation import LossAggregation
from assay_policy_training.core.config import Asynchrony, Optimisation
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.auxiliary.kl import KlLoss
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.corrections.mismatch import check_mismatch, check_single_correction
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.filters.groups import EnoughValid
from assay_policy_training.plugins.objectives.ratio_clip import Reinforce
from assay_policy_training.plugins.prompts.source import Shuffled
from assay_policy_training.plugins.protocols import (
    AdvantageEstimator,
    AdvantageModulator,
    AuxiliaryLoss,
    BehaviourCorrection,
    ChecksRecipe,
    ContextPolicy,
    CriticPlan,
    GroupFilter,
    GroupObjective,
    LossAggregator,
    PolicyObjective,
    PromptOrder,
    Replay,
    RewardComposition,
    RewardShaper,
    Sampler,
    SamplerPlan,
    Schedule,
    StepMetrics,
    StopRule,
    TokenWeight,
)
from assay_policy_training.plugins.samplers.auto import Auto
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. Field names are the YAML's section names; those of `slots.SLOTS` hold plug-ins by `kind`."""

    name: str
    estimator: AdvantageEstimator
    objective: PolicyObjective | GroupObjective
    paper: str = ""  #: what it follows, e.g. arXiv 2402.03300; what was checked of it is in docs/papers.md
    aggregation: LossAggregator = field(default_factory=LossAggregation)
    kl: KlLoss = field(default_factory=lambda: KlLoss(coefficient=0.0))  #: coefficient 0: no reference is loaded
    teacher: str | None = None  #: a model to learn from token by token, for plug-ins that need `teacher_kl`
    source: PromptOrder = field(default_factory=Shuffled)
    contexts: ContextPolicy | None = None
    sampler: SamplerPlan = field(default_factory=Auto)
    environment: Environment | None = None  #: what the policy acts in, turn by turn; None: it answers once
    episodes: EpisodeLimits = field(default_factory=EpisodeLimits)
    reward: RewardComposition = field(default_factory=Composition)
    filters: tuple[GroupFilter, ...] = (EnoughValid(),)  #: a row stays where all of them keep it
    shaping: tuple[RewardShaper, ...] = ()  #: in this order
    critic: CriticPlan | None = None
    modulators: tuple[AdvantageModulator, ...] = ()
    corrections: tuple[BehaviourCorrection, ...] = ()  #: weights multiply, all must keep a token
    replay: Replay | None = None
    token_weights: tuple[TokenWeight, ...] = ()
    auxiliary: tuple[AuxiliaryLoss, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    metrics: tuple[StepMetrics, ...] = ()
    stop: tuple[StopRule, ...] = ()
    chat: ChatOptions = field(default_factory=ChatOptions)
    sampling: Sampling = field(default_factory=Sampling)
    asynchrony: Asynchrony = field(default_factory=Asynchrony)
    optimisation: Optimisation = field(default_factory=Optimisation)
    lora: Lora = field(default_factory=Lora)
    steps: int = 20
    checkpoint_every: int = 20  #: steps; 0 = not by steps
    checkpoint_minutes: float = 10.0  #: of training that may be lost at most; 0 = not by time
    #: Measure KL to the reference where no plug-in needs it; null: where it takes no weights of its own (the base
    #: under adapters), and where an alarm or a stop rule reads it.
    report_kl: bool | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoint_every", "checkpoint_minutes"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, not {getattr(self, name):g}", field=name)
        if isinstance(self.objective, Reinforce) and self.optimisation.updates_per_batch > 1:
            raise BadInputError(
                "reinforce has no ratio, so a batch may have one optimiser step only; use ppo_clip", field="objective"
            )
        if self.sampling.group_size < 2 and getattr(self.estimator, "group_relative", False):
            raise BadInputError("a group-relative advantage needs at least 2 rows", field="sampling.group_size")
        if self.sampling.stop and (self.asynchrony.window or hasattr(self.sampler, "window")):
            raise BadInputError("rows that continue in a later window do not end at texts", field="sampling.stop")
        needed = frozenset[str]().union(*(getattr(plugin, "needs", ()) for plugin in self.plugins().values()))
        if self.teacher is not None and "teacher_kl" not in needed:
            raise BadInputError("nothing here learns from it", field="teacher")
        if self.critic is not None and "values" not in needed:
            raise BadInputError("nothing here reads its values", field="critic")
        check_single_correction(self.objective, self.corrections)
        check_mismatch(self)
        if self.objective.scope == "group" and (self.token_weights or self.corrections):
            name = type(self.objective).__name__
            raise BadInputError(
                f"{name} compares whole rows: weights would be left out, and a row that was rejected would be compared",
                field="token_weights" if self.token_weights else "corrections",
            )
        for plugin in (*self.plugins().values(), self.source, self.sampler, self.critic):
            if isinstance(plugin, ChecksRecipe):
                plugin.check_recipe(self)

    def opened_sampler(self, policy: Policy, plan: SamplerPlan | None = None) -> Sampler:
        """The sampler of rollouts, by `plan` in place of the recipe's, in the recipe's environment. Raises
        BadInputError for a sampler that does not go with one."""
        plan = plan or self.sampler
        plan = plan.chosen(policy, self.sampling, self.asynchrony) if isinstance(plan, Auto) else plan
        if self.asynchrony.ahead and not self.asynchrony.actors and isinstance(plan, Vllm | VllmServerSampler):
            plan = replace(plan, sleep=False)  # it generates during updates
        sampler = plan.open(policy, self.sampling)
        return in_environment(policy, sampler, self.sampling, self.environment, self.episodes)

    @property
    def needs_reference(self) -> bool:
        plugins = (*self.plugins().values(), self.sampler)
        if any("logp_ref" in getattr(plugin, "needs", ()) for plugin in plugins):
            return True
        if self.report_kl is not None:
            return self.report_kl
        return self.lora.rank > 0 or any(getattr(plugin, "reads_kl", False) for plugin in plugins)

    @property
    def needs_teacher(self) -> bool:
        return any("teacher_kl" in getattr(plugin, "needs", ()) for plugin in self.plugins().values())

    @property
    def losses(self) -> tuple[AuxiliaryLoss, ...]:
        """Every auxiliary loss that counts, the KL section's first."""
        return (*((self.kl,) if self.kl.coefficient else ()), *self.auxiliary)

    @property
    def aggregator(self) -> LossAggregator:
        """The aggregation with its constant length filled in."""
        if isinstance(self.aggregation, LossAggregation):
            return replace(self.aggregation, max_length=self.aggregation.max_length or self.sampling.max_new_tokens)
        return self.aggregation

    def plugins(self) -> dict[str, Any]:
        """Every plug-in that is described here, by a name that is the same in the next process."""
        single = {
            "contexts": self.contexts,
            "environment": self.environment,
            "reward": self.reward,
            "estimator": self.estimator,
            "objective": self.objective,
            "aggregation": self.aggregation,
            "replay": self.replay,
        }
        chains: dict[str, tuple[Any, ...]] = {
            "filters": self.filters,
            "shaping": self.shaping,
            "modulators": self.modulators,
            "corrections": self.corrections,
            "token_weights": self.token_weights,
            "auxiliary": self.losses,
            "schedules": self.schedules,
            "metrics": self.metrics,
            "stop": self.stop,
        }
        by_name = {name: plugin for name, plugin in single.items() if plugin is not None}
        return by_name | {f"{name}_{i}": plugin for name, chain in chains.items() for i, plugin in enumerate(chain)}
