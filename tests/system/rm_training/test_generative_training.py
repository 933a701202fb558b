"""Generative reward models from rows to a served model: supervised start, reinforcement, evaluation, the commands."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from assay_command import Run
from forked_command import ForkedCommand

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.record import locate_model
from assay.score import Score
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.training.checkpoint import checkpoints
from assay_policy_training.training.loop import PolicyLoop
from assay_rm_training.generative.evaluation import evaluate_judge
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_rm_training.generative.rl_run import JudgePlan, judge_recipe
from assay_rm_training.generative.sft import GenerativeSft
from assay_rm_training.generative.verdict_reward import JudgePrompts, VerdictReward, judge_prompts
from assay_rm_training.training_config import TrainingConfig
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.pairwise import PairQuestion
from assay_serving.generative.templates import PAIRWISE, POINTWISE, RATING
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_judge, open_scorer
from assay_serving.scorer import ScoreItem

PROMPT = (Message("user", "Name a metal."),)
CPU = torch.device("cpu")
SMALL = ("--steps", "2", "--group-size", "2", "--max-new-tokens", "16", "--set", "sampling.prompts_per_step=2")


def judged_file(path: Path, count: int = 4) -> Path:
    rows = [
        {"prompt": f"Name metal {n}.", "responses": ["gold", "glass"], "verdict": "A", "rationale": "One names it."}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_loss_is_that_of_a_stock_trainer_on_the_answers_tokens() -> None:
    method = GenerativeSft("pairwise", verdict_weight=1.0)
    config = TrainingConfig("tiny", dtype="float32", device="cpu", max_length=2048)
    trainable = method.load(config, CPU)
    renderer = Renderer(trainable.tokenizer, max_length=2048)
    rows = [
        JudgedRow(PROMPT, ("gold", "glass"), "A", "Response A is one."),
        JudgedRow(PROMPT, ("a", "tin"), "B", "Yes."),
    ]
    task, items = method.task(trainable, config), method.encode(rows, renderer).items
    measured = task.measure(trainable, items)
    for item, loss in zip(items, measured.losses.tolist(), strict=True):
        total = count = 0.0
        for one in item.orders:
            ids = torch.tensor([[*one.question.tolist(), *one.answer.tolist()]])
            labels = ids.clone()
            labels[0, : len(one.question)] = -100
            total += float(trainable.model(input_ids=ids, labels=labels).loss.detach()) * len(one.answer)
            count += len(one.answer)
        assert loss == pytest.approx(total / count, abs=1e-4)
        assert task.weight(item) == count
    # Both orders of a pair are one item, and the judgement token is the label's.
    first, second = items[0].orders
    assert str(renderer.tokenizer.decode(first.answer[first.judgement :])).startswith("A")
    assert str(renderer.tokenizer.decode(second.answer[second.judgement :])).startswith("B")
    measured.losses.sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in trainable.trainable().values())


def test_the_weight_of_the_verdict_counts_its_token_alone() -> None:
    config = TrainingConfig("tiny", dtype="float32", device="cpu", max_length=2048)
    plain, heavy = GenerativeSft("pointwise"), GenerativeSft("pointwise", verdict_weight=3.0)
    trainable = plain.load(config, CPU)
    rows = [JudgedRow(PROMPT, ("gold",), "Yes", "It is one.")]
    items = plain.encode(rows, Renderer(trainable.tokenizer, max_length=2048)).items
    with torch.no_grad():
        one, three = (method.task(trainable, config).measure(trainable, items) for method in (plain, heavy))
    size = items[0].answer_tokens
    assert float(three.losses - one.losses) * size == pytest.approx(2 * float(one.figures["verdict_nll"]), rel=1e-4)


def test_rows_that_cannot_be_learnt_from_are_counted() -> None:
    method = GenerativeSft("pairwise")
    renderer = Renderer(method.load(TrainingConfig("tiny", device="cpu"), CPU).tokenizer, max_length=1000)
    rows = [
        JudgedRow(PROMPT, ("gold", "glass"), "A", "Fine."),
        JudgedRow(PROMPT, ("gold", "glass"), "A"),
        JudgedRow(PROMPT, ("gold", "glass"), "A", "B is bad."),
        JudgedRow(PROMPT, ("gold", "glass"), "A", "Verdict: A\nNo."),
        JudgedRow(PROMPT, ("gold" * 300, "glass"), "A", "Fine."),
    ]
    found = method.encode(rows, renderer)
    assert len(found) == 1
    assert found.left_out == {
        "no rationale": 1,
        "the rationale names its sides in a way that cannot be swapped": 1,
        "the rationale holds a verdict line of its own": 1,
        "question and answer pass 1000 tokens (max_length)": 1,
    }
    with pytest.raises(BadInputError, match="none of the 1 judgments"):
        method.encode(rows[1:2], renderer)


def test_supervised_start_then_reinforcement_then_scores(assay: Run, workspace: Workspace, tmp_path: Path) -> None:
    data = judged_file(tmp_path / "judged.jsonl")
    where = ("--workspace", workspace.root, "--json")
    code, out, err = assay(
        "train", "generative-sft", "--data", data, "--eval-data", data, "--base", "tiny", "--name", "judge",
        "--batch-size", "4", "--max-length", "2048", "--max-new-tokens", "16", "--device", "cpu", *where,
    )  # fmt: skip
    assert code == 0, err
    sft = json.loads(out)
    assert sft["parity"] == "passed"
    assert sft["evaluation"]["answers"] == 8
    folder = workspace.models / "judge"
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.judging == Judging("pairwise", PAIRWISE.hash, max_new_tokens=16)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"] == ["LlamaForCausalLM"]

    code, out, err = assay(
        "train", "generative-rl", "--data", data, "--eval-data", data, "--base", "judge", "--name", "judge-rl",
        "--device", "cpu", "--lr", "1e-3", *SMALL, *where,
    )  # fmt: skip
    assert code == 0, err
    made = json.loads(out)
    assert made["parity"] == "passed"
    assert made["steps"] == 2
    assert {"parse_failures", "reward_verdict_mean", "reward_consistency_mean"} <= made["last_step"].keys()
    assert made["after"]["answers"] == 8
    assert locate_model(workspace, "judge-rl") == (str(workspace.models / "judge-rl"), made["artifact_id"])
    (outcome,) = open_judge(ModelConfig(str(workspace.models / "judge-rl"), device="cpu")).compare(
        [PairQuestion(PROMPT, "a", "b")]
    )
    assert len(outcome.orders) == 2  # type: ignore[union-attr]
    for more, said in (
        ((), "is finished: there is nothing to resume"),
        (("--steps", "3"), "choose another --name"),
        (("--steps", "3", "--lr", "1e-4"), "leave out --lr"),
        (("--steps", "3", "--seed", "0", "--format", "rating", "--data", data), "leave out --data, --format, --seed"),
        (("--steps", "3", "--set", "kl.coefficient=0.5"), "leave out --set"),
    ):
        code, _, err = assay("train", "generative-rl", "--resume", made["run_id"], *more, *where)
        assert code == 2
        assert said in err
    records = (workspace.runs / made["run_id"] / "items.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(records) == 4
    options = ("--data", data, "--base", "judge", "--name", "another", "--device", "cpu", *SMALL, "-w", workspace.root)
    code, out, err = assay("train", "generative-rl", *options)
    assert code == 0, err
    assert out.startswith("another: 4 rows, 2 steps, in float32 on cpu\n")


@pytest.mark.slow
def test_ctrl_c_in_a_reinforcement_says_how_to_resume(
    tiny_judges: dict[str, Path], workspace: Workspace, tmp_path: Path
) -> None:
    data = judged_file(tmp_path / "judged.jsonl")
    options = ("--base", tiny_judges["pairwise"], "--name", "judge-rl", "--device", "cpu", *SMALL[2:], "--steps", "500")
    more = ("--set", "checkpoint_every=1", "--workspace", workspace.root)
    arguments = ("train", "generative-rl", "--data", data, *options, *more)
    process = ForkedCommand(*arguments)
    try:
        process.until(lambda: any(checkpoints(run) for run in workspace.runs.glob("*")))
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == 130
    finally:
        process.kill()
    [saved] = workspace.runs.glob("*")
    assert f"resume with: assay train generative-rl --resume {saved.name}" in process.output()
    assert not (workspace.models / "judge-rl").exists()
    assert JudgePlan.read(workspace, saved.name).name == "judge-rl"


@pytest.mark.slow
def test_reinforcement_raises_the_reward_and_is_resumed_as_if_uninterrupted(
    tiny_judges: dict[str, Path], tmp_path: Path
) -> None:
    overrides = [
        "sampling.prompts_per_step=2", "sampling.group_size=8", "sampling.max_new_tokens=16", "optimisation.lr=3e-3",
        "kl.coefficient=0", "report_kl=false", "checkpoint_every=3", "steps=6",
    ]  # fmt: skip
    recipe = judge_recipe(None, overrides)
    rows = [JudgedRow((Message("user", f"Name metal {n}."),), ("gold", "glass"), "A") for n in range(4)]
    # One order only: a judge this small can learn a place, if not what a metal is.
    units = [unit[:1] for unit in judge_prompts(rows, PAIRWISE)]

    def trainer(folder: Path) -> PolicyLoop:
        policy = Policy(str(tiny_judges["pairwise"]), device=CPU, max_prompt_tokens=2048)
        reward = VerdictReward(PAIRWISE)
        folder.mkdir(exist_ok=True)
        return PolicyLoop(recipe, policy, JudgePrompts(units, seed=0), [reward], folder, extra=[reward])

    whole = trainer(tmp_path / "whole")
    steps = whole.train()
    first, last = (sum(row["reward_verdict_mean"] for row in part) / 2 for part in (steps[:2], steps[-2:]))
    assert last > first + 0.1
    assert all("parse_failures" in row for row in steps)
    stopped = trainer(tmp_path / "stopped")
    stopped.train(3)
    resumed = trainer(tmp_path / "stopped")
    assert resumed.resume() == 3
    again = resumed.train()
    assert [row["reward_verdict_mean"] for row in again] == [row["reward_verdict_mean"] for row in steps[3:]]
    for name, weight in whole.parameters.items():
        assert torch.equal(weight, resumed.parameters[name])


def test_pointwise_judges_are_scored_served_and_evaluated(
    assay: Run, tiny_judges: dict[str, Path], workspace: Workspace, tmp_path: Path
) -> None:
    code, out, err = assay(
        "score", "--model", tiny_judges["pointwise"], "--prompt", "Name a metal.", "--response", "gold", "--json"
    )
    assert code == 0, err
    (score,) = json.loads(out)["scores"]
    assert math.isfinite(score["reward"])
    found = open_scorer(ModelConfig(str(tiny_judges["pointwise"]), device="cpu")).score([ScoreItem(PROMPT, "gold")])[0]
    assert isinstance(found, Score)
    assert found.reward == pytest.approx(score["reward"], abs=1e-4)
    data = tmp_path / "pairs.jsonl"
    data.write_text(json.dumps({"prompt": "Name a metal.", "chosen": "gold", "rejected": "glass"}) + "\n")
    code, out, err = assay(
        "eval-judge", "--judge", tiny_judges["pointwise"], "--data", data, "-k", "3", "--workspace", workspace.root,
        "--device", "cpu", "--json",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads(out)
    assert report["answers"] == 6
    assert report["judging"]["temperature"] == 0.7
    assert report["figures"]["pair_accuracy"]["total"] == 1
    assert set(report["voting"]) == {"1", "2", "3"}


def test_a_judge_that_prefers_the_first_place_shows_it(tiny_judges: dict[str, Path]) -> None:
    writer, spec = LocalWriter.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    rows = [JudgedRow((Message("user", f"Name metal {n}."),), ("gold", "glass"), "A") for n in range(3)]
    found = evaluate_judge(writer, spec, rows)
    halves = found.figures["better_first"].value, found.figures["better_second"].value
    assert found.figures["single_order"].value == pytest.approx(sum(halves) / 2)
    assert found.position_bias == pytest.approx(halves[0] - halves[1])
    assert found.voting[1].value == pytest.approx(found.figures["single_order"].value)
    assert found.parse_failure_rate == 0


def test_content_free_answers_and_wrong_settings(assay: Run, tiny_judges: dict[str, Path], tmp_path: Path) -> None:
    data = judged_file(tmp_path / "judged.jsonl", 2)
    judge = ("--judge", tiny_judges["pairwise"], "--data", data, "--device", "cpu")
    code, out, err = assay("eval-judge", *judge, "--content-free", "--json", "--out", tmp_path / "out")
    assert code == 0, err
    assert json.loads(out)["items"] == 2
    assert (tmp_path / "out" / "items.jsonl").is_file()
    code, _, err = assay("eval-judge", *judge, "-k", "2", "--temperature", "0")
    assert code == 2
    assert "at temperature 0 are all the same" in err
    code, _, err = assay("eval-judge", "--judge", "http://127.0.0.1:9/v1", "--data", data)
    assert code == 2
    assert "name the endpoint's model" in err


def test_a_judge_that_fails_its_parity_checks_is_evaluated_only_when_told_to(
    assay: Run, tiny_judges: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "failing"
    shutil.copytree(tiny_judges["pairwise"], folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    replace(spec, parity="failed").write(folder)
    command = ("eval-judge", "--judge", folder, "--data", judged_file(tmp_path / "judged.jsonl", 1), "--device", "cpu")
    code, _, err = assay(*command)
    assert code != 0
    assert "parity" in err
    code, out, err = assay(*command, "--allow-failed-parity", "--json")
    assert code == 0, err
    assert json.loads(out)["items"] == 1


@pytest.mark.parametrize("form", ["pairwise", "pointwise"])
def test_the_parity_gate_reads_given_answers(
    assay: Run, tiny_judges: dict[str, Path], tmp_path: Path, form: str
) -> None:
    folder = tmp_path / form
    shutil.copytree(tiny_judges[form], folder)
    code, out, err = assay("verify", folder, "--device", "cpu", "--json")
    assert code == 0, err
    names = {check["name"] for check in json.loads(out)["checks"]}
    assert {"loaded = loaded again", "batch 1 = batch N"} <= names
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.parity == "passed"


def test_recipe_and_format_must_agree(workspace: Workspace) -> None:
    from assay_rm_training.generative.rl_run import _with_parts, weights_of

    plan = JudgePlan(judge_recipe("judge"), "tiny", "d", None, "n")
    assert set(weights_of(_with_parts(plan.recipe, PAIRWISE)).weights) == {"verdict", "consistency", "tail"}
    assert set(weights_of(_with_parts(plan.recipe, POINTWISE)).weights) == {"verdict", "tail"}
    assert set(weights_of(_with_parts(plan.recipe, RATING)).weights) == {"verdict"}
    with pytest.raises(BadInputError, match="pointwise judges have no such part"):
        _with_parts(judge_recipe("judge", ["reward.weights.consistency=1"]), POINTWISE)
    with pytest.raises(BadInputError, match="multiple of 2"):
        JudgePrompts(judge_prompts([JudgedRow(PROMPT, ("a", "b"), "A")], PAIRWISE), seed=0).next(3)
    plan.write(workspace.root)
    (workspace.runs / "run-1").mkdir(parents=True)
    plan.write(workspace.runs / "run-1")
    assert JudgePlan.read(workspace, "run-1") == plan
