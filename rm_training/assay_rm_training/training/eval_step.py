"""Evaluation during training: metrics on held-out items, by slice and with intervals, as one row of metrics.jsonl.

Covers: the items' rewards in the training's number format, divided among processes; the metrics, by the same code as
`evaluation/pairs.py`. Does not affect training: no gradient, no random number. Leaves out: the final evaluation (the
method's evaluation, float32 through the serving engine), the choice of a step (`early_stopping.py`).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
import torch

from assay.models.parallelism.strategy import SingleProcess
from assay.statistics.intervals import wilson
from assay_rm_training.calibration.measures import calibration_report
from assay_rm_training.data.encoded_dataset import EncodedDataset, Tags
from assay_rm_training.evaluation.metrics import length_correlation, outcomes, pair_accuracy, slices
from assay_rm_training.methods.task import TrainingTask
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.batch_losses import forward_passes
from assay_rm_training.training.profiler import StepClock
from assay_rm_training.training.summary import StepSums
from assay_rm_training.training_config import TrainingConfig

Item = TypeVar("Item")


def measure(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    data: EncodedDataset[Item],
    config: TrainingConfig,
    parallel: SingleProcess,
) -> dict[str, Any]:
    """Metrics of all items, in the first process; the others get only the loss and the task's metrics.

    `loss` is the task's, mean over items, not weighted. Where the task returns both rewards of its items, pair
    metrics are added: accuracy with its intervals, ties, negative log-likelihood, margin, calibration error,
    baselines, slices.
    """
    began = time.monotonic()
    device = trainable.model.device
    trainable.model.train(False)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            losses, figures, rewards = _measured(trainable, task, data.items, config, parallel)
    finally:
        trainable.model.train()
    row: dict[str, Any] = {"items": len(data), "loss": losses / len(data)}
    row |= {name: value / len(data) for name, value in figures.items()}
    if 0 <= figures.get("accuracy", -1.0) <= len(data):
        interval = wilson(figures["accuracy"], len(data))
        row |= {"accuracy_low": interval.low, "accuracy_high": interval.high}
    if rewards and parallel.main:
        chosen, rejected = (np.array([rewards[n][side] for n in range(len(data))]) for side in (0, 1))
        tags = [tag for item in data.items if (tag := getattr(item, "tags", None)) is not None]
        row |= pair_figures(chosen, rejected, tags, seed=config.seed)
    return row | {"seconds_eval": time.monotonic() - began}


def pair_figures(
    chosen: np.ndarray[Any, Any], rejected: np.ndarray[Any, Any], tags: Sequence[Tags], *, seed: int
) -> dict[str, Any]:
    """Metrics of the chosen [N] and rejected [N] rewards; without `tags`, no baselines and no slices."""
    d = chosen - rejected
    groups = [tag.prompt for tag in tags] if tags else [str(n) for n in range(len(d))]
    accuracy = pair_accuracy(chosen, rejected, groups, seed=seed)
    calibration = calibration_report(d, seed=seed)
    row: dict[str, Any] = {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.wilson.low,
        "accuracy_high": accuracy.wilson.high,
        "accuracy_by_prompt": accuracy.interval and asdict(accuracy.interval),
        "ties": accuracy.ties,
        "nll": calibration.nll,
        "ece": calibration.ece,
        "brier": calibration.brier,
        "margin": float(d.mean()),
        "margin_std": float(d.std()),
        "chosen_mean": float(chosen.mean()),
        "rejected_mean": float(rejected.mean()),
    }
    if tags:
        lengths = [tag.chosen for tag in tags] + [tag.rejected for tag in tags]
        longer = outcomes([tag.chosen for tag in tags], [tag.rejected for tag in tags])[0]
        row["length_baseline"] = float(longer.mean())
        row["reward_length_correlation"] = length_correlation([*chosen, *rejected], lengths)
        row["slices"] = [asdict(part) for part in slices(tags, d)]
    return row


def _measured(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    items: Sequence[Item],
    config: TrainingConfig,
    parallel: SingleProcess,
) -> tuple[float, Mapping[str, float], dict[int, tuple[float, float]]]:
    """Sum of the losses, sums of the metrics, and both rewards by item number, empty where the task has none."""
    step_sums, seen = StepSums(), list[int]()
    for numbers, _, part in forward_passes(trainable, task, items, config, parallel, StepClock()):
        if not numbers:
            continue
        seen += numbers
        step_sums.add(part.losses.sum(), part.figures, part.each, (0, 0, 0))
    sides = step_sums.read().each
    rewards = dict(zip(seen, zip(sides["chosen"], sides["rejected"], strict=True), strict=True)) if sides else {}
    total, sums, every = 0.0, Counter[str](), dict[int, tuple[float, float]]()
    for of_one in parallel.gather((step_sums.loss, step_sums.figures, rewards)):
        total += of_one[0]
        sums.update(of_one[1])
        every |= of_one[2]
    return total, sums, every
