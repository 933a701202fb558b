"""An environment as a resource server of NeMo-Gym, for its agents and environment servers.

Covers: `/seed_session`, the environment's tools as routes, `/verify` (for agents that call tools and then answer);
`/reset` and `/step` (for its `gymnasium_agent`); rows of tasks for both. An episode without a reward is an error reply,
never a number. Leaves out: MCP tools and sandboxes. Wire format: nemo-gym 0.7.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi import Response as HttpResponse
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from assay.errors import BadInputError
from assay_policy_training.outside_trainers.led_episode import LedEpisode, observed_text
from assay_policy_training.outside_trainers.sessions import Sessions
from assay_serving.server.dialects.nemo_gym_metrics import aggregated

TASK = "assay_task"  #: of a row: its number
_COOKIE = "assay_episode"
#: Routes of the server itself, which a tool of that name would not be reached by.
_OWN = frozenset({"seed_session", "reset", "step", "verify", "close_session", "close", "aggregate_metrics"})


class TaskBody(BaseModel):
    """A row, of an agent; of an environment server a session's name and the row as `task_data`."""

    model_config = ConfigDict(extra="allow")

    assay_task: int | None = None
    task_data: dict[str, Any] = Field(default_factory=dict)
    resources_session_id: str | None = None

    @property
    def task(self) -> int:
        """Raises BadInputError."""
        task = self.task_data.get(TASK) if self.assay_task is None else self.assay_task
        if not isinstance(task, int):
            raise BadInputError("the row has none: write rows by --rows", field=TASK)
        return task


class RolloutBody(BaseModel):
    """A rollout, or of `/step` its last turn; all of it is replied."""

    model_config = ConfigDict(extra="allow")

    response: dict[str, Any]

    @property
    def output(self) -> list[dict[str, Any]]:
        """Items of OpenAI's Responses. Raises BadInputError."""
        output = self.response.get("output")
        if not isinstance(output, list) or not all(isinstance(entry, dict) for entry in output):
            raise BadInputError("must be a list of items", field="response.output")
        return output


def nemo_gym_routes(sessions: Sessions) -> APIRouter:
    router = APIRouter()

    def episode_of(request: Request) -> LedEpisode:
        return sessions.find(request.cookies.get(_COOKIE))

    async def begun(body: TaskBody, reply: dict[str, Any]) -> HttpResponse:
        name, _ = await sessions.begin(body.task)
        response = JSONResponse(reply)
        response.set_cookie(_COOKIE, name, httponly=True)
        return response

    @router.post("/seed_session")
    async def seed_session(body: TaskBody) -> HttpResponse:
        name = body.resources_session_id
        access = {"resources_session_id": name, "resources_tools": None, "sandbox_access": None}
        return await begun(body, {} if name is None else access)

    @router.post("/reset")
    async def reset(body: TaskBody) -> HttpResponse:
        """What the environment observes first is in the row."""
        return await begun(body, {"observation": None, "info": {"supports_explicit_close": True}})

    @router.post("/step")
    async def step(body: RolloutBody, request: Request) -> dict[str, Any]:
        episode = episode_of(request)
        calls = [entry for entry in body.output if entry.get("type") == "function_call"]
        turn = await episode.turn(said_in(body.output), [(each["name"], each["arguments"]) for each in calls])
        outputs = [
            {"call_id": each.get("call_id"), "output": answer.content}
            for each, answer in zip(calls, turn.results, strict=False)
        ]
        cut = episode.episode.ended == "turns"
        return {
            "observation": observed_text(turn.messages) or None,
            "reward": episode.newly_earned(),
            "terminated": episode.over and not cut,
            "truncated": cut,
            "info": {"tool_outputs": outputs},
        }

    @router.post("/verify")
    async def verify(body: RolloutBody, request: Request) -> dict[str, Any]:
        """The last message ends the episode, unless it is over."""
        episode = episode_of(request)
        last = body.output[-1:]
        if not episode.over and last and last[0].get("type") == "message":
            await episode.turn(said_in(last))
        await episode.end()
        parts = episode.parts()
        await sessions.close(request.cookies.get(_COOKIE))
        return body.model_dump() | {"reward": sum(parts.values()), "reward_components": parts}

    async def close(request: Request) -> dict[str, Any]:
        await sessions.close(request.cookies.get(_COOKIE))
        content = await request.json()
        name = content.get("resources_session_id") if isinstance(content, Mapping) else None
        return {} if name is None else {"resources_session_id": name}

    router.post("/close_session")(close)
    router.post("/close")(close)

    @router.get("/reverify_mode")
    async def reverify_mode() -> str:
        return "unsupported"

    @router.post("/aggregate_metrics")
    async def aggregate_metrics(body: dict[str, Any]) -> dict[str, Any]:
        return aggregated(body.get("verify_responses") or [])

    @router.post("/{tool}")
    async def call(tool: str, request: Request) -> HttpResponse:
        """A call of the policy: what it reads of it."""
        turn = await episode_of(request).turn("", [(tool, await request.json())])
        return PlainTextResponse(turn.observed if not turn.results else turn.results[0].content)

    for route in [each for each in router.routes if isinstance(each, APIRoute)]:  # observability names the rollout
        router.add_api_route(
            "/ng-rollout/{rollout}" + route.path,
            route.endpoint,
            methods=list(route.methods or ()),
            include_in_schema=False,
        )
    return router


def said_in(output: Sequence[Mapping[str, Any]]) -> str:
    """The texts of its messages."""
    contents = [entry.get("content") for entry in output if entry.get("type") == "message"]
    return "".join(
        content if isinstance(content, str) else "".join(part.get("text") or "" for part in content or ())
        for content in contents
    )


async def nemo_gym_rows(sessions: Sessions) -> list[dict[str, Any]]:
    """A row of each task: what the policy reads first, the tools, the task's number. Raises as `Sessions.begin`,
    and BadInputError for a tool that is called as a route of the server."""
    rows = []
    for task in range(len(sessions.items)):
        name, episode = await sessions.begin(task)
        tools = [{"type": "function", "strict": False, **function} for function in episode.functions]
        params = {"input": episode.prompt} | ({"tools": tools} if tools else {})
        rows.append({"responses_create_params": params, TASK: task})
        await sessions.close(name)
        if wrong := _OWN.intersection(tool["name"] for tool in tools):
            raise BadInputError(f"a tool cannot be called {', '.join(wrong)} in NeMo-Gym", field="environment")
    return rows
