"""Rollouts in an environment: the policy's turns and what it observes between them, one row of tokens an episode.

Covers: rows that hold the tokens that were drawn and those of what was observed, as they were read: nothing is
tokenized again. Observed tokens are `forced`: attended to, without any gradient. `segment` is the number of the turn.
Leaves out: environments and their limits (`environments`), how episodes proceed (`episode_run`), generation itself (the
sampler that has `turns`).

A row has at most `max_new_tokens` tokens, observed ones included; one that an observation does not fit in ends before
it, as cut.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
    PublishesWeights,
    Sampler,
    Stateful,
    TurnGeneration,
    TurnSampler,
)
from assay_policy_training.plugins.samplers.assembly import assemble
from assay_policy_training.plugins.samplers.episode_run import EpisodeRun, opened


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
        if any(item.forced for item in items):
            raise BadInputError("a turn that is begun for the policy does not go with an environment", field="contexts")
        self.sampler.sampling = self.sampling
        seeds, size = group_seeds(seed, len(items)), group_size
        episodes = [Episode(item, replace(self.environment), self.limits) for item in items for _ in range(size)]

        def generation(contexts: dict[int, list[int]]) -> TurnGeneration:
            rows, together = list(contexts.values()), 1
            if len(rows) == len(episodes) and all(row == rows[n - n % size] for n, row in enumerate(rows)):
                rows, together = rows[::size], size  # rows of a group share the pass over their context
            places = [(seeds[number // size], number % size) for number in contexts]
            turns: TurnGeneration = self.sampler.turns(rows, together, places, self.limits.turn_tokens)
            return turns

        of_episodes = [derived_seed(group_seed, "environment") for group_seed in seeds for _ in range(size)]
        stops = StopStrings(self.policy.tokenizer, self.sampling.stop)
        run = EpisodeRun(self.policy, episodes, of_episodes, self.limits, generation, stops)
        try:
            run.run()
        finally:
            run.close()
        batch = self._batch(episodes, run, version)
        return batch.with_(uid=tuple(f"{version}.{number // size}" for number in range(len(episodes))))

    def _batch(self, episodes: Sequence[Episode], run: EpisodeRun, version: int) -> RolloutBatch:
        tokens, present, drawn, logp = self._columns(len(episodes), run)
        before = torch.nn.functional.pad(drawn, (1, 0))[:, :-1]
        begun = (drawn & ~before).long().cumsum(1)  # turns up to here
        segment = torch.where(drawn, begun - 1, begun) * present  # what is observed belongs to the turn that reads it
        done = torch.tensor([episode.ended == "done" for episode in episodes])
        cut = torch.tensor([episode.ended in ("turns", "tokens") for episode in episodes])
        trained = drawn & torch.tensor([episode.failure is None for episode in episodes])[:, None]
        items = [self._item(episode, number in run.rows) for number, episode in enumerate(episodes)]
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

    def _columns(self, number: int, run: EpisodeRun) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, whether they are there, whether they were drawn, and log-probs, [episodes, T]. An episode that failed
        before its first turn has an end token, for a row is not empty."""
        end, limit = int(self.policy.tokenizer.eos_token_id), self.sampling.max_new_tokens
        tokens = torch.full((number, limit), int(self.policy.tokenizer.pad_token_id))
        drawn, logp, lengths = torch.zeros(tokens.shape, dtype=torch.bool), torch.zeros(tokens.shape), [1] * number
        tokens[:, 0], drawn[:, 0] = end, True
        generation, rows = run.generation, list(run.rows)
        if generation is not None:
            columns = (generation.tokens, generation.mask, generation.logp)
            tokens[rows], drawn[rows], logp[rows] = (column.cpu() for column in columns)
            for episode, row in run.rows.items():
                lengths[episode] = limit - generation.remaining(row)
        width = max(lengths)
        present = torch.arange(width) < torch.tensor(lengths)[:, None]
        return tokens[:, :width], present, drawn[:, :width], logp[:, :width]

    def _item(self, episode: Episode, begun: bool) -> PromptItem:
        """The row's item: what it was generated from and is trained on, and the record of the episode."""
        item = episode.item
        meta = {**item.meta, **episode.meta()}
        if not begun:
            return replace(item, meta=meta)
        contexts = [opened(self.policy, episode, prompt) for prompt in (item.generation_context, item.training_context)]
        return replace(item, meta=meta, generate_from=contexts[0], train_on=contexts[1])


class PublishingEpisodeSampler(EpisodeSampler):
    """S2 and S14, by a sampler with weights of its own."""

    def publish(self, policy: Policy, version: int) -> None:
        """See `PublishesWeights`."""
        self.sampler.publish(policy, version)


def in_environment(
    policy: Policy, sampler: Sampler, sampling: Sampling, environment: Environment | None, limits: EpisodeLimits
) -> Sampler:
    """The sampler itself, or that of episodes in the environment. Raises BadInputError."""
    if environment is None:
        return sampler
    kind = PublishingEpisodeSampler if isinstance(sampler, PublishesWeights) else EpisodeSampler
    return kind(policy, sampler, sampling, environment, limits)
