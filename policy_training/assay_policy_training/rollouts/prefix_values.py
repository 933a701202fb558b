"""Values of a response's steps by Monte Carlo: its prefixes are continued by a policy, and the continuations rewarded.

Covers: the value before the first step and after each, from rollouts of any policy (the policy's own Q, or that of a
different prover); the prover best-of-K of it; the reward part `process` that measures them during a run. A prefix that
several responses share is continued once, and its random numbers follow from its text alone. The value of a whole
response is its own reward. Leaves out: what is made of the values (`plugins.modulators`, `estimators`, `shaping`).

Sources: soft labels from completions, Math-Shepherd arXiv 2312.08935 (recalled); a prover other than the policy and
best-of-K of it, arXiv 2410.08146 (PAV; abstract and notes). The value under best-of-K is estimated without bias from
n >= K continuations (arXiv 2107.03374, 2210.10760), rather than as 1 - (1 - Q)^K of an estimated Q. The standard error
of a value from n continuations is sqrt(p (1 - p) / n): .18 for 8 at p = .5.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any
from urllib.parse import parse_qsl

import torch
from annotated_types import Ge, Gt

from assay.errors import BadInputError
from assay.ids import prompt_id
from assay.models.attention.packing import unwrapped
from assay.models.loading import context_length
from assay.score import Score, ScoreFailure
from assay.settings import check_settings
from assay.statistics.best_of_n import expected_best
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import RECORD, RESPONSES, PromptItem
from assay_policy_training.core.sampling import Sampling, derived_seed
from assay_policy_training.core.steps import SEPARATOR, split_steps, with_step_values
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.protocols import Rewards, RewardSource
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.rollouts.prompt_length import context_tokens, too_long
from assay_policy_training.rollouts.rewards import VerifierReward, composed, gather_rewards

ROWS_AT_ONCE = 2048  #: continuations held at once
REMEMBERED = 100_000  #: values of prefixes that a prover keeps


@dataclass(frozen=True)
class PrefixSettings:
    """`samples`: continuations of each prefix. `best_of`: the prover is best-of-K of the policy. `max_new_tokens`: of a
    continuation. `stop`: texts that end one. Raises BadInputError for fewer samples than `best_of`."""

    samples: Annotated[int, Ge(1)] = 8
    best_of: Annotated[int, Ge(1)] = 1
    max_new_tokens: Annotated[int, Ge(1)] = 128
    temperature: Annotated[float, Gt(0)] = 1.0
    separator: str = SEPARATOR
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.best_of > self.samples:
            raise BadInputError(f"best of {self.best_of} cannot be estimated from fewer samples", field="samples")
        if not self.separator:
            raise BadInputError("must not be empty", field="separator")

    @classmethod
    def read(cls, text: str) -> "PrefixSettings":
        """Of `samples=16&best_of=4`, as in a URL. Raises BadInputError."""
        kinds = {name: type(getattr(cls(), name)) for name in cls.__dataclass_fields__}
        values: dict[str, Any] = {}
        for name, setting in parse_qsl(text, keep_blank_values=True):
            if name not in kinds:
                raise BadInputError(f"no such setting; there are {', '.join(kinds)}", field=name)
            try:
                values[name] = kinds[name](setting) if name != "stop" else (*values.get(name, ()), setting)
            except ValueError:
                raise BadInputError(f"not a number: {setting!r}", field=name) from None
        return cls(**values)


@dataclass(frozen=True, slots=True)
class PrefixValue:
    """`tried`: rewards that it is the mean of (of best-of-K: estimated from); `correct`: how many of them were 1, where
    it is the mean of rewards that are all 0 or 1."""

    value: float
    tried: int
    correct: int | None


class PrefixEstimator:
    """Values under `policy` of responses in steps, by `rewards` (their parts are added; default: the verifier).
    `remembered`: values kept for later calls; the same come of continuing again, as random numbers follow from texts,
    as long as the policy stays as it is."""

    def __init__(
        self,
        policy: Policy,
        settings: PrefixSettings,
        rewards: Sequence[RewardSource] | None = None,
        *,
        remembered: int = 0,
    ) -> None:
        self._known: dict[tuple[str, str], PrefixValue] = {}
        self._remembered = remembered
        self.policy, self.settings, self.rewards = policy, settings, rewards or (VerifierReward(),)
        sampling = Sampling(
            max_new_tokens=settings.max_new_tokens, temperature=settings.temperature, stop=settings.stop
        )
        self.sampler = TransformersSampler(policy, sampling)
        self.generated = 0  #: tokens so far

    def values(
        self, items: Sequence[PromptItem], steps: Sequence[Sequence[str]]
    ) -> list[list[PrefixValue] | ScoreFailure]:
        """Of each response, whose text its K steps are when joined: K + 1 values, before the first step and after each,
        the last one its own reward. A response of which one value is missing is a failure."""
        prefixes = [["", *accumulate(row)] for row in steps]
        outcomes = self._rewarded(items, [row[-1] for row in prefixes])
        unvalued: dict[tuple[str, str], PromptItem] = {}
        for prompt, row, outcome in zip(items, prefixes, outcomes, strict=True):
            if not isinstance(outcome, ScoreFailure):
                unvalued.update({(_identity(prompt), prefix): prompt for prefix in row[:-1]})
        by_prefix: dict[tuple[str, str], PrefixValue | ScoreFailure] = {
            key: self._known[key] for key in unvalued.keys() & self._known.keys()
        }
        keys = [key for key in unvalued if key not in by_prefix]
        at_once = max(1, ROWS_AT_ONCE // self.settings.samples)
        for start in range(0, len(keys), at_once):
            part = keys[start : start + at_once]
            by_prefix |= zip(part, self._continued([(unvalued[key], key[1]) for key in part]), strict=True)
        for key in keys:
            value = by_prefix[key]
            if len(self._known) < self._remembered and isinstance(value, PrefixValue):
                self._known[key] = value
        results: list[list[PrefixValue] | ScoreFailure] = []
        for prompt, row, outcome in zip(items, prefixes, outcomes, strict=True):
            if isinstance(outcome, ScoreFailure):
                results.append(outcome)
                continue
            before = [by_prefix[_identity(prompt), prefix] for prefix in row[:-1]]
            values = [*before, self._value([outcome], best_of=1)]
            failure = next((v for v in values if isinstance(v, ScoreFailure)), None)
            results.append([v for v in values if isinstance(v, PrefixValue)] if failure is None else failure)
        return results

    def _key(self, prompt: PromptItem) -> str:
        return f"{prompt_id(prompt.prompt)} {[constraint.to_dict() for constraint in prompt.constraints]}"

    def _continued(self, prefixes: Sequence[tuple[PromptItem, str]]) -> list[PrefixValue | ScoreFailure]:
        """One value for each prefix; the policy goes on where it ends."""
        failures = [self._too_long(prompt, prefix) for prompt, prefix in prefixes]
        fits = [number for number, failure in enumerate(failures) if failure is None]
        values: list[PrefixValue | ScoreFailure] = [f or _NOTHING for f in failures]
        if not fits:
            return values
        size = self.settings.samples
        items = [_begun(*prefixes[number]) for number in fits]
        seeds = [derived_seed(self.settings.seed, self._key(prompt), prefix) for prompt, prefix in prefixes]
        batch = self.sampler.rollout(items, size, seed=[seeds[number] for number in fits], version=0)
        self.generated += int(batch.mask.sum())
        rewards = self._rewarded([prefixes[n][0] for n in fits for _ in range(size)], batch.responses)
        for order, number in enumerate(fits):
            of_prefix = rewards[order * size : (order + 1) * size]
            present = [reward for reward in of_prefix if not isinstance(reward, ScoreFailure)]
            if len(present) >= self.settings.best_of:
                values[number] = self._value(present, best_of=self.settings.best_of)
            else:
                values[number] = next(reward for reward in of_prefix if isinstance(reward, ScoreFailure))
        return values

    def _too_long(self, prompt: PromptItem, prefix: str) -> ScoreFailure | None:
        """Why the policy cannot continue it: positions beyond its own give text without meaning, and no error."""
        if (failure := too_long(prompt, self.policy.renderer)) is not None:
            return failure
        begun = len(self.policy.tokenizer(_begun(prompt, prefix).forced, add_special_tokens=False)["input_ids"])
        needed = context_tokens(prompt, self.policy.renderer) + begun + self.settings.max_new_tokens
        if needed <= (limit := context_length(unwrapped(self.policy.model).config)):
            return None
        message = (
            f"prompt, {begun} tokens of response and a continuation are {needed}, {self.policy.name} reads {limit}"
        )
        return ScoreFailure("too_long", message, self.policy.name)

    def _rewarded(self, items: Sequence[PromptItem], responses: Sequence[str]) -> list[float | ScoreFailure]:
        answers = gather_rewards(self.rewards, items, responses)
        return [
            next(iter(answers.failures[row]), _NOTHING) if math.isnan(reward) else reward
            for row, reward in enumerate(composed(Composition(), answers).tolist())
        ]

    def _value(self, rewards: Sequence[float], *, best_of: int) -> PrefixValue:
        binary = best_of == 1 and all(reward in (0.0, 1.0) for reward in rewards)
        value = float(expected_best(rewards, rewards)[best_of - 1])
        value = min(max(value, min(rewards)), max(rewards))  # rounding must not leave the range of a label
        return PrefixValue(value, len(rewards), int(sum(rewards)) if binary else None)


class ProverReward:
    """S3: step values of every rollout by continuing its prefixes with the prover `policy`, which stays as it is. The
    number of the part `name` is the rollout's own reward by the prompt's constraints."""

    def __init__(self, policy: Policy, settings: PrefixSettings, *, name: str = "process") -> None:
        self.name, self.estimator = name, PrefixEstimator(policy, settings, remembered=REMEMBERED)
        self._version = policy.version

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        policy, separator = self.estimator.policy, self.estimator.settings.separator
        steps = [split_steps(response, separator) for response in responses]
        part: list[float] = []
        failures: list[tuple[ScoreFailure, ...]] = []
        scores: list[Mapping[str, Score]] = []
        for row in self.estimator.values(items, steps):
            if isinstance(row, ScoreFailure):
                part.append(math.nan)
                failures.append((row,))
                scores.append({})
                continue
            start, *after = [v.value for v in row]
            score = Score(after[-1], policy.name, self._version, policy.renderer.template_hash, 0, truncated=False)
            part.append(after[-1])
            failures.append(())
            scores.append({self.name: with_step_values(score, after, start)})
        return Rewards({self.name: torch.tensor(part, dtype=torch.float64)}, failures, scores)


_NOTHING = ScoreFailure("no_reward", "no continuation has a reward")


def _identity(prompt: PromptItem) -> str:
    """All that a reward may read of a prompt, and where its turn begins; not the responses that came with it."""
    meta = {name: entry for name, entry in prompt.meta.items() if name not in (RESPONSES, RECORD)}
    return json.dumps(replace(prompt, meta=meta).to_dict(), default=str)


def _begun(prompt: PromptItem, prefix: str) -> PromptItem:
    """The prompt whose turn begins with the prefix; a response's text already has the item's own forced start."""
    if prompt.forced.startswith(prefix):
        return prompt
    return replace(prompt, forced=prefix if prefix.startswith(prompt.forced) else prompt.forced + prefix)
