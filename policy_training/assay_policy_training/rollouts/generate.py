"""One draw of rollouts with the rewards that can be asked for at once.

Covers: telling a sampler with weights of its own which to take, generating, asking for rewards of the rows that are
finished while others are generated. What it needs is in a `Draw`, so that it may run in another thread, later than
it was decided. Leaves out: deciding it, retries, filters (`collection`), which thread (`ahead`).

Reward sources that compare the rows of a batch say `whole_batch = True`; these, and those with memory, are asked in
the trainer's own thread when the draw is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from assay_policy_training.core.batch import RolloutBatch, merged
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import (
    Observer,
    Publishes,
    Rewards,
    RewardSource,
    Sampler,
    Stateful,
    Streams,
)


@dataclass(frozen=True)
class Draw:
    """What is to be drawn. `items`: as the policy is shown them; `uids`: of their groups."""

    step: int  #: that trains on it
    items: tuple[PromptItem, ...]
    uids: tuple[str, ...]
    seed: int
    sampling: Sampling


@dataclass(frozen=True)
class Drawn:
    """`rewards`: by source, in their order; None = not asked yet."""

    batch: RolloutBatch
    rewards: tuple[Rewards | None, ...]


class Drawer:
    """Carries out draws, one at a time, with `sampler`."""

    def __init__(self, sampler: Sampler, rewards: Sequence[RewardSource], *, chunks: int = 1) -> None:
        self.sampler, self.rewards, self.chunks = sampler, list(rewards), chunks
        self.published: int | None = None  #: version of the weights that a sampler with its own has

    def __call__(self, draw: Draw, policy: Policy, *, version: int, clock: Stopwatch) -> Drawn:
        """Rollouts by `policy`, whose weights are of `version`. Raises what sampler and sources raise."""
        if isinstance(self.sampler, Publishes) and self.published != version:
            self.published = None
            with clock("publish"):
                self.sampler.publish(policy, version)
            self.published = version
        self.sampler.sampling = draw.sampling
        size = draw.sampling.group_size
        parts: list[RolloutBatch] = []
        if self.chunks == 1 or not isinstance(self.sampler, Streams):
            with clock("sample"):
                parts.append(self.sampler.rollout(draw.items, size, seed=draw.seed, version=version))
            with clock("reward"):
                answers = [self._ask(parts[0])]
        else:
            with ThreadPoolExecutor(1, thread_name_prefix="rewards") as thread:
                asked: list[Future[list[Rewards | None]]] = []
                with clock("sample"):
                    for part in self._portions(self.sampler, draw, version):
                        parts.append(part)
                        asked.append(thread.submit(self._ask, part))
                with clock("reward"):
                    answers = [future.result() for future in asked]
        new = tuple(uid for uid in draw.uids for _ in range(size))
        batch = merged(parts)
        batch = batch.with_(uid=batch.uid[: len(batch) - len(new)] + new)  # rows of earlier steps come first
        rewards = tuple(_concatenated(found) for found in zip(*answers, strict=True))
        return Drawn(batch, rewards)

    def rest(self, drawn: Drawn) -> list[Rewards]:
        """The rewards of all sources, those that had to wait included, of the rows that are done."""
        return [
            answer(source, drawn.batch) if found is None else found
            for source, found in zip(self.rewards, drawn.rewards, strict=True)
        ]

    def _portions(self, sampler: Streams, draw: Draw, version: int) -> Iterator[RolloutBatch]:
        """The rows in order, in at most `chunks` portions."""
        size = draw.sampling.group_size
        wanted = -(-len(draw.items) * size // self.chunks)
        waiting: list[RolloutBatch] = []
        for part in sampler.stream(draw.items, size, seed=draw.seed, version=version):
            waiting.append(part)
            if sum(map(len, waiting)) >= wanted:
                yield merged(waiting)
                waiting = []
        if waiting:
            yield merged(waiting)

    def _ask(self, part: RolloutBatch) -> list[Rewards | None]:
        return [None if waits(source) else answer(source, part) for source in self.rewards]


def drawn_together(parts: Sequence[Drawn]) -> Drawn:
    """Draws of consecutive prompts as one."""
    rewards = tuple(_concatenated(found) for found in zip(*(part.rewards for part in parts), strict=True))
    return Drawn(merged([part.batch for part in parts]), rewards)


def done(batch: RolloutBatch) -> Tensor:
    """Indices of the rows that do not go on: those that have a reward to come now."""
    rows = torch.arange(len(batch))
    return rows if batch.unfinished is None else rows[~batch.unfinished]


def answer(source: RewardSource, batch: RolloutBatch) -> Rewards:
    """What a source says of the rows that are done; of none nothing is asked."""
    rows = done(batch).tolist()
    if not rows:
        return Rewards({}, (), ())
    return source.score([batch.items[row] for row in rows], [batch.responses[row] for row in rows])


def waits(source: RewardSource) -> bool:
    """Whether a source must see a whole batch, or see batches in the order in which they are trained on."""
    return bool(getattr(source, "whole_batch", False)) or isinstance(source, Stateful | Observer)


def _concatenated(found: Sequence[Rewards | None]) -> Rewards | None:
    """One source's answers about portions; a part that one of them lacks is missing there."""
    answers = [answer for answer in found if answer is not None]
    if not answers:
        return None
    if len(answers) == 1:
        return answers[0]
    names = dict.fromkeys(name for answer in answers for name in answer.parts)
    gaps = [torch.full((len(answer.failures),), torch.nan, dtype=torch.float64) for answer in answers]
    return Rewards(
        parts={
            name: torch.cat([a.parts.get(name, gap) for a, gap in zip(answers, gaps, strict=True)]) for name in names
        },
        failures=[row for answer in answers for row in answer.failures],
        scores=[row for answer in answers for row in answer.scores],
    )
