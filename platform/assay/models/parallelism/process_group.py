"""The processes of one training run: the first process, which owns the run, and the workers that train with it.

Leaves out: joining the processes (`distributed.py`), the division of work and weights (`strategy.py`), what is trained.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from assay.models.devices import pick_device
from assay.models.parallelism.distributed import (
    Parallel,
    PeerFailedError,
    ProcessGroup,
    local_device,
    torch_process_group,
)
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy, resolve


@contextmanager
def process_group(parallel: Parallel, device: str, settings: object) -> Iterator[tuple[SingleProcess, torch.device]]:
    """For the first process: the division of the work for the block, and its device. Workers receive `settings`.

    Raises BadInputError where `parallel` does not fit the number of processes.
    """
    if resolve(parallel) == "none":
        yield SingleProcess(), pick_device(device)
        return
    own_device = local_device(device)
    with torch_process_group() as group:
        group.share(settings)
        yield parallel_strategy(parallel, group, own_device), own_device


@contextmanager
def worker_group() -> Iterator[ProcessGroup]:
    """For every other process: the group of the block, whose first shared value is the first process's settings.

    Raises errors of this process; an error of the first process is reported there and ends this one quietly.
    """
    try:
        with torch_process_group() as group:
            yield group
    except PeerFailedError as error:
        if error.rank == 0:
            raise SystemExit(error.exit_code) from error
        raise
