"""The rollouts of one step: drawn, rewarded, filtered, and drawn again where the filters ask for more.

Covers: contexts and their retries (S1), the sampler (S2), reward parts and their composition (S3), `acc`, filters (S4)
with bounded refilling: each further round draws only as many prompts as are lacking, so no rollout is left over and all
of a step are of one version. Leaves out: everything after it (`loop`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay_policy_training.batch import RolloutBatch, merged
from assay_policy_training.measures import Stopwatch
from assay_policy_training.prompt_item import PromptItem
from assay_policy_training.recipe import Recipe
from assay_policy_training.rewards import gather, verifier_accuracy
from assay_policy_training.slots import PromptSource, RewardSource, Sampler


@dataclass(frozen=True)
class Collected:
    """A step's rollouts with their rewards. `keep` [B] bool: the rows to train on."""

    batch: RolloutBatch
    keep: Tensor
    prompts_drawn: int
    rounds: int


class Collector:
    """Draws the rollouts of a step. Owns no state of its own: prompts, contexts and filters have theirs."""

    def __init__(
        self, recipe: Recipe, sampler: Sampler, prompts: PromptSource, rewards: Sequence[RewardSource]
    ) -> None:
        self.recipe, self.sampler, self.prompts, self.rewards = recipe, sampler, prompts, list(rewards)
        self.rounds = max((f.rounds for f in recipe.filters), default=1)

    def collect(self, step: int, *, version: int, clock: Stopwatch) -> Collected:
        """Rollouts of `prompts_per_step` prompts that the filters keep, or of as many as `rounds` rounds gave."""
        wanted = self.recipe.sampling.prompts_per_step
        parts: list[RolloutBatch] = []
        keeps: list[Tensor] = []
        groups = drawn = 0
        for number in range(self.rounds):
            items = self.prompts.next(wanted - groups)
            part = self._draw(items, step, number, first=drawn, version=version, clock=clock)
            keep = self._keep(part)
            parts.append(part)
            keeps.append(keep)
            drawn += len(items)
            groups += len({uid for uid, kept in zip(part.uid, keep.tolist(), strict=True) if kept})
            if groups >= wanted:
                break
        return Collected(merged(parts), torch.cat(keeps), drawn, len(parts))

    def _draw(
        self, items: Sequence[PromptItem], step: int, number: int, *, first: int, version: int, clock: Stopwatch
    ) -> RolloutBatch:
        """Rewarded rollouts of `items`, whose groups are numbered from `first`; retries in other contexts included."""
        contexts = self.recipe.contexts
        shown = list(items) if contexts is None else contexts.first(items)
        uids = [f"{step}.{first + index}" for index in range(len(items))]
        batch = self._rollout(shown, uids, derived_seed(self.recipe.seed, step, _purpose(number, 0)), version, clock)
        turn = 0
        while contexts is not None and (redraws := contexts.again(batch, turn := turn + 1)):
            seed = derived_seed(self.recipe.seed, step, _purpose(number, turn))
            more = self._rollout([r.item for r in redraws], [r.uid for r in redraws], seed, version, clock)
            replaced = {r.uid for r in redraws if r.replace}
            stay = [row for row, uid in enumerate(batch.uid) if uid not in replaced]
            batch = merged([batch.select(stay), more]) if stay else more
        return batch

    def _rollout(
        self, items: Sequence[PromptItem], uids: Sequence[str], seed: int, version: int, clock: Stopwatch
    ) -> RolloutBatch:
        size = self.sampler.sampling.group_size
        with clock("sample"):
            batch = self.sampler.rollout(items, size, seed=seed, version=version)
        batch = batch.with_(uid=tuple(uid for uid in uids for _ in range(size)))
        with clock("reward"):
            return self._reward(batch)

    def _reward(self, batch: RolloutBatch) -> RolloutBatch:
        found = gather(self.rewards, batch.items, batch.responses)
        return batch.with_(
            r_parts=found.parts,
            reward=self.recipe.reward(found.parts),
            acc=verifier_accuracy(batch.items, batch.responses),
            failures=tuple(found.failures),
            scores=tuple(found.scores),
        )

    def _keep(self, batch: RolloutBatch) -> Tensor:
        keep = torch.ones(len(batch), dtype=torch.bool)
        for plugin in self.recipe.filters:
            keep &= plugin.keep(batch)
        return keep


def unrewarded(batch: RolloutBatch, keep: Tensor) -> RolloutBatch:
    """Rows that are not trained on take no part in their group's statistics either: their reward is missing."""
    return replace(batch, reward=batch.scored_reward.masked_fill(~keep, torch.nan))


def _purpose(number: int, turn: int) -> str:
    return "rollout" + (f"/{number}" if number or turn else "") + (f"/{turn}" if turn else "")


def derived_seed(seed: int, step: int, purpose: str) -> int:
    """A seed per step and purpose, so that no draw depends on how many draws went before."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{purpose}".encode()).digest()[:7], "big")
