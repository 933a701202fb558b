"""One episode: an environment's methods run within their limits, and the record of what happened.

Covers: what the record holds, budgets, wrong calls, values of other types, oversized observations. An environment that
raises, hangs or answers something else fails its episode by name; an episode that failed has no reward, whatever other
sources say. Leaves out: threads and clocks (`running`), tokens (`samplers.episodes`).
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from assay.conversation.parts import ToolDefinitionPart
from assay.domain import Message
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import EPISODE, FINAL_TURN, PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation, Parts
from assay_serving.tools.calls import calls_in
from assay_serving.tools.tool import ToolCall, ToolResult, response_text
from assay_serving.tools.toolbox import call_fault, refused
from assay_serving.tools.turns import parameters_of

FEEDBACK = 2000  #: characters of what is kept of an environment's feedback
#: How an episode ended: by itself, by a budget (the policy's), or by a failure.
Ended = Literal["done", "turns", "tokens", "failed"]


class EpisodeLimits(RecipeSettings, section="episodes"):
    """Budgets of an episode. Its tokens, results included, are at most `sampling.max_new_tokens`.

    `turns`: of the policy. `turn_tokens`: of one of them; a turn that is cut counts as it is. `calls`: that a turn may
    make. `step_seconds`: of one answer of the environment, `episode_seconds`: of an episode; after that it fails.
    `observation_bytes`: of one observation. `invalid`: whether a wrong call or an oversized observation is told the
    policy, or fails the episode. `on_failure`: whether a failed episode is masked and counted, or stops the run.
    `at_once`: answers of environments that are awaited at the same time. `overlap`: turns of some episodes are
    generated while others wait for their environment, so that batches, and with them last bits, depend on the clock;
    else all turns of a round end before the next begins. Default: where the environment's `step` is a coroutine.
    """

    turns: Annotated[int, Ge(1)] = 8
    turn_tokens: Annotated[int | None, Ge(1)] = None
    calls: Annotated[int, Ge(1)] = 16
    step_seconds: Annotated[float, Gt(0)] = 60.0
    episode_seconds: Annotated[float, Gt(0)] = 3600.0
    observation_bytes: Annotated[int, Ge(1)] = 10_000_000
    invalid: Literal["tell", "fail"] = "tell"
    on_failure: Literal["mask", "stop"] = "mask"
    at_once: Annotated[int, Ge(1)] = 256
    overlap: bool | None = None


@dataclass
class EpisodeTurn:
    """A turn of the policy, and what came of it. `tokens`: its own. `invalid`: its calls that could not be run.
    `oversized`: an observation was replaced by an error. `state`: the environment's before it."""

    text: str
    tokens: int
    calls: tuple[ToolCall, ...] = ()
    invalid: int = 0
    results: tuple[ToolResult, ...] = ()
    oversized: bool = False
    messages: tuple[Message, ...] = ()
    rewards: dict[str, float | ScoreFailure] = field(default_factory=dict)
    seconds: float = 0.0  #: until the environment answered
    state: str | None = None

    @property
    def observed(self) -> str:
        """What the policy read after it, as text."""
        parts = [response_text(self.results)] if self.results else []
        return "\n".join([*parts, *(message.text for message in self.messages)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": self.tokens,
            "calls": [asdict(call) for call in self.calls],
            "invalid": self.invalid,
            "results": [
                {"name": result.call.name, "content": result.content, "error": result.error} for result in self.results
            ],
            "oversized": self.oversized,
            "messages": [message.to_dict() for message in self.messages],
            "rewards": parts_form(self.rewards),
            "seconds": round(self.seconds, 4),
            **({} if self.state is None else {"state": self.state}),
        }


@dataclass
class Episode:
    """`opening`: what `reset` observed. `offered`: the tools that the prompt describes. `rewards`: of the episode as a
    whole. `state`: the environment's now. `shared_turns`: its first ones, which another episode took. `forced_answers`:
    before the first turn and after each, what it would have earned by answering then; empty where one is missing."""

    item: PromptItem
    environment: Environment
    limits: EpisodeLimits
    opening: tuple[Message, ...] = ()
    tools: tuple[ToolDefinitionPart, ...] = ()
    offered: tuple[ToolDefinitionPart, ...] = ()
    turns: list[EpisodeTurn] = field(default_factory=list)
    rewards: dict[str, float | ScoreFailure] = field(default_factory=dict)
    ended: Ended | None = None
    failure: ScoreFailure | None = None
    state: str | None = None
    shared_turns: int = 0
    forced_answers: tuple[float, ...] | None = None
    feedback: str = ""

    @property
    def name(self) -> str:
        return type(self.environment).__name__

    @property
    def text(self) -> str:
        """All that was written, for people and reward models: turns with what followed them."""
        before = "".join(f"{turn.text}\n{turn.observed}\n" for turn in self.turns[:-1])
        return before + (self.turns[-1].text if self.turns else "")

    def fail(self, failure: ScoreFailure) -> None:
        """The first failure counts."""
        if self.failure is None:
            self.failure, self.ended = failure, "failed"

    def begin(self, answer: object) -> None:
        """Take what `reset` answered."""
        observation = self._observation("reset", answer)
        if observation is not None:
            self.opening, self.tools = observation.as_messages, tuple(observation.tools)
            self.state = observation.state
            self.offered = self.tools if observation.offered else ()
            if prompt := tuple(observation.prompt):
                self.item = replace(self.item, generate_from=prompt, train_on=prompt)

    def act(self, text: str, tokens: int) -> Action | None:
        """The policy's next turn, as the environment is given it; None where no call in it can be run, or the episode
        fails by it."""
        calls = tuple(calls_in(text)) if self.tools else ()
        parameters = {tool.name: parameters_of(tool) for tool in self.tools}
        faults = [call_fault(call, parameters) for call in calls[: self.limits.calls]]
        faults += [f"a turn may make {self.limits.calls} calls"] * (len(calls) - len(faults))
        refusals = [refused(call, fault) for call, fault in zip(calls, faults, strict=True) if fault is not None]
        self.turns.append(EpisodeTurn(text, tokens, calls, len(refusals), tuple(refusals), state=self.state))
        if refusals and self.limits.invalid == "fail":
            self.fail(self._failure("invalid_call", refusals[0].content))
            return None
        valid = tuple(call for call, fault in zip(calls, faults, strict=True) if fault is None)
        return None if calls and not valid else Action(text, valid)

    def observe(self, answer: object, action: Action) -> None:
        """Take what `step` answered to the last turn."""
        turn = self.turns[-1]
        if isinstance(answer, Done):
            self._reward(answer.turn_rewards, turn.rewards)
            self._reward(answer.rewards, self.rewards)
            self.feedback = str(answer.feedback)[:FEEDBACK]
            self.ended = self.ended or "done"
        elif (observation := self._observation("step", answer, action)) is not None:
            self._reward(observation.rewards, turn.rewards)
            by_call = {id(result.call): result for result in turn.results}
            by_call |= {id(call): result for call, result in zip(action.calls, observation.results, strict=False)}
            turn.results = tuple(by_call[id(call)] for call in turn.calls if id(call) in by_call)
            turn.messages, self.state = observation.as_messages, observation.state

    def cut(self, ended: Ended, answer: object) -> None:
        """The end by a budget, with what `Environment.cut` answered."""
        self.ended = ended
        if answer is not None and not isinstance(answer, Done):
            self.fail(self._failure("environment_failed", f"cut gave {type(answer).__name__}, not Done or None"))
        elif answer is not None:
            self.observe(answer, Action(""))

    def _observation(self, method: str, answer: object, action: Action | None = None) -> Observation | None:
        """The answer, where it is an observation within the limits; None where it fails the episode."""
        if not isinstance(answer, Observation):
            self.fail(self._failure("environment_failed", f"{method} gave {type(answer).__name__}, not an observation"))
            return None
        calls = () if action is None else action.calls
        try:
            messages, results, tools = answer.as_messages, tuple(answer.results), tuple(answer.tools)
        except TypeError as error:
            self.fail(self._failure("environment_failed", f"{method} observed what is no sequence: {error}"))
            return None
        odd = [type(one).__name__ for one in messages if not isinstance(one, Message) or one.role == "assistant"]
        odd += [type(one).__name__ for one in results if not isinstance(one, ToolResult)]
        odd += [type(one).__name__ for one in tools if not isinstance(one, ToolDefinitionPart)]
        odd += [] if isinstance(answer.state, str | None) else [type(answer.state).__name__]
        odd = odd or ["tool definition without a JSON schema" for one in tools if not _has_schema(one)]
        if odd or len(results) not in (0, len(calls)):
            why = f"a {odd[0]} among what is observed" if odd else f"{len(results)} results of {len(calls)} calls"
            self.fail(self._failure("environment_failed", f"{method} gave {why}"))
            return None
        texts = [*(message.text for message in messages), *(result.content for result in results)]
        texts += [f"{one.name}{one.description or ''}{one.parameters or ''}" for one in tools]
        try:
            size, most = sum(len(text.encode()) for text in texts), self.limits.observation_bytes
        except (AttributeError, UnicodeEncodeError) as error:
            self.fail(self._failure("environment_failed", f"{method} observed what is no text: {error}"))
            return None
        if size <= most:
            return answer
        why = f"the observation has {size} bytes, more than {most}"
        if action is None or self.limits.invalid == "fail":
            self.fail(self._failure("observation_too_long", why))
            return None
        self.turns[-1].oversized = True
        errors = tuple(refused(call, why) for call in calls)
        return replace(answer, messages=() if errors else f"error: {why}", results=errors)

    def _reward(self, parts: object, into: dict[str, float | ScoreFailure]) -> None:
        if not isinstance(parts, Mapping):
            self.fail(self._failure("environment_failed", f"rewards are {type(parts).__name__}, not numbers by name"))
            return
        for name, value in parts.items():
            if isinstance(value, ScoreFailure):
                into[str(name)] = value
            elif (number := _finite(value)) is not None:
                into[str(name)] = number
            else:
                into[str(name)] = ScoreFailure("not_finite", f"the reward is {value!r}"[:200], str(name))

    def _failure(self, code: str, message: str) -> ScoreFailure:
        return ScoreFailure(code, message[:2000], self.name)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, in which episodes are stored."""
        return {
            "environment": self.name,
            "version": hashlib.sha256(repr(self.environment).encode()).hexdigest()[:12],  # of its settings
            "parts": list(self.environment.parts),
            "ended": self.ended,
            "tools": [tool.to_dict() for tool in self.tools],
            "opening": [message.to_dict() for message in self.opening],
            "turns": [turn.to_dict() for turn in self.turns],
            "rewards": parts_form(self.rewards),
            "feedback": self.feedback,
            "failure": None if self.failure is None else self.failure.to_dict()["error"],
            **({"shared_turns": self.shared_turns} if self.shared_turns else {}),
            **({} if self.forced_answers is None else {"forced_answers": list(self.forced_answers)}),
        }

    def meta(self) -> dict[str, Any]:
        """Entries of the row's item."""
        return {FINAL_TURN: self.turns[-1].text if self.turns else "", EPISODE: self.to_dict()}


def _finite(value: object) -> float | None:
    """The number that it is, if it is one; also one of numpy's."""
    try:
        return float(value) if isinstance(value, Real) and math.isfinite(value) else None
    except OverflowError:
        return None


def _has_schema(tool: ToolDefinitionPart) -> bool:
    try:
        schema: object = parameters_of(tool)
    except (ValueError, RecursionError):
        return False
    return isinstance(schema, Mapping) and isinstance(schema.get("properties", {}), Mapping)


def parts_form(parts: Parts) -> dict[str, Any]:
    """JSON form: numbers, and failures as `ScoreFailure.to_dict` writes them."""
    return {name: value.to_dict() if isinstance(value, ScoreFailure) else value for name, value in parts.items()}
