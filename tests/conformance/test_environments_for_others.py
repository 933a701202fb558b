"""Our environments in NeMo-Gym, OpenEnv and TRL: their own agents, clients and trainer get the rewards that we give."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from peer_programs import said_by
from trl_logs import trl_logs

from assay.domain import Message
from assay.http.running import running_app
from assay.score import ScoreFailure
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.outside_trainers.app import environment_app
from assay_policy_training.outside_trainers.nemo_gym import nemo_gym_rows
from assay_policy_training.outside_trainers.sessions import Sessions
from assay_policy_training.outside_trainers.trl_class import trl_environment
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_serving.verifiers import MathAnswer

SUM = PromptItem((Message("user", "6*7-8?"),), (MathAnswer("34"),))
COMPUTES: list[Any] = [["calculator", {"expression": "6*7-8"}], "34"]


class Countdown(Environment):
    """The policy counts down from `start`: each right number earns 0.25, "0" ends it with 1."""

    parts: ClassVar[tuple[str, ...]] = ("arrived", "counted", "bonus")
    start: int = 2

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.due = self.start
        return Observation(f"From {self.start}.")

    def step(self, action: Action) -> Observation | Done:
        if action.text == "lost":
            return Done({"arrived": ScoreFailure("backend", "the referee is away", "referee")})
        if action.text == "broken":
            raise RuntimeError("the clock is broken")
        right, self.due = action.text == str(self.due), self.due - 1
        if self.due < 0:
            return Done({"arrived": float(right)})
        return Observation("Go on.", rewards={"counted": 0.25 * right})


COUNT = PromptItem((Message("user", "Count down."),))


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """The addresses and a row of NeMo-Gym's data for each."""
    calling = Sessions(Tools(), [SUM], EpisodeLimits())
    speaking = Sessions(Countdown(), [COUNT], EpisodeLimits())
    rows = {
        name: asyncio.run(nemo_gym_rows(sessions))[0]
        for name, sessions in (("calling", calling), ("speaking", speaking))
    }
    with running_app(environment_app(calling)) as calling_url, running_app(environment_app(speaking)) as speaking_url:
        yield {"calling": calling_url, "speaking": speaking_url}, rows


@pytest.mark.slow
def test_nemo_gyms_agents_get_tools_and_rewards(servers: tuple[dict[str, str], dict[str, Any]]) -> None:
    urls, rows = servers
    assert [tool["name"] for tool in rows["calling"]["responses_create_params"]["tools"]] == ["calculator"]
    assert rows["speaking"]["responses_create_params"]["input"][-1] == {"role": "user", "content": "From 2."}
    scripts = [
        ("simple", rows["calling"], COMPUTES),
        ("simple", rows["calling"], ["35"]),
        ("turn", rows["calling"], COMPUTES),
        ("gymnasium", rows["speaking"], ["2", "1", "0"]),
        ("gymnasium", rows["speaking"], ["2", "2", "2"]),
        ("gymnasium", rows["speaking"], ["2", "lost"]),
        ("gymnasium", rows["speaking"], ["broken"]),
        ("simple", {**rows["calling"], "assay_task": 9}, ["34"]),
    ]
    said = said_by("nemo-gym", "nemo_gym_agents.py", urls["calling"], urls["speaking"], json.dumps(scripts))
    assert said[:5] == [1.0, 0.0, 1.0, 1.5, 0.25]
    for reply, why in zip(said[5:], ("referee is away", "clock is broken", "tasks 0 to 0, not 9"), strict=True):
        assert why in reply


def test_openenvs_client_gets_tools_and_rewards(servers: tuple[dict[str, str], dict[str, Any]]) -> None:
    urls, _ = servers
    call = {"type": "call_tool", "tool_name": "calculator", "arguments": {"expression": "6*7-8"}}
    [[opened, called, answered]] = said_by(
        "openenv", "openenv_client.py", urls["calling"], json.dumps([[{"task": 0}, [call, {"text": "34"}]]])
    )
    assert opened == {"text": "6*7-8?"}
    assert called == [{"tool_name": "calculator", "result": "34", "error": None}, 0.0, False]
    assert answered[1:] == [1.0, True]
    episodes = [[{}, [{"text": text} for text in turns]] for turns in (["2", "1", "0"], ["2", "2", "2"], ["lost"])]
    right, wrong, lost = said_by("openenv", "openenv_client.py", urls["speaking"], json.dumps(episodes))
    assert [step[1:] for step in right[1:]] == [[0.25, False], [0.25, False], [1.0, True]]
    assert [step[1] for step in wrong[1:]] == [0.25, 0.0, 0.0]
    assert "referee is away" in lost[1]


def test_trls_trainer_gets_tools_and_rewards(tmp_path: Any) -> None:
    factory, rows = trl_environment(Tools(), [SUM, SUM])
    calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in (
        ("calculator", {"expression": "6*7-8"}), ("answer", {"text": "34"}), ("answer", {"text": "35"}))]  # fmt: skip
    computes, right, wrong = (f"<tool_call>\n{call}\n</tool_call>" for call in calls)
    scripts = [[computes, right, "Done."], [wrong, "Done."]]
    logs = trl_logs(tmp_path, factory, rows, scripts)
    assert dict(zip(logs["task"], logs["rewards"]["Tools"], strict=True)) == {0: 1.0, 1: 0.0}
    text, [row] = trl_environment(Countdown(), [COUNT])
    player: Any = text()
    assert player.reset(**row) == "\n\nFrom 2."
    assert [player.answer("2"), player.answer("1"), player.answer("0")] == ["Go on.", "Go on.", "The episode is over."]
    assert player.get_reward() == 1.5
    player.reset(**row)
    player.answer("lost")
    assert player.get_reward() is None
