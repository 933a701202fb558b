"""Callbacks: objects that a training calls at its events, in the order of their list, in the first process only.

Leaves out: changing what is trained (plug-ins, methods), ending a run (stop rules, `patience`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Callback:
    """Does nothing; a subclass overrides the events that it is about. What it raises ends the training."""

    def on_step(self, row: Mapping[str, Any]) -> None:
        """`row`: the step's line of metrics.jsonl, which has `step`."""

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        """After an evaluation during training: `step` and its figures."""

    def on_checkpoint(self, step: int, path: Path) -> None:
        """`path`: what training resumes from, a folder or a file; it is replaced or removed later."""


class StepCallback(Callback):
    """Calls `function` with the metrics of each step."""

    def __init__(self, function: Callable[[Mapping[str, Any]], object]) -> None:
        self._function = function

    def on_step(self, row: Mapping[str, Any]) -> None:
        self._function(row)
