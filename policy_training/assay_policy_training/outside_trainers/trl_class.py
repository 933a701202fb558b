"""An environment as a class for TRL's `GRPOTrainer(environment_factory=...)`: its tools are methods of the class.

    environment_class, rows = trl_environment(TwentyQuestions(), items)
    GRPOTrainer(environment_factory=environment_class, train_dataset=Dataset.from_list(rows), ...)

TRL shows such a class the calls alone. So it also has the method `answer`, which takes a turn as text: the moves of an
environment without tools, and the last answer of one with them. An episode without a reward has None, which TRL leaves
out. Leaves out: TRL itself, which is not imported.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from assay.errors import AssayError, BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.outside_trainers.led_episode import LedEpisode, observed_text
from assay_policy_training.outside_trainers.sessions import Sessions
from assay_policy_training.plugins.environments.environment import Environment
from assay_policy_training.plugins.environments.episode import EpisodeLimits

T = TypeVar("T")
TASK = "assay_task"  #: column of the rows: the task's number
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_ANSWER: dict[str, Any] = {
    "name": "answer",
    "description": "Answer in words.",
    "parameters": {"properties": {"text": {"type": "string", "description": "The answer."}}, "required": ["text"]},
}
logger = logging.getLogger("assay.trainers")


def trl_environment(
    environment: Environment, items: Sequence[PromptItem], limits: EpisodeLimits | None = None, *, seed: int = 0
) -> tuple[type, list[dict[str, Any]]]:
    """The class, and the rows of TRL's data set. Its tools are those of the first prompt's episode.

    Raises BadInputError for a tool whose name TRL or this class needs, and BackendError where the environment fails.
    """
    sessions = Sessions(environment, items, limits or EpisodeLimits(), seed=seed)
    name, episode = _wait(sessions.begin(0))
    functions = episode.functions
    _wait(sessions.close(name))
    if wrong := {"reset", "get_reward", "answer"}.intersection(function["name"] for function in functions):
        raise BadInputError(f"a tool cannot be called {', '.join(wrong)} in TRL", field="environment")
    methods = {function["name"]: _method(function) for function in (*functions, _ANSWER)}
    rows = [{"prompt": [turn.to_dict() for turn in item.prompt], TASK: n} for n, item in enumerate(items)]
    return type(type(environment).__name__, (_TrlEpisodes,), {**methods, "_sessions": sessions}), rows


class _TrlEpisodes:
    """One episode after the other, as TRL reuses its environments."""

    _sessions: Sessions

    def __init__(self) -> None:
        self._name: str | None = None
        self._episode: LedEpisode | None = None

    def reset(self, **row: Any) -> str | None:
        _wait(self._sessions.close(self._name))
        self._name, self._episode = _wait(self._sessions.begin(int(row[TASK])))
        opened = observed_text(self._episode.episode.opening)
        return f"\n\n{opened}" if opened else None

    def get_reward(self) -> float | None:
        assert self._episode is not None
        try:
            _wait(self._episode.end())
            return sum(self._episode.parts().values())
        except AssayError as error:
            logger.warning("no reward: %s", error)
            return None

    def _take(self, name: str, arguments: Mapping[str, Any]) -> str:
        assert self._episode is not None
        if name == _ANSWER["name"]:
            turn = _wait(self._episode.turn(str(arguments["text"])))
        else:
            turn = _wait(self._episode.turn("", [(name, arguments)]))
        texts = [*(answer.content for answer in turn.results), observed_text(turn.messages)]
        return "\n\n".join(text for text in texts if text) or "The episode is over."


def _method(function: Mapping[str, Any]) -> Callable[..., str]:
    """A method that `transformers.utils.get_json_schema` describes as the tool is described."""
    schema: Mapping[str, Any] = function["parameters"]
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    ordered = sorted(properties, key=lambda name: name not in schema.get("required", ()))
    required, types = schema.get("required", ()), {name: _type_of(each) for name, each in properties.items()}

    def method(self: _TrlEpisodes, *values: Any, **arguments: Any) -> str:
        by_name = dict(zip(ordered, values, strict=False)) | arguments
        return self._take(function["name"], {name: each for name, each in by_name.items() if each is not None})

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if name in required else None,
            annotation=types[name],
        )
        for name in ordered
    ]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    described = "".join(f"\n    {name}: {each.get('description') or name}" for name, each in properties.items())
    method.__name__ = method.__qualname__ = function["name"]
    method.__doc__ = f"{function['description'] or function['name']}\n" + (
        f"\nArgs:{described}\n" if properties else ""
    )
    method.__annotations__ = {**types, "return": str}
    method.__signature__ = inspect.Signature([itself, *parameters])  # type: ignore[attr-defined]
    return method


def _type_of(schema: Mapping[str, Any]) -> type:
    kind = schema.get("type")
    return _TYPES.get(kind, str) if isinstance(kind, str) else str


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """What it gives: in a loop that lives as long as the process, for environments whose methods are coroutines."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="environments of TRL", daemon=True).start()
    return loop
