"""Weights on their way to an engine in another process of this machine, a bucket at a time: no copy of the whole model,
and nothing on a disk.

Covers: packing tensors, files of shared memory that the engine maps (a folder of another machine's where one is named),
a buffer of GPU memory that the engine opens (CUDA IPC). Leaves out: what the engine does with them (`worker`).
"""

import base64
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.errors import BackendError

BUCKET = 256 * 2**20  #: bytes; a tensor that is larger is alone in its bucket
ALIGNED = 16
SHARED_MEMORY = Path("/dev/shm")
#: Name, dtype, shape and first byte of a tensor in a bucket.
Entry = tuple[str, str, list[int], int]


class Carrier(Protocol):
    """How a bucket comes to the engine."""

    def buffer(self, size: int) -> Tensor:
        """At least so many bytes, uint8, that may be written to: the engine has read the last bucket."""
        ...

    def place(self) -> dict[str, Any]:
        """Where the engine finds the buffer, JSON-ready: `worker.PolicyWorker.take_bucket`. Raises BackendError."""
        ...

    def close(self) -> None:
        """All has been read."""
        ...


class FileCarrier:
    """`folder`: that the engine can read too; default: a temporary one in shared memory, where there is room."""

    def __init__(self, folder: Path | None, largest: int) -> None:
        fits = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 2 * largest
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="assay-weights-", dir=SHARED_MEMORY if fits else None))
        self._path, self._number = self.folder, 0
        self._buffer = torch.zeros(0, dtype=torch.uint8)

    def buffer(self, size: int) -> Tensor:
        """Each bucket is a file of its own: what an engine has mapped of the last one stays as it is."""
        self._forget()
        self._number += 1
        self._path = self.folder / f"bucket-{self._number}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a mapping without room behind it would end the process
            self._buffer = torch.from_file(str(self._path), shared=True, size=size, dtype=torch.uint8)
        except (OSError, RuntimeError) as error:
            raise BackendError(f"cannot write the weights to {self._path}: {str(error).splitlines()[0]}") from error
        return self._buffer

    def place(self) -> dict[str, Any]:
        return {"path": str(self._path.resolve())}

    def close(self) -> None:
        self._forget()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _forget(self) -> None:
        if self._path != self.folder:
            self._path.unlink(missing_ok=True)


class CudaCarrier:
    """For an engine on the same GPU: one buffer, exported once and written to again for each bucket."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffer = torch.zeros(0, dtype=torch.uint8)
        self._place: dict[str, Any] = {}

    def buffer(self, size: int) -> Tensor:
        if len(self._buffer) < size:
            self._buffer = torch.empty(max(size, BUCKET), dtype=torch.uint8, device=self.device)
            shared = self._buffer.untyped_storage()._share_cuda_()  # type: ignore[attr-defined]
            gpu = str(torch.cuda.get_device_properties(self.device).uuid)
            self._place = {"gpu": gpu, "cuda": [_plain(each) for each in shared]}
        return self._buffer[:size]

    def place(self) -> dict[str, Any]:
        torch.cuda.synchronize(self.device)  # the other process has another stream
        return self._place

    def close(self) -> None:
        self._buffer, self._place = torch.zeros(0, dtype=torch.uint8), {}
        torch.cuda.ipc_collect()


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
        place = buffer[first : first + values.nbytes].view(values.dtype).view(values.shape)
        place.copy_(values.detach())
    return entries, end
