"""Episodes that begin where others were: some of an episode's turns are taken over, the policy goes on another way.

Covers: the environment in the state after those turns, by a copy where it can be copied (`Environment.copies`), else by
taking the recorded turns again after `reset` with the same seed, which any environment allows that answers the same the
second time; one that does not fails the episode by name. Taken again, a turn costs the environment's work again. Leaves
out: where to go on and why (`branching`, `forced_answers`).
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.samplers.episode_run import EpisodeRun
from assay_policy_training.plugins.samplers.episodes import EpisodeRow, EpisodeSampler, play


@dataclass(frozen=True)
class Beginning:
    """The first `turns` turns of `parent`. `row`: what they are of its row; `context`: all tokens before the next turn;
    `copy`: of its environment then, None: they are taken again."""

    parent: Episode
    turns: int
    row: EpisodeRow
    context: list[int]
    copy: Environment | None

    def episode(self, limits: EpisodeLimits) -> Episode:
        """The episode that goes on from here."""
        parent = self.parent
        if self.copy is None:
            return Episode(parent.item, replace(parent.environment), limits)
        return Episode(
            parent.item,
            deepcopy(self.copy),
            limits,
            opening=parent.opening,
            tools=parent.tools,
            offered=parent.offered,
            turns=deepcopy(parent.turns[: self.turns]),
            state=parent.turns[self.turns].state,
            shared_turns=self.turns,
        )


class ContinuedRun(EpisodeRun):
    """`beginnings`: of the episodes; None: from the prompt."""

    def __init__(self, *arguments: Any, beginnings: Sequence[Beginning | None]) -> None:
        super().__init__(*arguments)
        self.beginnings = beginnings

    def _begin(self, number: int) -> None:
        beginning = self.beginnings[number]
        if beginning is None or beginning.copy is None:
            super()._begin(number)
        else:
            self._begun[number] = 0.0

    def _answered(self, number: int, answer: Any) -> None:
        began = self._questions.get(number) == "reset"
        super()._answered(number, answer)
        if began:
            self._take_again(number)

    def _continue(self, number: int) -> None:
        if self.generation is None:
            self._take_again(number)
        else:
            super()._continue(number)

    def _take_again(self, number: int) -> None:
        """The next of the turns that are taken again."""
        episode, beginning = self.episodes[number], self.beginnings[number]
        if beginning is None or episode.ended is not None or len(episode.turns) >= beginning.turns:
            return
        recorded = beginning.parent.turns[len(episode.turns)]
        action = episode.act(recorded.text, recorded.tokens)
        if action is None:
            self._continue(number)
        else:
            self._ask(number, action, episode.environment.step, action)

    def _context(self, number: int, episode: Episode) -> list[int] | None:
        beginning = self.beginnings[number]
        if beginning is None or episode.failure is not None:
            return super()._context(number, episode)
        if episode.ended is not None or _answers(episode, beginning.turns) != _answers(
            beginning.parent, beginning.turns
        ):
            why = "the same turns after the same seed were answered otherwise: it can be neither copied nor taken again"
            episode.fail(ScoreFailure("environment_failed", why, episode.name))
            if number in self._open:
                self._end(number)
            return None
        return beginning.context

    def _room(self, number: int) -> int:
        beginning = self.beginnings[number]
        return super()._room(number) - (0 if beginning is None else len(beginning.row[0]))


class ContinuedEpisodes(EpisodeSampler):
    """S2 of an environment, by a sampler that also goes on from beginnings."""

    def continued(
        self,
        items: Sequence[PromptItem],
        seeds: Sequence[int],
        beginnings: Sequence[Beginning | None],
        limits: Sequence[EpisodeLimits],
        places: Sequence[tuple[int, int]],
        together: int = 1,
    ) -> tuple[list[Episode], list[EpisodeRow], list[bool]]:
        """Episodes that go on from `beginnings`, each of its item, of an environment with its seed; their rows, and
        whether they went on. `places`, `together`: of their rows, see `TurnSampler` (`together`: of one context)."""
        episodes = [
            Episode(item, replace(self.environment), limit) if beginning is None else beginning.episode(limit)
            for item, beginning, limit in zip(items, beginnings, limits, strict=True)
        ]
        generation, stops = self._generation(places, together), self._stops()
        run = ContinuedRun(self.policy, episodes, seeds, self.limits, generation, stops, beginnings=beginnings)
        play(run)
        rows = [
            self._with_taken(beginning, row, number in run.rows)
            for number, (beginning, row) in enumerate(zip(beginnings, self._rows(run), strict=True))
        ]
        return episodes, rows, [number in run.rows for number in range(len(episodes))]

    def _with_taken(self, beginning: Beginning | None, row: EpisodeRow, went_on: bool) -> EpisodeRow:
        """The row, after what was taken over, within the limit on tokens."""
        if beginning is None or not len(beginning.row[0]):
            return row
        if not went_on:
            return beginning.row
        most = self.sampling.max_new_tokens
        tokens, drawn, logp = (torch.cat(pair)[:most] for pair in zip(beginning.row, row, strict=True))
        return tokens, drawn, logp


def _answers(episode: Episode, turns: int) -> list[Any]:
    """All that the environment said in the first turns."""
    forms = [turn.to_dict() for turn in episode.turns[:turns]]
    return [episode.opening, *({**form, "seconds": 0} for form in forms)]
