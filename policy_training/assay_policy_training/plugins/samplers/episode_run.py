"""The episodes of one request on their way: turns that are generated, environments that answer.

Covers: who waits for what, budgets of turns, tokens and time, environments closed as their episodes end, copies of
environments between turns for those who continue episodes another way (`continued_episodes`). Turns of all
episodes that are ready are generated together. In rounds (not `overlap`) the answers are taken when no turn is under
generation any more, so that batches do not depend on the clock. Leaves out: the batch that comes of it (`episodes`).
"""

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal

from assay.domain import Prompt
from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.environments.environment import Action, Environment
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits, EpisodeTurn
from assay_policy_training.plugins.environments.running import EnvironmentCalls
from assay_policy_training.plugins.protocols import TurnGeneration
from assay_serving.tools.turns import between_turns, joined, offered

log = logging.getLogger(__name__)


class EpisodeRun:
    """`generation`: begins the rows of these contexts (tokens), by the episodes' numbers. `seeds`: of the episodes."""

    def __init__(
        self,
        policy: Policy,
        episodes: Sequence[Episode],
        seeds: Sequence[int],
        limits: EpisodeLimits,
        generation: Callable[[dict[int, list[int]]], TurnGeneration],
        stops: StopStrings,
    ) -> None:
        self.policy, self.episodes, self.seeds, self.limits, self.stops = policy, episodes, seeds, limits, stops
        self._begin_generation = generation
        self.generation: TurnGeneration | None = None
        self.rows: dict[int, int] = {}  #: episode -> its row in the generation
        self._numbers: list[int] = []  #: the inverse
        self._calls = EnvironmentCalls(limits.at_once)
        self._longest_token = max(map(len, policy.tokenizer.get_vocab()))  # characters
        self._questions: dict[int, Action | Literal["reset", "turns", "tokens"]] = {}  #: what environments are at
        self._open: set[int] = set()  #: episodes whose environment is not closed yet
        self._closing: set[int] = set()
        self._begun: dict[int, float] = {}  #: episode -> when its `reset` was called, without the wait for others'
        self.contexts: dict[int, list[int]] = {}  #: of episodes: the tokens before the policy's first turn
        #: (episode, turns taken) -> a copy of its environment then; None: none are made.
        self.copies: dict[tuple[int, int], Environment] | None = None
        step = type(episodes[0].environment).step
        self._overlap = inspect.iscoroutinefunction(step) if limits.overlap is None else limits.overlap

    def run(self) -> None:
        """Until every episode has ended. Raises BackendError where one fails and `limits.on_failure` is stop."""
        self.generate(self.begin())

    def begin(self) -> dict[int, list[int]]:
        """Reset the environments; the contexts of the episodes that have begun."""
        for number in range(len(self.episodes)):
            self._open.add(number)
            self._begin(number)
        while self._questions:
            for number, answer in self._all_answers():
                self._answered(number, answer)
        return {n: ids for n, episode in enumerate(self.episodes) if (ids := self._context(n, episode)) is not None}

    def generate(self, contexts: dict[int, list[int]]) -> None:
        """Go on after these contexts, until no row is under generation any more."""
        self.contexts = contexts
        if not contexts:
            return
        now = time.monotonic()
        self._begun = {number: now + self._begun.get(number, 0.0) for number in contexts}
        generation = self.generation = self._begin_generation(contexts)
        self._numbers = list(contexts)
        self.rows = {number: row for row, number in enumerate(self._numbers)}
        while self._questions or generation.busy:
            for row in generation.step() if generation.busy else ():
                self._turn(self._numbers[row])
            if self._overlap:
                answers: Iterable[tuple[int, Any]] = self._new_answers(wait=not generation.busy)
            else:
                answers = [] if generation.busy else self._all_answers()
            for number, answer in answers:
                self._answered(number, answer)

    def close(self) -> None:
        """End the generation, close the environments that are still open, and wait for those that are closing."""
        if self.generation is not None:
            self.generation.close()
        for number in sorted(self._open):
            self._close(number)
        self._questions.clear()
        while self._closing:
            self._new_answers(wait=True)
        self._calls.close()

    def _begin(self, number: int) -> None:
        episode = self.episodes[number]
        self._ask(number, "reset", episode.environment.reset, episode.item, self.seeds[number])

    def _copy(self, number: int) -> None:
        """Keep the environment as it is before the policy's next turn."""
        episode = self.episodes[number]
        if self.copies is not None and episode.environment.copies:
            self.copies[number, len(episode.turns)] = deepcopy(episode.environment)

    def _room(self, number: int) -> int:
        """Tokens that the episode may still have."""
        return self._generating.remaining(self.rows[number])

    def _context(self, number: int, episode: Episode) -> list[int] | None:
        """The tokens before the policy's first turn; None of an episode that has failed."""
        if episode.failure is None:
            try:
                return list(
                    self.policy.renderer.encode(opened(self.policy, episode, episode.item.generation_context)).ids
                )
            except BadInputError as error:
                self._fail(number, ScoreFailure("environment_failed", f"reset: {error}", episode.name))
        return None

    def _turn(self, number: int) -> None:
        """The policy's turn has ended."""
        episode, row, generation = self.episodes[number], self.rows[number], self._generating
        ids = generation.turn(row)
        text = str(self.policy.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        room = self._room(number)
        if room < 0 or (room == 0 and not self._ended_itself(ids)):
            episode.turns.append(EpisodeTurn(text, len(ids)))
            self._cut(number, "tokens")
            return
        action = episode.act(text, len(ids))
        if episode.failure is not None:
            self._fail(number, episode.failure)
        elif action is None:
            self._continue(number)
        else:
            self._ask(number, action, episode.environment.step, action)

    def _answered(self, number: int, answer: Any) -> None:
        """The environment has answered."""
        episode, question = self.episodes[number], self._questions.pop(number)
        seconds = self._calls.seconds.pop(number, 0.0)
        if episode.turns:
            episode.turns[-1].seconds += seconds
        else:
            self._begun[number] = -seconds
        if isinstance(answer, ScoreFailure):
            episode.fail(answer)
        elif question == "reset":
            episode.begin(answer)
            self._copy(number)
        elif isinstance(question, Action):
            episode.observe(answer, question)
        else:
            episode.cut(question, answer)
        if episode.failure is not None:
            self._fail(number, episode.failure)
        elif episode.ended is not None:
            self._end(number)
        elif question != "reset":
            self._continue(number)

    def _continue(self, number: int) -> None:
        """Another turn, after what was observed; or the end, where a budget is used up."""
        episode, row, generation = self.episodes[number], self.rows[number], self._generating
        if len(episode.turns) >= episode.limits.turns:
            self._cut(number, "turns")
            return
        self._copy(number)
        turn = episode.turns[-1]
        try:
            ended = self._ended_itself(generation.turn(row), by_text=False)
            ended_by = self.policy.end_ids if ended else ()
            most = (self._room(number) + 1) * self._longest_token  # more of an observation does not fit
            between = between_turns(
                self.policy.renderer, turn.results, turn.messages, ended_by=ended_by, characters=most
            )
        except BadInputError as error:
            self._fail(number, ScoreFailure("environment_failed", f"step: {error}", episode.name))
            return
        if len(between) >= self._room(number):
            self._cut(number, "tokens")
        else:
            generation.resume(row, between)

    def _cut(self, number: int, ended: Literal["turns", "tokens"]) -> None:
        environment = self.episodes[number].environment
        if type(environment).cut is Environment.cut:
            self._questions[number] = ended
            self._answered(number, None)
        else:
            self._ask(number, ended, environment.cut)

    def _ask(
        self,
        number: int,
        what: Action | Literal["reset", "turns", "tokens"],
        method: Callable[..., Any],
        *arguments: Any,
    ) -> None:
        episode, limits = self.episodes[number], self.limits
        begun = None if self.generation is None else self._begun.get(number)
        seconds_left = limits.episode_seconds - (0.0 if begun is None else time.monotonic() - begun)
        if seconds_left <= 0:
            why = f"the episode did not end within {limits.episode_seconds:g} s"
            self._fail(number, ScoreFailure("environment_timeout", why, episode.name))
            return
        self._questions[number] = what
        self._calls.start(number, method, *arguments, seconds=min(seconds_left, limits.step_seconds), name=episode.name)

    def _fail(self, number: int, failure: ScoreFailure) -> None:
        self.episodes[number].fail(failure)
        self._end(number)
        if self.limits.on_failure == "stop":
            why = f"environment {failure.model}: {failure.code}: {failure.message}"
            raise BackendError(f"{why} (episodes.on_failure=mask goes on)")

    def _end(self, number: int) -> None:
        if self.generation is not None and number in self.rows:
            self.generation.forget(self.rows[number])
        self._close(number)

    def _close(self, number: int) -> None:
        self._open.discard(number)
        environment = self.episodes[number].environment
        if type(environment).close is not Environment.close:
            seconds, name = self.limits.step_seconds, type(environment).__name__
            self._closing.add(number + len(self.episodes))
            self._calls.start(number + len(self.episodes), environment.close, seconds=seconds, name=name)

    def _new_answers(self, *, wait: bool) -> list[tuple[int, Any]]:
        """Answers to what was asked. Environments that could not be closed are logged."""
        answers = []
        for number, answer in self._calls.take(wait=wait and len(self._calls) > 0):
            if number in self._questions:
                answers.append((number, answer))
            elif number in self._closing:
                self._closing.remove(number)
                if isinstance(answer, ScoreFailure):
                    log.warning("environment %s: not closed: %s", answer.model, answer.message)
        return answers

    def _all_answers(self) -> list[tuple[int, Any]]:
        """Those to all that was asked, in the episodes' order."""
        pending, answers = len(self._questions), list[tuple[int, Any]]()
        while len(answers) < pending:
            answers += self._new_answers(wait=True)
        return sorted(answers, key=lambda answer: answer[0])

    @property
    def _generating(self) -> TurnGeneration:
        assert self.generation is not None
        return self.generation

    def _ended_itself(self, ids: Sequence[int], *, by_text: bool = True) -> bool:
        """Whether the policy ended its turn."""
        return ids[-1] in self.policy.end_ids or (by_text and bool(self.stops) and self.stops.reached(ids))


def opened(policy: Policy, episode: Episode, prompt: Prompt) -> Prompt:
    """What the policy reads before its first turn: the prompt with the tools, then what `reset` observed."""
    with_tools = offered(prompt, episode.offered, policy.renderer) if episode.offered else prompt
    return tuple(joined((*with_tools, *episode.opening)))
