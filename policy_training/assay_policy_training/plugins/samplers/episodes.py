"""Rollouts in an environment: the policy's turns and what it observes between them, one row of tokens an episode.

Covers: rows that hold the tokens that were drawn and those of what was observed, as they were read: nothing is
tokenized again. Observed tokens are `forced`: attended to, without any gradient. `segment` is the number of the turn.
Leaves out: environments and their limits (`environments`), how episodes proceed (`episode_run`), generation itself (the
sampler that has `turns`).

A row has at most `max_new_tokens` tokens, observed ones included; one that an observation does not fit in ends before
it, as cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling, derived_seed, group_seeds
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.protocols import (
    Observer,
    PlaysEpisodes,
    PublishesWeights,
    Sampler,
    Stateful,
    TurnGeneration,
    TurnSampler,
)
from assay_policy_training.plugins.samplers.assembly import assemble
from assay_policy_training.plugins.samplers.episode_run import EpisodeRun, opened

#: Tokens [n], whether each was drawn, and log-probs, of one episode.
EpisodeRow: TypeAlias = tuple[Tensor, Tensor, Tensor]


class EpisodeSampler:
    """S2 of an environment, by a sampler's own generation."""

    def __init__(
        self, policy: Policy, sampler: Any, sampling: Sampling, environment: Environment, limits: EpisodeLimits
    ) -> None:
        """Raises BadInputError for a sampler that does not generate turn by turn."""
        if not isinstance(sampler, TurnSampler) or isinstance(sampler, Stateful | Observer):
            raise BadInputError(
                f"{type(sampler).__name__} does not generate turn by turn, as an environment needs it: transformers, "
                "vllm or vllm_server",
                field="sampler.kind",
            )
        self.policy, self.sampling = policy, sampling
        self.sampler: Any = sampler
        self.environment, self.limits = environment, limits

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` episodes of each item. Raises BadInputError for prompts that begin the policy's turn, and
        BackendError where an environment fails and `limits.on_failure` is stop."""
        self._check(items)
        seeds, size = group_seeds(seed, len(items)), group_size
        episodes, run = self._play(items, seeds, size)
        batch = self._batch(episodes, self._rows(run), [number in run.rows for number in range(len(episodes))], version)
        return batch.with_(uid=tuple(f"{version}.{number // size}" for number in range(len(episodes))))

    def _check(self, items: Sequence[PromptItem]) -> None:
        if any(item.forced for item in items):
            raise BadInputError("a turn that is begun for the policy does not go with an environment", field="contexts")
        self.sampler.sampling = self.sampling

    def _play(
        self, items: Sequence[PromptItem], seeds: Sequence[int], size: int, *, copies: bool = False
    ) -> tuple[list[Episode], EpisodeRun]:
        """`size` episodes of each item, played. `copies`: of their environments between turns."""
        episodes = [Episode(item, replace(self.environment), self.limits) for item in items for _ in range(size)]

        places = [(seeds[number // size], number % size) for number in range(len(episodes))]
        of_episodes = [seed for seed in episode_seeds(items, seeds) for _ in range(size)]
        run = EpisodeRun(self.policy, episodes, of_episodes, self.limits, self._generation(places, size), self._stops())
        run.copies = {} if copies else None
        play(run)
        return episodes, run

    def _generation(
        self, places: Sequence[tuple[int, int]], size: int
    ) -> Callable[[dict[int, list[int]]], TurnGeneration]:
        """Begins the rows of contexts. `size`: of groups, whose rows share the pass over a context that they share."""

        def generation(contexts: dict[int, list[int]]) -> TurnGeneration:
            rows, together = list(contexts.values()), 1
            if len(rows) == len(places) and all(row == rows[n - n % size] for n, row in enumerate(rows)):
                rows, together = rows[::size], size
            turns: TurnGeneration = self.sampler.turns(
                rows, together, [places[number] for number in contexts], self.limits.turn_tokens
            )
            return turns

        return generation

    def _stops(self) -> StopStrings:
        return StopStrings(self.policy.tokenizer, self.sampling.stop)

    def _batch(
        self, episodes: Sequence[Episode], rows: Sequence[EpisodeRow], begun: Sequence[bool], version: int
    ) -> RolloutBatch:
        """`begun`: episodes whose first turn was drawn."""
        tokens, present, drawn, logp = self._columns(rows)
        before = torch.nn.functional.pad(drawn, (1, 0))[:, :-1]
        starts = (drawn & ~before).long().cumsum(1)  # turns up to here
        segment = torch.where(drawn, starts - 1, starts) * present  # what is observed belongs to the turn that reads it
        done = torch.tensor([episode.ended == "done" for episode in episodes])
        cut = torch.tensor([episode.ended in ("turns", "tokens") for episode in episodes])
        trained = drawn & torch.tensor([episode.failure is None for episode in episodes])[:, None]
        items = [self._item(episode, of_one) for episode, of_one in zip(episodes, begun, strict=True)]
        return assemble(self.policy, items, 1, (tokens, present, logp), version=version).with_(
            responses=tuple(episode.text for episode in episodes),
            mask=drawn,
            loss_mask=trained,
            forced=present & ~drawn,
            segment=segment,
            token_version=torch.where(drawn, version, 0),
            finished=done,
            truncated=cut,
        )

    def _rows(self, run: EpisodeRun) -> list[EpisodeRow]:
        """Of each episode what it consists of. One that failed before its first turn has an end token, for a row is not
        empty."""
        end, limit = int(self.policy.tokenizer.eos_token_id), self.sampling.max_new_tokens
        nothing = (torch.tensor([end]), torch.ones(1, dtype=torch.bool), torch.zeros(1))
        generation = run.generation
        if generation is None:
            return [nothing] * len(run.episodes)
        columns = [column.cpu() for column in (generation.tokens, generation.mask, generation.logp)]
        rows = []
        for number in range(len(run.episodes)):
            if (row := run.rows.get(number)) is None:
                rows.append(nothing)
            else:
                tokens, drawn, logp = (column[row, : limit - generation.remaining(row)] for column in columns)
                rows.append((tokens, drawn, logp))
        return rows

    def _columns(self, rows: Sequence[EpisodeRow]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, whether they are there, whether they were drawn, and log-probs, [episodes, T]."""
        width = max(len(tokens) for tokens, _, _ in rows)
        tokens = torch.full((len(rows), width), int(self.policy.tokenizer.pad_token_id))
        present, drawn, logp = (torch.zeros(tokens.shape, dtype=kind) for kind in (torch.bool, torch.bool, torch.float))
        for number, row in enumerate(rows):
            for column, values in zip((tokens, drawn, logp), row, strict=True):
                column[number, : len(values)] = values
            present[number, : len(row[0])] = True
        return tokens, present, drawn, logp

    def _item(self, episode: Episode, begun: bool) -> PromptItem:
        """The row's item: what it was generated from and is trained on, and the record of the episode."""
        item = episode.item
        meta = {**item.meta, **episode.meta()}
        if not begun:
            return replace(item, meta=meta)
        contexts = [opened(self.policy, episode, prompt) for prompt in (item.generation_context, item.training_context)]
        return replace(item, meta=meta, generate_from=contexts[0], train_on=contexts[1])


def episode_seeds(items: Sequence[PromptItem], seeds: Sequence[int]) -> list[int]:
    """Of the environments of each item's episodes: by the group's seed, unless the item has its own."""
    return [
        derived_seed(seed, "environment") if item.episode_seed is None else item.episode_seed
        for item, seed in zip(items, seeds, strict=True)
    ]


def play(run: EpisodeRun) -> None:
    """To its end. See `EpisodeRun.run`."""
    try:
        run.run()
    finally:
        run.close()


class PublishingEpisodeSampler(EpisodeSampler):
    """S2 and S14, by a sampler with weights of its own."""

    def publish(self, policy: Policy, version: int) -> None:
        """See `PublishesWeights`."""
        self.sampler.publish(policy, version)

    def release(self) -> None:
        self.sampler.release()


def in_environment(
    policy: Policy, sampler: Sampler, sampling: Sampling, environment: Environment | None, limits: EpisodeLimits
) -> Sampler:
    """The sampler itself, or that of episodes in the environment. Raises BadInputError."""
    if environment is None:
        return sampler
    if isinstance(sampler, PlaysEpisodes):
        return sampler.in_environment(environment, limits)
    kind = PublishingEpisodeSampler if isinstance(sampler, PublishesWeights) else EpisodeSampler
    return kind(policy, sampler, sampling, environment, limits)
