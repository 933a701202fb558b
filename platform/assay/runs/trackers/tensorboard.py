"""A run's metrics as TensorBoard events in its folder. Leaves out: texts, histograms and graphs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from assay.runs.trackers import TrackedRun, Tracker

FOLDER = "tensorboard"


class TensorBoardTracker(Tracker):
    """Writes to `folder/tensorboard`; steps after `keep_to_step` that are there already are struck out."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], keep_to_step: int) -> None:
        self._folder = folder / FOLDER
        self._writer: Any = SummaryWriter(str(folder / FOLDER), purge_step=keep_to_step + 1)

    def tracked_run(self) -> TrackedRun:
        """`tensorboard --logdir` shows it."""
        return TrackedRun("tensorboard", self._folder.parent.name, None, str(self._folder))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
