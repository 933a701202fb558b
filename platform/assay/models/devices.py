"""Which device and number format to use, decided in one place and recorded with every run; passages between a device
and the host, of which each one that waits stops a GPU until all it was given to do is done."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Literal

from assay.errors import BadInputError
from assay.models.config_only import active

if TYPE_CHECKING:
    import torch

#: Positions of one forward pass in training where none are given, on a processor and elsewhere.
PROCESSOR_PASS, CARD_PASS = 1024, 16384
FORMATS = ("auto", "float32", "bfloat16", "float16")
#: The first torch whose variable-length attention has what packed rows need on a GPU.
FAST_ATTENTION = "2.11"

log = logging.getLogger(__name__)


def pick_device(want: str = "auto") -> "torch.device":
    """`auto`: CUDA, else Apple's MPS, else the CPU. Raises BadInputError for a device that is not there."""
    import torch

    if want == "auto" and torch.cuda.is_available():
        want = "cuda"
    if want == "auto":
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(want)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInputError(f"device {want!r} is not available here: {str(error).splitlines()[0]}") from error
    if device.type == "cuda":
        _check_build()
    return device


@cache
def _check_build() -> None:
    """Says once where torch is too old for a GPU."""
    import torch

    if torch.__version__ < FAST_ATTENTION:  # compares as versions do
        log.warning(
            "torch %s: packed rows in half precision need torch %s on a GPU; a compiled block mask is used, which is "
            "slower and compiles for seconds",
            torch.__version__,
            FAST_ATTENTION,
        )


@contextmanager
def float32_products(device: "torch.device", precision: Literal["high", "highest"]) -> Iterator[None]:
    """Until the end of the block matrix products of float32 tensors on a GPU are TF32 (`high`: factors of 10 bits,
    several times faster) or exact. Training is the former; scores, and log-probs that are compared, are the latter."""
    import torch

    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.set_float32_matmul_precision(before)


def has_fast_bfloat16(device: "torch.device") -> bool:
    """True where bfloat16 matrix products run in hardware, so that they are faster and not slower."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return False


def check_format_name(want: str, known: Sequence[str]) -> None:
    if want not in FORMATS:
        raise BadInputError(f"unknown number format {want!r}; one of {', '.join(known)}", field="dtype")


def pick_dtype(device: "torch.device", want: str = "auto") -> "torch.dtype":
    """`auto`: bfloat16 where it is fast, else float32. Raises BadInputError for one that the device lacks."""
    import torch

    check_format_name(want, FORMATS[:-1] if device.type == "cpu" else FORMATS)
    if want == "float16" and device.type == "cpu":
        raise BadInputError("a processor has no float16 products; use bfloat16 or float32", field="dtype")
    if want == "bfloat16":
        require_bfloat16(device, "dtype")
        if device.type == "cpu":
            _check_processor()
    if want == "auto":
        return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[want]


@cache
def _check_processor() -> None:
    """Says once where a processor has no products in bfloat16: a model needs half the memory in it all the same."""
    import torch

    if not has_fast_bfloat16(torch.device("cpu")):
        log.warning("this processor has no bfloat16 products: they are emulated, slower than those in float32")


def require_bfloat16(device: "torch.device", field: str) -> None:
    """Raises BadInputError for a GPU that computes in bfloat16 by emulation only (before Ampere)."""
    import torch

    if device.type == "cuda" and not has_fast_bfloat16(device):
        name = torch.cuda.get_device_name(device)
        raise BadInputError(f"{name} has no bfloat16 products in hardware; use float32 or float16", field=field)


def pass_tokens(device: "torch.device") -> int:
    """Positions of one forward pass in training where none are given; while a plan is made, of the planned device."""
    plan = active()
    return PROCESSOR_PASS if (plan.kernels if plan else device.type) == "cpu" else CARD_PASS


@contextmanager
def kept_casts(wanted: bool = True) -> Iterator[None]:
    """Until the end of the block autocast casts each trained weight once, not once a pass. All passes in it must take
    gradients, of unchanged weights; the casts stay in memory between them."""
    import torch

    if not wanted:
        yield
        return
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a pass failed for want of memory; on a CPU torch says so in a plain RuntimeError."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def free_memory(device: "torch.device") -> None:
    """Give back what torch keeps of freed tensors, before a smaller pass is tried."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()


def unused_memory(device: "torch.device") -> int | None:
    """Bytes that may still be allocated on a GPU, with what torch keeps of freed tensors; None on a processor."""
    import torch

    if device.type != "cuda":
        return None
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def to_device(values: "torch.Tensor", device: "torch.device") -> "torch.Tensor":
    """`values` of the host on `device`, without waiting for what the device still has to do."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()  # memory that may be read later: only from there is a copy asynchronous
    return values.to(device, non_blocking=device.type not in ("cpu", "mps"))


def read_values(tensors: Sequence["torch.Tensor"]) -> list[list[float]]:
    """The values of each tensor, flattened, read in one passage; float64 holds all that are read so."""
    import torch

    values: list[list[float]] = [[] for _ in tensors]
    for device in {tensor.device for tensor in tensors}:
        numbers = [number for number, tensor in enumerate(tensors) if tensor.device == device]
        exact = torch.float32 if device.type == "mps" else torch.float64
        flat = torch.cat([tensors[number].detach().reshape(-1).to(exact) for number in numbers]).tolist()
        start = 0
        for number in numbers:
            values[number] = flat[start : start + tensors[number].numel()]
            start += tensors[number].numel()
    return values
