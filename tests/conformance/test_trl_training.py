"""TRL's own GRPOTrainer on rewards from the real server: the rewards it logs are the engine's scores."""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.models.loading import resolve_model
from assay.score import Score
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.trainers.conversations import prompt_and_response
from assay_serving.trainers.trl import AssayReward

pytest.importorskip("trl", reason='TRL is in the bench extra: pip install "assay[bench]"')

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "trl_grpo.py"
QUESTIONS = ("Name a metal.", "Name a gas and say what it is used for.")
TALK = [{"prompt": [{"role": "user", "content": question}]} for question in QUESTIONS]
TEXT = [{"prompt": question} for question in QUESTIONS]


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def judge(tiny_principle_model: Path) -> PrincipleScorer:
    return PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", served_as="judge"))


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer, judge: PrincipleScorer) -> Iterator[RunningServer]:
    with running_server({"rm": scorer, "judge": judge}) as running:
        yield running


def trained(reward: Any, rows: list[dict[str, Any]], out: Path, *, steps: int = 1) -> Any:
    """The trainer after `steps` of 2 prompts with 4 completions each."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    policy = resolve_model("tiny")
    config = GRPOConfig(
        output_dir=str(out),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        max_steps=steps,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(policy, padding_side="left"),
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("rows", [TALK, TEXT], ids=["messages", "text"])
def test_the_rewards_trl_logs_are_the_servers_scores(
    rows: list[dict[str, Any]], server: RunningServer, scorer: TransformersScorer, tmp_path: Path
) -> None:
    trainer = trained(AssayReward(server.url, model="rm"), rows, tmp_path, steps=2)
    logs = trainer._logs
    pairs = list(zip(logs["prompt"], logs["completion"], strict=True))
    assert len(pairs) == 8  # it keeps those of the last step
    offline = scorer.score([ScoreItem(*prompt_and_response(prompt, completion)) for prompt, completion in pairs])
    expected = [result.reward if isinstance(result, Score) else math.nan for result in offline]
    assert list(logs["rewards"]["assay_rm"]) == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) > 4  # answers can be told apart
    first, last = (entry for entry in trainer.state.log_history if "reward" in entry)
    mean = sum(expected) / len(expected)
    assert last["rewards/assay_rm/mean"] == pytest.approx(mean, abs=1e-5)
    assert last["reward"] == pytest.approx(mean, abs=1e-5)
    for entry in (first, last):
        assert entry["assay_rm/failed"] == 0.0
        assert math.isfinite(entry["loss"])


def test_completions_without_a_score_have_no_part_in_the_step(
    server: RunningServer, judge: PrincipleScorer, tmp_path: Path
) -> None:
    rules = ("The response is short.", None)
    rows: list[dict[str, Any]] = [{**row, "rule": rule} for row, rule in zip(TALK, rules, strict=True)]
    reward = AssayReward(server.url, model="judge", principle_column="rule")
    trainer = trained(reward, rows, tmp_path)
    logs = trainer._logs
    asked = [prompt[0]["content"] for prompt in logs["prompt"]]
    for question, value, advantage, reason in zip(
        asked,
        logs["rewards"]["assay_judge"],
        logs["advantages"],
        logs["extra"]["assay_judge/error"],
        strict=True,
    ):
        if question == QUESTIONS[0]:
            assert math.isfinite(value)
            assert reason is None
        else:
            assert math.isnan(value)
            assert advantage == 0.0
            assert "the item has none" in reason
    [entry] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert entry["assay_judge/failed"] == 0.5
    scored = [value for value in logs["rewards"]["assay_judge"] if math.isfinite(value)]
    assert entry["reward"] == pytest.approx(sum(scored) / 4, abs=1e-5)


def test_the_example_runs(
    server: RunningServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--url", server.url, "--policy", resolve_model("tiny"), "--model", "rm", "--steps", "1", "--tokens", "8"]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith('{"step"')]
    [entry] = [json.loads(line) for line in lines]
    assert math.isfinite(entry["rewards/assay_rm/mean"])
    assert entry["assay_rm/failed"] == 0.0
