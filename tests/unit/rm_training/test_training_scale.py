"""Schedules, growing batches, presets, checkpointing, held-out figures, the choice of a step, dealing out items."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message, PreferencePair
from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.parallelism.strategy import SingleProcess, split_by_cost
from assay.runs.json_log import read_metrics
from assay_rm_training.commands.train.options import run_options, with_preset
from assay_rm_training.data.encoded_dataset import EncodedDataset, Tags, tags_of
from assay_rm_training.data.pair_dataset import encode_pairs
from assay_rm_training.evaluation.metrics import slices
from assay_rm_training.evaluation.pairs import evaluate
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.model.trainable_model import load_trainable
from assay_rm_training.presets import PRESETS, preset
from assay_rm_training.training import early_stopping
from assay_rm_training.training.batch_order import StepPlan
from assay_rm_training.training.eval_step import measure, pair_figures
from assay_rm_training.training.loop import lr_factor, make_optimizer, train, train_step
from assay_rm_training.training.resume_state import FILE as STATE
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig

CPU = torch.device("cpu")
BASE = TrainingConfig(
    "tiny", lr=3e-3, head_lr=3e-3, batch_size=8, dtype="float32", device="cpu", head_init="normal", save_every=0
)


def rows(count: int) -> list[PreferencePair]:
    return [
        PreferencePair(
            (Message("user", f"number {i}"),),
            f"{'so ' * (i % 5)}{i} it is",
            f"{i * 7} {'no ' * (i % 3)}",
            source="ab"[i % 2],
            margin=float(i % 4),
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def data() -> EncodedDataset[Any]:
    return encode_pairs(rows(40), Renderer(load_tokenizer("tiny"), max_length=256))


def trained(
    config: TrainingConfig, data: EncodedDataset[Any], folder: Path, **options: Any
) -> tuple[Any, dict[str, Any]]:
    trainable = load_trainable(config, CPU)
    summary = train(trainable, BradleyTerry().task(trainable, config), data, config, folder, **options)
    return summary, {name: p.detach().clone() for name, p in trainable.model.named_parameters()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(second[name], value) for name, value in first.items())


def test_schedules_against_their_formulas() -> None:
    def at(schedule: Any, step: int, **more: float) -> float:
        return lr_factor(schedule, step, 100, **{"warmup_ratio": 0.1, **more})

    for schedule in ("constant", "linear", "cosine", "wsd"):
        assert at(schedule, 5) == 0.5  # rising
        assert at(schedule, 10) == at(schedule, 11) == 1.0
    assert at("constant", 100) == 1.0
    assert at("linear", 56) == pytest.approx(0.5)
    assert at("cosine", 56) == pytest.approx(0.5)
    assert at("cosine", 100) == pytest.approx(0.5 * (1 + np.cos(np.pi * 89 / 90)))
    assert at("cosine", 56, min_lr_ratio=0.1) == pytest.approx(0.1 + 0.9 * 0.5)
    assert at("linear", 56, min_lr_ratio=0.1) == pytest.approx(0.1 + 0.9 * 0.5)
    assert at("wsd", 81) == 1.0  # the last fifth falls, its first step still at the peak
    assert at("wsd", 91) == pytest.approx(0.5)
    assert at("wsd", 91, min_lr_ratio=0.2) == pytest.approx(0.6)
    assert at("wsd", 76, decay_ratio=0.5) == pytest.approx(0.5)
    for schedule in ("linear", "cosine", "wsd"):
        falling = [at(schedule, step, min_lr_ratio=0.05) for step in range(10, 101)]
        assert all(a >= b > 0.05 for a, b in itertools.pairwise(falling))


def test_batches_grow_along_a_line() -> None:
    plan = StepPlan(1000, replace(BASE, batch_size=100, batch_start=20, batch_ramp_ratio=0.5))
    sizes = [len(plan.batch(step)) for step in range(1, plan.total + 1)]
    assert sizes[0] == 20
    assert sizes[:-1] == sorted(sizes[:-1])
    seen = 0
    for size in sizes[:-1]:
        assert size == (round(20 + 80 * seen / 500) if seen < 500 else 100)
        seen += size
    assert plan.items_seen(3) == sum(sizes[:3])


@pytest.mark.slow
def test_a_resumed_ramp_is_at_the_same_items(data: EncodedDataset[Any], tmp_path: Path) -> None:
    config = replace(BASE, batch_start=2, batch_ramp_ratio=0.6, epochs=2, save_every=1)
    (tmp_path / "whole").mkdir()
    summary, whole = trained(config, data, tmp_path / "whole")

    def stop(steps: int) -> None:
        if read_metrics(tmp_path)[-1]["step"] == 6:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        trained(config, data, tmp_path, advance=stop)
    _, resumed = trained(config, data, tmp_path, resume=True)
    assert same(whole, resumed)
    assert summary.items == 80
    assert sum(row["items"] for row in read_metrics(tmp_path)) == 80


@pytest.mark.parametrize("lora", [None, LoraConfig(4, 8)])
def test_checkpointing_changes_no_gradient(data: EncodedDataset[Any], lora: LoraConfig | None) -> None:
    gradients = []
    for checkpointing, offload in ((False, False), (True, False), (True, True)):
        config = replace(BASE, lora=lora, gradient_checkpointing=checkpointing, offload_activations=offload)
        trainable = load_trainable(config, CPU)
        assert trainable.model.is_activation_checkpointing == checkpointing
        train_step(
            trainable, BradleyTerry().task(trainable, config), data.items[:8], config, make_optimizer(trainable, config)
        )
        gradients.append({name: p.grad for name, p in trainable.trainable().items()})
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients[0].values())
    for name, gradient in gradients[0].items():
        assert gradient is not None
        for other in (each[name] for each in gradients[1:]):
            assert other is not None
            assert torch.equal(other, gradient), name


@pytest.mark.slow
def test_checkpointing_with_dropout_draws_the_same_masks(data: EncodedDataset[Any], tmp_path: Path) -> None:
    lora = LoraConfig(4, 8, dropout=0.3)
    weights = []
    for checkpointing in (False, True):
        folder = tmp_path / str(checkpointing)
        folder.mkdir()
        weights.append(trained(replace(BASE, lora=lora, gradient_checkpointing=checkpointing), data, folder)[1])
    assert all(torch.allclose(weights[1][name], value, atol=1e-6) for name, value in weights[0].items())


@pytest.mark.slow
def test_evaluating_changes_no_weight(data: EncodedDataset[Any], tmp_path: Path) -> None:
    """Not even with dropout, whose random numbers an evaluation might use up."""
    config = replace(BASE, lora=LoraConfig(4, 8, dropout=0.3), epochs=2)
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    _, without = trained(config, data, tmp_path / "without")
    _, with_it = trained(replace(config, eval_every=2), data, tmp_path / "with", eval_data=data)
    assert len([row for row in read_metrics(tmp_path / "with") if row["kind"] == "eval"]) == 5
    assert same(without, with_it)


def test_held_out_figures_are_those_of_the_evaluation(data: EncodedDataset[Any], tiny_reward_model: Path) -> None:
    """The same figures as `assay eval`, from the same rewards."""
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    config = replace(BASE, base=str(tiny_reward_model))
    trainable = load_trainable(config, CPU)
    row = measure(trainable, BradleyTerry().task(trainable, config), data, config, SingleProcess())
    found = evaluate(scorer, rows(40), seed=config.seed)
    assert row["accuracy"] == found.accuracy.value
    assert (row["accuracy_low"], row["accuracy_high"]) == (found.accuracy.wilson.low, found.accuracy.wilson.high)
    assert row["nll"] == pytest.approx(found.calibration.nll, abs=1e-6)
    assert row["ece"] == pytest.approx(found.calibration.ece, abs=1e-6)
    assert row["margin"] == pytest.approx(found.margin_mean, abs=1e-6)
    assert row["length_baseline"] == found.length_baseline
    assert {part["by"] for part in row["slices"]} == {"source", "longer", "margin"}


def test_slices_of_every_kind() -> None:
    tags = [
        Tags("a", "chat", "1", 100, 300, 0.5),
        Tags("a", "math", "2", 900, 10, 1.0),
        Tags("b", "math", "3", 5000, 5000, None),
        Tags("b", "math", "4", 240, 200, 1.0),
    ]
    found = {(part.by, part.name): part for part in slices(tags, [1.0, -1.0, 2.0, 3.0])}
    assert {name: (part.pairs, part.accuracy) for name, part in found.items()} == {
        ("source", "a"): (2, 0.5),
        ("source", "b"): (2, 1.0),
        ("category", "math"): (3, pytest.approx(2 / 3)),
        ("category", "chat"): (1, 1.0),
        ("length", "0 to 250 characters"): (1, 1.0),
        ("length", "250 to 1000 characters"): (2, 0.5),
        ("length", "4000 or more characters"): (1, 1.0),
        ("longer", "chosen is longer"): (2, 0.5),
        ("longer", "rejected is longer"): (1, 1.0),
        ("longer", "equal length"): (1, 1.0),
        ("margin", "0.5"): (1, 1.0),
        ("margin", "1"): (2, 0.5),
    }
    assert {part.interval for part in found.values()} == {None}, "undetermined: four prompts"
    assert found["source", "b"].margin == 2.5
    assert found["longer", "chosen is longer"].length == 1.0
    many = [Tags("a", "", str(n), 1, 1, n / 100) for n in range(100)]
    quarters = slices(many, np.ones(100))
    assert [part.interval and round(part.interval.low, 3) for part in quarters] == [0.867] * 4
    of_one_prompt = slices([tag._replace(prompt="the same") for tag in many], np.ones(100))
    assert [part.interval for part in of_one_prompt] == [None] * 4
    assert [(part.name, part.pairs) for part in quarters] == [
        ("0 to 0.2475", 25),
        ("0.2475 to 0.495", 25),
        ("0.495 to 0.7425", 25),
        ("0.7425 or more", 25),
    ]


def test_pair_figures_without_tags_have_no_slices() -> None:
    row = pair_figures(np.array([1.0, 2.0]), np.array([0.0, 3.0]), (), seed=0)
    assert row["accuracy"] == 0.5
    assert "slices" not in row
    assert tags_of(rows(1)[0]).chosen == len("0 it is")


def evaluations(*values: float) -> list[dict[str, Any]]:
    return [{"kind": "eval", "step": 10 * n, "loss": 9.0, "nll": v} for n, v in enumerate(values, start=1)]


def test_the_best_evaluation_and_when_to_stop() -> None:
    assert early_stopping.best_evaluation([], "nll") is None
    choice = early_stopping.best_evaluation(evaluations(0.7, 0.5, 0.6), "nll")
    assert choice == early_stopping.BestEvaluation("nll", 20, 0.5, evaluations=3, since=1)
    assert not early_stopping.should_stop(choice, 2)
    assert early_stopping.should_stop(early_stopping.best_evaluation(evaluations(0.7, 0.5, 0.6, 0.5), "nll"), 2)
    assert not early_stopping.should_stop(early_stopping.best_evaluation(evaluations(0.7, 0.5, 0.6, 0.5), "nll"), 0)
    accuracy = [{**row, "accuracy": row["nll"]} for row in evaluations(0.7, 0.9, 0.8)]
    best = early_stopping.best_evaluation(accuracy, "accuracy")
    assert best is not None
    assert best.step == 20
    with pytest.raises(BackendError, match="has no accuracy"):
        early_stopping.best_evaluation(evaluations(0.7), "accuracy")


def test_the_best_step_is_kept_and_the_training_stops(data: EncodedDataset[Any], tmp_path: Path) -> None:
    """A rate so high that the held-out loss soon rises."""
    config = replace(BASE, lr=0.05, epochs=8, eval_every=2, keep="best", patience=3)
    other = encode_pairs(
        [PreferencePair(p.prompt, p.rejected, p.chosen) for p in rows(12)],
        Renderer(load_tokenizer("tiny"), max_length=256),
    )
    summary, weights = trained(config, data, tmp_path, eval_data=other)
    held_out = [row for row in read_metrics(tmp_path) if row["kind"] == "eval"]
    best = min(held_out, key=lambda row: row["nll"])
    assert summary.kept_step == best["step"] < summary.steps < summary.planned_steps
    assert held_out[-1]["step"] - best["step"] == 6  # three evaluations later
    assert summary.choice is not None
    assert summary.choice.value == best["nll"]
    trainable = load_trainable(config, CPU)
    trainable.model.load_state_dict(weights)
    again = measure(trainable, BradleyTerry().task(trainable, config), other, config, SingleProcess())
    assert again["nll"] == best["nll"]
    # A run that has stopped has nothing left to do.
    finished, same_weights = trained(config, data, tmp_path, eval_data=other, resume=True)
    assert finished.steps == summary.steps
    assert same(weights, same_weights)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["best", "newer"])
def test_killed_around_the_best_step(lost: str, data: EncodedDataset[Any], tmp_path: Path) -> None:
    """Between the state of the best step and its weights; and with steps after it that were never saved."""
    config = replace(BASE, epochs=2, eval_every=3, keep="best")
    (tmp_path / "whole").mkdir()
    expected = trained(config, data, tmp_path / "whole", eval_data=data)

    def stop(steps: int) -> None:
        if read_metrics(tmp_path)[-1]["step"] == (6 if lost == "best" else 8):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        trained(config, data, tmp_path, eval_data=data, advance=stop)
    assert (tmp_path / STATE).is_file()
    if lost == "best":
        (tmp_path / early_stopping.FILE).unlink()
    found = trained(config, data, tmp_path, eval_data=data, resume=True)
    assert same(expected[1], found[1])
    assert found[0].choice == expected[0].choice


def test_choosing_needs_evaluations() -> None:
    with pytest.raises(BadInputError, match="set eval_every"):
        replace(BASE, keep="best")
    with pytest.raises(BadInputError, match="unknown keep 'best of all'; one of last, best"):
        replace(BASE, keep="best of all")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="adafactor's state cannot be sharded"):
        replace(BASE, optimizer="adafactor", parallel="fsdp")
    with pytest.raises(BadInputError, match="goes from 0 to batch_size"):
        replace(BASE, batch_start=9)


def test_presets_are_settings_and_what_is_given_beside_them_wins() -> None:
    for name, one in PRESETS.items():
        config = replace(BASE, **one.settings, preset=name)
        assert TrainingConfig.from_dict(config.to_dict()) == config
        assert one.source
    v2 = preset("skywork-v2").settings
    assert (v2["batch_size"], v2["lr"], v2["schedule"], v2["max_length"]) == (10_240, 3e-6, "constant", 16_384)
    assert run_options(betas="0.9,0.99").betas == (0.9, 0.99)
    settings = {"epochs": 2, "betas": (0.9, 0.99), "lr": 1e-4}
    assert with_preset(settings, "nemo-rl", lambda option: option in ("betas", "lr")) == {
        **settings,
        "batch_size": 128,
        "weight_decay": 0.1,
        "max_length": 8192,
        "eps": 1e-5,
        "schedule": "constant",
        "warmup_ratio": 0.0,
        "epochs": 1,
        "max_grad_norm": 1.0,
        "head_lr": 0.0,
        "optimizer": "adamw",
        "gradient_checkpointing": False,
    }
    with pytest.raises(BadInputError, match="unknown preset 'v3'; one of skywork-v1-8b"):
        with_preset({}, "v3", lambda option: False)
    with pytest.raises(BadInputError, match="two numbers with a comma"):
        run_options(betas="0.9")


@given(st.lists(st.integers(1, 500), max_size=40), st.integers(1, 5))
def test_items_are_dealt_once_and_evenly(costs: list[int], world: int) -> None:
    hands = split_by_cost(costs, world)
    assert sorted(itertools.chain(*hands)) == list(range(len(costs)))
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    loads = [sum(costs[number] for number in hand) for hand in hands]
    assert max(loads) - min(loads) <= max(costs, default=0)


def test_a_step_says_where_its_time_went_and_how_far_it_moved(data: EncodedDataset[Any], tmp_path: Path) -> None:
    summary, _ = trained(replace(BASE, update_norm=True, max_grad_norm=1e-3), data, tmp_path)
    for row in read_metrics(tmp_path):
        parts = {name: value for name, value in row.items() if name.startswith("seconds_")}
        assert parts.keys() == {f"seconds_{part}" for part in ("data", "forward", "backward", "reduce", "update")}
        assert all(value >= 0 for value in parts.values())
        assert row["peak_memory"] > 10**7
        assert row["update_norm"] > 0
        assert row["clipped"] == 1.0
        assert row["chosen_mean"] - row["rejected_mean"] == pytest.approx(row["margin"], abs=1e-5)
    assert summary.clip_share == 1.0
    assert 0 < summary.shared_share < 1
    assert 0 <= summary.wait_share < 1


def test_tensorboard_events(data: EncodedDataset[Any], tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = replace(BASE, eval_every=2, track=("tensorboard",), save_every=2)
    trained(config, data, tmp_path, eval_data=data)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"train/loss", "eval/nll", "eval/accuracy by source/a"} <= set(tags)
    losses = [row["loss"] for row in read_metrics(tmp_path) if row["kind"] == "train"]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses, abs=1e-6)
