"""CPU, memory and GPUs that a run uses, sampled by a thread of its process into its folder.

Covers: the process and what it started (proc(5)), memory of the machine, NVIDIA GPUs that it may use (NVML, without a
package); Linux alone, elsewhere nothing. Leaves out: time by stage of a training, which is in its metrics.

    RUN/resources.jsonl         a sample a line: every 10 s at first; past 1000 every second one goes and they are half
                                as frequent
"""

import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = "resources.jsonl"
FIRST_S = 1.0  #: a run that is over before has none
EVERY_S = 10.0
MOST = 1000  #: samples
_PROC = Path("/proc")


@contextmanager
def sampling_to(folder: Path) -> Iterator[None]:
    """Sample during the block. A run within a run has the same process: its samples are the outer run's."""
    if not (_PROC / "self/stat").is_file() or not _BUSY.acquire(blocking=False):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_sample, args=(folder / FILE, ended), name="assay-resources", daemon=True)
    try:
        thread.start()
        yield
    finally:
        ended.set()
        thread.join(5)
        _BUSY.release()


_BUSY = threading.Lock()


def _sample(path: Path, ended: threading.Event) -> None:
    sampler = ProcessSampler(os.getpid())
    rows: list[str] = []
    wait = FIRST_S
    every = EVERY_S
    while not ended.wait(wait):
        with suppress(OSError, ValueError):  # nothing of the run depends on it
            rows.append(json.dumps(sampler.sample()) + "\n")
            if len(rows) > MOST:
                rows, every = rows[::2], 2 * every
                temporary = path.with_name(f".{FILE}.part")
                temporary.write_text("".join(rows), encoding="utf-8")
                temporary.replace(path)
            else:
                with path.open("a", encoding="utf-8") as stream:
                    stream.write(rows[-1])
        wait = every


class ProcessSampler:
    """Samples of a process and all that it started, since the sample before."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._at, self._used = time.monotonic(), self._usage()[0]

    def sample(self) -> dict[str, float]:
        """`cores`: busy ones on average; memory in bytes. Of each GPU its `use`, 0 to 1, memory, and power in W, which
        are of all that runs on it."""
        used, memory, processes = self._usage()
        now = time.monotonic()
        # A process that ended takes its time with it.
        cores = max(0.0, sum(ticks - self._used.get(pid, 0) for pid, ticks in used.items())) / self._ticks
        cores /= max(now - self._at, 1e-3)
        self._at, self._used = now, used
        machine = _machine_memory()
        return {
            "at": round(time.time(), 1),
            "cores": round(cores, 3),
            "memory": memory,
            "processes": processes,
            "machine_memory": machine["MemTotal"] - machine["MemAvailable"],
            "machine_memory_total": machine["MemTotal"],
            "cores_total": float(len(os.sched_getaffinity(0))),
            **gpu_samples(),
        }

    def _usage(self) -> tuple[dict[int, int], int, int]:
        """Ticks of CPU by process, resident bytes and number of processes."""
        parents: dict[int, int] = {}
        fields: dict[int, list[bytes]] = {}
        for entry in os.scandir(_PROC):
            if entry.name.isdigit():
                with suppress(OSError, IndexError, ValueError):
                    stat = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                    parents[int(entry.name)], fields[int(entry.name)] = int(stat[1]), stat
        tree = {self._pid} & fields.keys()
        new = tree
        while new:
            new = {pid for pid, parent in parents.items() if parent in new} - tree
            tree = tree | new
        ticks = {pid: int(fields[pid][11]) + int(fields[pid][12]) for pid in tree}
        return ticks, sum(int(fields[pid][21]) for pid in tree) * self._page, len(tree)


def _machine_memory() -> dict[str, int]:
    lines = (_PROC / "meminfo").read_text(encoding="ascii").splitlines()
    return {name: 1024 * int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def gpu_samples() -> dict[str, float]:
    """`gpu0_use`, `gpu0_memory`, ... of the GPUs of this machine that $CUDA_VISIBLE_DEVICES allows; none without."""
    library, handles = _nvml()
    samples: dict[str, float] = {}
    for number, handle in handles.items():
        use, memory, power = _Utilisation(), _Memory(), ctypes.c_uint()
        if library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use)) == 0:
            samples[f"gpu{number}_use"] = use.gpu / 100
        if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
            samples |= {f"gpu{number}_memory": memory.used, f"gpu{number}_memory_total": memory.total}
        if library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)) == 0:
            samples[f"gpu{number}_power"] = power.value / 1000
    return samples


@lru_cache(maxsize=1)
def _nvml() -> tuple[Any, Mapping[int, Any]]:
    """NVIDIA's management library, which comes with the driver, and the GPUs' handles."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, {}
    count = ctypes.c_uint()
    if library.nvmlInit_v2() != 0 or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None, {}
    handles = {}
    for number in _visible(range(count.value)):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) == 0:
            handles[number] = handle
    return library, handles


def _visible(numbers: Sequence[int]) -> list[int]:
    """Names of GPUs (GPU-..., MIG-...) are not looked up: then it is all of them."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    parts = [part.strip() for part in (listed or "").split(",") if part.strip()]
    if listed is None or not all(part.isdigit() for part in parts):
        return list(numbers)
    return [int(part) for part in parts if int(part) in numbers]


def read_resources(folder: Path) -> list[dict[str, float]]:
    """Every whole sample; none where there is no file."""
    rows = []
    with suppress(OSError):
        for line in (folder / FILE).read_bytes().splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows
