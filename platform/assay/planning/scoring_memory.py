"""Whether one more model fits into free memory to score with, checked before its weights are read.

Covers: the size of a checkpoint's weights in the number format it is loaded in, the least that a full forward pass
holds beside them, free memory of this machine, of its container and of a GPU. Leaves out: caches of generation.
"""

import json
import math
import os
import struct
from pathlib import Path

from assay.errors import BackendError
from assay.models.devices import pick_device, pick_dtype, unused_memory
from assay.planning.cards import memory_text, usable_memory

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
#: Formats that loading converts; others, of quantized weights, stay as they are.
_CONVERTED = frozenset(("F64", "F32", "F16", "BF16"))
_INDEX, _WEIGHTS = "model.safetensors.index.json", "model.safetensors"
_LOADED = {"float32": 4, "bfloat16": 2, "float16": 2}


#: Positions of a full pass where none are given, of the engines' defaults the smaller one.
PASS = 8192
#: Positions below which a smaller budget is no advice.
LEAST_PASS = 512


def check_room(name: str, folder: str, *, dtype: str, device: str, token_budget: int | None = None) -> None:
    """Raises BackendError where weights and a pass need more than the free memory, with what would fit. Skips models
    whose size is not known from files: hub ids, ensembles, compositions."""
    path, budget = Path(os.path.expanduser(folder)), token_budget or PASS  # Path's raises for an unknown user
    if not _weight_files(path):
        return  # rewards without weights are served without torch, which a device asks for
    chosen = pick_device(device)
    picked = str(pick_dtype(chosen, dtype)).removeprefix("torch.")
    weights = weight_bytes(path, picked)
    free = free_bytes(device) if weights else None
    if free is None:
        return
    position = position_bytes(path, picked)
    if (needed := weights + budget * position) <= free:
        return
    half = weight_bytes(path, "bfloat16") + budget * position_bytes(path, "bfloat16")
    ways = [f"dtype bfloat16 ({memory_text(half)})"] if half <= free and picked == "float32" else []
    if position and (fitting := (free - weights) // position) >= LEAST_PASS:
        ways.append(f"a token budget of {fitting}")
    if chosen.type == "cuda" and needed <= (free_bytes("cpu") or 0):
        ways.append("device cpu")
    less = f"less takes: {', or '.join(ways)}; " if ways else ""
    raise BackendError(
        f"no room for {name}: its weights in {picked} take {memory_text(weights)}, a pass of {budget} tokens at least "
        f"{memory_text(budget * position)}, and {memory_text(free)} of {usable_memory(chosen)[0]} are free; "
        f"{less}unload another model first, or choose a smaller one"
    )


def position_bytes(folder: Path, dtype: str) -> int:
    """The least that one token of a pass holds, in the widest part of a layer: the residual stream and both factors of
    the gated product; 0 where the configuration does not say."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    config = config.get("text_config") or config
    hidden, inner = config.get("hidden_size"), config.get("intermediate_size")
    if not isinstance(hidden, int) or not isinstance(inner, int):
        return 0
    return (hidden + 2 * inner) * _LOADED[dtype]


def weight_bytes(folder: Path, dtype: str) -> int:
    """Bytes of the folder's safetensors in memory; 0 where there are none. `dtype` auto: as they are stored."""
    total = 0
    for path in _weight_files(folder):
        try:
            with path.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length)) if length < path.stat().st_size else {}
        except (OSError, ValueError, struct.error):
            continue  # loading reports what is wrong
        for tensor in (value for key, value in header.items() if key != "__metadata__"):
            stored = _BYTES.get(tensor["dtype"], 1)
            size = _LOADED.get(dtype, stored) if tensor["dtype"] in _CONVERTED else stored
            total += math.prod(tensor["shape"]) * size
    return total


def _weight_files(folder: Path) -> list[Path]:
    """Those that transformers reads: publishers put copies in other layouts beside them."""
    try:
        listed = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        return sorted({folder / name for name in listed})
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    single = folder / _WEIGHTS
    return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))


def free_bytes(device: str) -> int | None:
    """Of the GPU that `device` names or stands for, else of this machine and its container; None: unknown."""
    chosen = pick_device(device)
    if chosen.type == "cuda":
        return unused_memory(chosen)
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
    return limit - used + sum(int(stat.get(f"{kind}_file", 0)) for kind in ("inactive", "active"))
