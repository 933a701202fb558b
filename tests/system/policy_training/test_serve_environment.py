"""`assay serve-environment`, played by our own clients of NeMo-Gym's and OpenEnv's servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from environment_training import trained
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from assay.domain import Message, prompt_of
from assay.errors import BackendError, BadInputError, BusyError
from assay.http.running import running_app
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.outside_trainers.app import environment_app
from assay_policy_training.outside_trainers.nemo_gym import nemo_gym_rows
from assay_policy_training.outside_trainers.sessions import Sessions
from assay_policy_training.plugins.environments.adapters.nemo_gym import NemoGym
from assay_policy_training.plugins.environments.adapters.openenv import OpenEnv
from assay_policy_training.plugins.environments.environment import Action, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.environments.shipped.twenty_questions import TwentyQuestions
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_policy_training.plugins.prompts.source import load_prompts
from assay_serving.tools.tool import ToolCall


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The address and a row of NeMo-Gym's."""
    rows = tmp_path_factory.mktemp("environment") / "rows.jsonl"
    options = ("--set", "environment.kind=tools", "--prompts", "arithmetic:2", "--rows", str(rows), "--port", "0")
    command = [sys.executable, "-m", "assay", "serve-environment", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        announced = server.stdout.readline()
        assert announced.startswith("serving Tools at http://")
        yield announced.split()[3], json.loads(rows.read_text(encoding="utf-8").splitlines()[0])
        server.terminate()
    assert server.returncode == 0


async def earned(environment: Environment, item: PromptItem, *turns: Action) -> list[Any]:
    """What the policy reads, then the rewards."""
    observed: Any = await environment.reset(item, 0)  # type: ignore[misc]
    read: list[Any] = [tool.name for tool in observed.tools]
    for action in turns:
        observed = await environment.step(action)  # type: ignore[misc]
        if isinstance(observed, Observation):
            read += [answer.content for answer in observed.results]
    await environment.close()  # type: ignore[misc]
    return [*read, {**observed.rewards, **getattr(observed, "turn_rewards", {})}]


def calls(expression: str) -> Action:
    call = ToolCall("calculator", {"expression": expression})
    return Action(call.text, (call,))


def test_its_tools_and_rewards_reach_clients_of_both_formats(served: tuple[str, dict[str, Any]]) -> None:
    url, row = served
    prompt = prompt_of(row["responses_create_params"]["input"])
    expression = prompt[-1].text.removesuffix("?")
    result = str(eval(expression))
    item = PromptItem(prompt, meta=row)
    right = earned(NemoGym(url=url), item, calls(expression), Action(result))
    assert asyncio.run(right) == ["calculator", result, {"reward": 1.0}]
    wrong = earned(NemoGym(url=url), item, Action("none"))
    assert asyncio.run(wrong) == ["calculator", {"reward": 0.0}]
    components = earned(NemoGym(url=url, components=True), item, Action(result))
    assert asyncio.run(components) == ["calculator", {"verifier": 1.0}]
    task = PromptItem((Message("user", "Compute."),), meta={"reset": {"task": 0}})
    texts = OpenEnv(url=url, field="text")  # beside the tools it takes the last answer
    read = asyncio.run(earned(texts, task, calls(expression), Action(result)))
    assert read == ["calculator", result, {"reward": 1.0}]


@pytest.mark.slow
def test_a_training_over_http_is_that_in_the_environment_itself(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same turns, observations and rewards."""
    items = load_prompts("twenty_questions:2", seed=0)
    sessions = Sessions(TwentyQuestions(), items, EpisodeLimits())
    rows = asyncio.run(nemo_gym_rows(sessions))
    prompts = [row["responses_create_params"]["input"] for row in rows]
    direct = [{"prompt": prompt, **item.meta} for prompt, item in zip(prompts, items, strict=True)]
    column, rounds = ("--column", "prompt=responses_create_params.input"), ("--set", "episodes.overlap=false")
    with running_app(environment_app(sessions)) as url:
        runs = [
            trained(workspace, capsys, direct, *rounds, prompts=2, kind="twenty_questions"),
            trained(
                workspace, capsys, rows, *column, *rounds, prompts=2, kind="nemo_gym", url=url, protocol="gymnasium"
            ),
        ]
    episodes = [
        [(row["response"], row["reward"], [turn["messages"] for turn in row["episode"]["turns"]]) for row in rollouts]
        for rollouts in runs
    ]
    assert len(episodes[0]) == 16
    assert max(len(messages) for *_, messages in episodes[0]) > 2
    assert episodes[0] == episodes[1]


def test_what_is_wrong_is_said_in_a_line(served: tuple[str, dict[str, Any]]) -> None:
    url, row = served
    nowhere = PromptItem((Message("user", "?"),), meta={"reset": {"task": 7}})
    with pytest.raises(BackendError, match="there are the tasks 0 to 1, not 7"):
        asyncio.run(earned(OpenEnv(url=url), nowhere))
    with pytest.raises(BackendError, match=r"assay_task.*write rows by --rows"):
        asyncio.run(earned(NemoGym(url=url), PromptItem((Message("user", "?"),))))
    refused = asyncio.run(
        earned(NemoGym(url=url), PromptItem((Message("user", "?"),), meta=row), calls("2*"), calls("3"))
    )
    assert "error" in refused[1]
    assert refused[2] == "3"


CLOSE = """
class Close:
    name, description, parameters = "close", "Closes a file.", {"properties": {}}

    def run(self, arguments):
        return "closed"
"""


def test_a_tool_that_a_route_would_hide_is_refused(tmp_path: Path) -> None:
    (tmp_path / "close.py").write_text(CLOSE, encoding="utf-8")
    hidden = Tools(tools=(f"{tmp_path / 'close.py'}:Close",))
    sessions = Sessions(hidden, load_prompts("arithmetic:1", seed=0), EpisodeLimits())
    with pytest.raises(BadInputError, match="cannot be called close in NeMo-Gym"):
        asyncio.run(nemo_gym_rows(sessions))


class Unclosed(TwentyQuestions):
    """An environment whose `close` fails."""

    def close(self) -> None:
        raise OSError("still in use")


def test_pages_of_other_sites_reach_nothing(served: tuple[str, dict[str, Any]]) -> None:
    url, row = served
    socket = f"ws{url.removeprefix('http')}/ws"
    with pytest.raises(InvalidStatus, match="403"):
        connect(socket, origin=Origin("http://elsewhere.example"))
    refused = httpx.post(f"{url}/seed_session", json=row, headers={"Origin": "http://elsewhere.example"})
    assert refused.status_code == 403
    health = [
        httpx.get(f"{url}/health", headers={"Host": host}).status_code for host in ("[::1]:80", "localhost", "x.y")
    ]
    assert health == [200, 200, 403]
    with connect(socket, origin=Origin(url)):
        assert httpx.post(f"{url}/seed_session", json=row, headers={"Origin": url}).status_code == 200


def test_a_client_that_sends_nonsense_is_told_and_leaves_no_session() -> None:
    sessions = Sessions(TwentyQuestions(), load_prompts("twenty_questions:1", seed=0), EpisodeLimits())
    nonsense = ("{", "[1]", '{"type": "step", "data": [1]}', '{"type": "reset", "data": {"task": "a"}}')
    with (
        running_app(environment_app(sessions)) as url,
        connect(f"ws{url.removeprefix('http')}/ws", close_timeout=5) as socket,
    ):
        for message in ('{"type": "reset"}', *nonsense, '{"type": "step", "data": {"text": "alive?"}}'):
            socket.send(message)
            reply = json.loads(socket.recv(5))
            if message in nonsense:
                assert (reply["type"], reply["data"]["code"]) == ("error", "VALIDATION_ERROR"), message
        assert reply["data"]["observation"]["text"] in ("yes", "no")
        assert len(sessions._open) == 1
    assert not sessions._open


def test_a_text_with_calls_is_answered_by_their_results(served: tuple[str, dict[str, Any]]) -> None:
    with connect(f"ws{served[0].removeprefix('http')}/ws") as socket:
        for kind, content in (("reset", {}), ("step", {"text": calls("6*7").text})):
            socket.send(json.dumps({"type": kind, "data": content}))
            reply = json.loads(socket.recv(5))
    assert reply["data"]["observation"]["text"].strip() == "42"


def test_the_episodes_seconds_are_those_of_all_its_turns() -> None:
    limits = EpisodeLimits(episode_seconds=0.3)
    sessions = Sessions(TwentyQuestions(), load_prompts("twenty_questions:1", seed=0), limits)

    async def late() -> None:
        _, episode = await sessions.begin(0)
        await episode.turn("alive?")
        await asyncio.sleep(0.4)
        with pytest.raises(BackendError, match=r"did not end within 0\.3 s"):
            await episode.turn("wild?")
        await sessions.close_all()

    asyncio.run(late())


def test_episodes_that_are_over_give_way_whatever_their_environments_do_at_the_end() -> None:
    sessions = Sessions(Unclosed(), load_prompts("twenty_questions:1", seed=0), EpisodeLimits(), most=1)

    async def twice() -> None:
        _, episode = await sessions.begin(0)
        with pytest.raises(BusyError, match="1 episodes"):
            await sessions.begin(0)
        await episode.turn("whale")
        await sessions.begin(0)
        await sessions.close_all()

    asyncio.run(twice())
    assert not sessions._open
