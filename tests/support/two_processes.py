"""Two processes (or more) of one training on this machine, forked from one that has imported everything.

Leaves out: what they do.
A test module runs itself as a script that calls `launch` with functions of its own, by the names of their scenarios.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

PATIENCE_S = 600


def launch(scenario: str, take_part: Callable[[Path], object], folder: Path, processes: int = 2) -> list[int]:
    """Processes as torchrun starts them, without its supervision, each in `take_part`; their exit codes.

    As torchrun's agent does, this process keeps the store where they meet: it outlives the one that ends first.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, and not named in its __all__

    patience = timedelta(seconds=PATIENCE_S)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=patience)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(processes)}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    forked = multiprocessing.get_context("fork")
    started = [forked.Process(target=_one, args=(scenario, take_part, folder, rank)) for rank in range(processes)]
    for process in started:
        process.start()
    for process in started:
        process.join(PATIENCE_S)
        process.kill()
        process.join()
    return [process.exitcode or 0 for process in started]


def _one(scenario: str, take_part: Callable[[Path], object], folder: Path, rank: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    with error_file(folder, scenario, rank).open("w") as stream:
        os.dup2(stream.fileno(), 2)
    take_part(folder)


def error_file(folder: Path, scenario: str, rank: int) -> Path:
    """What a process wrote to standard error."""
    return folder / f"{scenario}-{rank}.err"
