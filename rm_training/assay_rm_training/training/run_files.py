"""Files of a run during training: metrics, state, the best weights.

The first process writes, and under FSDP2 each process its shares to the folders:

    metrics.jsonl  state.pt  state-*/  best.pt (with --keep best)  best-*/  tensorboard/ (with --track)

Covers: resuming with all of them consistent, early stopping, the final weights. Leaves out: the files' formats
(`assay.runs.json_log`, `resume_state.py`, `early_stopping.py`, `assay.runs.trackers`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from assay.models.parallelism.sharded_state import read_state, remove_states, write_state
from assay.models.parallelism.strategy import SingleProcess
from assay.runs.callbacks import Callback
from assay.runs.json_log import METRICS_FILE, JsonLog
from assay.runs.trackers import open_trackers
from assay_rm_training.training import early_stopping
from assay_rm_training.training.early_stopping import BestEvaluation
from assay_rm_training.training.resume_state import FILE as STATE_FILE
from assay_rm_training.training.resume_state import Position, load_state, save_state
from assay_rm_training.training_config import TrainingConfig


class RunFiles:
    """All processes call every method together; `folder` is the first one's."""

    def __init__(
        self,
        folder: Path,
        config: TrainingConfig,
        parallel: SingleProcess,
        weights: Mapping[str, torch.nn.Parameter],
        optimizer: torch.optim.Optimizer,
        *,
        data: str,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """`data`: digest of the training data, which the state is of."""
        self.best: BestEvaluation | None = None  #: the best evaluation so far
        self._folder, self._config, self._parallel = folder, config, parallel
        self._weights, self._optimizer = weights, optimizer
        self._belongs_to = {"data": data, "configuration": config.identity()}
        self._metrics = JsonLog(folder / METRICS_FILE, allow_nan=True)
        self._callbacks = list(callbacks) if parallel.main else []
        self._evaluations: list[Mapping[str, Any]] = []
        self._saved: int | None = None

    def restore(self) -> Position:
        """Restore weights, optimiser and random generators from the saved state. Raises as `load_state` does."""
        return load_state(
            self._folder, self._weights, self._optimizer, belongs_to=self._belongs_to, parallel=self._parallel
        )

    @contextmanager
    def opened(self, position: Position) -> Iterator[None]:
        """Open for a training that continues after `position`; rows of later steps are removed."""
        with ExitStack() as stack:
            if self._parallel.main:
                self._metrics.keep_to_step(position.step)
                settings = self._config.to_dict()
                tracked = open_trackers(self._config.track, self._folder, settings, keep_to_step=position.step)
                self._callbacks += stack.enter_context(tracked)
                self._evaluations = [row for row in self._metrics.rows() if row["kind"] == "eval"]
            self._update_best()
            # Killed between saving the state and the best weights of the same step: the state has those weights.
            if self._parallel.share(self._lacks_best(position)):
                self._save_best(position)
            yield

    def add(self, row: Mapping[str, Any]) -> None:
        if self._parallel.main:
            self._metrics.add(row)
        for callback in self._callbacks:
            callback.on_step(row)

    def add_evaluation(self, row: Mapping[str, Any], position: Position) -> None:
        """Add an `eval` row; save the weights if it is the best."""
        if self._parallel.main:
            self._metrics.add(row)
        for callback in self._callbacks:
            callback.on_evaluation(row)
        self._evaluations.append(row)
        self._update_best()
        if self._config.keep == "best" and self.best is not None and self.best.step == position.step:
            self.save(position)  # first: the best weights on disk are never of a step after the state's
            self._save_best(position)

    def should_stop(self) -> bool:
        return early_stopping.should_stop(self.best, self._config.patience)

    def save(self, position: Position) -> None:
        """Save the state, once a step."""
        if self._saved != position.step:
            self._saved = position.step
            save_state(
                self._folder,
                position,
                self._weights,
                self._optimizer,
                belongs_to=self._belongs_to,
                parallel=self._parallel,
            )
            for callback in self._callbacks:
                callback.on_checkpoint(position.step, self._folder / STATE_FILE)

    def keep(self, position: Position) -> int:
        """At the end: load the best weights into the model if the configuration keeps them; returns their step."""
        if self._config.keep == "last" or self.best is None:
            return position.step
        main = self._parallel.main
        stored, shards = early_stopping.load_best(self._folder, self.best.step) if main else (None, None)
        weights, _ = read_state(stored, shards, self._parallel)
        with torch.no_grad():
            for name, parameter in self._weights.items():
                parameter.copy_(self._parallel.scatter(weights[name] if weights else None, parameter))
        return self.best.step

    def _update_best(self) -> None:
        best = early_stopping.best_evaluation(self._evaluations, self._config.metric) if self._parallel.main else None
        self.best = self._parallel.share(best)

    def _lacks_best(self, position: Position) -> bool:
        if self._config.keep == "last" or self.best is None or self.best.step != position.step:
            return False
        return self._parallel.main and early_stopping.saved_step(self._folder) != position.step

    def _save_best(self, position: Position) -> None:
        trained = {name: p.detach() for name, p in self._weights.items()}
        weights, shards = write_state(trained, self._folder, self._parallel, early_stopping.SHARDS)
        if self._parallel.main:
            early_stopping.save_best(self._folder, position.step, weights, shards)
            remove_states(self._folder, early_stopping.SHARDS, but=shards)
