"""A class of TRL's `environment_factory`: its public methods are the tools, `get_reward` is the reward.

Covers: what `GRPOTrainer` does with such a class: `reset` gets the row's columns, a text that it gives is read by the
policy, calls run in their order (coroutines at the same time), what they raise is an error that the policy reads, a
turn without calls ends the episode. Leaves out: images in results, several environments in one run. Source: TRL 1.16,
`trl/trainer/grpo_trainer.py`. TRL itself is not needed.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

from transformers.utils.chat_template_utils import get_json_schema

from assay.conversation.parts import ToolDefinitionPart
from assay.errors import BadInputError
from assay.registry import Kind
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_serving.tools.tool import ToolCall, ToolResult

REWARD = "reward"
_FACTORIES: Kind[Callable[[], Any]] = Kind(
    "environment of TRL", "A class, or what makes one.", option="environment.factory"
)


class TrlEnvironment(Environment):
    """`factory`: `module:Class` or `file.py:Class`, called without arguments once an episode."""

    factory: str
    parts: ClassVar[tuple[str, ...]] = (REWARD,)

    def __post_init__(self) -> None:
        """Raises BadInputError or NotFoundError for a class that is not there."""
        super().__post_init__()
        if ":" not in self.factory:
            raise BadInputError(
                f"a class, module:Class or file.py:Class, not {self.factory!r}", field="environment.factory"
            )
        self.factory = _FACTORIES.absolute(self.factory)
        _FACTORIES.find(self.factory)

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """Raises BadInputError for an object without `reset`, and for a method that describes no tool."""
        self._peer = _FACTORIES.create(self.factory)
        members = dict(inspect.getmembers(type(self._peer), predicate=inspect.isfunction))
        if "reset" not in members:
            raise BadInputError(
                f"{type(self._peer).__name__} has no method reset, which TRL's environments have", field="factory"
            )
        names = [name for name in members if name not in ("reset", "get_reward") and not name.startswith("_")]
        self._tools: dict[str, Callable[..., Any]] = {name: getattr(self._peer, name) for name in names}
        columns = {"prompt": [message.to_dict() for message in prompt.prompt], **prompt.meta}
        observed = self._peer.reset(**columns)
        if not isinstance(observed, str | None):
            raise BadInputError(f"reset gave {type(observed).__name__}: only text is read", field="factory")
        return Observation(observed or (), tools=tuple(map(_definition, self._tools.values())))

    def step(self, action: Action) -> Observation | Done | Awaitable[Observation | Done]:
        """In the thread that is the episode's, coroutines in the loop that is all episodes'."""
        if not action.calls:
            return self.cut()
        pending = [_called(call, self._tools[call.name]) for call in action.calls]
        if not any(map(inspect.isawaitable, pending)):
            return Observation(
                results=[_result(call, returned) for call, returned in zip(action.calls, pending, strict=True)]
            )
        return self._awaited(action.calls, pending)

    def cut(self) -> Done | Awaitable[Done]:
        """TRL asks for the reward however the rollout ended; a class without `get_reward` leaves it to others."""
        if not hasattr(self._peer, "get_reward"):
            return Done()
        reward = self._peer.get_reward()
        return self._awaited_reward(reward) if inspect.isawaitable(reward) else self._rewarded(reward)

    async def _awaited(self, calls: Sequence[ToolCall], pending: list[Any]) -> Observation:
        """The results that are there, and those that are awaited at the same time."""
        waits = [returned for returned in pending if inspect.isawaitable(returned)]
        answers = iter(await asyncio.gather(*waits, return_exceptions=True))
        all_returned = [next(answers) if inspect.isawaitable(returned) else returned for returned in pending]
        return Observation(
            results=[_result(call, returned) for call, returned in zip(calls, all_returned, strict=True)]
        )

    async def _awaited_reward(self, reward: Awaitable[Any]) -> Done:
        return self._rewarded(await reward)

    def _rewarded(self, reward: Any) -> Done:
        if reward is None:
            reward = ScoreFailure("no_reward", "get_reward gave None", type(self._peer).__name__)
        return Done({REWARD: reward})


def _called(call: ToolCall, method: Callable[..., Any]) -> Any:
    """What it gives; the error that it raises."""
    try:
        return method(**call.arguments)
    except Exception as error:
        return error


def _definition(method: Callable[..., Any]) -> ToolDefinitionPart:
    try:
        function = get_json_schema(method)["function"]
    except Exception as error:  # its own errors are no ValueErrors
        raise BadInputError(
            f"the method {method.__name__} describes no tool: {str(error).splitlines()[0]}", field="factory"
        ) from error
    return ToolDefinitionPart(function["name"], function["description"], json.dumps(function["parameters"]))


def _result(call: ToolCall, returned: Any) -> ToolResult:
    """As TRL shows it: its text, and of an exception that of {"error": ...}."""
    if isinstance(returned, list) and any(isinstance(part, dict) and part.get("type") == "image" for part in returned):
        return ToolResult(call, "error: the result is an image, which is not shown here", True)
    error = isinstance(returned, Exception)
    return ToolResult(call, str({"error": str(returned)} if error else returned), error)
