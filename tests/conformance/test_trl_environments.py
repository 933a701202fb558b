"""TRL's `environment_factory`: such a class trains here, with the rewards that TRL's own `GRPOTrainer` gives it."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import trl_environment
from environment_training import trained

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.loading import resolve_model
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
    logs = trl_logs(tmp_path, trl_environment.Counter, [ROW | {"script": good}, ROW | {"script": bad}])
    earned = dict(zip([messages[0]["content"] for messages in logs["prompt"]], logs["rewards"]["Counter"], strict=True))
    assert earned == {"0 The count is 1.": 1.0, "1 The count is 1.": 0.0}


def trl_logs(folder: Path, factory: type, rows: list[dict[str, Any]]) -> Any:
    """What `GRPOTrainer` logs of a step in which the policy says the rows' scripts."""
    pytest.importorskip("trl", reason='TRL is in the bench extra: pip install "assay[bench]"')
    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    policy = resolve_model("tiny")
    tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"  # tiny's has no place for tools
    tokenizer.chat_template = template.read_text(encoding="utf-8")

    class Scripted(GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: list[list[int]], *arguments: Any, **options: Any) -> Any:
            turns = []
            for ids in prompt_ids:
                text = self._tokenizer.decode(ids)
                number = int(re.findall(r"<\|im_start\|>user\n(\d)", text)[0])
                turns.append(rows[number]["script"][text.count("<tool_response>")])
            return [self._tokenizer(turn + "<|im_end|>")["input_ids"] for turn in turns], None

    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=400,
        max_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    table = [row | {"prompt": [{"role": "user", "content": f"{number}"}]} for number, row in enumerate(rows)]
    trainer = Scripted(
        model=AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32),
        args=config,
        train_dataset=Dataset.from_list(table),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    trainer.train()
    return trainer._logs
