"""Which device and number format to use, decided in one place and recorded with every run; passages between a device
and the host, of which each one that waits stops a GPU until all it was given to do is done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay.models.config_only import active

if TYPE_CHECKING:
    import torch

#: Positions of one forward pass in training where none are given, on a processor and elsewhere.
PROCESSOR_PASS, CARD_PASS = 2048, 16384
FORMATS = ("auto", "float32", "bfloat16", "float16")


def pick_device(want: str = "auto") -> "torch.device":
    """`auto`: CUDA, else Apple's MPS, else the CPU. Raises BadInputError for a device that is not there."""
    import torch

    if want == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(want)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInputError(f"device {want!r} is not available here: {str(error).splitlines()[0]}") from error
    return device


def has_fast_bfloat16(device: "torch.device") -> bool:
    """True where bfloat16 matrix products run in hardware, so that they are faster and not slower."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return False


def pick_dtype(device: "torch.device", want: str = "auto") -> "torch.dtype":
    """`auto`: bfloat16 where it is fast, else float32."""
    import torch

    if want not in FORMATS:
        raise BadInputError(f"unknown number format {want!r}; one of {', '.join(FORMATS)}", field="dtype")
    if want == "auto":
        return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[want]


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
