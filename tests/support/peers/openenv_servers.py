"""Two environments on OpenEnv's own server, and what OpenEnv's own client earns there with the turns that are given.

Prints the addresses and the rewards, then serves until its standard input ends.
"""

import asyncio
import json
import socket
import sys
from typing import Any
from uuid import uuid4

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Environment, create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.generic_client import GenericEnvClient


class Guess(Action):
    text: str


class Hint(Observation):
    hint: str = ""


class Guessing(Environment[Guess, Hint, State]):
    """A number from 0 to 9 of the seed; `fault` says what goes wrong, or how it rewards otherwise."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, fault: str = "", **options: Any) -> Hint:
        self.number, self.fault = (seed or 0) % 10, fault
        self.turns = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Hint(hint="Guess.")

    def step(self, action: Guess, timeout_s: float | None = None, **options: Any) -> Hint:
        self.turns.step_count += 1
        if self.fault == "raise":
            raise RuntimeError("the number is lost")
        over = self.turns.step_count == 3 or action.text == str(self.number)
        reward = {"none": None, "parity": float(len(action.text) % 2)}.get(
            self.fault, float(action.text == str(self.number))
        )
        return Hint(hint="No.", done=over, reward=reward if over else None)

    @property
    def state(self) -> State:
        return self.turns


class Adding(MCPEnvironment):
    """Tools that add to a count; each call to 5 earns 1."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("adding")
        self.count = 0

        @tools.tool
        def add(number: int) -> int:
            """Add to the count."""
            self.count += number
            return self.count

        @tools.tool
        def look() -> str:
            """Read the count."""
            if self.count > 100:
                raise ValueError("too far to see")
            return f"It is {self.count}."

        super().__init__(tools)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        self.count = 0
        return Observation()

    def _step_impl(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        return Observation(done=True)

    async def step_async(self, action: Any, timeout_s: float | None = None, **options: Any) -> Observation:
        observed: Observation = await super().step_async(action, timeout_s=timeout_s, **options)
        observed.reward = float(self.count == 5)
        return observed

    @property
    def state(self) -> State:
        return State()


async def serve(app: Any) -> tuple[str, uvicorn.Server, asyncio.Task[None]]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.05)
    return f"http://127.0.0.1:{listening.getsockname()[1]}", server, task


async def earned(url: str, turns: list[dict[str, Any]]) -> float:
    """Of the steps, by OpenEnv's own client."""
    total = 0.0
    async with GenericEnvClient(base_url=url) as client:
        await client.reset(seed=7)
        for turn in turns:
            total += (await client.step(turn)).reward or 0.0
    return total


async def main() -> None:
    guessing = await serve(create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=12))
    adding = await serve(create_fastapi_app(Adding, CallToolAction, CallToolObservation, max_concurrent_envs=12))
    addresses = {"guessing": guessing[0], "adding": adding[0]}
    rewards = {name: await earned(addresses[server], turns) for name, server, turns in json.loads(sys.argv[1])}
    print(json.dumps(addresses | {"rewards": rewards}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for _, server, task in (guessing, adding):
        server.should_exit = True
        await task


asyncio.run(main())
