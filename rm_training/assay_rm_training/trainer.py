"""The Bradley-Terry loop: pairs in, a scalar reward model out, resumable bit for bit on a CPU.

Covers: batches, micro-batches, loss, accumulation, clipping, schedule, measuring, saving, resuming; it reads from top
to bottom. Leaves out, on purpose: several devices (one process trains here), loading (`base_model.py`), saving the
finished model (`checkpoint.py`), lineage (`training_run.py`).

The gradient of a step is that of sum_i w_i loss_i / sum_i w_i over all its pairs: the denominator is fixed before the
first backward pass, so it does not depend on how the batch is cut into forward passes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from assay.errors import BackendError
from assay.models.devices import pick_dtype
from assay.models.pooling import HEAD
from assay.progress import Advance, silent
from assay_rm_training.base_model import Trainee
from assay_rm_training.config import BTConfig
from assay_rm_training.metrics_file import MetricsFile
from assay_rm_training.pair_forward import PairBatch, can_share, collate, pair_length, pair_rewards
from assay_rm_training.pairs_dataset import PairSet, epoch_batches, micro_batches, steps_per_epoch
from assay_rm_training.schedules import lr_factor
from assay_rm_training.training_state import Position, load_state, save_state

CPU_TOKENS, DEVICE_TOKENS = 1024, 16384  #: of one forward pass, where the configuration leaves it open


@dataclass(frozen=True)
class TrainingSummary:
    """What the loop did. `tokens` counts both sides of every pair in full; `computed_tokens`, what went through the
    model: padding added, common beginnings once. Rates, `computed_tokens`, `padded_share`: of this process's steps."""

    steps: int
    pairs: int
    tokens: int
    seconds: float
    pairs_per_s: float
    tokens_per_s: float
    computed_tokens: int
    padded_share: float
    first_loss: float
    last_loss: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def train(
    trainee: Trainee,
    data: PairSet,
    config: BTConfig,
    folder: Path,
    *,
    eval_data: PairSet | None = None,
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
                measured = train_step(trainee, data, batch, config, optimizer)
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
                        "accuracy": measured.accuracy,
                        "margin": measured.margin,
                        "lr": rate,
                        "grad_norm": measured.grad_norm,
                        "pairs": len(batch),
                        "tokens": measured.tokens,
                        "computed_tokens": measured.computed,
                        "padded_share": measured.padding / measured.computed,
                        "tokens_per_s": measured.tokens / max(now - began, 1e-9),
                        "seconds": position.seconds,
                    }
                )
                if eval_data is not None and due(step, config.eval_every, total):
                    metrics.add({"kind": "eval", "step": step, **measure(trainee, eval_data, config)})
                if due(step, config.save_every, total):
                    save_state(folder, position, weights, optimizer, belongs_to=belongs_to)
                advance(1)
    seconds, tokens = position.seconds - begun_at.seconds, position.tokens - begun_at.tokens
    return TrainingSummary(
        steps=position.step,
        pairs=len(data) * config.epochs,
        tokens=position.tokens,
        seconds=position.seconds,
        pairs_per_s=seen / max(seconds, 1e-9),
        tokens_per_s=tokens / max(seconds, 1e-9),
        computed_tokens=computed,
        padded_share=padding / max(computed, 1),
        first_loss=first,
        last_loss=last,
    )


@dataclass(frozen=True)
class StepMeasurement:
    """One step: weighted mean loss, share ranked right, mean margin, gradient norm before clipping, tokens as in
    `PairBatch`."""

    loss: float
    accuracy: float
    margin: float
    grad_norm: float
    tokens: int
    computed: int
    padding: int


def train_step(
    trainee: Trainee, data: PairSet, batch: Sequence[int], config: BTConfig, optimizer: torch.optim.Optimizer
) -> StepMeasurement:
    """Accumulate and clip the gradient of one batch of pair indices; the caller steps the optimiser."""
    optimizer.zero_grad(set_to_none=True)
    denominator = sum(data.pairs[i].weight for i in batch)
    totals = torch.zeros(3, dtype=torch.float64)  # loss, right, margin
    tokens = computed = padding = 0
    for pairs in _forward_batches(trainee, data, batch, config):
        chosen, rejected = _rewards(trainee, pairs, config)
        losses = config.loss(chosen, rejected, pairs.margin).per_pair
        loss = (losses * pairs.weight).sum() / denominator
        loss.backward()  # type: ignore[no-untyped-call]
        d = (chosen - rejected).detach()
        totals += torch.stack([loss.detach(), (d > 0).sum() / len(batch), d.sum() / len(batch)]).double().cpu()
        tokens, computed, padding = tokens + pairs.tokens, computed + pairs.computed, padding + pairs.padding
    norm = torch.nn.utils.clip_grad_norm_(trainee.trainable().values(), config.max_grad_norm)
    loss_sum, right, margin = totals.tolist()
    return StepMeasurement(loss_sum, right, margin, float(norm), tokens, computed, padding)


@torch.no_grad()
def measure(trainee: Trainee, data: PairSet, config: BTConfig) -> dict[str, float]:
    """Loss, accuracy and margin on held-out pairs in the training's number format, for the curve.

    The figures a model is judged by come from `evaluate.py`, in float32 through the serving engine.
    """
    trainee.model.train(False)
    losses, right, margin = 0.0, 0.0, 0.0
    for pairs in _forward_batches(trainee, data, range(len(data)), config):
        chosen, rejected = _rewards(trainee, pairs, config)
        losses += float(config.loss(chosen, rejected, pairs.margin).per_pair.sum())
        right += float((chosen > rejected).sum())
        margin += float((chosen - rejected).sum())
    trainee.model.train()
    return {"loss": losses / len(data), "accuracy": right / len(data), "margin": margin / len(data)}


def make_optimizer(trainee: Trainee, config: BTConfig) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only, as is usual.

    eps is far below the usual 1e-8: under a head that starts at zero the backbone's first gradients are tiny.
    """
    groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in trainee.trainable().items():
        groups.setdefault((name.startswith(f"{HEAD}."), parameter.ndim >= 2), []).append(parameter)
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


def _forward_batches(trainee: Trainee, data: PairSet, batch: Sequence[int], config: BTConfig) -> Iterator[PairBatch]:
    share = config.share_prefix and can_share(trainee.model)
    costs = {i: pair_length(data.pairs[i], share=share) for i in batch}
    pad = int(trainee.tokenizer.pad_token_id or 0)
    budget = config.micro_batch_tokens or (CPU_TOKENS if trainee.model.device.type == "cpu" else DEVICE_TOKENS)
    for part in micro_batches(batch, costs, budget):
        yield collate([data.pairs[i] for i in part], pad=pad, share=share, device=trainee.model.device)


def _rewards(trainee: Trainee, pairs: PairBatch, config: BTConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards of the chosen and the rejected sides, [n] each, float32, from one forward pass."""
    device = trainee.model.device
    dtype = pick_dtype(device, config.dtype)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        return pair_rewards(trainee.model, pairs)
