"""ARPO: rollouts that branch after uncertain results of tools, so that a group shares what led there.

Covers: some episodes of a group from the prompt; after each observation in them, how much more uncertain the policy is
than it was at its start; branches from there with a probability that rises with it, until the group is complete; what
is left of the group from the prompt again. A branch takes over the tokens, log-probs and turns before it; `extras`
`origin` [B,T] is the row of the group whose sampling drew a token, so that `shared_prefix` knows which are shared.
Leaves out: branches of branches; other samplers than transformers.

Source: arXiv 2507.19849; dongguanting/ARPO (`vllm_rollout_with_tools.py`, a copy read): group 16, 8 from the prompt, a
branch where u - .2 rise <= .5, u uniform, earlier turns first; entropy summed over the first 20 tokens of a turn, over
the logarithm of the vocabulary. Departures: the entropy is that of the turn after the observation, as the paper says
(the code takes the turn before it), of the whole distribution (there: the 10 likeliest tokens); all episodes from the
prompt end before branches begin.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from assay_policy_training.core.batch import ORIGIN, RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.samplers.continued_episodes import Beginning, ContinuedEpisodes
from assay_policy_training.plugins.samplers.episode_plan import EpisodePlan
from assay_policy_training.plugins.samplers.episode_run import EpisodeRun
from assay_policy_training.plugins.samplers.episodes import EpisodeRow, episode_seeds


def branch_probability(rise: float, *, base: float, weight: float) -> float:
    """Of a branch where the entropy is `rise` above that of the start."""
    return min(1.0, max(0.0, base + weight * rise))


def turn_entropies(entropy: Tensor, drawn: Tensor, *, tokens: int, vocabulary: int) -> list[float]:
    """Of each turn of a row ([T] each): the entropies of its first `tokens` tokens, summed, over ln `vocabulary`."""
    starts = turn_places(drawn)
    ends = [*starts[1:], len(drawn)]
    sums = [float(entropy[start:end][drawn[start:end]][:tokens].sum()) for start, end in zip(starts, ends, strict=True)]
    return [value / math.log(vocabulary) for value in sums]


def turn_places(drawn: Tensor) -> list[int]:
    """Where each turn of a row [T] begins."""
    starts: list[int] = (drawn & ~torch.nn.functional.pad(drawn, (1, 0))[:-1]).nonzero().squeeze(1).tolist()
    return starts


class BranchingEpisodes(ContinuedEpisodes):
    """S2 of an environment: see the module."""

    def __init__(self, *arguments: Any, plan: "Branching") -> None:
        super().__init__(*arguments)
        self.plan = plan

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """See `EpisodeSampler.rollout`."""
        self._check(items)
        seeds, first = group_seeds(seed, len(items)), min(self.plan.initial, group_size)
        episodes, run = self._play(items, seeds, first, copies=True)
        rows = self._rows(run)
        begun = [number in run.rows for number in range(len(episodes))]
        beginnings: list[Beginning | None] = []
        if more := group_size - first:
            for of_item in self._points(run, rows, seeds, first, more, version):
                beginnings += [*of_item, *[None] * (more - len(of_item))]
            numbers, of_episodes = range(len(beginnings)), episode_seeds(items, seeds)
            continued, branches, further = self.continued(
                [items[number // more] for number in numbers],
                [of_episodes[number // more] for number in numbers],
                beginnings,
                [self.limits] * len(beginnings),
                [(seeds[number // more], first + number % more) for number in numbers],
            )
            order = [
                row
                for item in range(len(items))
                for row in (
                    *range(item * first, (item + 1) * first),
                    *range(len(episodes) + item * more, len(episodes) + (item + 1) * more),
                )
            ]
            episodes = [[*episodes, *continued][row] for row in order]
            rows = [[*rows, *branches][row] for row in order]
            begun = [[*begun, *further][row] for row in order]
        batch = self._batch(episodes, rows, begun, version)
        origin = torch.arange(len(batch))[:, None].remainder(group_size).expand(batch.mask.shape).clone()
        numbers_of = {id(episode): number for number, episode in enumerate(run.episodes)}
        for number, beginning in enumerate(beginnings):
            if beginning is not None:
                row = number // more * group_size + first + number % more
                origin[row, : len(beginning.row[0])] = numbers_of[id(beginning.parent)] % first
        uid = tuple(f"{version}.{number // group_size}" for number in range(len(batch)))
        return batch.with_(uid=uid, extras={**batch.extras, ORIGIN: origin})

    def _points(
        self, run: EpisodeRun, rows: Sequence[EpisodeRow], seeds: Sequence[int], first: int, most: int, version: int
    ) -> list[list[Beginning]]:
        """Of each item, where its episodes branch: earlier turns before later ones, `most` at most."""
        batch = self._batch(run.episodes, rows, [n in run.rows for n in range(len(rows))], version)
        entropy, vocabulary = self._entropy(batch), len(self.policy.tokenizer)
        chosen: list[list[Beginning]] = [[] for _ in seeds]
        candidates: list[tuple[int, int, float]] = []
        for number, episode in enumerate(run.episodes):
            if episode.failure is None and number in run.rows:
                values = turn_entropies(
                    entropy[number], batch.mask[number], tokens=self.plan.tokens, vocabulary=vocabulary
                )
                candidates += [(turn, number, value - values[0]) for turn, value in enumerate(values) if turn]
        for turn, number, rise in sorted(candidates):
            item, row = number // first, rows[number]
            draw = derived_seed(seeds[item], "branch", number % first, turn) / 2**56
            chance = branch_probability(rise, base=self.plan.base, weight=self.plan.weight)
            if len(chosen[item]) < most and draw < chance:
                at = turn_places(row[1])[turn]
                part = (row[0][:at], row[1][:at], row[2][:at])
                context = [*run.contexts[number], *part[0].tolist()]
                copy = None if run.copies is None else run.copies.get((number, turn))
                chosen[item].append(Beginning(run.episodes[number], turn, part, context, copy))
        return chosen

    @torch.no_grad()
    def _entropy(self, batch: RolloutBatch) -> Tensor:
        """[B,T], of the policy at the sampling temperature."""
        sampling, pieces = self.sampling, []
        for rows in torch.arange(len(batch)).split(sampling.rows_at_once):  # type: ignore[no-untyped-call]
            scores = self.policy.scores(
                batch.select(rows), temperature=sampling.temperature, prune_log_ratio=sampling.prune_log_ratio
            )
            pieces.append(scores.entropy.cpu())
        return torch.cat(pieces)


class Branching(EpisodePlan, RecipeSettings, section="sampler"):
    """S2. `initial`: episodes of a group from the prompt; `base`, `weight`: of a branch's probability; `tokens`: of a
    turn, whose entropy counts."""

    initial: Annotated[int, Ge(1)] = 8
    base: Annotated[float, Ge(0), Le(1)] = 0.5
    weight: Annotated[float, Ge(0)] = 0.2
    tokens: Annotated[int, Ge(1)] = 20
    plays: ClassVar[Any] = BranchingEpisodes
