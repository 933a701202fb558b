"""The first of several processes that share a model's weights (FSDP2), without the others: for its memory alone.

Leaves out: dividing work and weights (`assay.models.parallelism.strategy`), which runs as in a training.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from assay.models.parallelism.distributed import ProcessGroup
from assay.models.parallelism.strategy import Sharded, SingleProcess

T = TypeVar("T")


class _Alone(ProcessGroup):
    """Every other process has what this one has."""

    def __init__(self, world: int) -> None:
        super().__init__(None, 0, world)

    def share(self, value: T | None) -> T:
        return value  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        return [value] * self.world


@contextmanager
def fake_ranks(world: int) -> Iterator[SingleProcess]:
    """The division of the work of `world` processes; torch's fake group moves nothing."""
    if world == 1:
        yield SingleProcess()
        return
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        yield Sharded(_Alone(world), torch.device("cpu"))
    finally:
        dist.destroy_process_group()
