"""Cards that a training may be planned for, and this machine: memory and speed.

Covers: named GPUs with the figures of their makers' data sheets (dense, without sparsity; from memory), what of their
memory a training has, this machine as measured. Leaves out: the plan (`plan`).
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInputError

if TYPE_CHECKING:
    import torch

GIB = 2**30
#: Of a card's memory: CUDA's context and libraries, and what torch's allocator cannot use of its blocks.
CONTEXT, FRAGMENTS = GIB, 0.05
#: Share of the peak rate that a training's matrix products reach on a GPU, and of a matrix product's on a CPU.
GPU_SHARE, CPU_SHARE = 0.4, 0.6
#: Bytes per second of the host's memory beside a card, for an update there with its copies: a guess.
HOST_BANDWIDTH = 50e9


def memory_text(size: float, digits: int = 2) -> str:
    """GiB with `digits`, of large ones with one; MiB under 0.1 GiB."""
    if size < GIB / 10:
        return f"{size / 2**20:.1f} MiB"
    return f"{size / GIB:.{1 if size >= 10 * GIB else digits}f} GiB"


@dataclass(frozen=True)
class Card:
    """`memory`: bytes. `flops`: per second, by number format. `bandwidth`, `link`: bytes per second, of its memory and
    to another card of the same machine. `kernels`: type of the device."""

    name: str
    memory: int
    flops: dict[str, float]
    bandwidth: float
    link: float = 0.0
    kernels: str = "cuda"

    @property
    def usable(self) -> int:
        return self.memory if self.kernels == "cpu" else round(self.memory * (1 - FRAGMENTS)) - CONTEXT

    @property
    def share(self) -> float:
        return CPU_SHARE if self.kernels == "cpu" else GPU_SHARE

    @property
    def has_bfloat16(self) -> bool:
        return "bfloat16" in self.flops

    @property
    def assumptions(self) -> str:
        """Of its memory and speed, in a line."""
        rates = ", ".join(f"{rate / 1e12:.3g} TFLOP/s {kind}" for kind, rate in self.flops.items())
        held = f"all of {self.memory / GIB:.1f} GiB"
        if self.kernels != "cpu":
            held = f"{self.memory / GIB:.1f} GiB less {CONTEXT / GIB:.0f} GiB of CUDA and {FRAGMENTS:.0%} of fragments"
        return f"{held}; {self.share:.0%} of {rates}; {self.bandwidth / 1e9:.0f} GB/s"


def _gpu(name: str, gib: float, bfloat16: float, float32: float, bandwidth: float, link: float) -> Card:
    return Card(
        name, round(gib * GIB), {"bfloat16": bfloat16 * 1e12, "float32": float32 * 1e12}, bandwidth * 1e9, link * 1e9
    )


#: Memory as the driver shows it; float32 without TF32, which is not set.
CARDS = {
    card.name: card
    for card in (
        _gpu("a100-40", 39.5, 312, 19.5, 1555, 300),
        _gpu("a100-80", 79.2, 312, 19.5, 2039, 300),
        _gpu("h100", 79.2, 989, 67, 3350, 450),
        _gpu("h200", 139.8, 989, 67, 4800, 450),
        _gpu("4090", 23.6, 165, 82.6, 1008, 25),
    )
}
THIS = "this"


def find_card(name: str) -> Card:
    """`this`: the machine's first GPU where it has one and it is a known one, else its processor and memory."""
    wanted = name.lower().removeprefix("nvidia ").replace("_", "-")
    if wanted in CARDS:
        return CARDS[wanted]
    if wanted != THIS:
        raise BadInputError(f"unknown card {name!r}; one of {', '.join((*CARDS, THIS))}", field="--card")
    import torch

    return _this_gpu(torch.cuda.get_device_properties(0)) if torch.cuda.is_available() else this_processor()


def usable_memory(device: "torch.device") -> tuple[str, int]:
    """What the device is called, and the bytes of its memory that a training may have."""
    import torch

    if device.type != "cuda":
        return "this machine", _memory()
    card = _this_gpu(torch.cuda.get_device_properties(device))
    return card.name, card.usable


def _this_gpu(properties: object) -> Card:
    name, memory = str(getattr(properties, "name", "")), int(getattr(properties, "total_memory", 0))
    near = [card for card in CARDS.values() if card.name.split("-")[0] in name.lower()]
    model = min(near or [CARDS["a100-80"]], key=lambda card: abs(card.memory - memory))
    title = name if near else f"{name} (an unknown card: its speed is that of {model.name})"
    return Card(title, memory, model.flops, model.bandwidth, model.link)


def this_processor() -> Card:
    """Its memory and that of the control group; rates measured in about half a second."""
    import torch

    from assay.models.devices import has_fast_bfloat16

    fast = has_fast_bfloat16(torch.device("cpu"))
    kinds = (torch.float32, torch.bfloat16) if fast else (torch.float32,)
    flops = {str(kind).removeprefix("torch."): _rate(kind) for kind in kinds}
    block = torch.zeros(2**24)
    other = torch.zeros_like(block)
    copied = _seconds(lambda: other.copy_(block))
    return Card("this machine", _memory(), flops, 2 * block.nbytes / copied, kernels="cpu")


def _memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
        total = min(total, int(text))
    return total


def _rate(dtype: "torch.dtype") -> float:
    import torch

    a = torch.ones(1024, 1024, dtype=dtype)
    return 2 * 1024**3 / _seconds(lambda: a @ a)


def _seconds(run: Callable[[], object]) -> float:
    """The shortest of five times."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)
