"""Parallel strategies of one training: a single process, data parallel, or fully sharded.

Covers: which items a process computes, the gradient of the whole batch, clipping, whole tensors for files, an
optimiser's state whole or spread. A step is the same whatever the division, to float32 rounding:
items are dealt out after the batch is drawn, the loss's denominator is the whole batch's, and gradients are added up,
once a step. Leaves out: the processes (`distributed`), the loops of reward models and of policies.

`Sharded` is FSDP2 (`torch.distributed.fsdp.fully_shard`): each decoder layer is a unit, the rest of the model another,
so weights, gradients and optimiser state are divided by the number of processes. What is computed may read any weight
(a head, a tied embedding) as in one process: the whole of it runs as the outermost unit's forward pass.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from types import MethodType
from typing import Any, Protocol, TypeVar

import torch

from assay.errors import BadInputError
from assay.models.parallelism.distributed import Parallel, ProcessGroup, world_size
from assay.models.published_weights import full_tensor
from assay.models.unread_weights import read_weights, reading_later


class SupportsTraining(Protocol):
    """What is trained: a model, and its weights that the optimiser changes, by name."""

    @property
    def model(self) -> Any: ...
    def trainable(self) -> dict[str, torch.nn.Parameter]: ...


T = TypeVar("T")

_BUCKET = 32 * 2**20  #: gradient numbers of one message


class SingleProcess:
    """One process, one model."""

    name = "none"
    rank, world = 0, 1
    equal_passes = False  #: whether every process has to make the same number of passes through the model

    @property
    def main(self) -> bool:
        """Whether this process owns the run."""
        return self.rank == 0

    def loading(self) -> AbstractContextManager[None]:
        """Around the loading of what `prepare` or `shard` divides."""
        return nullcontext()

    def prepare(self, trained: SupportsTraining) -> None:
        """Once, after loading and before the optimiser is made."""

    def seed(self, seed: int, step: int) -> None:
        """Random state of `step`. A single process keeps its state."""

    def shard(self, model: Any, *, keeps_head: bool = True) -> None:
        """Divide a model, once. `keeps_head`: what is read after a pass of it (a head) is there until the next."""

    @contextmanager
    def gathered_parameters(self, *models: Any) -> Iterator[None]:
        """Every process has the whole of these models' weights, to read: passes need no other process, for a time."""
        yield

    def forward(self, model: Any, measure: Callable[[], T]) -> T:
        """What `measure` computes with the model, whose result is tensors in plain containers."""
        return measure()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of this process's part of the batch's loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def reduce(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Complete the gradients, after the step's last backward pass."""

    def clip(self, parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
        """Scale the whole gradient to a norm of at most `max_norm`; returns its norm before."""
        return float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))

    def share(self, value: T | None) -> T:
        """The first process's value."""
        return value  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        return [value]

    def full(self, tensor: torch.Tensor) -> torch.Tensor:
        """The whole of a weight or of an optimiser's tensor."""
        return tensor.detach()

    def collect(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """`full`, for the first process to write; None elsewhere."""
        return self.full(tensor)

    def scatter(self, full: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        """A tensor laid out as `like` with the values of the first process's `full` (None elsewhere)."""
        if full is None:
            raise BadInputError("the state lacks a tensor that the model has")
        return full

    def settle(self, model: Any) -> None:
        """After the last step: each process has its share of every weight, to be changed or written."""


class Replicated(SingleProcess):
    """Every process holds the whole model (data parallel). Gradients are added up once a step, after accumulation."""

    name = "ddp"

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self.rank, self.world = group.rank, group.world

    def prepare(self, trained: SupportsTraining) -> None:
        import torch.distributed as dist

        for parameter in trained.trainable().values():  # same base, same seed: equal already, and now for certain
            dist.broadcast(parameter.data, src=0)

    def seed(self, seed: int, step: int) -> None:
        """A function of the step and the process, so that resuming has no random state to restore."""
        torch.manual_seed((seed * 1_000_003 + step) * 1009 + self.rank)

    def reduce(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        import torch.distributed as dist

        # A process without items has no gradients; a weight that nobody used has to stay without one.
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=parameters[0].device)
        dist.all_reduce(used, op=dist.ReduceOp.MAX)
        for bucket in _buckets([p for p, some in zip(parameters, used.tolist(), strict=True) if some]):
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
            dist.all_reduce(flat)
            for parameter, gradient in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
                parameter.grad = gradient.view_as(parameter)

    def share(self, value: T | None) -> T:
        return self._group.share(value)

    def gather(self, value: T) -> list[T]:
        return self._group.gather(value)

    def collect(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor.detach() if self.main else None

    def scatter(self, full: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        import torch.distributed as dist

        local = torch.empty_like(like) if full is None else full.to(like.device, like.dtype).contiguous()
        dist.broadcast(local, src=0)
        return local


class Sharded(Replicated):
    """Every process holds a share of each weight (FSDP2)."""

    name = "fsdp"
    equal_passes = True  # a pass collects each layer's weights from all processes

    def __init__(self, group: ProcessGroup, device: torch.device) -> None:
        super().__init__(group)
        self.device = device

    @cached_property
    def mesh(self) -> Any:
        """Of one dimension: all processes."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self.device.type, (self.world,))

    def loading(self) -> AbstractContextManager[None]:
        """A model that needs dividing may fit on no GPU, and as many as there are processes not in main memory."""
        return reading_later()

    def prepare(self, trained: SupportsTraining) -> None:
        self.shard(trained.model)

    def shard(self, model: Any, *, keeps_head: bool = True) -> None:
        """A unit at a time: its weights are read where they are not yet, the trained ones made those of the first
        process (which may have set some), and moved to the device as a share each. `keeps_head`: the outermost unit's
        stay whole after a pass, for the backward pass."""
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        units = set(model._no_split_modules or ())
        for module in [*(module for module in model.modules() if type(module).__name__ in units), model]:
            read_weights(module)
            self._equalise(module)
            fully_shard(module, mesh=self.mesh, reshard_after_forward=module is not model or not keeps_head)
        model.assay_measure = MethodType(lambda self, measure: measure(), model)
        register_fsdp_forward_method(model, "assay_measure")

    def _equalise(self, module: torch.nn.Module) -> None:
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor

        for parameter in module.parameters():
            if parameter.requires_grad and not isinstance(parameter, DTensor):
                dist.broadcast(parameter.data, src=0)

    @contextmanager
    def gathered_parameters(self, *models: Any) -> Iterator[None]:
        from torch.distributed.fsdp import FSDPModule

        for model in models:
            model.set_reshard_after_forward(False)
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.unshard()
        try:
            yield
        finally:
            for model in models:
                model.set_reshard_after_forward(True)
                self.settle(model)
                model.set_reshard_after_forward(False, recurse=False)  # the outermost keeps its own for the backward

    def forward(self, model: Any, measure: Callable[[], T]) -> T:
        return model.assay_measure(measure)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor) -> None:
        (loss * self.world).backward()  # type: ignore[no-untyped-call]  # FSDP averages over the processes

    def reduce(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Done by each backward pass."""

    def clip(self, parameters: Iterable[torch.nn.Parameter], max_norm: float) -> float:
        return float(self.full(torch.nn.utils.clip_grad_norm_(parameters, max_norm)))

    def full(self, tensor: torch.Tensor) -> torch.Tensor:
        return full_tensor(tensor)

    def collect(self, tensor: torch.Tensor) -> torch.Tensor | None:
        full = self.full(tensor)
        return full.cpu() if self.main else None

    def scatter(self, full: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if isinstance(full, DTensor):  # read by shares
            return full
        if not isinstance(like, DTensor):
            return super().scatter(full, like)
        local = torch.empty(like.shape, dtype=like.dtype, device=self.device) if full is None else full
        return distribute_tensor(local.to(self.device, like.dtype), like.device_mesh, like.placements)

    def settle(self, model: Any) -> None:
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def resolve(parallel: Parallel) -> str:
    """`auto`: ddp where torchrun started several processes. Raises BadInputError for a choice that does not fit."""
    several = world_size() > 1
    if parallel == "auto":
        return "ddp" if several else "none"
    if several == (parallel == "none"):
        raise BadInputError(
            f"{parallel} with {world_size()} process{'es' if several else ''}: "
            + (
                "choose ddp or fsdp"
                if several
                else "start the command with torchrun, e.g. torchrun --nproc-per-node 2 -m assay.cli train bt ..."
            ),
            field="parallel",
        )
    return parallel


def parallel_strategy(parallel: Parallel, group: ProcessGroup | None, device: torch.device) -> SingleProcess:
    """The way to divide the work among `group`."""
    name = resolve(parallel)
    if group is None or name == "none":
        return SingleProcess()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return Sharded(group, device) if name == "fsdp" else Replicated(group)


def split_by_cost(costs: Sequence[int], world: int) -> list[list[int]]:
    """For each process the numbers of its items: dealt out by falling cost, back and forth, so that processes differ
    by at most one item and little cost. One process gets all, in their order."""
    if world == 1:
        return [list(range(len(costs)))]
    hands: list[list[int]] = [[] for _ in range(world)]
    for rank_by_cost, number in enumerate(sorted(range(len(costs)), key=lambda i: (-costs[i], i))):
        row, seat = divmod(rank_by_cost, world)
        hands[seat if row % 2 == 0 else world - 1 - seat].append(number)
    return [sorted(hand) for hand in hands]


def scatter_optimizer(
    described: dict[str, Any] | None, optimizer: torch.optim.Optimizer, parallel: SingleProcess
) -> None:
    """Load the state of an optimiser: whole, of the first process (None elsewhere), or with divided tensors in all.
    What is as large as its weight is laid out as the weight is, the rest (counts, settings) is the same everywhere."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    small = None
    if described is not None:
        small = described | {
            "state": {
                number: {key: None if _is_like(value, parameters[number]) else value for key, value in state.items()}
                for number, state in described["state"].items()
            }
        }
    shared: dict[str, Any] = parallel.share(small)
    for number, state in shared["state"].items():
        for key, value in state.items():
            if value is None:
                full = described["state"][number][key] if described is not None else None
                state[key] = parallel.scatter(full, parameters[number])
    optimizer.load_state_dict(shared)


def _is_like(value: Any, parameter: torch.nn.Parameter) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(value, DTensor) or (isinstance(value, torch.Tensor) and value.shape == parameter.shape)


def _buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterable[list[torch.nn.Parameter]]:
    bucket: list[torch.nn.Parameter] = []
    size = 0
    for parameter in parameters:
        if bucket and size + parameter.numel() > _BUCKET:
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += parameter.numel()
    if bucket:
        yield bucket
