"""Answers forced after each turn: what an episode would have earned, had the policy answered there.

Covers: for every state before a turn of an episode, turns that the policy takes after a message that asks for its
answer, in the environment as it was then; their mean reward, J_j after turn j, beside the episode's own at its end. The
reward part `forced_answer` has these values by turn, so that the modulator `mrt` credits each turn with the progress
J_j - J_(j-1). The forced turns are not trained on. States that several episodes reached by the same tokens are asked
once. Leaves out: the credit (`modulators.steps`), where the environment comes from (`continued_episodes`).

Source: MRT, arXiv 2503.07572 (abstract and summaries): the meta-prover forces the answer after each block, the mean
over several tries is the success probability there. Ours: a turn as block, the message, 4 tries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from assay.domain import Message
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed, group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.environments.episode import Episode
from assay_policy_training.plugins.samplers.branching import turn_places
from assay_policy_training.plugins.samplers.continued_episodes import Beginning, ContinuedEpisodes
from assay_policy_training.plugins.samplers.episode_plan import EpisodePlan
from assay_policy_training.plugins.samplers.episode_run import EpisodeRun, opened
from assay_policy_training.plugins.samplers.episodes import EpisodeRow, episode_seeds
from assay_serving.tools.turns import between_turns, joined


@dataclass(frozen=True)
class AskedState:
    """A state in which an answer is forced. `reached`: the episodes that did, before how many turns."""

    item: int
    beginning: Beginning
    reached: list[tuple[int, int]]


class ForcedAnswerEpisodes(ContinuedEpisodes):
    """S2 of an environment: see the module."""

    def __init__(self, *arguments: Any, plan: "ForcedAnswers") -> None:
        super().__init__(*arguments)
        self.plan = plan

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """See `EpisodeSampler.rollout`."""
        self._check(items)
        seeds = group_seeds(seed, len(items))
        episodes, run = self._play(items, seeds, group_size, copies=True)
        rows = self._rows(run)
        states = self._states(run, rows, group_size)
        values = self._values(items, seeds, states) if states else {}
        for number, episode in enumerate(episodes):
            worth = [values.get((number, turn)) for turn in range(len(episode.turns))] + [self._earned(episode)]
            numbers = [value for value in worth if value is not None]
            episode.forced_answers = tuple(numbers) if len(numbers) == len(worth) else ()
        batch = self._batch(episodes, rows, [number in run.rows for number in range(len(episodes))], version)
        return batch.with_(uid=tuple(f"{version}.{number // group_size}" for number in range(len(episodes))))

    def _states(self, run: EpisodeRun, rows: Sequence[EpisodeRow], group_size: int) -> list[AskedState]:
        """The states before all turns of episodes that ended by themselves or by a budget."""
        by_context: dict[tuple[int, tuple[int, ...]], AskedState] = {}
        for number, episode in enumerate(run.episodes):
            if episode.failure is not None or number not in run.rows:
                continue
            starts = turn_places(rows[number][1])
            for turn in range(len(episode.turns)):
                context = self._context(run, rows[number], starts, number, turn)
                copy = None if run.copies is None else run.copies.get((number, turn))
                beginning = Beginning(episode, turn, tuple(part[:0] for part in rows[number]), context, copy)  # type: ignore[arg-type]
                key = (number // group_size, tuple(context))
                state = by_context.setdefault(key, AskedState(number // group_size, beginning, []))
                state.reached.append((number, turn))
        return list(by_context.values())

    def _context(self, run: EpisodeRun, row: EpisodeRow, starts: Sequence[int], number: int, turn: int) -> list[int]:
        """The tokens before the forced turn: all up to turn `turn`, and the message."""
        episode, message = run.episodes[number], Message("user", self.plan.message)
        if turn == 0:
            prompt = opened(self.policy, episode, episode.item.generation_context)
            return list(self.policy.renderer.encode(tuple(joined((*prompt, message)))).ids)
        before, drawn = episode.turns[turn - 1], row[1][starts[turn - 1] : starts[turn]]
        end = starts[turn - 1] + int(drawn.sum())
        ended_by = self.policy.end_ids if int(row[0][end - 1]) in self.policy.end_ids else ()
        between = between_turns(self.policy.renderer, before.results, (*before.messages, message), ended_by=ended_by)
        return [*run.contexts[number], *row[0][:end].tolist(), *between]

    def _values(
        self, items: Sequence[PromptItem], seeds: Sequence[int], states: Sequence[AskedState]
    ) -> dict[tuple[int, int], float]:
        """(episode, turns taken) -> the mean reward of answers that are forced there."""
        tries, of_episodes = self.plan.samples, episode_seeds(items, seeds)
        each = [state for state in states for _ in range(tries)]
        places = [
            (derived_seed(seeds[state.item], "forced", *state.beginning.context), sample)
            for state in states
            for sample in range(tries)
        ]
        limits = [replace(self.limits, turns=state.beginning.turns + 1) for state in each]
        own_limit = self.sampler.sampling
        self.sampler.sampling = replace(own_limit, max_new_tokens=self.plan.max_new_tokens)
        try:
            answered, _, _ = self.continued(
                [items[state.item] for state in each],
                [of_episodes[state.item] for state in each],
                [state.beginning for state in each],
                limits,
                places,
                tries,
            )
        finally:
            self.sampler.sampling = own_limit
        values: dict[tuple[int, int], float] = {}
        for number, state in enumerate(states):
            earned = [self._earned(episode) for episode in answered[number * tries : (number + 1) * tries]]
            present = [value for value in earned if value is not None]
            if present:
                values.update(dict.fromkeys(state.reached, fmean(present)))
        return values

    def _earned(self, episode: Episode) -> float | None:
        """What it earned as a whole; None where that is missing."""
        parts = episode.rewards.values() if not self.plan.part else [episode.rewards.get(self.plan.part)]
        numbers = [part for part in parts if isinstance(part, float)]
        return sum(numbers) if numbers and len(numbers) == len(parts) else None


class ForcedAnswers(EpisodePlan, RecipeSettings, section="sampler"):
    """S2. `message`: that asks for the answer; `samples`: answers in a state; `max_new_tokens`: of one; `part`: of the
    episode's rewards, which they are worth; default: the sum of all."""

    message: str = "Answer now."
    samples: Annotated[int, Ge(1)] = 4
    max_new_tokens: Annotated[int, Ge(1)] = 64
    part: str = ""
    plays: ClassVar[Any] = ForcedAnswerEpisodes
