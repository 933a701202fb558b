"""NeMo-Gym's resource servers as environments of ours: the rewards its own agents earn there, failures, training."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from environment_training import trained
from peer_programs import serving_peer

from assay.domain import prompt_of
from assay.errors import BackendError, BadInputError
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.adapters.nemo_gym import NemoGym
from assay_policy_training.plugins.environments.environment import Action, Done
from assay_serving.tools.tool import ToolCall

TOOLS = [
    {"type": "function", "name": "increment_counter", "description": "", "strict": True, "parameters": {
        "type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}},
    {"type": "function", "name": "get_counter_value", "description": "", "strict": True, "parameters": {
        "type": "object", "properties": {}, "required": []}},
]  # fmt: skip
COUNT: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "add 1, add 2, get the count"}], "tools": TOOLS},
    "expected_count": 6,
    "initial_count": 3,
}
ASKED: dict[str, Any] = {
    "responses_create_params": {"input": [{"role": "user", "content": "The capital of France?"}]},
    "follow_ups": ["Name one famous landmark there."],
    "expected_answer": "Eiffel",
}
PROMPT = ("--column", "prompt=responses_create_params.input")
#: What the policy says or calls in each turn.
SCRIPTS: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("counted", "caller", COUNT, [["increment_counter", {"count": 1}], ["increment_counter", {"count": 2}], "Six."]),
    ("miscounted", "caller", COUNT, [["increment_counter", {"count": 1}], "Six."]),
    ("answered", "speaker", ASKED, ["Paris.", "The Eiffel Tower."]),
    ("not answered", "speaker", ASKED, ["Eiffel", "No idea."]),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    with serving_peer("nemo-gym", "nemo_gym_environments.py", json.dumps(SCRIPTS)) as started:
        yield started


def item(row: dict[str, Any]) -> PromptItem:
    return PromptItem(prompt_of(row["responses_create_params"]["input"]), meta=row)


async def played(environment: NemoGym, row: dict[str, Any], script: list[Any]) -> float:
    """What the episode earns, of all its turns."""
    observed: Any = await environment.reset(item(row), 0)
    earned = 0.0
    for turn in script:
        assert not isinstance(observed, Done)
        call = None if isinstance(turn, str) else ToolCall(*turn)
        observed = await environment.step(Action(turn) if call is None else Action(call.text, (call,)))
        for parts in (observed.rewards, getattr(observed, "turn_rewards", {})):
            earned += sum(parts.values())
    await environment.close()
    assert isinstance(observed, Done)
    return earned


def test_rewards_are_those_of_its_own_agents(servers: tuple[dict[str, Any], Any]) -> None:
    said, _ = servers
    kinds = {"caller": ("counter", "verify"), "speaker": ("questions", "gymnasium")}
    ours = {}
    for name, agent, row, script in SCRIPTS:
        server, protocol = kinds[agent]
        environment = NemoGym(url=said[server], protocol=protocol)  # type: ignore[arg-type]
        ours[name] = asyncio.run(played(environment, row, script))
    assert ours == said["rewards"] == {"counted": 1.0, "miscounted": 0.0, "answered": 1.0, "not answered": 0.0}


def test_a_policy_trains_there(
    servers: tuple[dict[str, Any], Any], workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    said, _ = servers
    for row, server, protocol in ((COUNT, "counter", "verify"), (ASKED, "questions", "gymnasium")):
        settings = {"kind": "nemo_gym", "url": said[server], "protocol": protocol}
        rows = trained(workspace, capsys, [row | {"expected_answer": "s"}], *PROMPT, **settings)
        assert [row["failures"] for row in rows] == [[]] * 8
    assert {row["reward"] for row in rows} == {0.0, 1.0}
    assert {len(row["episode"]["turns"]) for row in rows} == {2}


def test_what_it_cannot_do_is_said_in_a_line(servers: tuple[dict[str, Any], Any]) -> None:
    said, _ = servers
    with pytest.raises(BadInputError, match=r"environment.url"):
        NemoGym(url="localhost")
    with pytest.raises(BackendError, match=r"http://127.0.0.1:9 does not answer /seed_session"):
        asyncio.run(played(NemoGym(url="http://127.0.0.1:9"), COUNT, []))
    with pytest.raises(BackendError, match=r"answers /seed_session with 422 .*initial_count"):
        asyncio.run(played(NemoGym(url=said["counter"]), {**COUNT, "initial_count": "many"}, []))
    params = {**COUNT["responses_create_params"], "tools": [{"type": "web_search"}]}
    with pytest.raises(BadInputError, match="a tool of the type 'web_search'"):
        asyncio.run(played(NemoGym(url=said["counter"]), {**COUNT, "responses_create_params": params}, []))


@pytest.mark.parametrize(
    ("expected", "code", "why"),
    [
        (-1, "masked", "the session is lost"),
        (-2, "not_finite", "the reward is nan"),
        (-3, "no_reward", "the server's answer has no reward"),
        (-4, "environment_failed", "answers /verify with '[]', no object"),
    ],
)
def test_a_verdict_without_a_reward_fails_its_row_by_name(
    servers: tuple[dict[str, Any], Any],
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    expected: int,
    code: str,
    why: str,
) -> None:
    said, _ = servers
    rows = [COUNT, COUNT | {"expected_count": expected}]
    settings = {"kind": "nemo_gym", "url": said["counter"]}
    rollouts = trained(workspace, capsys, rows, *PROMPT, steps=1, prompts=2, **settings)
    assert [row["reward"] for row in rollouts].count(0.0) == 4
    failed = [row for row in rollouts if row["reward"] is None]
    assert len(failed) == 4
    for row in failed:
        assert row["failures"][0]["code"] == code
        assert why in row["failures"][0]["message"]


def test_a_server_that_dies_fails_the_episode(servers: tuple[dict[str, Any], subprocess.Popen[str]]) -> None:
    """The last test of this file: the server is gone."""
    said, process = servers

    async def outlived() -> None:
        environment = NemoGym(url=said["counter"])
        await environment.reset(item(COUNT), 0)
        process.kill()
        process.wait()
        await environment.step(Action("Six."))

    with pytest.raises(BackendError, match=f"the resource server {said['counter']} does not answer /verify"):
        asyncio.run(outlived())
