"""Loss terms of a full batch, such as a correlation over all its responses, under gradient accumulation.

Covers: the term's gradient when the batch is split into several forward passes or among processes. Leaves out:
the terms (`objectives/regularisers.py`), the loop (`training/loop.py`).

A term f(o_1, ..., o_N) of all outputs is not a sum over items, so it cannot be accumulated; its gradient can: first
all outputs are computed without gradient, then df/do, then each pass adds sum_i df/do_i * o_i to its own loss, whose
gradient is f's by the chain rule (the gradient cache of arXiv 2101.06983). It costs a second forward pass, and equals
the gradient of one large pass to rounding; with dropout too, because both rounds draw the same random numbers.

Micro-batches: this process's items of a batch, split into forward passes by token count. Leaves out: what a pass is
used for (`loop.py`, `eval_step.py`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch

from assay.models.attention.packing import can_pack
from assay.models.devices import pass_tokens, to_device
from assay.models.parallelism.strategy import SingleProcess
from assay_rm_training.data.encoded_dataset import item_passes
from assay_rm_training.methods.task import BatchLoss, TrainingTask
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.training.profiler import StepClock
from assay_rm_training.training_config import TrainingConfig

Item = TypeVar("Item")
Taken = TypeVar("Taken", contravariant=True)


@runtime_checkable
class SupportsBatchTerm(Protocol[Taken]):
    """A task whose `measure` returns `outputs`, and whose loss has a term of all of them."""

    def batch_term(self, items: Sequence[Taken], outputs: torch.Tensor) -> torch.Tensor:
        """What is added to the batch's mean loss: a scalar of the outputs [N, k] of all its N items, in their order."""
        ...


@dataclass(frozen=True)
class BatchTerm:
    """A term's `value` at the current weights and its `gradient` [N, k] with respect to all outputs."""

    value: float
    gradient: torch.Tensor

    def injected(self, numbers: Sequence[int], outputs: torch.Tensor) -> torch.Tensor:
        """A scalar of value 0 whose gradient is the term's share of the items `numbers`, whose outputs are [n, k]."""
        gradient = self.gradient[list(numbers)].to(outputs.device, outputs.dtype)
        share = (gradient * outputs).sum()
        return share - share.detach()


def batch_term(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    items: Sequence[Item],
    config: TrainingConfig,
    parallel: SingleProcess,
    clock: StepClock,
) -> BatchTerm | None:
    """The term of this batch; None for a task that has none. The random state is left unchanged."""
    if not isinstance(task, SupportsBatchTerm):
        return None
    device = trainable.model.device
    computed, outputs = list[int](), list[torch.Tensor]()
    with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for numbers, _, part in forward_passes(trainable, task, items, config, parallel, clock):
            assert part.outputs is not None  # of a task with a batch term
            computed += numbers
            outputs.append(part.outputs.float()[: len(numbers)])
    on_host = torch.cat(outputs).cpu() if outputs else None
    gathered = parallel.gather((computed, on_host))
    (width,) = {rows.shape[1:] for _, rows in gathered if rows is not None}
    all_outputs = torch.full((len(items), *width), math.nan)  # a row that no process computed would not go unseen
    for numbers, rows in gathered:
        if rows is not None:
            all_outputs[numbers] = rows
    all_outputs.requires_grad_()
    term = task.batch_term(items, all_outputs)
    (gradient,) = torch.autograd.grad(term, all_outputs)
    return BatchTerm(float(term.detach()), gradient)


class Pass(NamedTuple):
    """`numbers`: indices of the items; empty for a pass that only keeps this process in step with the others, whose
    `weights` are zero. `weights`: [n]."""

    numbers: list[int]
    weights: torch.Tensor
    measured: BatchLoss


def forward_passes(
    trainable: TrainableModel,
    task: TrainingTask[Item],
    items: Sequence[Item],
    config: TrainingConfig,
    parallel: SingleProcess,
    clock: StepClock,
) -> Iterator[Pass]:
    """This process's share of `items`, one forward pass at a time, the costliest items first."""
    device = trainable.model.device
    with clock.part("data"):
        costs = [task.cost(item) for item in items]
        budget = config.micro_batch_tokens or pass_tokens(device)
        parts = item_passes(costs, budget, parallel, padded=not can_pack(trainable.model))
    for numbers, counts in parts:
        chosen = [items[number] for number in numbers]
        item_weights = [task.weight(item) if counts else 0.0 for item in chosen]
        weights = to_device(torch.tensor(item_weights, dtype=torch.float32), device)
        with clock.part("forward"):
            measured = parallel.forward(trainable.model, lambda: task.measure(trainable, chosen))  # noqa: B023  # called at once
        yield Pass(numbers if counts else [], weights, measured)
