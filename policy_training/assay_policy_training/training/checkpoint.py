"""Checkpoints of a training run, and the logs that belong to them.

Covers: a folder per checkpoint that is complete or absent (kill -9 at any moment), when the next one is due, which ones
are removed, JSON Lines logs that are truncated to their size at the checkpoint when a run resumes. Leaves out: what is
in the state (`resume`), which steps are kept (`checkpoint_choice`), the final policy (`policy.Policy.save`).
"""

import json
import os
import re
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import BackendError, BadInputError
from assay.system.atomic_files import sync_folder

_NAME = re.compile(r"^checkpoint-(\d{8})$")
TENSORS, STATE, SHARDS = "tensors.pt", "state.json", "shards"
#: Begin of the name of a folder of shares before it is a checkpoint's.
UNFINISHED = ".shards-"


@dataclass(frozen=True)
class Checkpoint:
    """`tensors`: nested containers of tensors and numbers; `state`: JSON. `shards`: the folder with the tensors that
    are None (`sharded_state`)."""

    step: int
    tensors: dict[str, Any]
    state: dict[str, Any]
    shards: Path | None = None


class CheckpointSchedule:
    """When a checkpoint is due: every `every` steps, and before more than `minutes` of training could be lost, if the
    next step takes as long as the last. 0 turns a limit off."""

    def __init__(self, every: int, minutes: float) -> None:
        self.every, self.limit_s = every, 60 * minutes
        self._saved = self._step_end = time.monotonic()

    def due(self, step: int) -> bool:
        """Call after each step, numbered from 1."""
        now = time.monotonic()
        last_step_s, self._step_end = now - self._step_end, now
        by_time = self.limit_s > 0 and now + last_step_s - self._saved >= self.limit_s
        return by_time or (self.every > 0 and step % self.every == 0)

    def saved(self) -> None:
        self._saved = self._step_end = time.monotonic()


def checkpoint_folder(folder: Path, step: int) -> Path:
    """Where a run's checkpoint of `step` is."""
    return folder / f"checkpoint-{step:08d}"


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: Collection[int] = ()) -> Path:
    """Write it under `folder`, into which its shards move, then remove the others but those of the steps `keep`. Raises
    BackendError when the disk fails."""
    import torch

    target = checkpoint_folder(folder, checkpoint.step)
    scratch = folder / f".{target.name}.part"
    others = [path for path in checkpoints(folder) if path != target and step_of(path) not in keep]
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
        with (scratch / TENSORS).open("wb") as stream:
            torch.save(checkpoint.tensors, stream)
            stream.flush()
            os.fsync(stream.fileno())
        with (scratch / STATE).open("w", encoding="utf-8") as text:
            json.dump({"step": checkpoint.step, **checkpoint.state}, text)
            text.flush()
            os.fsync(text.fileno())
        if checkpoint.shards is not None:
            checkpoint.shards.rename(scratch / SHARDS)
            sync_folder(scratch)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        sync_folder(folder)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        raise BackendError(f"cannot write the checkpoint {target}: {str(error).splitlines()[0]}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for path in others:
        shutil.rmtree(path)
    return target


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """As `stored_checkpoint`."""
    folders = checkpoints(folder)
    return stored_checkpoint(folders[-1]) if folders else None


def read_checkpoint(path: Path) -> Checkpoint:
    """With whole tensors, in this process. Raises BadInputError when it cannot be read."""
    from assay.models.parallelism.sharded_state import read_whole

    stored = stored_checkpoint(path)
    if stored.shards is None:
        return stored
    return Checkpoint(stored.step, read_whole(stored.tensors, stored.shards), stored.state)


def stored_checkpoint(path: Path) -> Checkpoint:
    """Its shards unread. Raises BadInputError when it cannot be read."""
    import torch

    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        tensors = torch.load(path / TENSORS, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInputError(f"not a readable checkpoint: {str(error).splitlines()[0]}", file=path) from error
    shards = path / SHARDS
    return Checkpoint(int(state.pop("step")), tensors, state, shards if shards.is_dir() else None)


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints in `folder`, oldest first."""
    return sorted(path for path in folder.glob("checkpoint-*") if _NAME.match(path.name))


def step_of(path: Path) -> int:
    """Of a checkpoint's folder."""
    return int(path.name.rpartition("-")[2])
