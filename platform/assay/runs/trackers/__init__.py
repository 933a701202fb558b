"""Trackers: callbacks that give a run's metrics to another program, named by `--track`.

Covers: the registered kind, opening the trackers of a run, where each has the run, the names under which a row's
numbers are tracked. Leaves out: metrics.jsonl and the run record, which every run has.

    RUN/trackers.json           where each tracker has the run
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from assay.errors import AssayError, BackendError, without_credentials
from assay.registry import Kind
from assay.runs.callbacks import Callback
from assay.runs.record import recorded

TRACKERS: Kind[Any] = Kind(
    "tracker",
    "Gives the metrics of a run to another program: a factory (folder, settings, keep_to_step) of callbacks.",
    {
        name: f"assay.runs.trackers.{name}:{target}"
        for name, target in (
            ("mlflow", "MlflowTracker"),
            ("tensorboard", "TensorBoardTracker"),
            ("wandb", "WandbTracker"),
        )
    },
    makes=("on_step", "on_evaluation", "on_checkpoint", "close"),
    option="--track",
)


Result = TypeVar("Result")
log = logging.getLogger(__name__)


FILE = "trackers.json"


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker has it. `ref`: its id there. `url`: a page of it, None where there is none; `store`: what the
    tracker calls its store."""

    tracker: str
    ref: str
    url: str | None = None
    store: str = ""


def tracked_runs(folder: Path) -> list[TrackedRun]:
    """Of the run that has this folder."""
    try:
        return [TrackedRun(**entry) for entry in json.loads((folder / FILE).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


class Tracker(Callback):
    """A callback to whose metrics every row goes; a subclass has `log` and `close`.

    It is made with the run's `folder`, whose name is the run's id, the `settings` of the training, and the step
    `keep_to_step` after which a resumed training writes; earlier ones may be there.
    """

    failed = False  #: when it is closed: whether the training did not end well

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        raise NotImplementedError

    def tracked_run(self) -> TrackedRun | None:
        """Where the run is to be seen there; None: nowhere."""
        return None

    def close(self) -> None:
        """The run has ended, well or not."""

    def on_step(self, row: Mapping[str, Any]) -> None:
        self.log(tracked(row), row["step"])

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        if "kind" in row:  # else its figures are among those of the step
            self.on_step(row)


def tracked(row: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of a row of metrics.jsonl as `kind/name`; slices as `eval/accuracy by source/name`."""
    kind = row.get("kind", "train")
    metrics = {f"{kind}/{name}": value for name, value in row.items() if isinstance(value, int | float)}
    metrics.pop(f"{kind}/step", None)
    slices = {f"{kind}/accuracy by {part['by']}/{part['name']}": part["accuracy"] for part in row.get("slices", ())}
    return metrics | slices


def require_trackers(names: Sequence[str]) -> None:
    """Raise BadInputError for an unknown name, BackendError where a package is missing: before a run starts."""
    for name in names:
        TRACKERS.find(name)


class _Named(Callback):
    """A tracker, which may be people's own code: what it raises is one line with its name."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name, self.tracker = name, tracker

    def on_step(self, row: Mapping[str, Any]) -> None:
        self._call(self.tracker.on_step, row)

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        self._call(self.tracker.on_evaluation, row)

    def on_checkpoint(self, step: int, path: Path) -> None:
        self._call(self.tracker.on_checkpoint, step, path)

    def tracked_run(self) -> TrackedRun | None:
        locate: Callable[[], TrackedRun | None] | None = getattr(self.tracker, "tracked_run", None)
        return None if locate is None else self._call(locate)

    def close(self) -> None:
        try:
            self._call(self.tracker.close)
        except AssayError as error:
            log.warning("a tracker was not closed: %s", error)

    def _call(self, event: Callable[..., Result], *arguments: Any) -> Result:
        try:
            return event(*arguments)
        except AssayError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise BackendError(f"tracker {self._name}: {reason}") from error


def _note_runs(folder: Path, trackers: Sequence[_Named]) -> None:
    """Replaces what an interrupted run that this one resumes had."""
    runs = [each.tracked_run() for each in trackers]
    if entries := [asdict(run) for run in runs if run is not None]:
        (folder / FILE).write_text(without_credentials(json.dumps(entries)) + "\n", encoding="utf-8")


@contextmanager
def open_trackers(
    names: Sequence[str], folder: Path, settings: Mapping[str, Any], *, keep_to_step: int
) -> Iterator[list[Callback]]:
    """The trackers of these names; `settings` go to them without credentials in URLs. Raises as `require_trackers`, and
    what a tracker raises; one that cannot be closed is a warning: the training is done, metrics.jsonl has it all."""
    public = recorded(settings)
    with ExitStack() as stack:
        trackers: list[_Named] = []
        for name in names:
            arguments = {"folder": folder, "settings": public, "keep_to_step": keep_to_step}
            trackers.append(_Named(name, TRACKERS.create(name, arguments)))
            stack.callback(trackers[-1].close)
        _note_runs(folder, trackers)
        try:
            yield [*trackers]
        except BaseException:
            for each in trackers:
                each.tracker.failed = True
            raise
