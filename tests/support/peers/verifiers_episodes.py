"""Environments of verifiers (`verifiers_reverse`, `verifiers_guess`, `verifiers_bank`), played by us and by verifiers.

Its own rollouts are driven by `ScriptedModel`, an OpenAI endpoint that says what is written down. Stand-in: that model.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import verifiers.v1 as vf
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from scripted_play import played, trained

from assay.errors import AssayError
from assay.http.running import running_app
from assay_policy_training.plugins.environments.adapters.verifiers import Verifiers, tasks
from assay_serving.tools.tool import ToolCall

here, programs = os.path.dirname(os.path.abspath(__file__)), os.path.dirname(sys.executable)  # which has `uv`
os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])


async def its_own(taskset: str, number: int, replies: Sequence[Any], role: str) -> dict[str, float | None]:
    """verifiers' own rewards of an episode in which the model says these texts, or makes these calls."""
    app, left = FastAPI(), list(replies)

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Any:
        body = await request.json()
        reply = left.pop(0)
        call = {"name": reply.name, "arguments": json.dumps(reply.arguments)} if isinstance(reply, ToolCall) else None
        message: dict[str, Any] = {"role": "assistant", "content": None if call else reply}
        if call:
            message["tool_calls"] = [{"index": 0, "id": f"c{len(left)}", "type": "function", "function": call}]
        choice = {"index": 0, "finish_reason": "tool_calls" if call else "stop"}
        head = {"id": "x", "created": 0, "model": "m"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            return {**head, "object": "chat.completion", "choices": [{**choice, "message": message}], "usage": usage}
        chunk = {**head, "object": "chat.completion.chunk"}
        events = [{**chunk, "choices": [{**choice, "delta": message}]}, {**chunk, "choices": [], "usage": usage}]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        return StreamingResponse(iter(lines), media_type="text/event-stream")

    local = {"runtime": {"type": "subprocess"}, "harness": {"id": "null"}}
    config = vf.resolve_env_config({"taskset": {"id": taskset}, role: local})
    environment = vf.load_environment(config)
    [task] = list(environment.taskset.skip(number).take(1))
    with running_app(app) as url:
        client = vf.EvalClientConfig(base_url=f"{url}/v1", api_key_var="NO_KEY")
        async with environment.serving():
            episode = await environment.run_episode(task, vf.ModelContext(model="m", client=client))
    [trace] = episode.traces
    return {name: reward and reward.value for name, reward in trace.rewards.items()} | {"": trace.reward}


def refusal(**settings: Any) -> str:
    try:
        Verifiers(**settings)
    except AssayError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def turn(*calls: ToolCall) -> str:
    return "\n".join(call.text for call in calls)


reverse, guess, bank = (Verifiers(taskset=f"verifiers_{name}") for name in ("reverse", "guess", "bank"))
words, numbers, people = (
    tasks("verifiers_reverse", seed=0, split=None),
    tasks("verifiers_guess?limit=9", seed=0, split=None),
    tasks("verifiers_bank", seed=0, split=None),
)
lookup = ToolCall("bank_tools_balance", {"name": "ana"})
scripts: dict[str, tuple[Any, ...]] = {
    "reverse good": (reverse, words[0], ["dlog"], "verifiers_reverse", 0, "agent"),
    "reverse bad": (reverse, words[1], ["silver, I think"], "verifiers_reverse", 1, "agent"),
    "guess good": (guess, numbers[4], ["3", "5"], "verifiers_guess", 4, "player"),
    "guess bad": (guess, numbers[4], ["3", "8", "none"], "verifiers_guess", 4, "player"),
    "bank good": (bank, people[0], [lookup, "42"], "verifiers_bank", 0, "agent"),
    "bank bad": (bank, people[1], ["7 or so"], "verifiers_bank", 1, "agent"),
}
told: dict[str, Any] = {}
for name, (environment, item, says, taskset, number, role) in scripts.items():
    texts = [one.text if isinstance(one, ToolCall) else one for one in says]
    told[name] = played(environment, item, texts)
    told[f"{name}, its own"] = asyncio.run(its_own(taskset, number, says, role))
told["prompts"] = [[message.to_dict() for message in item.prompt] for item in words]
told["not a number"] = played(reverse, words[0], ["nan"])
told["crash"] = played(reverse, words[0], ["crash"])
told["cut"] = played(guess, numbers[4], ["3"])
told["no taskset"] = refusal(taskset="no_such_taskset")
told["no setting"] = refusal(taskset="verifiers_reverse", env={"agent": {"max_turn": 3}})
if sys.argv[1:]:
    own = [
        "environment.kind=verifiers",
        "environment.taskset=verifiers_reverse",
        "sampling.max_new_tokens=24",
        "episodes.turn_tokens=12",
    ]
    settings = [word for one in own for word in ("--set", one)]
    told["trained"] = trained("--prompts", "verifiers:verifiers_reverse", *settings, *sys.argv[1:])
print(json.dumps(told))
