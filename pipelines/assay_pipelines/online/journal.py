"""What an online loop did, in the folder of its run: labels, events, orders from outside, and what came from outside.

labels.jsonl    a row for each pair that was asked about, and another one when its answer comes later: the last row of a
                comparison counts
events.jsonl    refit, swap, kept, alarm, returned, penalty, budget, paused, continued, source_down
control.json    written by others: state (run, pause, stop) and other limits, read between steps
replies.jsonl   what came from outside in each step: answers and limits. It is never cut, so that a run that resumes
                from an earlier checkpoint takes the same answers in the same steps.

Every row is on disk before the run goes on. Labels and events are cut to the checkpoint that a run resumes from.
Leaves out: what the rows mean to the run (`labelling`).
"""

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from assay.errors import BadInputError
from assay.runs.json_log import JsonLog
from assay.settings import CheckedSettings
from assay.system.atomic_files import replacing

LABELS, EVENTS, CONTROL, REPLIES = "labels.jsonl", "events.jsonl", "control.json", "replies.jsonl"
LOOP_FILE = "loop.json"  #: a run whose folder has it is an online loop; its configuration and its beginning
Label = Literal["A", "B", "tie"]


@dataclass(frozen=True)
class LabelRow:
    """One question and its answer. `label`: A is the first of `responses`; None: not answered, or not yet. `why`: the
    numbers of the selector. `held_out`: not trained on. `cost`: of the answer."""

    step: int
    prompt: list[dict[str, Any]]
    responses: list[str]
    comparison_id: str
    selector: str
    why: Mapping[str, float]
    source: str
    label: Label | None = None
    asked_at: float | None = None
    answered_at: float | None = None
    cost: float = 0.0
    held_out: bool = False
    judgments: tuple[str, ...] = ()  #: in the store, that the label rests on
    contradicts: bool = False  #: another answer to the same pair was given before; both are kept


@dataclass(frozen=True)
class Control(CheckedSettings):
    """Orders from outside. A limit that is None leaves the configured one."""

    state: Literal["run", "pause", "stop"] = "run"
    labels: Annotated[int | None, Ge(0)] = None
    money: Annotated[float | None, Ge(0)] = None
    steps: Annotated[int | None, Ge(0)] = None
    minutes: Annotated[float | None, Ge(0)] = None

    @classmethod
    def read(cls, folder: Path) -> "Control":
        """As if nothing was ordered where the file is missing. Raises BadInputError for another content."""
        path = folder / CONTROL
        try:
            payload = json.loads(path.read_text(encoding="utf-8"))
            return cls(**payload)
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, BadInputError) as error:
            raise BadInputError(f"not an order to a loop: {error}", file=path) from error

    def write(self, folder: Path) -> None:
        """Whole or not at all."""
        with replacing(folder / CONTROL) as temporary:
            temporary.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")


@dataclass
class Journal:
    """The files of one run."""

    folder: Path
    labels: JsonLog = field(init=False)
    events: JsonLog = field(init=False)
    replies: JsonLog = field(init=False)

    def __post_init__(self) -> None:
        self.labels, self.events = JsonLog(self.folder / LABELS), JsonLog(self.folder / EVENTS)
        self.replies = JsonLog(self.folder / REPLIES)
        self._replies = {int(row["step"]): row for row in self.replies.rows()}

    def begin_from(self, folder: Path) -> "Journal":
        """Take over the files of the run that this one resumes, but a torn last line, and an order to pause or stop."""
        for log in (self.labels, self.events, self.replies):
            if (folder / log.path.name).is_file():
                shutil.copyfile(folder / log.path.name, log.path)
                complete = log.rows()
                log.path.unlink()
                log.append(complete)
        with suppress(BadInputError):  # one that was refused
            replace(Control.read(folder), state="run").write(self.folder)
        self.__post_init__()
        return self

    def add_labels(self, rows: Iterable[LabelRow]) -> None:
        if listed := [asdict(row) for row in rows]:
            self.labels.append(listed)
            self.labels.sync()

    def label_rows(self) -> list[LabelRow]:
        """Every row, in order."""
        return read_labels(self.folder)

    def event(self, step: int, kind: str, **detail: Any) -> None:
        self.events.add({"step": step, "at": time.time(), "kind": kind, **detail})
        self.events.sync()

    def reply(self, step: int, what: str) -> Any:
        """What came from outside in an earlier life of this step; None: nothing is known."""
        return self._replies.get(step, {}).get(what)

    def keep_reply(self, step: int, **what: Any) -> None:
        """On disk before it has an effect."""
        row = {"step": step, **{name: v for name, v in self._replies.get(step, {}).items() if name != "step"}, **what}
        self._replies[step] = row
        self.replies.add(row)
        self.replies.sync()

    def sizes(self) -> dict[str, int]:
        """In bytes, for a checkpoint."""
        return {log.path.name: log.size for log in (self.labels, self.events)}

    def cut(self, sizes: Mapping[str, int]) -> None:
        """To a checkpoint's sizes."""
        for log in (self.labels, self.events):
            if sizes[log.path.name] or log.path.is_file():
                log.cut(int(sizes[log.path.name]))


def read_labels(folder: Path) -> list[LabelRow]:
    """The rows of a run that has this folder, in order."""
    rows = JsonLog(folder / LABELS).rows()
    return [LabelRow(**{**row, "judgments": tuple(row["judgments"])}) for row in rows]
