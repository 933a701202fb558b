"""Evaluation of a policy on held-out prompts, before and after training and every n steps, with the same seed.

Covers: mean reward through the same client as in training, the verifier's pass rate with its interval, length, KL to
the reference, the change between two evaluations of the same prompts; contexts that are part of the task
(`protocols.TaskContext`, such as a direction of preference). Hints are help in training, and are not shown. Leaves out:
comparing with another policy, over-optimisation against a held-out reward model (give it as one more reward source of
weight 0).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import torch

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, bounds, clustered_mean, share_interval
from assay.statistics.pass_at_k import estimates_at, powers_to
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.environments.record import episode_failure
from assay_policy_training.plugins.protocols import (
    ContextPolicy,
    RewardComposition,
    RewardSource,
    Sampler,
    StepReport,
    TaskContext,
)
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.rollouts.rewards import composed, gather_rewards, verifier_accuracy

SCORED_AT_ONCE = 8  # rows


@dataclass(frozen=True)
class PassRate:
    """A share with its 95 % interval (`assay.statistics.intervals.share_interval`), by prompts, since rollouts of one
    prompt pass and fail together."""

    passed: int
    total: int
    share: float
    low: float | None  #: None: undetermined, too few prompts
    high: float | None

    @classmethod
    def of(cls, passed: Sequence[float], prompts: Sequence[str]) -> "PassRate":
        """Of rollouts that passed (1) or not (0), each with its prompt; at least one."""
        count, total = int(sum(passed)), len(passed)
        interval = share_interval(passed, prompts)
        return cls(count, total, count / total, *bounds(interval))

    @property
    def interval(self) -> Interval | None:
        return None if self.low is None or self.high is None else Interval(self.low, self.high)


@dataclass(frozen=True)
class PassAtKFigure:
    """pass@k, mean over the `prompts` that have k verdicts, with its 95 % interval (None: undetermined)."""

    k: int
    value: float
    low: float | None
    high: float | None
    prompts: int

    @classmethod
    def all_of(cls, verdicts: Sequence[tuple[int, int]]) -> "tuple[PassAtKFigure, ...]":
        """For k = 1, 2, 4, ..., from (verdicts, right ones) of each prompt."""
        by_prompt = {str(prompt): counts for prompt, counts in enumerate(verdicts)}
        estimates = {k: estimates_at(by_prompt, k) for k in powers_to(max((n for n, _ in verdicts), default=0))}
        return tuple(
            cls(k, fmean(of.values()), *bounds(share_interval(list(of.values()), list(of))), len(of))
            for k, of in estimates.items()
        )


@dataclass(frozen=True)
class PolicyEvaluation:
    """Of `prompts` x `samples` rollouts. None where there was nothing to measure it by."""

    prompts: int
    samples: int
    seed: int
    rewards_missing: int
    reward_mean: float | None
    reward_std: float | None
    reward_standard_error: float | None  #: of the mean, over prompts: samples of one prompt are not independent
    verifier: PassRate | None  #: all constraints of a prompt met
    length_mean: float  #: tokens
    truncated_share: float
    entropy: float  #: nats per token
    kl_k1: float | None  #: nats per token, to the reference
    kl_k3: float | None
    #: Means over the samples of each prompt, in the order of the prompts; None where nothing was measured.
    prompt_rewards: tuple[float | None, ...] = field(default=(), repr=False)
    prompt_pass_rates: tuple[float | None, ...] = field(default=(), repr=False)
    #: Of each prompt: samples with a verdict, and those that passed.
    prompt_verdicts: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    pass_at_k: tuple[PassAtKFigure, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The figures, without those of each prompt."""
        return {name: value for name, value in asdict(self).items() if not name.startswith("prompt_")}

    def figures(self) -> dict[str, float | None]:
        """The figures that a step of training has; None: not measured."""
        figures = {
            "reward_mean": self.reward_mean,
            "rewards_missing": float(self.rewards_missing),
            "pass_rate": self.verifier.share if self.verifier else None,
            "length_mean": self.length_mean,
            "truncated_share": self.truncated_share,
            "entropy": self.entropy,
            "kl_k3": self.kl_k3,
        }
        # the first is the pass rate
        return figures | {f"pass_at_{figure.k}": figure.value for figure in self.pass_at_k[1:]}


class ScheduledEvaluation:
    """S16: evaluates every `every` steps. The step's metrics get the figures as `eval_FIGURE`, of several sets as
    `eval_SET_FIGURE`. `evaluate`: from what the evaluation is called, and the policy, to the
    evaluations by set; of the processes that join them, to none."""

    joined = True

    def __init__(self, every: int, evaluate: Callable[[str, Policy], Mapping[str, PolicyEvaluation]]) -> None:
        self.every, self._evaluate = every, evaluate
        self._policy: Policy | None = None

    def attach(self, policy: Policy) -> None:
        self._policy = policy

    def measure(self, report: StepReport) -> dict[str, float]:
        if report.step % self.every or self._policy is None:
            return {}
        started = time.monotonic()
        figures = step_figures(self._evaluate(f"at step {report.step}", self._policy))
        measured = {name: value for name, value in figures.items() if value is not None}
        return {**measured, "eval_seconds": time.monotonic() - started}


def step_figures(evaluations: Mapping[str, PolicyEvaluation]) -> dict[str, float | None]:
    """The figures of evaluations by set, under their names among the metrics of a step."""
    return {
        f"eval_{f'{name}_' if len(evaluations) > 1 else ''}{figure}": value
        for name, evaluation in evaluations.items()
        for figure, value in evaluation.figures().items()
    }


@dataclass(frozen=True)
class Change:
    """`value`: mean over the `prompts` that both evaluations measured, after - before. The 95 % interval is over
    prompts, each compared with itself; None: undetermined."""

    value: float
    interval: Interval | None
    prompts: int

    def to_dict(self) -> dict[str, Any]:
        low, high = bounds(self.interval)
        return {"value": self.value, "low": low, "high": high, "prompts": self.prompts}


@dataclass(frozen=True)
class PolicyChange:
    """Between two evaluations of the same prompts. None where one of them did not measure it."""

    reward: Change | None
    pass_rate: Change | None
    pass_at_k: Mapping[int, Change] = field(default_factory=dict)

    @classmethod
    def between(cls, before: PolicyEvaluation, after: PolicyEvaluation) -> "PolicyChange":
        """Raises BadInputError for evaluations of different numbers of prompts."""
        if before.prompts != after.prompts:
            raise BadInputError(f"{before.prompts} prompts before and {after.prompts} after have no change in common")
        return cls(
            _change(before.prompt_rewards, after.prompt_rewards),
            _change(before.prompt_pass_rates, after.prompt_pass_rates),
            _pass_at_k_changes(before, after),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "reward": self.reward.to_dict() if self.reward else None,
            "pass_rate": self.pass_rate.to_dict() if self.pass_rate else None,
            "pass_at_k": [{"k": k, **change.to_dict()} for k, change in self.pass_at_k.items()],
        }


def _change(before: Sequence[float | None], after: Sequence[float | None]) -> Change | None:
    pairs = zip(before, after, strict=True)
    changes = {str(prompt): b - a for prompt, (a, b) in enumerate(pairs) if a is not None and b is not None}
    if not changes:
        return None
    values = list(changes.values())
    return Change(sum(values) / len(values), clustered_mean(values, list(changes)), len(values))


def _pass_at_k_changes(before: PolicyEvaluation, after: PolicyEvaluation) -> dict[int, Change]:
    changes = {}
    for k in (figure.k for figure in after.pass_at_k):
        sides = []
        for evaluation in (before, after):
            estimates = estimates_at({str(p): counts for p, counts in enumerate(evaluation.prompt_verdicts)}, k)
            sides.append([estimates.get(str(prompt)) for prompt in range(len(evaluation.prompt_verdicts))])
        if (change := _change(*sides)) is not None:
            changes[k] = change
    return changes


def evaluate_policy(
    policy: Policy,
    items: Sequence[PromptItem],
    rewards: Sequence[RewardSource],
    *,
    sampling: Sampling,
    samples: int = 4,
    seed: int = 0,
    composition: RewardComposition | None = None,
    contexts: ContextPolicy | TaskContext | None = None,
    sampler: Sampler | None = None,
) -> PolicyEvaluation:
    """Generate `samples` rollouts per prompt and measure them. The same seed and weights give the same rollouts.
    `sampler`: of the policy's own weights, e.g. in an environment.

    Raises BadInputError for no prompts, and what the reward sources raise.
    """
    if not items or samples < 1:
        raise BadInputError("an evaluation needs at least one prompt and one sample", field="evaluation")
    if isinstance(contexts, TaskContext):
        items = contexts.evaluated(items)
    sampler = sampler or TransformersSampler(policy, sampling)
    with policy.gathered_parameters():
        batch = sampler.rollout(items, samples, seed=seed, version=0)
    if policy.parallel.equal_passes:
        policy.parallel.share(batch)
    reward = composed(composition or Composition(), gather_rewards(rewards, batch.items, batch.responses))
    failed = torch.tensor([episode_failure(item) is not None for item in batch.items])
    reward = reward.masked_fill(failed, torch.nan)
    prompt_rewards = reward.view(len(items), samples).nanmean(1)
    per_prompt = prompt_rewards[~prompt_rewards.isnan()]
    present = reward[~reward.isnan()]
    accuracy = verifier_accuracy(batch.items, batch.responses)
    checked = [row for row, passed in enumerate(accuracy.isnan().tolist()) if not passed]
    by_prompt = accuracy.view(len(items), samples)
    verdicts = tuple(zip((~by_prompt.isnan()).sum(1).tolist(), by_prompt.nansum(1).int().tolist(), strict=True))
    measured = _token_means(policy, batch, sampling)
    return PolicyEvaluation(
        prompts=len(items),
        samples=samples,
        seed=seed,
        rewards_missing=len(reward) - len(present),
        reward_mean=float(present.mean()) if len(present) else None,
        reward_std=float(present.std(correction=0)) if len(present) else None,
        reward_standard_error=float(per_prompt.std() / math.sqrt(len(per_prompt))) if len(per_prompt) > 1 else None,
        verifier=PassRate.of(accuracy[checked].tolist(), [batch.uid[row] for row in checked]) if checked else None,
        length_mean=float(batch.lengths.double().mean()),
        truncated_share=float(batch.truncated.double().mean()),
        entropy=measured["entropy"],
        kl_k1=measured.get("kl_k1"),
        kl_k3=measured.get("kl_k3"),
        prompt_rewards=_numbers(prompt_rewards),
        prompt_pass_rates=_numbers(accuracy.double().view(len(items), samples).nanmean(1)),
        prompt_verdicts=verdicts,
        pass_at_k=PassAtKFigure.all_of(verdicts),
    )


def join_evaluation(policy: Policy, sampling: Sampling) -> None:
    """What the other processes do while the first evaluates a policy whose weights are divided: it samples alone, all
    score."""
    with policy.gathered_parameters():
        pass
    batch: RolloutBatch = policy.parallel.share(None)
    _token_means(policy, batch, sampling)


@torch.no_grad()
def _token_means(policy: Policy, batch: RolloutBatch, sampling: Sampling) -> dict[str, float]:
    means = TokenMeans()
    drawn_by: dict[str, Any] = {"temperature": sampling.temperature, "prune_log_ratio": sampling.prune_log_ratio}
    for start in range(0, len(batch), SCORED_AT_ONCE):
        part = batch.select(range(start, min(start + SCORED_AT_ONCE, len(batch))))
        scores = policy.scores(part, **drawn_by)
        mask = part.mask.to(policy.device)
        means.add("entropy", scores.entropy, mask)
        if policy.has_reference:
            means.add_kl(scores.logp, policy.reference_logp(part, **drawn_by), mask)
    return means.to_dict()


def _numbers(values: torch.Tensor) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values.tolist())
