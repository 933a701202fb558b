"""What each replica of the models gets of the machine: GPUs or threads, its share of the cache.

Covers: the environment and the settings of an engine process. Leaves out: starting it (`supervisor`).
"""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from assay.errors import BadInputError
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.settings import ServeConfig, ServerSettings

log = logging.getLogger(__name__)
VISIBLE, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
_LOCAL_ENGINES = ("transformers", "vllm")  # whose models are in the engine process
_LISTING_S = 30.0


def settings_of(settings: ServerSettings, number: int, count: int) -> ServerSettings:
    """Of replica `number` (from 1) of `count`: its part of the memory for scores, its own folder for those on disk,
    which one process can open. A prompt keeps its replica, so that nothing is kept twice."""
    if count == 1:
        return settings
    path = settings.cache_path
    if path is not None and number > 1:
        path = str(Path(path) / f"replica-{number}")
    entries, size = -(-settings.cache_entries // count), settings.cache_bytes // count
    return replace(settings, cache_entries=entries, cache_bytes=size, cache_path=path)


def environment_of(number: int, count: int, gpus: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What replica `number` (from 1) of `count` adds to the environment: its GPUs of `gpus`, or its part of the CPU
    cores, unless the number of threads is set."""
    if count == 1:
        return {}
    if gpus:
        each = len(gpus) // count
        return {VISIBLE: ",".join(gpus[(number - 1) * each : number * each])}
    if THREADS in environment:
        return {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {THREADS: str(max(1, cores // count))}


def gpus_of(config: ServeConfig) -> list[str]:
    """The GPUs that the replicas share; none for models on CPU, and for a server without replicas.

    Raises BadInputError where there are fewer than replicas, or a model names one of them.
    """
    if config.replicas == 1:
        return []
    if not any(_on_gpu(plan) for plan in config.models):
        return []
    if numbered := [plan for plan in config.models if re.fullmatch(r"cuda:\d+", plan.device)]:
        problem = f"names a GPU for all replicas ({numbered[0].device}); each gets its own: say cuda"
        raise BadInputError(problem, field="device")
    gpus = visible_gpus()
    if gpus and len(gpus) < config.replicas:
        problem = f"{config.replicas} replicas need as many GPUs, and {len(gpus)} can be used here"
        raise BadInputError(problem, field="replicas")
    return gpus


def visible_gpus() -> list[str]:
    """Those of $CUDA_VISIBLE_DEVICES, else all that the driver lists, by what that variable calls them."""
    if (visible := os.environ.get(VISIBLE)) is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() not in ("", "-1")]
    if (program := shutil.which("nvidia-smi")) is None:
        return []
    query = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=_LISTING_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("nvidia-smi lists no GPUs (%s): replicas share all there are; name them in $%s", error, VISIBLE)
        return []
    return [line.strip() for line in listed.stdout.splitlines() if line.startswith("GPU-")]


def _on_gpu(plan: ModelConfig) -> bool:
    return plan.engine in _LOCAL_ENGINES and plan.device not in ("cpu", "mps")
