"""The training loop: items in, a trained model out, resumable bit for bit on a CPU.

Covers: batches, micro-batches, loss, accumulation, clipping, schedule, measuring, saving, resuming; it reads from top
to bottom and knows nothing of what is trained, which is a `Task`. Leaves out, on purpose: loading (`base_model.py`),
saving the finished model (`checkpoint.py`), lineage (`training_run.py`).

The gradient of a step is that of sum_i w_i loss_i / sum_i w_i over all its items: the denominator is fixed before the
first backward pass, so it does not depend on how the batch is cut into forward passes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from assay.errors import BackendError
from assay.progress import Advance, silent
from assay_rm_training.base_model import Trainee
from assay_rm_training.config import TrainingConfig
from assay_rm_training.item_set import ItemSet, epoch_batches, micro_batches, steps_per_epoch
from assay_rm_training.metrics_file import MetricsFile
from assay_rm_training.schedules import lr_factor
from assay_rm_training.task import Measured, Task
from assay_rm_training.training_state import Position, load_state, save_state

Item = TypeVar("Item")

CPU_TOKENS, DEVICE_TOKENS = 1024, 16384  #: of one forward pass, where the configuration leaves it open


@dataclass(frozen=True)
class TrainingSummary:
    """What the loop did. `items`: seen, over all epochs. `tokens` counts every sequence in full; `computed_tokens`,
    what went through the model: padding added, common beginnings once. Rates, `computed_tokens`, `padded_share`: of
    this process's steps."""

    steps: int
    items: int
    tokens: int
    seconds: float
    items_per_s: float
    tokens_per_s: float
    computed_tokens: int
    padded_share: float
    first_loss: float
    last_loss: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def train(
    trainee: Trainee,
    task: Task[Item],
    data: ItemSet[Item],
    config: TrainingConfig,
    folder: Path,
    *,
    eval_data: ItemSet[Item] | None = None,
    resume: bool = False,
    advance: Advance = silent,
) -> TrainingSummary:
    """Train `trainee.model` in place; metrics and state go to `folder`. `advance` gets 1 for each step.

    `resume`: go on from `folder`'s saved state. Raises BackendError when the loss or the gradient is not finite;
    the last saved state remains.
    """
    per_epoch = steps_per_epoch(len(data), config.batch_size)
    total = per_epoch * config.epochs
    optimizer = make_optimizer(trainee, config)
    weights = trainee.trainable()
    belongs_to = {"data": data.digest, "configuration": config.to_json()}
    device = next(iter(weights.values())).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        position = Position(0, 0, 0.0)
        if resume:
            position = load_state(folder, weights, optimizer, belongs_to=belongs_to)
            advance(position.step)
        with MetricsFile(folder, keep_to_step=position.step) as metrics:
            first = last = math.nan
            started, begun_at, seen, computed, padding = time.monotonic(), position, 0, 0, 0
            for step in range(position.step + 1, total + 1):
                epoch, number = divmod(step - 1, per_epoch)
                if number == 0 or step == begun_at.step + 1:
                    batches = epoch_batches(len(data), config.batch_size, seed=config.seed, epoch=epoch)
                batch = batches[number]
                rate = config.learning_rate * lr_factor(config.schedule, step, total, warmup_ratio=config.warmup_ratio)
                for group in optimizer.param_groups:
                    group["lr"] = rate * group["factor"]
                began = time.monotonic()
                measured = train_step(trainee, task, [data.items[i] for i in batch], config, optimizer)
                if not (math.isfinite(measured.loss) and math.isfinite(measured.grad_norm)):
                    raise BackendError(
                        f"step {step}: loss {measured.loss}, gradient norm {measured.grad_norm}: not finite; "
                        "lower the learning rate (--lr) or use --dtype float32"
                    )
                optimizer.step()
                now = time.monotonic()
                seen += len(batch)
                computed, padding = computed + measured.computed, padding + measured.padding
                position = Position(step, position.tokens + measured.tokens, begun_at.seconds + now - started)
                first, last = (measured.loss if math.isnan(first) else first), measured.loss
                metrics.add(
                    {
                        "kind": "train",
                        "step": step,
                        "epoch": step / per_epoch,
                        "loss": measured.loss,
                        **measured.figures,
                        "lr": rate,
                        "grad_norm": measured.grad_norm,
                        "items": len(batch),
                        "tokens": measured.tokens,
                        "computed_tokens": measured.computed,
                        "padded_share": measured.padding / measured.computed,
                        "tokens_per_s": measured.tokens / max(now - began, 1e-9),
                        "seconds": position.seconds,
                    }
                )
                if eval_data is not None and due(step, config.eval_every, total):
                    metrics.add({"kind": "eval", "step": step, **measure(trainee, task, eval_data.items, config)})
                if due(step, config.save_every, total):
                    save_state(folder, position, weights, optimizer, belongs_to=belongs_to)
                advance(1)
    seconds, tokens = position.seconds - begun_at.seconds, position.tokens - begun_at.tokens
    return TrainingSummary(
        steps=position.step,
        items=len(data) * config.epochs,
        tokens=position.tokens,
        seconds=position.seconds,
        items_per_s=seen / max(seconds, 1e-9),
        tokens_per_s=tokens / max(seconds, 1e-9),
        computed_tokens=computed,
        padded_share=padding / max(computed, 1),
        first_loss=first,
        last_loss=last,
    )


@dataclass(frozen=True)
class StepMeasurement:
    """One step: weighted mean loss, the task's figures as means, gradient norm before clipping, tokens as in
    `Measured`."""

    loss: float
    figures: dict[str, float]
    grad_norm: float
    tokens: int
    computed: int
    padding: int


def train_step(
    trainee: Trainee,
    task: Task[Item],
    items: Sequence[Item],
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
) -> StepMeasurement:
    """Accumulate and clip the gradient of one batch of items; the caller steps the optimiser."""
    optimizer.zero_grad(set_to_none=True)
    denominator = sum(task.weight(item) for item in items)
    loss_sum, figures = 0.0, Counter[str]()
    tokens = computed = padding = 0
    for weights, part in _forward_passes(trainee, task, items, config):
        loss = (part.losses * weights).sum() / denominator
        loss.backward()  # type: ignore[no-untyped-call]
        loss_sum += float(loss.detach())
        figures.update({name: float(value) for name, value in part.figures.items()})
        tokens, computed, padding = tokens + part.tokens, computed + part.computed, padding + part.padding
    norm = torch.nn.utils.clip_grad_norm_(trainee.trainable().values(), config.max_grad_norm)
    means = {name: value / len(items) for name, value in figures.items()}
    return StepMeasurement(loss_sum, means, float(norm), tokens, computed, padding)


@torch.no_grad()
def measure(trainee: Trainee, task: Task[Item], items: Sequence[Item], config: TrainingConfig) -> dict[str, float]:
    """Mean loss and figures of held-out items in the training's number format, for the curve.

    The figures a model is judged by come from the method's evaluation, in float32 through the serving engine.
    """
    trainee.model.train(False)
    losses, figures = 0.0, Counter[str]()
    for _, part in _forward_passes(trainee, task, items, config):
        losses += float(part.losses.sum())
        figures.update({name: float(value) for name, value in part.figures.items()})
    trainee.model.train()
    return {"loss": losses / len(items), **{name: value / len(items) for name, value in figures.items()}}


def make_optimizer(trainee: Trainee, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only, as is usual.

    eps is far below the usual 1e-8: under a head that starts at zero the backbone's first gradients are tiny.
    """
    heads = tuple(f"{head}." for head in trainee.heads)
    groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in trainee.trainable().items():
        groups.setdefault((name.startswith(heads), parameter.ndim >= 2), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "factor": config.head_lr / config.learning_rate if is_head and trainee.new_head else 1.0,
                "weight_decay": config.weight_decay if is_matrix else 0.0,
            }
            for (is_head, is_matrix), parameters in groups.items()
        ],
        lr=config.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-10,
    )


def due(step: int, every: int, total: int) -> bool:
    """Whether something done every so many steps, and at the end, is done now."""
    return step == total or (every > 0 and step % every == 0)


def _forward_passes(
    trainee: Trainee, task: Task[Item], items: Sequence[Item], config: TrainingConfig
) -> Iterator[tuple[torch.Tensor, Measured]]:
    """The items' weights [n] and one forward pass over them, a micro-batch at a time."""
    device = trainee.model.device
    costs = {number: task.cost(item) for number, item in enumerate(items)}
    budget = config.micro_batch_tokens or (CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS)
    for part in micro_batches(range(len(items)), costs, budget):
        chosen = [items[number] for number in part]
        weights = torch.tensor([task.weight(item) for item in chosen], dtype=torch.float32, device=device)
        yield weights, task.measure(trainee, chosen)
