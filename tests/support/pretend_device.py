"""A device of torch that pretends to be an accelerator: real numbers, and every passage to and from the host is seen.

Covers: tensors on a device of their own (`PrivateUse1`) whose values lie in host memory; operations that mix devices,
which fail as on a GPU; places at which a GPU would have to be waited for: a value or tensor that is read, a result
whose size depends on values (`nonzero`, an index that is a mask), a copy to the device that is not asynchronous. Leaves
out: kernels, number formats, autocast, and what is done only where a device is called `cuda`.

Registering a device lasts as long as the process, and has to come before its first backward pass, so all of it runs in
a process of its own, a fork of one that has imported the product: `on_pretend_device`.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from types import FrameType
from typing import Any, TypeVar

import torch
from forked_actors import IMPORTED
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

NAME = "pretend"
T = TypeVar("T")
#: Operations whose result has a size that depends on values.
SIZED = frozenset({"nonzero", "masked_select", "unique_consecutive", "_unique2", "unique_dim", "equal", "bincount"})
INDEXED = frozenset({"index", "index_put", "index_put_"})


class Passages:
    """What went between host and device, by the product's line: `reads` from it, `waits` for a copy to it."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()


_seen = [Passages()]


def passages() -> Passages:
    """Those from now on."""
    _seen[0] = Passages()
    return _seen[0]


def on_pretend_device(work: Callable[..., T], *arguments: Any) -> T:
    """What `work`, a function of a module, gives for the device and `arguments`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(1, mp_context=context) as pool:  # which says so where the process dies
        return pool.submit(_in_process, work, arguments).result()


class DeviceTensor(torch.Tensor):
    """`held`: its values, on the host."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> DeviceTensor:
        tensor: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.held = held
        return tensor  # type: ignore[no-any-return]

    def __init__(self, held: torch.Tensor) -> None: ...

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Module:
    """What torch asks the module of a device."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Any] = {"current_device": 0, "device_count": 1, "_is_in_bad_fork": False}
        answers |= {"get_rng_state": torch.zeros(1, dtype=torch.uint8), "device": nullcontext()}
        answers |= {"is_initialized": True, "is_available": True}
        return lambda *_, **__: answers.get(name)


def _in_process(work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    torch.set_num_threads(1)
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    torch.__future__.set_swap_module_params_on_conversion(True)  # keeps tied weights tied
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    with _Dispatch():  # type: ignore[no-untyped-call]
        return work(torch.device(NAME, 0), *arguments)


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return DeviceTensor(torch.empty(size, dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
    return _run(torch.ops.aten.copy_.default, (target, source, non_blocking), {})


def _note(kind: str) -> None:
    frame: FrameType | None = sys._getframe()
    place = "torch"
    while frame is not None:
        name = frame.f_code.co_filename
        if "/assay_" in name or "/platform/assay" in name:
            place = f"{name.rsplit('/', 1)[-1]}:{frame.f_lineno}"
            break
        frame = frame.f_back
    getattr(_seen[0], kind)[place] += 1


def _held(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.held if isinstance(tensor, DeviceTensor) else tensor


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name, device = func._schema.name.split("::")[1], kwargs.get("device")
    if name == "_to_copy":
        source = args[0]
        ours = _is_ours(source.device if device is None else device)
        copy = func(_held(source), **{key: value for key, value in kwargs.items() if key != "device"})
        if isinstance(source, DeviceTensor) and not ours:
            _note("reads")
        elif ours and not isinstance(source, DeviceTensor) and not kwargs.get("non_blocking"):
            _note("waits")
        return DeviceTensor(copy) if ours else copy
    if name == "copy_":
        target, source = args[0], args[1]
        if isinstance(source, DeviceTensor) and not isinstance(target, DeviceTensor):
            _note("reads")
        elif isinstance(target, DeviceTensor) and not isinstance(source, DeviceTensor) and not any(args[2:]):
            _note("waits")
        func(_held(target), _held(source), *args[2:])
        return target
    tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor)]
    own = [each for each in tensors if isinstance(each, DeviceTensor)]
    if not own and not _is_ours(device):
        return func(*args, **kwargs)
    if own and name not in INDEXED and any(each.dim() and not isinstance(each, DeviceTensor) for each in tensors):
        raise RuntimeError(f"{func}: tensors of {NAME} and of cpu")
    if name == "_local_scalar_dense" or name in SIZED or str(func) == "aten.repeat_interleave.Tensor":
        _note("reads")
    for index in args[1] if name in INDEXED else ():
        if isinstance(index, DeviceTensor) and index.dtype == torch.bool:
            _note("reads")
        elif index is not None and not isinstance(index, DeviceTensor):
            _note("waits")
    if _is_ours(device):
        kwargs = {**kwargs, "device": torch.device("cpu")}
    held_args, held_kwargs = tree_map_only(DeviceTensor, _held, (args, kwargs))
    result = func(*held_args, **held_kwargs)
    if device is not None and not _is_ours(device):
        return result
    back = {id(each.held): each for each in own}  # an operation in place returns the tensor that it was given
    return tree_map_only(torch.Tensor, lambda each: back[id(each)] if id(each) in back else DeviceTensor(each), result)
