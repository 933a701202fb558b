"""`assay serve-environment`, played by our own clients of NeMo-Gym's and OpenEnv's servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from environment_training import trained

from assay.domain import Message, prompt_of
from assay.errors import BackendError
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
