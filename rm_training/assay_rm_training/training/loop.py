"""The training loop over encoded items; resuming is exact to the bit on a CPU.

Covers: batches, micro-batches, loss, accumulation, clipping, schedule, metrics, saving, early stopping, resuming.
What is trained is a `TrainingTask`. Leaves out: loading (`trainable_model.py`), the division among processes
(`assay.models.parallelism.strategy`), held-out metrics (`eval_step.py`), saving the finished model (`checkpoint.py`),
lineage (`runs/train.py`).

The gradient of a step is that of sum_i w_i loss_i / sum_i w_i over all its items: the denominator is fixed before the
first backward pass, so it does not depend on how the batch is split into forward passes or among processes. A term of
the full batch may be added (`batch_losses.py`).

The learning rate is a pure function of the step, so that resuming has no scheduler state to restore.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from assay.errors import BackendError
from assay.models.devices import float32_products, kept_casts, pick_dtype
from assay.models.optimisers import finish, make_optimiser, optimised
from assay.models.parallelism.distributed import local_device
from assay.models.parallelism.strategy import SingleProcess
from assay.runs.callbacks import Callback
from assay.runs.progress_bar import Advance, silent
from assay.system.graceful_stop import stop_on_signal
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.methods.task import TrainingTask
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.batch_losses import batch_term, forward_passes
from assay_rm_training.training.batch_order import StepPlan
from assay_rm_training.training.eval_step import measure
from assay_rm_training.training.profiler import StepClock, peak_memory
from assay_rm_training.training.resume_state import Position
from assay_rm_training.training.run_files import RunFiles
from assay_rm_training.training.summary import RunTotals, StepMeasurement, StepSums, TrainingSummary
from assay_rm_training.training_config import Schedule, TrainingConfig

Item = TypeVar("Item")


def train(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    data: EncodedDataset[Item],
    config: TrainingConfig,
    folder: Path,
    *,
    eval_data: EncodedDataset[Item] | None = None,
    resume: bool = False,
    parallel: SingleProcess | None = None,
    advance: Advance = silent,
    callbacks: Sequence[Callback] = (),
) -> TrainingSummary:
    """Train `trainable.model` in place; metrics and state go to `folder`. `advance` gets 1 for each step.

    `resume`: continue from `folder`'s saved state. `parallel`: the division among processes; `trainable` is prepared
    by it, all processes call this, and only the first reads and writes `folder`. Raises BackendError when the loss or
    the gradient is not finite; the last saved state remains. In a single process Ctrl-C ends the training after the
    current step, with its state saved.
    """
    parallel = parallel or SingleProcess()
    plan = StepPlan(len(data), config)
    optimizer = make_optimizer(trainable, config)
    device = next(iter(trainable.trainable().values())).device
    weights = optimised(optimizer, trainable.trainable())
    files = RunFiles(folder, config, parallel, weights, optimizer, data=data.digest, callbacks=callbacks)
    clock, run = StepClock(), RunTotals()
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        float32_products(device, "high"),
    ):
        torch.manual_seed(config.seed)
        position = Position(0, 0, 0.0)
        if resume:
            position = files.restore()
            advance(position.step)
        with files.opened(position), stop_on_signal(held=parallel.world == 1) as end:
            began_at, started = position, time.monotonic()
            for step in range(position.step + 1, plan.total + 1):
                if files.should_stop():
                    break
                began = time.monotonic()
                with clock.part("data"):
                    items = [data.items[number] for number in plan.batch(step)]
                rate = config.learning_rate * lr_factor(
                    config.schedule,
                    step,
                    plan.total,
                    warmup_ratio=config.warmup_ratio,
                    min_lr_ratio=config.min_lr_ratio,
                    decay_ratio=config.decay_ratio,
                )
                for group in optimizer.param_groups:
                    group["lr"] = rate * group["factor"]
                parallel.seed(config.seed, step)
                measured = train_step(trainable, task, items, config, optimizer, parallel=parallel, clock=clock)
                if not (math.isfinite(measured.loss) and math.isfinite(measured.grad_norm)):
                    raise BackendError(
                        f"step {step}: loss {measured.loss}, gradient norm {measured.grad_norm}: not finite; "
                        "lower the learning rate (--lr) or use --dtype float32"
                    )
                with clock.part("update"):
                    moved = update_weights(optimizer, list(weights.values()), parallel, measured=config.update_norm)
                now = time.monotonic()
                position = Position(step, position.tokens + measured.tokens, began_at.seconds + now - started)
                parts = clock.take()
                run.add(measured, parts, clipped=measured.grad_norm > config.max_grad_norm)
                files.add(
                    {
                        "kind": "train",
                        "step": step,
                        "epoch": plan.epochs_done(step),
                        "loss": measured.loss,
                        **measured.figures,
                        "lr": rate,
                        "grad_norm": measured.grad_norm,
                        "clipped": float(measured.grad_norm > config.max_grad_norm),
                        **moved,
                        "items": measured.items,
                        "tokens": measured.tokens,
                        "computed_tokens": measured.computed,
                        "padded_share": measured.padding / measured.computed,
                        "shared_share": measured.shared_share,
                        "tokens_per_s": measured.tokens / max(now - began, 1e-9),
                        "items_per_s": measured.items / max(now - began, 1e-9),
                        **{f"seconds_{name}": value for name, value in sorted(parts.items())},
                        **peak_memory(device),
                        "seconds": position.seconds,
                    }
                )
                if eval_data is not None and due(step, config.eval_every, plan.total):
                    row = measure(trainable, task, eval_data, config, parallel)
                    files.add_evaluation({"kind": "eval", "step": step, **row}, position)
                if due(step, config.save_every, plan.total) or files.should_stop():
                    files.save(position)
                advance(1)
                if end.requested:
                    files.save(position)
                    raise KeyboardInterrupt
        kept_step = files.keep(position)
    finish(optimizer)
    memory = max(parallel.gather(peak_memory(device)["peak_memory"]))
    return replace(
        run.summary(position, began_at),
        peak_memory=memory,
        processes=parallel.world,
        parallel=parallel.name,
        planned_steps=plan.total,
        kept_step=kept_step,
        choice=files.best,
        items=plan.items_seen(position.step),
    )


def train_step(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    items: Sequence[Item],
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
    *,
    parallel: SingleProcess | None = None,
    clock: StepClock | None = None,
) -> StepMeasurement:
    """Accumulate and clip the gradient of one batch of items; the caller steps the optimiser."""
    parallel, clock = parallel or SingleProcess(), clock or StepClock()
    optimizer.zero_grad(set_to_none=True)
    denominator = sum(task.weight(item) for item in items)
    local_sums = StepSums()
    term = batch_term(trainable, task, items, config, parallel, clock)
    # Casts of gathered weights, or of weights whose layers are computed again, would be held longer than used.
    with kept_casts(parallel.world == 1 and not config.gradient_checkpointing):
        for numbers, weights, part in forward_passes(trainable, task, items, config, parallel, clock):
            loss = (part.losses * weights).sum() / denominator
            if term is not None and part.outputs is not None and numbers:
                loss = loss + term.injected(numbers, part.outputs)
            with clock.part("backward"):
                parallel.backward(loss)
            if numbers:
                counts = part.tokens, part.computed, part.padding
                local_sums.add(loss, part.figures, part.each, counts)
    if term is not None and parallel.main:
        local_sums.loss += term.value
    with clock.part("reduce"):
        parameters = list(optimised(optimizer, trainable.trainable()).values())
        parallel.reduce(parameters)
        norm = parallel.clip(parameters, config.max_grad_norm)
        total = StepSums()
        for sums in parallel.gather(local_sums.read()):
            total.merge(sums)
    means = {name: value / len(items) for name, value in total.figures.items()} | total.spread()
    return StepMeasurement(total.loss, means, norm, len(items), *total.counts)


def make_optimizer(trainable: TrainableModel, config: TrainingConfig) -> torch.optim.Optimizer:
    """Weight decay is on matrices only."""
    heads = tuple(f"{head}." for head in trainable.heads)
    groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in trainable.trainable().items():
        groups.setdefault((name.startswith(heads), parameter.ndim >= 2), []).append(parameter)
    param_groups = [
        {
            "params": parameters,
            "factor": config.head_rate / config.learning_rate if is_head and trainable.new_head else 1.0,
            "weight_decay": config.weight_decay if is_matrix else 0.0,
        }
        for (is_head, is_matrix), parameters in groups.items()
    ]
    half = config.lora is None and pick_dtype(local_device(config.device), config.dtype) == torch.bfloat16
    return make_optimiser(
        config.optimizer,
        param_groups,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        model=trainable.model if half else None,
    )


def due(step: int, every: int, total: int) -> bool:
    """Whether something done every `every` steps, and at the end, is due at `step`."""
    return step == total or (every > 0 and step % every == 0)


def update_weights(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    parallel: SingleProcess,
    *,
    measured: bool,
) -> dict[str, float]:
    """Step the optimiser; if `measured`, return the norm of the update."""
    before = [p.detach().clone() for p in parameters] if measured else []
    optimizer.step()
    if not measured:
        return {}
    squares = [(p.detach() - old).square().sum() for p, old in zip(parameters, before, strict=True)]
    return {"update_norm": math.sqrt(sum(float(parallel.full(square)) for square in squares))}


def lr_factor(
    schedule: Schedule,
    step: int,
    total: int,
    *,
    warmup_ratio: float,
    min_lr_ratio: float = 0.0,
    decay_ratio: float = 0.2,
) -> float:
    """Factor on the peak rate for optimiser step `step` of `total`, counted from 1.

    Rises linearly over the first round(warmup_ratio * total) steps, then stays (`constant`), or falls linearly or as
    a half cosine towards `min_lr_ratio`, which it would reach one step after the last (so no step has a rate of 0).
    `wsd` (warm-up, stable, decay: MiniCPM, arXiv 2404.06395) stays until the last round(decay_ratio * total) steps
    and falls linearly in them.
    """
    warmup = round(warmup_ratio * total)
    if step <= warmup:
        return step / max(1, warmup)
    if schedule == "constant":
        return 1.0
    begin = warmup if schedule != "wsd" else max(warmup, total - round(decay_ratio * total))
    done = max(0.0, (step - begin - 1) / max(1, total - begin))
    falling = 0.5 * (1.0 + math.cos(math.pi * done)) if schedule == "cosine" else 1.0 - done
    return min_lr_ratio + (1.0 - min_lr_ratio) * falling if min_lr_ratio else falling
