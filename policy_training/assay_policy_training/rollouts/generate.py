"""Generates the rollouts of one request, and requests the rewards that need not wait.

Covers: publishing weights to a sampler that has its own, generation, scoring of rows that are finished while others are
still generated. All inputs are in a `RolloutRequest`, so that another thread may carry it out later. Leaves out: what
to request, retries, filters (`collector`), generating beside training (`pool`).

Reward sources that compare the rows of a batch say `whole_batch = True`; these, and those with memory, are called later
in the trainer's own thread (`RolloutGenerator.all_rewards`).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch, merge_batches
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import (
    Observer,
    PublishesWeights,
    Rewards,
    RewardSource,
    Sampler,
    Stateful,
    StreamingSampler,
)


@dataclass(frozen=True)
class RolloutRequest:
    """What to generate. `items`: prompts in the context that the policy sees; `uids`: of their groups."""

    step: int  #: that trains on it
    items: tuple[PromptItem, ...]
    uids: tuple[str, ...]
    seeds: tuple[int, ...]  #: of their groups
    sampling: Sampling

    def part(self, prompts: slice) -> "RolloutRequest":
        """The request for some of the prompts."""
        return replace(self, items=self.items[prompts], uids=self.uids[prompts], seeds=self.seeds[prompts])


@dataclass(frozen=True)
class Rollouts:
    """`rewards`: one entry per source, in their order; None = not requested yet."""

    batch: RolloutBatch
    rewards: tuple[Rewards | None, ...]


class RolloutGenerator:
    """Carries out rollout requests with `sampler`, one at a time."""

    def __init__(self, sampler: Sampler, rewards: Sequence[RewardSource], *, chunks: int = 1) -> None:
        self.sampler, self.rewards, self.chunks = sampler, list(rewards), chunks
        self.published: int | None = None  #: version of the weights that a sampler with its own weights has

    def __call__(self, request: RolloutRequest, policy: Policy, *, version: int, clock: Stopwatch) -> Rollouts:
        """Rollouts of `policy`, whose weights have that version. Raises what the sampler and the sources raise."""
        self.publish(policy, version, clock)
        self.sampler.sampling = request.sampling
        group_size = request.sampling.group_size
        parts: list[RolloutBatch] = []
        if self.chunks == 1 or not isinstance(self.sampler, StreamingSampler):
            with clock("sample"):
                parts.append(self.sampler.rollout(request.items, group_size, seed=request.seeds, version=version))
            with clock("reward"):
                rewards = [self._score(parts[0])]
        else:
            with ThreadPoolExecutor(1, thread_name_prefix="rewards") as thread:
                futures: list[Future[list[Rewards | None]]] = []
                with clock("sample"):
                    for part in self._portions(self.sampler, request, version):
                        parts.append(part)
                        futures.append(thread.submit(copy_context().run, self._score, part))  # with the span around it
                with clock("reward"):
                    rewards = [future.result() for future in futures]
        new_uids = tuple(uid for uid in request.uids for _ in range(group_size))
        batch = merge_batches(parts)
        batch = batch.with_(uid=batch.uid[: len(batch) - len(new_uids)] + new_uids)  # carried rows come first
        return Rollouts(batch, tuple(_concatenated(by_source) for by_source in zip(*rewards, strict=True)))

    def publish(self, policy: Policy, version: int, clock: Stopwatch) -> None:
        """Give a sampler with its own weights the policy's, where it has others. Of several processes all call this."""
        if isinstance(self.sampler, PublishesWeights) and self.published != version:
            self.published = None
            with clock("publish"):
                self.sampler.publish(policy, version)
            self.published = version

    def release(self) -> None:
        """No rollouts until the next update."""
        if isinstance(self.sampler, PublishesWeights) and self.published is not None:
            self.sampler.release()
            self.published = None

    def all_rewards(self, rollouts: Rollouts) -> list[Rewards]:
        """The rewards of all sources, those that had to wait included, of the completed rows."""
        return [
            score_completed(source, rollouts.batch) if rewards is None else rewards
            for source, rewards in zip(self.rewards, rollouts.rewards, strict=True)
        ]

    def _portions(self, sampler: StreamingSampler, request: RolloutRequest, version: int) -> Iterator[RolloutBatch]:
        """The rows in order, in at most `chunks` portions."""
        group_size = request.sampling.group_size
        portion_rows = -(-len(request.items) * group_size // self.chunks)
        pending: list[RolloutBatch] = []
        for part in sampler.stream(request.items, group_size, seed=request.seeds, version=version):
            pending.append(part)
            if sum(map(len, pending)) >= portion_rows:
                yield merge_batches(pending)
                pending = []
        if pending:
            yield merge_batches(pending)

    def _score(self, part: RolloutBatch) -> list[Rewards | None]:
        return [None if needs_whole_batch(source) else score_completed(source, part) for source in self.rewards]


def merge_rollouts(parts: Sequence[Rollouts]) -> Rollouts:
    """Rollouts of consecutive prompts in one."""
    rewards = tuple(_concatenated(by_source) for by_source in zip(*(part.rewards for part in parts), strict=True))
    return Rollouts(merge_batches([part.batch for part in parts]), rewards)


def completed_rows(batch: RolloutBatch) -> Tensor:
    """Indices of the rows that no later step continues: those that can be rewarded now."""
    rows = torch.arange(len(batch))
    return rows if batch.unfinished is None else rows[~batch.unfinished]


def score_completed(source: RewardSource, batch: RolloutBatch) -> Rewards:
    """A source's rewards of the completed rows; it is not called where there are none."""
    rows = completed_rows(batch).tolist()
    if not rows:
        return Rewards({}, (), ())
    return source.score([batch.items[row] for row in rows], [batch.responses[row] for row in rows])


def needs_whole_batch(source: RewardSource) -> bool:
    """Whether a source must see a whole batch, or see batches in the order in which they are trained on."""
    return bool(getattr(source, "whole_batch", False)) or isinstance(source, Stateful | Observer)


def _concatenated(portions: Sequence[Rewards | None]) -> Rewards | None:
    """One source's rewards of all portions; a part that a portion lacks is missing for its rows."""
    rewards = [portion for portion in portions if portion is not None]
    if not rewards:
        return None
    if len(rewards) == 1:
        return rewards[0]
    names = dict.fromkeys(name for portion in rewards for name in portion.parts)
    gaps = [torch.full((len(portion.failures),), torch.nan, dtype=torch.float64) for portion in rewards]
    return Rewards(
        parts={
            name: torch.cat([portion.parts.get(name, gap) for portion, gap in zip(rewards, gaps, strict=True)])
            for name in names
        },
        failures=[row for portion in rewards for row in portion.failures],
        scores=[row for portion in rewards for row in portion.scores],
    )
