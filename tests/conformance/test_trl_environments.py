"""TRL's `environment_factory`: such a class trains here, with the rewards that TRL's own `GRPOTrainer` gives it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
import trl_environment
from environment_training import trained
from trl_logs import trl_logs

from assay.domain import Message
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.adapters.trl import TrlEnvironment
from assay_policy_training.plugins.environments.environment import Action, Done, Observation
from assay_serving.tools.tool import ToolCall

FILE = trl_environment.__file__
ROW = {"initial": 1, "goal": 3}


async def played(factory: str, row: dict[str, Any], *turns: list[ToolCall]) -> tuple[list[str], Any]:
    """What the policy reads, and what the episode earns."""

    async def answered(answer: Any) -> Any:
        return await answer if inspect.isawaitable(answer) else answer

    environment = TrlEnvironment(factory=f"{FILE}:{factory}")
    opened = environment.reset(PromptItem((Message("user", "Count."),), meta=row), 0)
    read = [str(opened.messages), *(tool.name for tool in opened.tools)]
    for calls in turns:
        observed = await answered(environment.step(Action("", tuple(calls))))
        assert isinstance(observed, Observation)
        read += [result.content for result in observed.results]
    done = await answered(environment.step(Action("Done.")))
    assert isinstance(done, Done)
    return read, done.rewards["reward"]


@pytest.mark.parametrize("factory", ["Counter", "Waiting"])
def test_an_episode_reads_and_earns_what_trls_would(factory: str) -> None:
    good = [[ToolCall("increment", {"by": 2}), ToolCall("look", {})]]
    assert asyncio.run(played(factory, ROW, *good)) == (
        [" The count is 1.", "increment", "look", "now 3", "3"],
        1.0,
    )
    bad = [[ToolCall("increment", {"by": -2})], [ToolCall("increment", {"by": 1})]]
    assert asyncio.run(played(factory, ROW, *bad)) == (
        [" The count is 1.", "increment", "look", "{'error': 'only upwards'}", "now 2"],
        0.0,
    )


def test_a_policy_trains_there_and_a_fault_fails_its_row_by_name(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {"": "", "raise": "environment_failed", "nan": "not_finite", "none": "no_reward"}
    rows = [{"prompt": f"Count {fault}.", "initial": 3, "faults": fault} for fault in faults]
    rollouts = trained(workspace, capsys, rows, prompts=4, kind="trl", factory=f"{FILE}:Counter")
    assert len(rollouts) == 32
    for row in rollouts:
        fault = row["prompt"][0]["content"].removeprefix("Count ").removesuffix(".")
        assert row["reward"] == (None if fault else 1.0)
        assert [failure["code"] for failure in row["failures"]][:1] == ([faults[fault]] if fault else [])


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("Counter", "a class, module:Class or file.py:Class"),
        (f"{FILE}:Nothing", "Nothing"),
        (f"{FILE}:NoReset", "NoReset has no method reset"),
        (f"{FILE}:Undescribed", "the method increment describes no tool"),
    ],
)
def test_a_class_that_is_no_environment_is_refused_in_a_line(factory: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        TrlEnvironment(factory=factory).reset(PromptItem((Message("user", "Count."),)), 0)


def test_trls_own_trainer_gives_the_same_rewards(tmp_path: Path) -> None:
    """Of its parts only the generation is a stand-in: it says what the script of the prompt says."""
    good = [ToolCall("increment", {"by": 2}).text, ToolCall("look", {}).text, "Done."]
    bad = [ToolCall("increment", {"by": -2}).text, "Done."]
    logs = trl_logs(tmp_path, trl_environment.Counter, [ROW, ROW], [good, bad])
    assert dict(zip(logs["task"], logs["rewards"]["Counter"], strict=True)) == {0: 1.0, 1: 0.0}
