"""OpenEnv's servers as environments of ours: the rewards that OpenEnv's own client gets there, failures, training."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from environment_training import trained
from peer_programs import serving_peer

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.adapters.openenv import OpenEnv
from assay_policy_training.plugins.environments.environment import Action, Done
from assay_serving.tools.tool import ToolCall

SCRIPTS: dict[str, tuple[str, list[Any]]] = {
    "guessed": ("guessing", ["3", "7"]),
    "not guessed": ("guessing", ["3", "4", "5"]),
    "added": ("adding", [["add", {"number": 2}], ["add", {"number": 3}], ["look", {}]]),
    "too much": ("adding", [["add", {"number": 200}], ["look", {}]]),
}


def action_of(turn: Any) -> dict[str, Any]:
    """As OpenEnv's own client writes it."""
    return (
        {"text": turn} if isinstance(turn, str) else {"type": "call_tool", "tool_name": turn[0], "arguments": turn[1]}
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    scripts = [(name, server, list(map(action_of, turns))) for name, (server, turns) in SCRIPTS.items()]
    with serving_peer("openenv", "openenv_servers.py", json.dumps(scripts)) as started:
        yield started


async def played(url: str, turns: list[Any], **settings: Any) -> tuple[float, list[str]]:
    """What the episode earns, of all its turns, and what the policy reads."""
    environment = OpenEnv(url=url, **settings)
    observed: Any = await environment.reset(PromptItem((Message("user", "Go."),)), 7)
    earned, read = list[Any](), [observed.messages, *(tool.name for tool in observed.tools)]
    for turn in [*turns, "Done."]:
        call = None if isinstance(turn, str) else ToolCall(*turn)
        observed = await environment.step(Action(turn) if call is None else Action(call.text, (call,)))
        if isinstance(observed, Done):
            earned += [*observed.rewards.values(), *observed.turn_rewards.values()]
            break
        earned += observed.rewards.values()
        read += [result.content for result in observed.results] or [observed.messages]
    await environment.close()
    return sum(earned), read


def test_rewards_are_those_of_its_own_client(servers: tuple[dict[str, Any], Any]) -> None:
    said, _ = servers
    ours = {name: asyncio.run(played(said[server], turns)) for name, (server, turns) in SCRIPTS.items()}
    assert {name: earned for name, (earned, _) in ours.items()} == said["rewards"]
    assert said["rewards"] == {"guessed": 1.0, "not guessed": 0.0, "added": 2.0, "too much": 0.0}
    assert ours["guessed"][1] == ["Guess.", "No."]
    assert ours["added"][1] == ["", "add", "look", "2", "5", "It is 5."]
    assert "too far to see" in ours["too much"][1][-1]


def test_a_policy_trains_there_and_a_fault_fails_its_row_by_name(
    servers: tuple[dict[str, Any], Any], workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    said, _ = servers
    faults = {"parity": "", "raise": "environment_failed", "none": "no_reward"}
    rows = [{"prompt": f"Guess {fault}.", "reset": {"fault": fault}} for fault in faults]
    rollouts = trained(workspace, capsys, rows, prompts=3, kind="openenv", url=said["guessing"])
    assert len(rollouts) == 24
    for row in rollouts:
        fault = row["prompt"][0]["content"].removeprefix("Guess ").removesuffix(".")
        assert [failure["code"] for failure in row["failures"]][:1] == ([faults[fault]] if faults[fault] else [])
        assert (row["reward"] is None) == (fault in ("raise", "none"))
        assert fault == "raise" or len(row["episode"]["turns"]) == 3
    assert {row["reward"] for row in rollouts} == {None, 0.0, 1.0}
    settings = {"kind": "openenv", "url": said["adding"], "no_step": 0.0}
    rollouts = trained(workspace, capsys, [{"prompt": "Add."}], **settings)
    assert {row["reward"] for row in rollouts} == {0.0}
    assert {tuple(tool["name"] for tool in row["episode"]["tools"]) for row in rollouts} == {("add", "look")}


def test_what_it_cannot_do_is_said_in_a_line(servers: tuple[dict[str, Any], Any]) -> None:
    said, _ = servers
    with pytest.raises(BadInputError, match=r"environment.url"):
        OpenEnv(url="localhost")
    with pytest.raises(BackendError, match=r"the OpenEnv server http://127.0.0.1:9 does not answer"):
        asyncio.run(played("http://127.0.0.1:9", []))
    # The action has no such field: the policy is told so, and goes on.
    _, read = asyncio.run(played(said["guessing"], ["3", "7"], field="number"))
    assert "Field required" in read[1]


def test_a_server_that_dies_fails_the_episode(servers: tuple[dict[str, Any], subprocess.Popen[str]]) -> None:
    """The last test of this file: the server is gone."""
    said, process = servers

    async def outlived() -> None:
        environment = OpenEnv(url=said["guessing"])
        await environment.reset(PromptItem((Message("user", "Go."),)), 0)
        process.kill()
        process.wait()
        await environment.step(Action("3"))

    with pytest.raises(BackendError, match=f"the OpenEnv server {said['guessing']} does not answer step"):
        asyncio.run(outlived())
