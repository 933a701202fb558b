"""Encoded data of a run, on the disk of the workspace, and on every machine that trains on it.

    WORKSPACE/stages/tokens-KEY/train/dataset.json   written last: of which rows, renderer and version
                                      items/         arrays of the items (`token_shards.py`)
                                eval/...

Covers: using what an interrupted run of the same settings encoded, copies for machines that do not see the folder.
Leaves out: encoding, which is each method's; the arrays. An interrupted run's folder is listed and removed with those
of other stages (`assay doctor`).
"""

import functools
import importlib
import itertools
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay import __version__, ids
from assay.compute.stage import FOLDER
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.parallelism.strategy import SingleProcess
from assay.system.atomic_files import replacing
from assay.system.name_lock import locked_name
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset, content_digest
from assay_rm_training.data.token_shards import StoredItems, write_items

log = logging.getLogger(__name__)
DATASET_FILE = "dataset.json"
_BLOCK = 1 << 24  #: bytes of a file that are sent at once


@contextmanager
def token_folder(workspace: Workspace, settings: Any) -> Iterator[Path]:
    """The folder of the runs of these settings (JSON), this one's alone for the block; it goes where the block ends
    well, or where nothing in it is complete."""
    name = f"tokens-{ids.digest(json.dumps(settings, sort_keys=True, default=str))[:16]}"
    with ExitStack() as held:
        for number in itertools.count():
            folder = workspace.root / FOLDER / (f"{name}-{number}" if number else name)
            with suppress(BadInputError):  # another run has it
                held.enter_context(locked_name(folder))
                break
        try:
            yield folder
        except BaseException:
            if not any(folder.glob(f"*/{DATASET_FILE}")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def stored_dataset(
    folder: Path, rows: Collection[Any], renderer: Renderer, encode: Callable[[Collect], EncodedDataset[Any]]
) -> EncodedDataset[Any]:
    """What `encode(collect)` makes of the rows, with its items in `folder`; what an interrupted run left there is used
    where it is of the same rows, renderer and version of Assay."""
    key = [__version__, renderer.template_hash, _tokenizer_hash(renderer), renderer.max_length]
    if (stored := _read(folder, key)) is not None and stored.content == content_digest(rows):
        log.warning("%s: used again, %d items encoded by an interrupted run", folder, len(stored))
        return stored
    if folder.exists():
        log.warning("%s: incomplete or of other data, encoded again", folder)
        shutil.rmtree(folder)
    data = encode(partial(write_items, folder / "items"))
    if isinstance(items := data.items, StoredItems):
        kind = f"{items.kind.__module__}:{items.kind.__qualname__}"
        summary = asdict(replace(data, items=())) | {"key": key, "items": [items.folder.name, kind, len(items)]}
        with replacing(folder / DATASET_FILE) as temporary:
            temporary.write_text(json.dumps(summary), encoding="utf-8")
    return data


def _read(folder: Path, key: Sequence[Any]) -> EncodedDataset[Any] | None:
    """The complete data set in `folder`; None where there is none of this key."""
    try:
        summary = json.loads((folder / DATASET_FILE).read_text(encoding="utf-8"))
        name, kind, length = summary.pop("items")
        if summary.pop("key") != key or not summary["content"]:
            return None
        module, _, qualified = kind.partition(":")
        cls: Any = functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
        return EncodedDataset(StoredItems(folder / name, cls, length), **summary)
    except (OSError, ImportError, AttributeError, LookupError, TypeError, ValueError):  # the class may be a plug-in's
        return None


def _tokenizer_hash(renderer: Renderer) -> str:
    tokenizer: Any = renderer.tokenizer
    fast = tokenizer.is_fast
    return ids.digest(tokenizer.backend_tokenizer.to_str() if fast else json.dumps(tokenizer.get_vocab()))


def share_datasets(
    datasets: Sequence[EncodedDataset[Any] | None] | None, parallel: SingleProcess, copies: Path | None = None
) -> list[EncodedDataset[Any] | None]:
    """The first process's data sets as this process reads them; all call this together. Processes of a machine that
    does not see the files map one copy, which the first of them makes below its folder `copies`.

    Raises OSError where a copy cannot be written.
    """
    shared: Sequence[EncodedDataset[Any] | None] = parallel.share(datasets)
    return [data and replace(data, items=_local_items(data.items, parallel, copies)) for data in shared]


def with_items(
    data: EncodedDataset[Any], items: Iterable[Any], parallel: SingleProcess | None = None
) -> EncodedDataset[Any]:
    """The data set with other items, where these are kept. All processes call this; the first alone makes them, of
    `items`, which it goes through once. Raises as `share_datasets`."""
    if parallel is None or parallel.world == 1:
        return data.with_items(items)
    copies = data.items.folder.parent if isinstance(data.items, StoredItems) else None
    [shared] = share_datasets([data.with_items(items) if parallel.main else None], parallel, copies)
    assert shared is not None
    return shared


def _local_items(items: Sequence[Any], parallel: SingleProcess, copies: Path | None) -> Sequence[Any]:
    if not isinstance(items, StoredItems):
        return items  # of a method that keeps its own list
    mark = items.folder / f"{secrets.token_hex(8)}.mark" if parallel.main else None
    if mark is not None:
        mark.touch()
    # The folder of another machine may have the same path; a file that was made just now is only in this one.
    sees = parallel.share(mark).is_file()
    node = (socket.gethostname(), os.environ.get("GROUP_RANK", str(parallel.rank)))
    lacking = [(of, rank) for rank, (of, seen) in enumerate(parallel.gather((node, sees))) if not seen]
    if mark is not None:
        mark.unlink()
    if not lacking:
        return items
    receives = not sees and min(rank for of, rank in lacking if of == node) == parallel.rank
    folder = Path(tempfile.mkdtemp(dir=copies)) if receives else items.folder
    for name in parallel.share(sorted(os.listdir(folder)) if parallel.main else None):
        with ExitStack() as files:
            source = files.enter_context((folder / name).open("rb")) if parallel.main else None
            target = files.enter_context((folder / name).open("xb")) if receives else None
            while block := parallel.share(source.read(_BLOCK) if source is not None else None):
                if target is not None:
                    target.write(block)
    copied = dict(parallel.gather((node, folder) if receives else (None, folder)))
    return items if sees else StoredItems(copied[node], items.kind, len(items))
