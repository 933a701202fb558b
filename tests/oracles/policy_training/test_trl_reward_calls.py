"""A reward function is called as TRL's own GRPOTrainer calls it: the same arguments, the same rewards."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.rollouts.functions.source import FunctionReward
from assay_policy_training.rollouts.rewards import composed, gather_rewards

ROWS: list[dict[str, Any]] = [{"answer": "4", "level": 1}, {"answer": "6", "level": 2}, {"answer": "x", "level": 3}]
RESPONSES = ["4", "7", "long"]


def trl_rewards(functions: list[Any], prompts: list[Any], completions: list[Any]) -> torch.Tensor:
    """[rows, functions] of `GRPOTrainer._calculate_rewards`, NaN where a function gave None."""
    pytest.importorskip("trl", reason="the extra `bench` is not installed")
    trainer = importlib.import_module("trl.trainer.grpo_trainer").GRPOTrainer
    stand_in = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
        reward_funcs=functions,
        reward_processing_classes=[None] * len(functions),
        reward_func_names=[function.__name__ for function in functions],
        state=SimpleNamespace(global_step=0),
        args=SimpleNamespace(report_to=[]),
        environments=None,
        _log_completion_extra=lambda column, values: None,
        _log_metric=lambda name, value: None,
    )
    inputs = [{"prompt": prompt, **row} for prompt, row in zip(prompts, ROWS, strict=True)]
    calculate = trainer._calculate_rewards
    calculate = getattr(calculate, "__wrapped__", calculate)  # without its profiler
    module = importlib.import_module("trl.trainer.grpo_trainer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "gather", lambda tensor: tensor)
        rewards: torch.Tensor = calculate(stand_in, inputs, prompts, completions, [[1]] * len(prompts))
    return rewards


@pytest.mark.parametrize("conversational", [False, True])
def test_the_same_arguments_and_rewards_as_trl(conversational: bool) -> None:
    seen: list[dict[str, Any]] = []

    def right(completions: list[Any], answer: list[str], **columns: Any) -> list[float | None]:
        seen.append({"completions": completions, "answer": answer, "level": columns["level"]})
        texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
        return [None if a == "x" else float(t == a) for t, a in zip(texts, answer, strict=True)]

    def short(prompts: list[Any], completions: list[Any], completion_ids: list[Any], **columns: Any) -> list[float]:
        seen.append({"prompts": prompts, "completions": completions})
        return [-float(len(c if isinstance(c, str) else c[-1]["content"])) for c in completions]

    texts = ["2+2?", "3+3?", "name a letter"]
    prompts: list[Any] = [[{"role": "user", "content": t}] for t in texts] if conversational else texts
    completions: list[Any] = [[{"role": "assistant", "content": r}] for r in RESPONSES] if conversational else RESPONSES
    theirs = trl_rewards([right, short], prompts, completions)
    their_calls = seen.copy()
    seen.clear()
    items = [
        PromptItem((Message("user", text),), meta=row, as_text=not conversational)
        for text, row in zip(texts, ROWS, strict=True)
    ]
    rewards = gather_rewards([FunctionReward(right), FunctionReward(short)], items, RESPONSES)
    assert seen == their_calls
    ours = torch.stack([rewards.parts["right"], rewards.parts["short"]], 1)
    torch.testing.assert_close(ours, theirs.double(), equal_nan=True)
    torch.testing.assert_close(composed(Composition(), rewards), theirs.double().nansum(1))
