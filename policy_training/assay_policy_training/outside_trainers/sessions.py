"""Episodes of a server, each under the name that its client has for it.

Covers: a task by its number, with its own seed; how many there are at a time; those that nobody goes on with. Leaves
out: wire formats.
"""

import logging
import time
from collections.abc import Sequence
from uuid import uuid4

from assay.errors import BackendError, BadInputError, BusyError, NotFoundError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import derived_seed
from assay_policy_training.outside_trainers.led_episode import LedEpisode
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import EpisodeLimits

logger = logging.getLogger("assay.trainers")


class Sessions:
    """Episodes of `items`. Those that had no turn for `idle_s` seconds give their place to others, and where there is
    no place, those that are over."""

    def __init__(
        self,
        environment: Environment,
        items: Sequence[PromptItem],
        limits: EpisodeLimits,
        *,
        seed: int = 0,
        most: int = 4096,
        idle_s: float = 3600.0,
    ) -> None:
        self.environment, self.items, self.limits, self.seed = environment, items, limits, seed
        self._most, self._idle_s = most, idle_s
        self._open: dict[str, tuple[LedEpisode, float]] = {}

    async def begin(self, task: int, seed: int | None = None) -> tuple[str, LedEpisode]:
        """A new episode of the task, by its own seed unless one is given. Raises BadInputError for a task there is not,
        BusyError where no place is left, BackendError where the environment fails."""
        if not 0 <= task < len(self.items):
            raise BadInputError(f"there are the tasks 0 to {len(self.items) - 1}, not {task}", field="task")
        await self._make_room()
        seed = derived_seed(self.seed + task, "environment") if seed is None else seed
        episode = LedEpisode(self.environment, self.items[task], seed, self.limits)
        name = uuid4().hex
        self._open[name] = (episode, time.monotonic())
        try:
            await episode.begin()
        except BaseException:
            await self.close(name)
            raise
        return name, episode

    def find(self, name: str | None) -> LedEpisode:
        """Raises NotFoundError."""
        if name is None or name not in self._open:
            raise NotFoundError("no such session: it was never begun, has been closed, or was idle for too long")
        episode = self._open[name][0]
        self._open[name] = (episode, time.monotonic())
        return episode

    async def close(self, name: str | None) -> None:
        """One whose environment cannot be closed is logged: it is no error of who asked for another."""
        if name is not None and (opened := self._open.pop(name, None)) is not None:
            try:
                await opened[0].close()
            except BackendError as error:
                logger.warning("not closed: %s", error)

    async def close_all(self) -> None:
        for name in list(self._open):
            await self.close(name)

    async def _make_room(self) -> None:
        late = time.monotonic() - self._idle_s
        for name in [name for name, (_, used) in self._open.items() if used < late]:
            await self.close(name)
        if len(self._open) >= self._most:
            for name in [name for name, (episode, _) in self._open.items() if episode.over]:
                await self.close(name)
        if len(self._open) >= self._most:
            raise BusyError(f"{self._most} episodes are under way")
