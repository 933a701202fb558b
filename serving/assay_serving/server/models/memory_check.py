"""Whether the weights of one more model fit into free memory, checked before they are read.

Covers: the size of a checkpoint's weights in the number format it is loaded in, free memory of this machine, of its
container and of a GPU. Leaves out: what a forward pass needs on top, which depends on the requests.
"""

import json
import math
import struct
from pathlib import Path

from assay.errors import BackendError
from assay.models.devices import pick_device

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_LOADED = {"float32": 4, "bfloat16": 2, "float16": 2}


def check_room(name: str, folder: str, *, dtype: str, device: str) -> None:
    """Raises BackendError where the weights alone need more than the free memory. Skips models whose size is not known
    from files: hub ids, ensembles, compositions."""
    needed = weight_bytes(Path(folder).expanduser(), dtype)
    free = free_bytes(device) if needed else None
    if free is not None and needed > free:
        raise BackendError(
            f"no room for {name}: its weights need {needed / 1e9:.2f} GB and {free / 1e9:.2f} GB are free; "
            "unload another model first"
        )


def weight_bytes(folder: Path, dtype: str) -> int:
    """Bytes of the folder's safetensors in memory; 0 where there are none. `dtype` auto: as they are stored."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        try:
            with path.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length)) if length < path.stat().st_size else {}
        except (OSError, ValueError, struct.error):
            continue  # loading reports what is wrong
        for tensor in (value for key, value in header.items() if key != "__metadata__"):
            total += math.prod(tensor["shape"]) * _LOADED.get(dtype, _BYTES.get(tensor["dtype"], 1))
    return total


def free_bytes(device: str) -> int | None:
    """Of the GPU that `device` names or stands for, else of this machine and its container; None: unknown."""
    chosen = pick_device(device)
    if chosen.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(chosen)[0])
    if chosen.type != "cpu":
        return None
    limits = [free for free in (_machine_free(), _container_free()) if free is not None]
    return min(limits) if limits else None


def _machine_free() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    return int(sizes["MemAvailable"]) * 1024 if "MemAvailable" in sizes else None


def _container_free() -> int | None:
    """Of a control group, version 2: its limit less what it uses, the file cache counted as free."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # "max": no limit
        return None
    return limit - used + int(stat.get("inactive_file", 0))
