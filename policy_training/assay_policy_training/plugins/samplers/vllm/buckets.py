"""Weights on their way to an engine in another process of this machine, a bucket at a time: no copy of the whole model,
and nothing on a disk.

Covers: packing tensors, files in memory that the engine maps (in a folder, where it is on another machine), a buffer of
GPU memory that the engine opens (CUDA IPC). Leaves out: what the engine does with them (`worker`).
"""

import base64
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.errors import BackendError

BUCKET = 256 * 2**20  #: bytes; a tensor that is larger is alone in its bucket
ALIGNED = 16
#: Name, dtype, shape and first byte of a tensor in a bucket.
Entry = tuple[str, str, list[int], int]


class Carrier(Protocol):
    """How a bucket comes to the engine."""

    def buffer(self, size: int) -> Tensor:
        """At least so many bytes, uint8, that may be written to: the engine has read the last bucket."""
        ...

    def location(self) -> dict[str, Any]:
        """Where the engine finds the buffer, JSON-ready: `worker.PolicyWorker.take_bucket`. Raises BackendError."""
        ...

    def close(self) -> None:
        """All has been read."""
        ...


class FileCarrier:
    """Each bucket is a file of its own, so that what the engine has mapped of the last one stays as it is. Files are in
    this process's memory and go with it, or in a `folder` that the engine of another machine can read."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._path, self._number = "", 0
        self._file: int | None = None

    def buffer(self, size: int) -> Tensor:
        self.close()
        try:
            if self.folder is None:
                self._file = os.memfd_create("assay-weights")
                self._path = f"/proc/{os.getpid()}/fd/{self._file}"
            else:
                self._number += 1
                self.folder.mkdir(parents=True, exist_ok=True)
                self._path = str(self.folder.resolve() / f"bucket-{self._number}")
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.posix_fallocate(self._file, 0, size)  # a mapping without room behind it would end the process
            return torch.from_file(self._path, shared=True, size=size, dtype=torch.uint8)
        except (OSError, RuntimeError) as error:
            where = self._path if self.folder is None else self.folder
            raise BackendError(f"cannot pass the weights through {where}: {str(error).splitlines()[0]}") from error

    def location(self) -> dict[str, Any]:
        return {"path": self._path}

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if self.folder is not None:
                Path(self._path).unlink(missing_ok=True)


class CudaCarrier:
    """For an engine on the same GPU: one buffer, exported once and written to again for each bucket."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffer = torch.zeros(0, dtype=torch.uint8)
        self._location: dict[str, Any] = {}

    def buffer(self, size: int) -> Tensor:
        if len(self._buffer) < size:
            self._buffer = torch.empty(max(size, BUCKET), dtype=torch.uint8, device=self.device)
            shared = self._buffer.untyped_storage()._share_cuda_()  # type: ignore[no-untyped-call]
            gpu = str(torch.cuda.get_device_properties(self.device).uuid)
            self._location = {"gpu": gpu, "cuda": [_plain(each) for each in shared]}
        return self._buffer[:size]

    def location(self) -> dict[str, Any]:
        torch.cuda.synchronize(self.device)  # the other process has another stream
        return self._location

    def close(self) -> None:
        self._buffer, self._location = torch.zeros(0, dtype=torch.uint8), {}
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]


def _plain(each: Any) -> Any:
    return {"bytes": base64.b64encode(each).decode()} if isinstance(each, bytes) else each


def buckets(
    tensors: Iterable[tuple[str, Tensor]], carrier: Carrier, size: int = BUCKET
) -> Iterator[tuple[list[Entry], int]]:
    """The entries of each bucket and its bytes, once it is in the carrier's buffer."""
    waiting: list[tuple[str, Tensor]] = []
    held = 0
    for name, values in tensors:
        if waiting and held + values.nbytes > size:
            yield _packed(waiting, carrier)
            waiting, held = [], 0
        waiting.append((name, values))
        held += values.nbytes
        del values  # nothing keeps what has been sent
    if waiting:
        yield _packed(waiting, carrier)


def _packed(tensors: list[tuple[str, Tensor]], carrier: Carrier) -> tuple[list[Entry], int]:
    entries: list[Entry] = []
    end = 0
    for name, values in tensors:
        entries.append((name, str(values.dtype).removeprefix("torch."), list(values.shape), end))
        end += -(-values.nbytes // ALIGNED) * ALIGNED
    buffer = carrier.buffer(end)
    for (_, _, _, first), (_, values) in zip(entries, tensors, strict=True):
        target = buffer[first : first + values.nbytes].view(values.dtype).view(values.shape)
        target.copy_(values.detach())
    return entries, end
