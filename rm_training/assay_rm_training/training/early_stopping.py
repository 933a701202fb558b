"""Early stopping: which step's weights a training ends with, the last or the best on held-out data, and when it stops.

Covers: the rule, the best weights on disk (`best.pt`, for runs that are resumed), what is recorded.
Leaves out: computing the metrics (`eval_step.py`).

The metric of the chosen step is the best of several on the same data, so it is biased upwards; for an unbiased one
evaluate on data that no step was chosen by (`--final-data`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BackendError
from assay.system.atomic_files import replacing

if TYPE_CHECKING:
    import torch

FILE = "best.pt"
SHARDS = "best-"  #: begin of the name of a folder with divided weights


@dataclass(frozen=True)
class BestEvaluation:
    """The best evaluation so far: `value` of `metric` at `step`. `evaluations`: all so far; `since`: those after it."""

    metric: str
    step: int
    value: float
    evaluations: int
    since: int

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def best_evaluation(rows: Sequence[Mapping[str, Any]], metric: str) -> BestEvaluation | None:
    """The best of the `eval` rows of a metrics file, the first where several are equal; None without rows.

    Lower `nll` is better (the mean loss where a task has no pairs); higher `accuracy` is better.
    """
    evaluated = [row for row in rows if row["kind"] == "eval"]
    best: tuple[int, int, float] | None = None
    for number, row in enumerate(evaluated):
        value = _value(row, metric)
        if best is None or (value > best[2] if metric == "accuracy" else value < best[2]):
            best = (number, row["step"], value)
    if best is None:
        return None
    return BestEvaluation(metric, best[1], best[2], len(evaluated), len(evaluated) - 1 - best[0])


def should_stop(best: BestEvaluation | None, patience: int) -> bool:
    """Whether to stop: `patience` evaluations in a row were no better than the best."""
    return best is not None and 0 < patience <= best.since


def save_best(
    folder: Path, step: int, weights: "Mapping[str, torch.Tensor | None]", shards: Path | None = None
) -> None:
    """Replace `folder/best.pt` atomically. The state of the same step must be saved before. `shards`: the folder with
    the weights that are None."""
    import torch

    with replacing(folder / FILE) as temporary:
        torch.save({"step": step, "weights": dict(weights), "shards": shards and shards.name}, temporary)


def saved_step(folder: Path) -> int | None:
    """The step whose weights are stored; None without any."""
    return int(_load(folder)["step"]) if (folder / FILE).is_file() else None


def load_best(folder: Path, step: int) -> "tuple[dict[str, torch.Tensor | None], Path | None]":
    """The weights of `step`, and the folder with those that are None. Raises BackendError where another step's are
    kept."""
    payload = _load(folder)
    if payload["step"] != step:
        raise BackendError(f"{folder / FILE} holds step {payload['step']}, not the chosen {step}")
    return payload["weights"], folder / payload["shards"] if payload.get("shards") else None


def _load(folder: Path) -> dict[str, Any]:
    import torch

    try:
        payload: dict[str, Any] = torch.load(folder / FILE, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch has no common error for a damaged file
        raise BackendError(f"{folder / FILE} cannot be read: {str(error).splitlines()[0]}") from error
    return payload


def _value(row: Mapping[str, Any], metric: str) -> float:
    if metric == "accuracy":
        if "accuracy" not in row:
            raise BackendError("this training method has no accuracy; use --metric nll")
        return float(row["accuracy"])
    return float(row.get("nll", row["loss"]))
