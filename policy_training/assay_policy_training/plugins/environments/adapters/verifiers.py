"""Environments of verifiers (0.4, `verifiers.v1`): its taskset, its agent's program, its tools, its rewards.

    environment: {kind: verifiers, taskset: my_taskset, env: {agent: {max_turns: 4}}}

verifiers runs an episode itself: the agent's program asks a model for each turn, over HTTP. Here that model is the
policy: a request is what it observes, its turn is the reply. Covers: any environment in which one agent is played by
the policy and whose conversation grows; others are failed by name. Leaves out: several agents by the policy, programs
that rewrite what was said (compaction), images. The endpoint itself: `verifiers_endpoint`.
"""

import asyncio
import atexit
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl

import yaml

from assay.conversation.parts import ToolDefinitionPart
from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.adapters.verifiers_endpoint import (
    PolicyEndpoint,
    RunEnd,
    TurnRequest,
    without_calls,
)
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation, Parts
from assay_serving.tools.tool import ToolResult

TASK = "verifiers"  #: of a row: the data of its task, as JSON
LIMIT = 256  #: tasks of an endless taskset, unless `limit` says another


class Verifiers(Environment):
    """`taskset`: its installed package or module, as `--env.taskset.id` of verifiers. `env`: the rest of verifiers' own
    `[env]` block. An agent whose harness and runtime neither it nor the environment names is a chat with tools
    (`null`) in a local process.

    Each reward function is a part by its name, times its weight, so that the sum of the parts is verifiers' reward.
    """

    taskset: str
    env: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises BackendError without the package, BadInputError for a taskset or a setting that there is not."""
        super().__post_init__()
        self._block = json.dumps(_block(self.taskset, self.env), sort_keys=True, default=str)
        _environment(self._block)

    async def reset(self, prompt: PromptItem, seed: int) -> Observation:
        """Raises BadInputError for a prompt that is no task of verifiers (`--prompts verifiers:TASKSET`)."""
        if TASK not in prompt.meta:
            raise BadInputError(f"a prompt that is no task: --prompts verifiers:{self.taskset}", field="prompts")
        self._run = _opened(self._block).begin(prompt.meta[TASK])
        request = await self._run.next()
        if not isinstance(request, TurnRequest):
            self._parts(request)  # raises, where it failed
            raise BackendError("verifiers ended the episode before the policy's first turn")
        tools = [
            ToolDefinitionPart(tool["name"], tool.get("description", ""), json.dumps(tool.get("parameters") or {}))
            for tool in request.tools
        ]
        return Observation(prompt=[Message(role, text) for role, text, _ in request.messages], tools=tools)

    async def step(self, action: Action) -> Observation | Done:
        calls = {f"call_{len(self._run.history)}_{number}": call for number, call in enumerate(action.calls)}
        self._run.reply(without_calls(action.text) if calls else action.text, calls)
        request = await self._run.next()
        if not isinstance(request, TurnRequest):
            return Done(self._parts(request))
        results = {call_id: text for role, text, call_id in request.messages if role == "tool"}
        if missing := calls.keys() - results.keys():
            raise BackendError(f"the agent's program did not answer {len(missing)} of {len(calls)} calls")
        return Observation(
            [Message(role, text) for role, text, _ in request.messages if role != "tool"],
            [ToolResult(call, results[call_id], _is_error(results[call_id])) for call_id, call in calls.items()],
        )

    async def cut(self) -> Done | None:
        """The policy's context is full: what verifiers makes of the turns so far, if it scores them."""
        self._run.refuse()
        ended = await self._run.next()
        with suppress(BackendError):
            if isinstance(ended, RunEnd) and any(trace.num_turns for trace in ended.episode.traces):
                return Done(self._parts(ended))
        return None

    def close(self) -> None:
        if hasattr(self, "_run"):
            self._run.close()

    def _parts(self, ended: TurnRequest | RunEnd) -> Parts:
        """Raises BackendError where verifiers says that the episode failed."""
        assert isinstance(ended, RunEnd)
        if ended.error is not None:
            raise BackendError(f"verifiers: {type(ended.error).__name__}: {ended.error}") from ended.error
        episode, parts = ended.episode, dict[str, float | ScoreFailure]()
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok:
            raise BackendError("verifiers: " + ("; ".join(f"{e.type}: {e.message}" for e in errors) or "failed"))
        played = [trace for trace in episode.traces if trace.agent.trainable]
        for trace in played:
            for name, reward in trace.rewards.items():
                full = name if len(played) == 1 else f"{trace.agent.name}.{name}"
                parts[full] = ScoreFailure("backend", "it was not scored", full) if reward is None else reward.value
        return parts


def tasks(argument: str, *, seed: int, split: str | None) -> list[PromptItem]:
    """TASKSET, or TASKSET?SETTING=VALUE&... with `skip` and `limit`, and settings of the taskset. Raises as
    `Verifiers`."""
    name, _, query = argument.partition("?")
    settings = {key: yaml.safe_load(text) for key, text in parse_qsl(query)}
    skip, limit = settings.pop("skip", 0), settings.pop("limit", None)
    taskset = _environment(json.dumps(_block(name, {"taskset": settings}), sort_keys=True)).taskset
    if limit is None and not taskset.bounded:
        limit = LIMIT
    chosen = taskset.skip(skip) if limit is None else taskset.skip(skip).take(limit)
    items = [PromptItem(_prompt(task.data), meta={TASK: task.data.model_dump(mode="json")}) for task in chosen]
    if not items:
        raise BadInputError(f"the taskset {name} has no such tasks", field="prompts")
    return items


def _prompt(data: Any) -> tuple[Message, ...]:
    """What the task asks, for the record: the policy reads what the agent's program makes of it."""
    request = data.prompt_text or data.description or data.name or f"task {data.idx}"
    system = (Message("system", data.system_prompt),) if data.system_prompt else ()
    return (*system, Message("user", request))


def _block(taskset: str, env: Mapping[str, Any]) -> dict[str, Any]:
    """verifiers' `[env]` block, with the defaults of agents."""
    vf = _package()
    block = {**env, "taskset": {**env.get("taskset", {}), "id": taskset}}
    with _reading("environment.taskset"):
        vf.import_taskset(taskset)
        declared, harness = vf.env_config_type(taskset, block.get("id", "")), vf.default_harness_id(taskset)
    for name, info in declared.model_fields.items():
        if isinstance(info.default, vf.AgentConfig):
            agent, default = dict(block.get(name, {})), info.default
            if "runtime" not in default.model_fields_set:
                agent.setdefault("runtime", {"type": "subprocess"})
            if default.harness is None and harness == "bash":
                agent.setdefault("harness", {"id": "null"})
            block[name] = agent
    return block


def _is_error(text: str) -> bool:
    return text.startswith("error: ")


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Errors of reading settings as BadInputError of the field."""
    try:
        yield
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise BadInputError(f"verifiers: {' '.join(str(error).split())[:500]}", field=name) from error


@cache
def _environment(block: str) -> Any:
    vf = _package()
    with _reading("environment.env"):
        return vf.load_environment(vf.resolve_env_config(json.loads(block)))


_opening = threading.Lock()


def _opened(block: str) -> "_Host":
    with _opening:  # episodes that begin together
        return _host(block)


@cache
def _host(block: str) -> "_Host":
    return _Host(_environment(block))


class _Host:
    """The environment with its servers, running in a loop of its own, and the endpoint that its agents ask."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.endpoint = PolicyEndpoint()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="verifiers", daemon=True).start()
        ready: Future[None] = Future()
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(ready), self.loop)
        try:
            ready.result()
        except Exception as error:
            raise BackendError(f"verifiers: {type(error).__name__}: {error}") from error
        atexit.register(self._stop)

    def begin(self, data: Mapping[str, Any]) -> Any:
        """An episode of the task with these data."""
        vf = _package()
        kind = type(self.environment.taskset).task_type()
        with _reading("prompts"):
            task = kind(kind.data_type().model_validate(data), self.environment.taskset.config.task)
        name, run = self.endpoint.open()
        client = vf.EvalClientConfig(base_url=self.endpoint.url, api_key_var="ASSAY_NO_KEY")
        context = vf.ModelContext(model=name, client=client)
        episode = asyncio.run_coroutine_threadsafe(self.environment.run_episode(task, context), self.loop)
        run.of(episode)
        return run

    async def _serve(self, ready: "Future[None]") -> None:
        self._end = asyncio.Event()
        try:
            async with self.environment.serving():
                ready.set_result(None)
                await self._end.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        with suppress(Exception):
            self._serving.result(10)
        self.endpoint.close()


def _package() -> Any:
    try:
        vf = import_module("verifiers.v1")
        vf.env_config_type  # noqa: B018  an older release is another package
        return vf
    except (ImportError, AttributeError) as error:
        how = "pip install 'verifiers>=0.4'"
        raise BackendError(f"the environment verifiers needs its package: {how} ({error})") from error
