"""State of a training whose tensors are divided (FSDP2), in folders to which each process writes its shares.

Covers: writing by torch.distributed.checkpoint, reading by as many processes, by another number of them, or whole by
one; the way round it where a process does not see the folder. Leaves out: the file that names such a folder, and what
else it has (`resume_state` of reward models, `checkpoint` of policies).

A state is nested dicts, lists and tuples. In the first process's own file the divided tensors are None.
"""

import json
import logging
import pickle
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.errors import BackendError, BadInputError
from assay.models.parallelism.strategy import Sharded, SingleProcess
from assay.system.atomic_files import sync_folder

log = logging.getLogger(__name__)
_INDEX = ".metadata"
#: All that an index of tensors, which is a pickle, names.
_INDEXED = {
    "torch.distributed.checkpoint.metadata": {
        *("ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties"),
        *("TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "bfloat16", "bool", "float16", "float32", "float64", "int64", "uint8"},
    "pathlib": {"PosixPath"},
    "pathlib._local": {"PosixPath"},
}
#: What reading a damaged folder raises.
_DAMAGES = (OSError, ValueError, RuntimeError, pickle.UnpicklingError, EOFError, AttributeError, TypeError, LookupError)


class ReadState(NamedTuple):
    """`divided`: every process has it, its tensors divided; else the first alone, whole (None elsewhere)."""

    state: Any
    divided: bool


def write_state(state: Any, folder: Path, parallel: SingleProcess, prefix: str) -> tuple[Any, Path | None]:
    """What the first process is to write to a file of its own (None elsewhere), and a new folder in `folder`, named
    `prefix` and more, that has the divided tensors, on the disk; None where there are none. All processes call this;
    `folder` is the first one's. Raises BackendError when the disk fails."""
    if not isinstance(parallel, Sharded):
        return (state if parallel.main else None), None
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.tensor import DTensor

    divided: dict[str, Any] = {}
    with _disk_errors(folder):
        target = folder / f"{prefix}{secrets.token_hex(6)}"
        if parallel.main:
            target.mkdir(parents=True)
        target = Path(parallel.share(str(target)))
        if seen := all(parallel.gather(target.is_dir())):
            _mapped(state, lambda key, leaf: divided.update({key: leaf} if isinstance(leaf, DTensor) else {}))
            save(divided, storage_writer=FileSystemWriter(target))
            undivided = _mapped(state, lambda _, leaf: None if isinstance(leaf, DTensor) else leaf)
        else:
            _mapped(state, _refuse_eight_bits)
            undivided = _mapped(state, lambda _, leaf: parallel.collect(leaf) if isinstance(leaf, DTensor) else leaf)
        if parallel.main and seen:
            sync_folder(target)
        elif parallel.main:
            target.rmdir()
            log.warning("not every process sees %s: the state is collected in the first one's memory", folder)
    return (undivided if parallel.main else None), target if seen else None


def read_state(state: Any, folder: Path | None, parallel: SingleProcess) -> ReadState:
    """The first process's `state` (None elsewhere) with the tensors that are in its `folder`, if any. All processes
    call this. Raises BadInputError for a damaged folder."""
    paths: list[str] = parallel.share([] if folder is None else [str(folder)])
    if not paths:
        return ReadState(state, False)
    target = Path(paths[0])
    if not isinstance(parallel, Sharded) or not all(parallel.gather((target / _INDEX).is_file())):
        return ReadState(read_whole(state, target) if parallel.main else None, False)
    from torch.distributed.tensor import Shard, empty

    layout: dict[str, Any] = {"device_mesh": parallel.mesh, "placements": [Shard(0)]}
    return ReadState(
        _filled(parallel.share(state), target, lambda size, dtype: empty(size, dtype=dtype, **layout)), True
    )


def read_whole(state: Any, folder: Path) -> Any:
    """`state` with the whole of the tensors that are in `folder`, in main memory, by this process alone. Raises
    BadInputError for a damaged folder."""
    return _filled(state, folder, lambda size, dtype: torch.empty(size, dtype=dtype), alone=True)


def remove_states(folder: Path, prefix: str, but: Path | None = None) -> None:
    """Folders of `write_state` that no file names any more, or not yet."""
    for path in folder.glob(f"{prefix}*"):
        if path != but and path.is_dir():
            shutil.rmtree(path)


def _refuse_eight_bits(_: str, leaf: Any) -> None:
    """A whole table of bytes says nothing of the shares that its scales are of (`eight_bit`)."""
    from torch.distributed.tensor import DTensor

    if isinstance(leaf, DTensor) and leaf.dtype == torch.uint8:
        from assay.models.eight_bit import BY_SHARES

        raise BadInputError(BY_SHARES, field="optimizer")


def _filled(
    state: Any, folder: Path, make: Callable[[torch.Size, torch.dtype], torch.Tensor], *, alone: bool = False
) -> Any:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        with (folder / _INDEX).open("rb") as stream:
            index = _Unpickler(stream).load()
        if not isinstance(index, Metadata):
            raise pickle.UnpicklingError("no index of tensors")
        entries: Mapping[str, Any] = index.state_dict_metadata
        reader = FileSystemReader(folder)
        reader.read_metadata = lambda *_, **__: index  # type: ignore[method-assign]
        tensors = {key: make(each.size, each.properties.dtype) for key, each in entries.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # without a process group it tells so
            load(tensors, storage_reader=reader, no_dist=alone)
    except (CheckpointException, *_DAMAGES) as error:
        raise BadInputError(f"not a readable state: {_cause(error)}", file=folder) from error
    return _mapped(state, lambda key, leaf: tensors.get(key, leaf))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _INDEXED.get(module, ()):
            raise pickle.UnpicklingError(f"an index of tensors does not name {module}.{name}")
        return super().find_class(module, name)


def _mapped(tree: Any, change: Callable[[str, Any], Any], path: tuple[str | int, ...] = ()) -> Any:
    """The tree with `change(key, leaf)` in place of each leaf; the key is its path."""
    if isinstance(tree, Mapping):
        return {key: _mapped(value, change, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(value, change, (*path, number)) for number, value in enumerate(tree))
    return change(json.dumps(path), tree)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except (CheckpointException, OSError) as error:
        raise BackendError(f"cannot write the state to {folder}: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """In one line; of what several processes tell, the first."""
    failures = getattr(error, "failures", None)
    cause = next(iter(failures.values()))[0] if failures else error
    return (str(cause) or type(cause).__name__).splitlines()[0]
