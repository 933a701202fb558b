"""A training step on fake tensors: the memory it would hold, by kind, at its peak, and the work it would do.

Covers: the modes under which a step's real code runs with a model of `assay.models.config_only`, what its memory is
(parameters, gradients, optimiser state, activations, temporary) and its floating-point operations. Leaves out: which
step (`rm_training`, `policy_training`), cards (`cards`).

Only the model is fake, and not its adapters and new heads: token ids, masks and lengths are real tensors, so that code
may read them; of a fake tensor it reads 0. torch's own tracker (`torch.distributed._tools.mem_tracker`) allows one pass
through a model a step; a step here has many (micro-batches, a reference).
"""

import math
import warnings
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from assay.models.config_only import active, config_only, counts_as_host, on_host
from assay.models.offloaded import OffloadedAdamW

PARAMETERS, GRADIENTS, OPTIMISER = "parameters", "gradients", "optimiser"
ACTIVATIONS, TEMPORARY = "activations", "temporary"
KINDS = (PARAMETERS, GRADIENTS, OPTIMISER, ACTIVATIONS, TEMPORARY)
#: In the host's memory, where a card is planned for: no part of the card's peak.
HOST = "host"

aten = torch.ops.aten
_EMPTY = frozenset((aten.empty.memory_format, aten.empty_strided.default))
#: Bytes from which an uninitialised tensor is fake: a buffer that weights are gathered in, and no list of positions.
_LARGE = 2**20


@dataclass(frozen=True)
class StepCost:
    """Of one process. `peak`: bytes by kind when their sum was highest; `flops`: by number format; `host`: bytes at
    most in the host's memory beside a card's."""

    peak: dict[str, int]
    flops: dict[str, float] = field(default_factory=dict)
    host: int = 0

    @property
    def bytes(self) -> int:
        return sum(self.peak.values())

    @property
    def float32_share(self) -> float:
        """Of the floating-point operations: under autocast those of heads alone."""
        return self.flops.get("float32", 0.0) / max(sum(self.flops.values()), 1.0)


class _Readable(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets code read fake tensors, as 0, and index them by real masks."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _has_dtensor(types):
            return NotImplemented
        if func is aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return _zero(args[0].dtype)
        if func is aten.nonzero.default and isinstance(args[0], FakeTensor):
            return torch.zeros(0, args[0].ndim, dtype=torch.long)
        if func is aten.equal.default and any(isinstance(each, FakeTensor) for each in args):
            return True
        if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            args = (args[0], _positions(args[1]), *args[2:])
        return func(*args, **kwargs)


class FakeStep(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, measures what is done; while a plan is made large buffers are fake."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: Counter[str] = Counter()
        self.peak: dict[str, int] = {}
        self.host = 0
        self.flops: defaultdict[str, float] = defaultdict(float)
        self._sizes: dict[int, int] = {}
        self._kinds: dict[int, str] = {}
        self._optimising = False

    def hold(self, tensors: Iterable[torch.Tensor | None], kind: str) -> None:
        """Count these tensors' memory as `kind`, from now on until it is freed."""
        for tensor in tensors:
            if tensor is not None:
                self._count(getattr(tensor, "_local_tensor", tensor), kind, renamed=True)

    def _count(self, tensor: torch.Tensor, kind: str, *, renamed: bool = False) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._kinds:
            if not size:
                return
            self._kinds[key] = kind
            weakref.finalize(storage, self._free, key)
        elif not renamed and self._sizes[key] == size:
            return
        elif renamed:
            self.held[self._kinds[key]] -= self._sizes.get(key, 0)
            self._sizes[key], self._kinds[key] = 0, kind
        self.held[self._kinds[key]] += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def _free(self, key: int) -> None:
        self.held[self._kinds.pop(key)] -= self._sizes.pop(key)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _has_dtensor(types):
            return NotImplemented  # its local operations come here
        fake, plan = active_fake_mode(), active()
        if plan is not None and fake is None and func in _EMPTY and _size(args[0], **kwargs) >= _LARGE:
            with plan.mode:
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs)
        if fake is not None:
            return out  # DTensor looks for the shape of a result
        grown = ACTIVATIONS if torch.is_grad_enabled() else TEMPORARY
        kind = HOST if counts_as_host() else OPTIMISER if self._optimising else grown
        for each in tree_iter(out):
            if isinstance(each, torch.Tensor):
                self._count(each, kind)
        self.host = max(self.host, self.held[HOST])
        if sum(self.held.values()) - self.held[HOST] > sum(self.peak.values()):
            self.peak = {kind: size for kind, size in self.held.items() if kind != HOST}
        if (count := _FLOPS.get(func._overloadpacket)) is not None:
            number_format = next(str(each.dtype) for each in tree_iter(args) if isinstance(each, torch.Tensor))
            self.flops[number_format.removeprefix("torch.")] += count(*args, **kwargs, out_val=out)
        return out

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        def before(optimiser: torch.optim.Optimizer, *_: Any) -> None:
            self._optimising = True

        def after(optimiser: torch.optim.Optimizer, *_: Any) -> None:
            self._optimising = False

        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            answer, key = resize(storage, size), storage._cdata
            if key in self._kinds:  # FSDP frees gathered weights so, and takes their memory again
                self.held[self._kinds[key]] += size - self._sizes[key]
                self._sizes[key] = size
            return answer

        handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
            for handle in handles:
                handle.remove()


@contextmanager
def planned(kernels: str) -> Iterator[None]:
    """Until the end of the block models are of their configurations alone. `kernels`: "cuda" or "cpu"."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with warnings.catch_warnings(), config_only(mode, kernels), _Readable():  # type: ignore[no-untyped-call]
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # torch's own code does
        yield


def measured(
    modules: Iterable[torch.nn.Module],
    optimisers: Iterable[torch.optim.Optimizer],
    step: Callable[[], object],
) -> StepCost:
    """What `step` takes, when it is not the first of its training: the optimisers have their state. `modules`: all that
    is loaded."""
    optimisers, modules = list(optimisers), list(modules)
    parameters = [p for each in modules for p in each.parameters()]
    for optimiser in optimisers:
        fill(optimiser)
    tracker = FakeStep()
    tracker.hold([*parameters, *(b for each in modules for b in each.buffers())], PARAMETERS)
    for optimiser in optimisers:
        tracker.hold(optimiser_tensors(optimiser, parameters), HOST if is_elsewhere(optimiser) else OPTIMISER)
    trained: list[Any] = [p for p in parameters if p.requires_grad]
    handles = [p.register_post_accumulate_grad_hook(lambda p: tracker.hold([p.grad], GRADIENTS)) for p in trained]
    with tracker, tracker._hooks():
        step()
    for handle in handles:
        handle.remove()
    return StepCost({kind: tracker.peak.get(kind, 0) for kind in KINDS}, dict(tracker.flops), tracker.host)


def is_elsewhere(optimiser: torch.optim.Optimizer) -> bool:
    """Whether its state is in the host's memory, and a card is planned for."""
    with on_host():
        return counts_as_host() and isinstance(optimiser, OffloadedAdamW)


def held(modules: Iterable[torch.nn.Module], optimisers: Iterable[torch.optim.Optimizer]) -> int:
    """Bytes of their weights and of what the optimisers have, on the card where one is planned for."""
    parameters = [p for module in modules for p in module.parameters()]
    tensors: list[torch.Tensor] = [*parameters]
    for optimiser in optimisers:
        tensors += () if is_elsewhere(optimiser) else optimiser_tensors(optimiser, parameters)
    return sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in tensors}.values())


def optimiser_tensors(
    optimiser: torch.optim.Optimizer, parameters: Iterable[torch.nn.Parameter]
) -> Iterator[torch.Tensor]:
    """All that it holds beside the model's `parameters`."""
    of_model = {id(each) for each in parameters}
    yield from (p for group in optimiser.param_groups for p in group["params"] if id(p) not in of_model)
    yield from (v for s in optimiser.state.values() for v in s.values() if isinstance(v, torch.Tensor))


def fill(optimiser: torch.optim.Optimizer) -> None:
    """Take an empty step, from which on it has its state."""
    every = [p for group in optimiser.param_groups for p in group["params"]]
    for parameter in every:
        parameter.grad = torch.empty_like(parameter)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _size(shape: Iterable[int], *, dtype: torch.dtype | None = None, **_: Any) -> int:
    """Bytes."""
    return math.prod(shape) * (dtype or torch.float32).itemsize


def _has_dtensor(types: Iterable[type]) -> bool:
    return any(kind.__name__ == "DTensor" for kind in types)


def _positions(indices: Iterable[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Of masks the positions that are on (of a fake one none): a length cannot depend on a mask's values."""
    positions: list[torch.Tensor | None] = []
    for each in indices:
        if each is None or each.dtype != torch.bool:
            positions.append(each)
        elif isinstance(each, FakeTensor):
            positions += torch.zeros(each.ndim, 0, dtype=torch.long)
        else:
            positions += each.nonzero(as_tuple=True)
    return positions


def _zero(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def _attention(query: Any, key: Any, value: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    """Scores and their product with the values: [b, h, q, d], half of it where the attention is causal is not skipped
    by the CPU's kernel."""
    *batch, queries, size = query.shape
    return int(4 * math.prod(batch) * queries * key.shape[-2] * size)


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    return _attention(query, key, value) * 5 // 2


def _segments(query: Any, key: Any, value: Any, q_ends: Any, k_ends: Any, *_: Any, **__: Any) -> int:
    """Causal attention of variable length: [tokens, h, d]."""
    q, k = q_ends.diff().double(), k_ends.diff().double()
    seen = q * (k - (q - 1) / 2)
    return int(4 * query.shape[1] * query.shape[2] * seen.sum())


def _segments_backward(grad: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, *ends: Any, **_: Any) -> int:
    return _segments(query, key, value, *ends) * 5 // 2


_FLOPS: dict[Any, Callable[..., float]] = dict(flop_registry)
_FLOPS[aten._scaled_dot_product_flash_attention_for_cpu] = _attention
_FLOPS[aten._scaled_dot_product_flash_attention_for_cpu_backward] = _attention_backward
if find_spec("torch.nn.attention.varlen") is not None:
    import torch.nn.attention.varlen  # registers the operations

    _FLOPS[torch.ops.torch_attn._varlen_attn] = _segments
    _FLOPS[torch.ops.torch_attn._varlen_attn_backward] = _segments_backward
