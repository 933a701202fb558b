"""The rollouts of one step: drawn, rewarded, filtered, and drawn again where the filters ask for more.

Covers: contexts and their retries (S1), what is drawn and by which weights (S2, S14), reward parts and their
composition (S3), `acc`, filters (S4) with bounded refilling: each further round draws only as many prompts as are
lacking, so no rollout is left over. With a lag the first draw of a step was made while earlier steps were trained;
retries and refills are drawn when they are asked for, by the newest weights that the copy was given. Of several
processes each draws and rewards a share of the prompts, and all go on with all rows. Leaves out: generating
(`drawing`), the copy (`ahead`), everything after it (`loop`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch, merged
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.protocols import (
    Carries,
    Observer,
    PromptSource,
    Publishes,
    RewardSource,
    Sampler,
    Stateful,
)
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.generate import Draw, Drawer, Drawn, done, drawn_together
from assay_policy_training.rollouts.prefetch import Ahead, frozen_copy
from assay_policy_training.rollouts.rewards import side_by_side, verifier_accuracy


@dataclass(frozen=True)
class Collected:
    """A step's rollouts with their rewards. `keep` [B] bool: the rows to train on."""

    batch: RolloutBatch
    keep: Tensor
    sampling: Sampling  #: that they were drawn by
    staleness: Tensor  #: [B] int64, updates of the weights since those that drew the row
    prompts_drawn: int
    rounds: int
    beside: Mapping[str, float]  #: seconds by stage, beside the training of other steps
    first_acc: Tensor  #: [B'] of every row as first drawn, before contexts replaced what failed


class Collector:
    """Draws the rollouts of a step. Its only state is what is under way (`ahead`); plug-ins have theirs.

    `sampler`: instead of the recipe's. Raises BadInputError where a lag is asked of a sampler that cannot have one.
    """

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        prompts: PromptSource,
        rewards: Sequence[RewardSource],
        sampler: Sampler | None = None,
    ) -> None:
        self.recipe, self.policy, self.prompts, self.rewards = recipe, policy, prompts, list(rewards)
        self.lag = recipe.asynchrony.lag
        if self.lag and (world := policy.parallel.world) > 1:
            raise BadInputError(f"rollouts cannot be drawn ahead in {world} processes", field="asynchrony.lag")
        drawn_by = frozen_copy(policy) if self.lag else policy
        if self.lag and sampler is not None and not isinstance(sampler, Publishes):
            raise BadInputError("this sampler draws by the weights under training", field="asynchrony.lag")
        self.sampler: Sampler = sampler or recipe.sampler.open(drawn_by, recipe.sampling)
        if self.lag and isinstance(self.sampler, Stateful | Observer):
            raise BadInputError("a sampler with memory cannot draw ahead", field="asynchrony.lag")
        self.drawer = Drawer(self.sampler, rewards, chunks=recipe.asynchrony.chunks)
        self.ahead = Ahead(policy, drawn_by, self.drawer) if self.lag else None
        self.rounds = max((f.rounds for f in recipe.filters), default=1)

    def collect(self, step: int, *, version: int, clock: Stopwatch) -> Collected:
        """Rollouts of `prompts_per_step` prompts that the filters keep, or of as many as `rounds` rounds gave.

        `version`: of the policy's weights.
        """
        wanted = self.recipe.sampling.prompts_per_step
        parts: list[RolloutBatch] = []
        keeps: list[Tensor] = []
        firsts: list[Tensor] = []
        groups = prompts = 0
        draw, made, beside = self._first(step, version, clock)
        sampling = draw.sampling
        for number in range(self.rounds):
            if number:
                draw = self._draw(step, number, wanted - groups, sampling, first=prompts)
                made = self._made(draw, version, clock)
            first = self._rewarded(made, clock)
            firsts.append(_accuracy(first))
            part = self._retried(first, draw, number, version, clock)
            keep = self._keep(part)
            parts.append(part)
            keeps.append(keep)
            prompts += len(draw.items)
            groups += len({uid for uid, kept in zip(part.uid, keep.tolist(), strict=True) if kept})
            if groups >= wanted:
                break
        self._start_later(step, version)
        batch = merged(parts)
        staleness, first_acc = version - batch.version, torch.cat(firsts)
        return Collected(batch, torch.cat(keeps), sampling, staleness, prompts, len(parts), beside, first_acc)

    def _first(self, step: int, version: int, clock: Stopwatch) -> tuple[Draw, Drawn, Mapping[str, float]]:
        """The step's first draw, which was begun before where there is a lag."""
        if self.ahead is None:
            draw = self._first_draw(step)
            return draw, self._made(draw, version, clock), {}
        if not self.ahead.has(step):
            self.ahead.start(self._first_draw(step), version)
        with clock("wait"):
            return self.ahead.take(step)

    def _start_later(self, step: int, version: int) -> None:
        """Have the rollouts of the next steps drawn by the weights as they are."""
        if self.ahead is not None:
            for later in range(step + 1, min(step + self.lag, self.recipe.steps) + 1):
                if not self.ahead.has(later):
                    self.ahead.start(self._first_draw(later), version)

    def _first_draw(self, step: int) -> Draw:
        sampling = scheduled(self.recipe, step)
        prompts = sampling.prompts_per_step
        if isinstance(self.sampler, Carries):  # rows of earlier steps take their places
            prompts = max(0, prompts - -(-self.sampler.carried() // sampling.group_size))
        return self._draw(step, 0, prompts, sampling, first=0)

    def _draw(self, step: int, number: int, prompts: int, sampling: Sampling, *, first: int) -> Draw:
        """What to draw in round `number`: prompts in their first contexts, groups numbered from `first`."""
        items = self.prompts.next(prompts)
        contexts = self.recipe.contexts
        shown = list(items) if contexts is None else contexts.first(items)
        uids = tuple(f"{step}.{first + index}" for index in range(len(items)))
        return Draw(step, tuple(shown), uids, derived_seed(self.recipe.seed, step, _purpose(number, 0)), sampling)

    def _made(self, draw: Draw, version: int, clock: Stopwatch) -> Drawn:
        """The draw, carried out now."""
        if self.policy.parallel.world > 1:
            return self._made_together(draw, version, clock)
        if self.ahead is None:
            return self.drawer(draw, self.policy, version=version, clock=clock)
        with clock("wait"):
            return self.ahead.more(draw)[0]

    def _made_together(self, draw: Draw, version: int, clock: Stopwatch) -> Drawn:
        """This process's share of the draw, carried out now, and everybody else's."""
        parallel = self.policy.parallel
        own = share_of(draw, parallel.rank, parallel.world)
        made: Drawn | None = None
        with self.policy.gathered():
            if own.items:
                made = self.drawer(own, self.policy, version=version, clock=clock)
        with clock("gather"):
            return drawn_together([part for part in parallel.gather(made) if part is not None])

    def _retried(self, batch: RolloutBatch, draw: Draw, number: int, version: int, clock: Stopwatch) -> RolloutBatch:
        """The rows, with those that contexts ask for once more."""
        contexts, turn = self.recipe.contexts, 0
        while contexts is not None and (redraws := contexts.again(batch, turn := turn + 1)):
            seed = derived_seed(self.recipe.seed, draw.step, _purpose(number, turn))
            asked = replace(draw, items=tuple(r.item for r in redraws), uids=tuple(r.uid for r in redraws), seed=seed)
            more = self._rewarded(self._made(asked, version, clock), clock)
            replaced = {r.uid for r in redraws if r.replace}
            stay = [row for row, uid in enumerate(batch.uid) if uid not in replaced]
            batch = merged([batch.select(stay), more]) if stay else more
        return batch

    def _rewarded(self, made: Drawn, clock: Stopwatch) -> RolloutBatch:
        """The rows with every source's parts, their composition and the verifier's result."""
        batch = made.batch
        with clock("reward"):
            rows = done(batch)
            finished = batch.select(rows)
            parallel = self.policy.parallel
            # Sources that wait see the whole batch, so one process asks them for all; and one verifies, since a check
            # that hangs in one process and not in another would have them train on different rows.
            asked = (self.drawer.rest(made), verifier_accuracy(finished.items, finished.responses))
            waited, accuracy = parallel.share(asked if parallel.main else None)
            found = side_by_side(waited, len(rows))
            rewarded = finished.with_(
                r_parts=found.parts,
                reward=self.recipe.reward(found.parts) if len(rows) else torch.zeros(0, dtype=torch.float64),
                acc=accuracy,
                failures=tuple(found.failures),
                scores=tuple(found.scores),
            )
        return rewarded if len(rows) == len(batch) else _with_waiting(batch, rewarded, rows)

    def _keep(self, batch: RolloutBatch) -> Tensor:
        keep = batch.counted  # whatever the filters say: without a reward there is nothing to learn from a row
        for plugin in self.recipe.filters:
            keep = keep & plugin.keep(batch)
        return keep


def _accuracy(batch: RolloutBatch) -> Tensor:
    """[B] float64, NaN where there is none."""
    return torch.full((len(batch),), torch.nan, dtype=torch.float64) if batch.acc is None else batch.acc


def _with_waiting(batch: RolloutBatch, rewarded: RolloutBatch, rows: Tensor) -> RolloutBatch:
    """All rows of `batch`: the `rewarded` ones, its `rows`, and those that go on, whose rewards are missing."""

    def wide(values: Tensor) -> Tensor:
        return torch.full((len(batch),), torch.nan, dtype=torch.float64).index_copy(0, rows, values.double())

    place = {row: number for number, row in enumerate(rows.tolist())}
    at = [place.get(row) for row in range(len(batch))]
    assert rewarded.acc is not None
    return batch.with_(
        r_parts={name: wide(values) for name, values in rewarded.r_parts.items()},
        reward=wide(rewarded.scored_reward),
        acc=wide(rewarded.acc),
        failures=tuple(() if n is None else rewarded.failures[n] for n in at),
        scores=tuple({} if n is None else rewarded.scores[n] for n in at),
    )


def share_of(draw: Draw, rank: int, world: int) -> Draw:
    """The part of a draw that process `rank` carries out: consecutive prompts. What the first draws does not depend on
    how many there are; the others' seeds follow from their first prompt's place."""
    first, end = (len(draw.items) * number // world for number in (rank, rank + 1))
    seed = derived_seed(draw.seed, draw.step, f"from/{first}") if first else draw.seed
    return replace(draw, items=draw.items[first:end], uids=draw.uids[first:end], seed=seed)


def scheduled(recipe: Recipe, step: int) -> Sampling:
    """The recipe's numbers, as the schedules have them in this step."""
    chosen = recipe.sampling
    length, temperature = float(chosen.max_new_tokens), chosen.temperature
    for schedule in recipe.schedules:
        length = schedule.value("max_new_tokens", length, step)
        temperature = schedule.value("temperature", temperature, step)
    return replace(chosen, max_new_tokens=max(1, round(length)), temperature=temperature)


def unrewarded(batch: RolloutBatch, keep: Tensor) -> RolloutBatch:
    """Rows that are not trained on take no part in their group's statistics either: their reward is missing."""
    return replace(batch, reward=batch.scored_reward.masked_fill(~keep, torch.nan))


def _purpose(number: int, turn: int) -> str:
    return "rollout" + (f"/{number}" if number or turn else "") + (f"/{turn}" if turn else "")


def derived_seed(seed: int, step: int, purpose: str) -> int:
    """A seed per step and purpose, so that no draw depends on how many draws went before."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{purpose}".encode()).digest()[:7], "big")
