"""The rows of metrics.jsonl as TensorBoard events, for who watches several runs there. Needs the extra `tensorboard`.

Leaves out: texts, histograms and graphs; `assay report RUN` shows a run without TensorBoard.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import BackendError
from assay.runs.callbacks import Callback

FOLDER = "tensorboard"


class TensorBoardLog(Callback):
    """Writes to `folder/tensorboard`; steps after `keep_to_step` that are there already are struck out."""

    def __init__(self, folder: Path, *, keep_to_step: int = 0) -> None:
        """Raises BackendError where the package is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise BackendError("--tensorboard needs the package: pip install 'assay[tensorboard]'") from error
        self._writer: Any = SummaryWriter(str(folder / FOLDER), purge_step=keep_to_step + 1)

    def on_step(self, row: Mapping[str, Any]) -> None:
        """Numbers under `kind/name`; slices under `eval/accuracy by source/name`."""
        step, kind = row["step"], row.get("kind", "train")
        for name, value in row.items():
            if isinstance(value, int | float) and name != "step":
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        for part in row.get("slices", ()):
            self._writer.add_scalar(f"{kind}/accuracy by {part['by']}/{part['name']}", part["accuracy"], step)
        self._writer.flush()

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        if "kind" in row:  # else its figures are among those of the step
            self.on_step(row)

    def close(self) -> None:
        self._writer.close()
