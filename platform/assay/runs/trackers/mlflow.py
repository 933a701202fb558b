"""A run's metrics in MLflow, configured by its own variables: $MLFLOW_TRACKING_URI, else MLflow's default, a database
in this folder; $MLFLOW_EXPERIMENT_NAME, else `assay`."""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from assay.errors import BackendError
from assay.runs.trackers import TrackedRun, Tracker

_LONGEST = 500  #: characters of a parameter
_REFUSED = re.compile(r"[^\w\-. :/]")  #: in names of metrics


class MlflowTracker(Tracker):
    """The run is named by Assay's id; a resumed training is a run of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], keep_to_step: int) -> None:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "assay")
        with _one_line():
            self._client: Any = MlflowClient()
            experiment = self._client.get_experiment_by_name(name)
            number = experiment.experiment_id if experiment else self._client.create_experiment(name)
            tags = {"assay.model": str(settings.get("name", ""))}
            self._experiment = number
            self._run = self._client.create_run(number, run_name=folder.name, tags=tags).info.run_id
            texts = {key: str(value)[:_LONGEST] for key, value in settings.items()}
            self._client.log_batch(self._run, params=[Param(key, text) for key, text in texts.items()])

    def tracked_run(self) -> TrackedRun:
        """The page of MLflow's own server; without one `mlflow ui` shows it."""
        store = str(self._client.tracking_uri)
        page = f"{store.rstrip('/')}/#/experiments/{self._experiment}/runs/{self._run}"
        return TrackedRun("mlflow", self._run, page if store.startswith(("http://", "https://")) else None, store)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        rows = [Metric(_REFUSED.sub("_", name), float(value), now, step) for name, value in metrics.items()]
        with _one_line():
            self._client.log_batch(self._run, metrics=rows)

    def close(self) -> None:
        with _one_line():
            self._client.set_terminated(self._run, "FAILED" if self.failed else "FINISHED")


@contextmanager
def _one_line() -> Iterator[None]:
    """Raises MLflow's errors as BackendError."""
    try:
        yield
    except MlflowException as error:
        raise BackendError(f"MLflow: {' '.join(str(error).split())}") from error
