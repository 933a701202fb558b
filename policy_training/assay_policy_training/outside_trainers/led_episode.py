"""An episode whose turns somebody else generates: texts and calls go in, what is observed and earned comes out.

Covers: the same limits, wrong calls and failures as in a training of ours. A failed episode, or a reward that is
missing, raises; it is never a number. Leaves out: wire formats (`nemo_gym`, `openenv`), TRL's classes (`trl_class`).
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.score import NOT_APPLICABLE, ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits, EpisodeTurn
from assay_policy_training.plugins.environments.running import answer_of
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_serving.tools.tool import ToolCall
from assay_serving.tools.turns import signature


class LedEpisode:
    """Begun by `begin`. Turns that come at the same time are taken one after the other."""

    def __init__(self, environment: Environment, item: PromptItem, seed: int, limits: EpisodeLimits) -> None:
        self.episode = Episode(item, replace(environment), limits)
        self._seed, self._paid, self._one_at_a_time = seed, 0.0, asyncio.Lock()
        self._begun = time.monotonic()

    @property
    def over(self) -> bool:
        return self.episode.ended is not None

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """What the policy reads before its first turn, without the tools."""
        return [message.to_dict() for message in (*self.episode.item.prompt, *self.episode.opening)]

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The tools: `name`, `description`, `parameters`."""
        return [signature(tool)["function"] for tool in self.episode.tools]

    async def begin(self) -> None:
        """Raises BackendError where the environment fails."""
        self.episode.begin(await self._answer(self.episode.environment.reset, self.episode.item, self._seed))
        self._check()

    async def turn(self, text: str, calls: Sequence[tuple[str, Any]] = ()) -> EpisodeTurn:
        """The turn, with what came of it. `calls`: name and arguments, an object or its JSON text. Raises BadInputError
        after the end, BackendError where the episode fails."""
        async with self._one_at_a_time:
            return await self._turn(text, calls)

    async def end(self) -> None:
        """No further turn comes. Raises BackendError where the environment fails."""
        if not self.over:
            self.episode.cut("turns", await self._answer(self.episode.environment.cut))
            self._check()

    def parts(self) -> dict[str, float]:
        """What the episode earned, by name; where its environment leaves the reward to others, whether the last turn
        meets the prompt's constraints. Raises BackendError where a part is missing."""
        item = self.episode.item
        item = replace(item, meta={**item.meta, **self.episode.meta()})
        earns = self.episode.rewards or any(turn.rewards for turn in self.episode.turns) or not item.constraints
        rewards = (EnvironmentReward() if earns else VerifierReward()).score([item], [self.episode.text])
        earned = {name: float(numbers[0]) for name, numbers in rewards.parts.items() if not numbers[0].isnan()}
        for failure in rewards.failures[0]:
            if not earned or failure.code != NOT_APPLICABLE:  # a part that is declared need not be earned
                raise BackendError(f"no reward: {failure.model}: {failure.message}")
        return earned

    def newly_earned(self) -> float:
        """The reward since the last time: of turns, and at the end of the episode, too. Raises as `parts`."""
        if self.over:
            earned = sum(self.parts().values())
        else:
            earned = 0.0
            for name, reward in ((name, each) for turn in self.episode.turns for name, each in turn.rewards.items()):
                if isinstance(reward, ScoreFailure):
                    raise BackendError(f"no reward: {name}: {reward.message}")
                earned += reward
        self._paid, new = earned, earned - self._paid
        return new

    async def close(self) -> None:
        await self._answer(self.episode.environment.close)

    async def _turn(self, text: str, calls: Sequence[tuple[str, Any]]) -> EpisodeTurn:
        episode = self.episode
        if self.over:
            raise BadInputError("the episode is over")
        if time.monotonic() - self._begun > (most := episode.limits.episode_seconds):
            episode.fail(
                ScoreFailure("environment_timeout", f"the episode did not end within {most:g} s", episode.name)
            )
            self._check()
        written = "\n".join([text, *(ToolCall(name, arguments).text for name, arguments in calls)]) if calls else text
        action = episode.act(written, 0)
        if action is not None:
            episode.observe(await self._answer(episode.environment.step, action), action)
        self._check()
        if not self.over and len(episode.turns) >= episode.limits.turns:
            await self.end()
        return episode.turns[-1]

    async def _answer(self, method: Any, *arguments: Any) -> Any:
        seconds = self.episode.limits.step_seconds
        try:
            return await asyncio.wait_for(answer_of(method, arguments), seconds)
        except Exception as error:
            late = f"{method.__name__} did not answer within {seconds:g} s"
            why = late if isinstance(error, TimeoutError) else f"{method.__name__}: {type(error).__name__}: {error}"
            self.episode.fail(ScoreFailure("environment_failed", why, self.episode.name))
            raise BackendError(f"environment {self.episode.name}: {why}") from error

    def _check(self) -> None:
        if (failure := self.episode.failure) is not None:
            raise BackendError(f"environment {failure.model}: {failure.message}")


def observed_text(messages: Sequence[Message]) -> str:
    """Messages as one text."""
    return "\n\n".join(message.text for message in messages)
