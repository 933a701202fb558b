"""A run's metrics in Weights & Biases, configured by its own variables: $WANDB_MODE=offline writes to the run's folder
alone (`wandb sync` sends it later), $WANDB_PROJECT names the project, else `assay`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from assay.errors import BackendError
from assay.runs.trackers import TrackedRun, Tracker


class WandbTracker(Tracker):
    """The run has Assay's id, and a policy's is in the group of its name; a resumed training is a run of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], keep_to_step: int) -> None:
        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "assay"),
                dir=folder,
                id=folder.name,
                name=folder.name,
                group=settings.get("name"),
                config=dict(settings),
                settings=wandb.Settings(console="off", silent=True),
            )
        except wandb.Error as error:
            raise BackendError(f"Weights & Biases: {' '.join(str(error).split())}") from error

    def tracked_run(self) -> TrackedRun:
        """Offline there is no page before `wandb sync` has sent it."""
        url = None if self._run.offline else self._run.url  # which warns offline
        return TrackedRun("wandb", self._run.id, url or None, str(self._run.dir))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish(exit_code=int(self.failed))
