"""Time of the parts of an optimiser step, on the host's clock, and peak memory.

On a GPU the host only launches work and waits where it reads a result, so a part's time includes waiting for earlier
parts; the sum is exact. Leaves out: profiling of kernels.
"""

import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StepClock:
    """Seconds by part, summed until `take`."""

    def __init__(self) -> None:
        self._parts: Counter[str] = Counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the block's time to `name`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._parts[name] += time.perf_counter() - began  # type: ignore[assignment]  # a Counter of floats

    def take(self) -> dict[str, float]:
        """Seconds of each part since the last call."""
        seconds: dict[str, float] = dict(self._parts)
        self._parts.clear()
        return seconds


def peak_memory(device: torch.device) -> dict[str, int]:
    """Peak bytes of this process: resident, and (on CUDA) allocated on `device`."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    peak = {"peak_memory": resident}
    if device.type == "cuda":
        peak["peak_device_memory"] = torch.cuda.max_memory_allocated(device)
    return peak
