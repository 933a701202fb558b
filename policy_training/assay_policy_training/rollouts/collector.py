"""Collects the rollouts of one step: generated, rewarded, filtered, and refilled where the filters ask for more.

Covers: contexts and their retries (S1), what is generated and by which weights (S2, S14), reward parts and their
composition (S3), `acc`, filters (S4) with bounded refilling: each further round requests only as many prompts as are
lacking, so that no rollout is wasted. With a lag, a bound on staleness, or actors, the first round of a step was
generated beside training (`pool`); retries and refills are generated on demand, by the newest weights. Of several
processes each generates a share of the prompts, or the first has the actors, and all see all rows. Leaves out:
generating (`generate`), everything after collection (`training.loop`).
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from assay.compute.executor import LOCAL
from assay.errors import BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, derived_seed
from assay_policy_training.plugins.environments.record import episode_failure
from assay_policy_training.plugins.protocols import (
    CarriesRows,
    PromptSource,
    PublishesWeights,
    Rewards,
    RewardSource,
    Sampler,
)
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.actor import RolloutActor, check_sampler, frozen_copy, opened_by_trainer
from assay_policy_training.rollouts.generate import (
    RolloutGenerator,
    RolloutRequest,
    Rollouts,
    completed_rows,
    merge_rollouts,
)
from assay_policy_training.rollouts.pool import RolloutPool, actor_pool, thread_pool
from assay_policy_training.rollouts.prompt_length import too_long
from assay_policy_training.rollouts.rewards import composed, join_parts, verifier_accuracy


@dataclass(frozen=True)
class CollectedRollouts:
    """A step's rollouts with their rewards. `keep` [B] bool: the rows to train on."""

    batch: RolloutBatch
    keep: Tensor
    sampling: Sampling  #: the settings that generated them
    staleness: Tensor  #: [B] int64, weight updates since those that generated the row
    prompts_drawn: int
    rounds: int
    seconds_beside: Mapping[str, float]  #: by stage, spent while other steps were trained
    first_acc: Tensor  #: [B'] of every row of the first contexts, before retries replaced failures


class RolloutCollector:
    """Collects the rollouts of a step. Its only state is what is in flight (`pool`); plug-ins keep theirs.

    `sampler`: instead of the recipe's. `on`, `folder`: see `pool.actor_pool`. Raises BadInputError where the sampler
    cannot generate ahead of training.
    """

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        prompts: PromptSource,
        rewards: Sequence[RewardSource],
        sampler: Sampler | None = None,
        *,
        on: str = LOCAL,
        folder: Path | None = None,
    ) -> None:
        self.recipe, self.policy, self.prompts, self.rewards = recipe, policy, prompts, list(rewards)
        asynchrony = recipe.asynchrony
        asynchrony.check_process(on, policy.parallel.world)
        in_thread = asynchrony.ahead > 0 and not asynchrony.actors
        rollout_policy = frozen_copy(policy) if in_thread else policy
        if sampler is not None and (asynchrony.actors or (in_thread and not isinstance(sampler, PublishesWeights))):
            raise BadInputError("this sampler uses the weights under training", field=asynchrony.key)
        plan = opened_by_trainer(recipe.sampler, asynchrony)
        self.sampler: Sampler = sampler or recipe.opened_sampler(rollout_policy, plan)
        self.generator = RolloutGenerator(self.sampler, rewards, chunks=asynchrony.chunks)
        self.pool: RolloutPool | None = None
        if in_thread or asynchrony.actors:
            check_sampler(self.sampler, asynchrony)
            if in_thread:
                self.pool = thread_pool(recipe, policy, RolloutActor(rollout_policy, self.sampler), rewards)
            else:
                self.pool = actor_pool(recipe, policy, rewards, on=on, folder=folder or Path())
        self.rounds = max((f.rounds for f in recipe.filters), default=1)

    def collect(self, step: int, *, version: int, clock: Stopwatch) -> CollectedRollouts:
        """Rollouts of `prompts_per_step` prompts that the filters keep, or of as many as `rounds` rounds gave.

        `version`: of the policy's weights.
        """
        target_groups = self.recipe.sampling.prompts_per_step
        parts: list[RolloutBatch] = []
        keeps: list[Tensor] = []
        first_accuracies: list[Tensor] = []
        groups = prompts = 0
        if self.pool is not None:
            with clock("publish"):
                self.pool.publish(step, version)
        request, rollouts, seconds_beside = self._first_round(step, version, clock)
        sampling = request.sampling
        for round_number in range(self.rounds):
            if round_number:
                request = self._request(step, round_number, target_groups - groups, sampling, first_group=prompts)
                rollouts = self._generate(request, version, clock)
            rewarded = self._rewarded(rollouts, clock)
            first_accuracies.append(_accuracy(rewarded))
            part = self._with_retries(rewarded, request, version, clock)
            keep = self._keep(part)
            parts.append(part)
            keeps.append(keep)
            prompts += len(request.items)
            groups += len({uid for uid, in_use in zip(part.uid, keep.tolist(), strict=True) if in_use})
            if groups >= target_groups:
                break
        if self.pool is None:
            self.generator.release()
        batch = merge_batches(parts)
        return CollectedRollouts(
            batch,
            torch.cat(keeps),
            sampling,
            staleness=version - batch.version,
            prompts_drawn=prompts,
            rounds=len(parts),
            seconds_beside=seconds_beside,
            first_acc=torch.cat(first_accuracies),
        )

    def _first_round(
        self, step: int, version: int, clock: Stopwatch
    ) -> tuple[RolloutRequest, Rollouts, Mapping[str, float]]:
        """The step's first request and its rollouts, and as many requests of later steps as may begin by now."""
        if self.pool is None:
            request = self._first_request(step)
            return request, self._generate(request, version, clock), {}
        for later in range(step, max(step, self.recipe.steps) + 1):
            if not self.pool.admits(later):
                break
            if not self.pool.has(later):
                self.pool.submit(later, self._first_request(later))
        with clock("wait"):
            return self.pool.take(step)

    def _first_request(self, step: int) -> RolloutRequest:
        sampling = scheduled_sampling(self.recipe, step)
        prompts = sampling.prompts_per_step
        if isinstance(self.sampler, CarriesRows):  # rows of earlier steps count towards the batch
            prompts = max(0, prompts - -(-self.sampler.carried() // sampling.group_size))
        return self._request(step, 0, prompts, sampling, first_group=0)

    def _request(
        self, step: int, round_number: int, prompts: int, sampling: Sampling, *, first_group: int
    ) -> RolloutRequest:
        """The request of a round: prompts in their first contexts, groups numbered from `first_group`."""
        items = self.prompts.next(prompts)
        contexts = self.recipe.contexts
        in_context = list(items) if contexts is None else contexts.first(items)
        uids = tuple(f"{step}.{first_group + index}" for index in range(len(items)))
        return RolloutRequest(step, tuple(in_context), uids, self._seeds(uids), sampling)

    def _seeds(self, uids: Sequence[str], turn: int = 0) -> tuple[int, ...]:
        """Of groups that are generated for the `turn`-th time again."""
        return tuple(derived_seed(self.recipe.seed, uid, *([turn] if turn else [])) for uid in uids)

    def _generate(self, request: RolloutRequest, version: int, clock: Stopwatch) -> Rollouts:
        if self.pool is not None:
            with clock("wait"):
                return self.pool.generate_now(request.step, request)
        if self.policy.parallel.world > 1:
            return self._generate_distributed(request, version, clock)
        return self.generator(request, self.policy, version=version, clock=clock)

    def _generate_distributed(self, request: RolloutRequest, version: int, clock: Stopwatch) -> Rollouts:
        """Generate this process's share of the request, and gather those of all processes."""
        parallel = self.policy.parallel
        share = process_share(request, parallel.rank, parallel.world)
        rollouts: Rollouts | None = None
        # An engine's weights are gathered one by one, for it alone.
        has_engine = isinstance(self.sampler, PublishesWeights)
        if has_engine:
            self.generator.publish(self.policy, version, clock)
        with nullcontext() if has_engine else self.policy.gathered_parameters():
            if share.items:
                rollouts = self.generator(share, self.policy, version=version, clock=clock)
        with clock("gather"):
            return merge_rollouts([part for part in parallel.gather(rollouts) if part is not None])

    def _with_retries(
        self, batch: RolloutBatch, request: RolloutRequest, version: int, clock: Stopwatch
    ) -> RolloutBatch:
        """The rows, with those that the context policy asks to generate again."""
        contexts, turn = self.recipe.contexts, 0
        while contexts is not None and (retries := contexts.again(batch, turn := turn + 1)):
            items, uids = tuple(retry.item for retry in retries), tuple(retry.uid for retry in retries)
            if self.recipe.environment is not None:  # the same task again, though other turns are drawn
                items = tuple(
                    replace(item, episode_seed=derived_seed(seed, "environment"))
                    for item, seed in zip(items, self._seeds(uids), strict=True)
                )
            again = replace(request, items=items, uids=uids, seeds=self._seeds(uids, turn))
            more = self._rewarded(self._generate(again, version, clock), clock)
            replaced = {retry.uid for retry in retries if retry.replace}
            stay = [row for row, uid in enumerate(batch.uid) if uid not in replaced]
            batch = merge_batches([batch.select(stay), more]) if stay else more
        return batch

    def _rewarded(self, rollouts: Rollouts, clock: Stopwatch) -> RolloutBatch:
        """The rows with the parts of every source, their composition and the verifier's result."""
        batch = rollouts.batch
        with clock("reward"):
            rows = completed_rows(batch)
            completed = batch.select(rows)
            parallel = self.policy.parallel
            # Sources that wait see the whole batch, so one process calls them for all; and one verifies, since a check
            # that hangs in one process and not in another would have them train on different rows.
            scored: tuple[list[Rewards], Tensor] | None = None
            if parallel.main:
                scored = (
                    self.generator.all_rewards(rollouts),
                    verifier_accuracy(completed.items, completed.responses),
                )
            by_source, accuracy = parallel.share(scored)
            rewards = join_parts(by_source, len(rows))
            reward = composed(self.recipe.reward, rewards) if len(rows) else torch.zeros(0, dtype=torch.float64)
            reward = reward.masked_fill(~reward.isfinite(), torch.nan)
            refused = self._refused(completed.items)
            lacking = torch.tensor([bool(failures) for failures in refused], dtype=torch.bool)
            reward = reward.masked_fill(lacking, torch.nan)
            rewarded = completed.with_(
                r_parts={name: part.masked_fill(lacking, torch.nan) for name, part in rewards.parts.items()},
                reward=reward,
                acc=accuracy,
                failures=tuple(a + b for a, b in zip(refused, rewards.failures, strict=True)),  # the cause first
                scores=tuple(rewards.scores),
            )
        return rewarded if len(rows) == len(batch) else _with_unfinished(batch, rewarded, rows)

    def _refused(self, items: Sequence[PromptItem]) -> list[tuple[ScoreFailure, ...]]:
        """Of each row, why it gets no reward whatever sources say: its episode failed, or its context, with what was
        added to the prompt, had to be cut."""
        by_item = {id(item): episode_failure(item) or too_long(item, self.policy.renderer) for item in items}
        failures = [by_item[id(item)] for item in items]
        return [() if failure is None else (failure,) for failure in failures]

    def _keep(self, batch: RolloutBatch) -> Tensor:
        keep = batch.counted  # whatever the filters say: a row without a reward teaches nothing
        for row_filter in self.recipe.filters:
            keep = keep & row_filter.keep(batch)
        return keep


def _accuracy(batch: RolloutBatch) -> Tensor:
    """[B] float64, NaN where there is none."""
    return torch.full((len(batch),), torch.nan, dtype=torch.float64) if batch.acc is None else batch.acc


def _with_unfinished(batch: RolloutBatch, rewarded: RolloutBatch, rows: Tensor) -> RolloutBatch:
    """All rows of `batch`: the `rewarded` ones, at the indices `rows`, and the unfinished ones without a reward."""

    def wide(values: Tensor) -> Tensor:
        return torch.full((len(batch),), torch.nan, dtype=torch.float64).index_copy(0, rows, values.double())

    index = {row: number for number, row in enumerate(rows.tolist())}
    numbers = [index.get(row) for row in range(len(batch))]
    assert rewarded.acc is not None
    return batch.with_(
        r_parts={name: wide(values) for name, values in rewarded.r_parts.items()},
        reward=wide(rewarded.scored_reward),
        acc=wide(rewarded.acc),
        failures=tuple(() if n is None else rewarded.failures[n] for n in numbers),
        scores=tuple({} if n is None else rewarded.scores[n] for n in numbers),
    )


def process_share(request: RolloutRequest, rank: int, world: int) -> RolloutRequest:
    """The part of a request for process `rank`: consecutive prompts with their own seeds."""
    return request.part(slice(*(len(request.items) * number // world for number in (rank, rank + 1))))


def scheduled_sampling(recipe: Recipe, step: int) -> Sampling:
    """The recipe's sampling settings as the schedules change them for this step."""
    sampling = recipe.sampling
    length, temperature = float(sampling.max_new_tokens), sampling.temperature
    for schedule in recipe.schedules:
        length = schedule.value("max_new_tokens", length, step)
        temperature = schedule.value("temperature", temperature, step)
    return replace(sampling, max_new_tokens=max(1, round(length)), temperature=temperature)


def without_reward(batch: RolloutBatch, keep: Tensor) -> RolloutBatch:
    """Rows that are not trained on take no part in their group's statistics either: their reward is missing."""
    return replace(batch, reward=batch.scored_reward.masked_fill(~keep, torch.nan))
