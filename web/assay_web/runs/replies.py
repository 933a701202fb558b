"""Request and reply models of the runs routes."""

from typing import Literal

from pydantic import BaseModel, Field

from assay.browsing.messages import ShownMessage
from assay_web.run_charts import CurveChart
from assay_web.server.request_body import RequestBody

#: `ending`: a stop was requested and the process still runs. `unknown`: it has ended, and the store, which records how,
#: is held by another process.
Status = Literal["running", "ending", "done", "failed", "interrupted", "unknown"]


class KeyFigure(BaseModel):
    """The one number of a run that a list has room for. `share`: 0.25 is shown as 25 %."""

    label: str
    value: float
    share: bool = False


class RunRow(BaseModel):
    """A run in a list. `started`: seconds since the epoch; `seconds`: duration so far. `warnings`: of an
    ended run: data left out or truncated, too few items to rely on. `note`, `tags`, `archived`: what people wrote.
    `removed`: when its files were. `values`: of the columns that were asked for."""

    id: str
    kind: str
    status: Status
    name: str | None
    started: float
    seconds: float | None
    step: int | None = None
    figure: KeyFigure | None = None
    error: str | None = None
    warnings: list[str] = []
    note: str = ""
    tags: list[str] = []
    archived: bool = False
    removed: str | None = None
    values: dict[str, str | float | None] = {}


class KindCount(BaseModel):
    """How many runs of a kind the workspace has."""

    kind: str
    runs: int


class RunList(BaseModel):
    """Newest first. `held`: which process holds the store; the rows are then from the runs' folders."""

    runs: list[RunRow]
    total: int
    kinds: list[KindCount]
    held: str | None = None


class RunColumns(BaseModel):
    """Settings and figures that runs have, as names of columns; tags that people gave."""

    fields: list[str]
    tags: list[str]


class NoteChange(RequestBody):
    """What is left out stays as it is."""

    runs: list[str] = Field(min_length=1, max_length=500)
    note: str | None = None
    add_tags: list[str] = Field(default=[], max_length=30)
    remove_tags: list[str] = Field(default=[], max_length=30)
    archived: bool | None = None


class RunRemoval(BaseModel):
    """What removing the run's files does. `bytes`: of its folder. `dependents`: runs that read it, which keep it.
    `models`: made by it, which stay."""

    bytes: int
    dependents: list[str]
    models: list[str]


class ConsoleReply(BaseModel):
    """Whole lines of what the run printed; each begins with its time (UTC). `first`: the byte of the first one.
    `next`: send it to receive what follows. `size`: of all of it, in bytes."""

    lines: list[str]
    first: int
    next: int
    size: int


class NamedValue(BaseModel):
    """A setting or figure; nested names are joined by dots."""

    name: str
    value: str


class RunTable(BaseModel):
    """What a run measured: cells as text, under the columns of `head`."""

    title: str
    head: list[str]
    rows: list[list[str]]


class RunLink(BaseModel):
    """An input or output of a run. `label`: its display name."""

    kind: str
    ref: str
    label: str | None = None
    about: str | None = None


class StopNote(BaseModel):
    """Who requested the stop, and when, in seconds since the epoch."""

    by: str
    at: float


class TrackedRunReply(BaseModel):
    """The run in another program. `url`: its page there, null where there is none; `store`: where that keeps it."""

    tracker: str
    ref: str
    url: str | None
    store: str


class ResourcesReply(BaseModel):
    """What a run used, a number for each sample in each column. `seconds`: since it started."""

    seconds: list[float]
    columns: dict[str, list[float | None]]


class RunDetail(BaseModel):
    """A run without its curves and samples. `more_links`: unlisted links. `resumed_in`: runs that resumed it.
    `resume_command`: the command that resumes it. `stop`: the last stop request. `loop`: whether it is an online loop.
    `trackers`: where other programs have the run. `models`: that it made and that are there, which can be served.
    """

    run: RunRow
    code_version: str
    host: str | None
    pid: int | None
    folder: str
    config: list[NamedValue]
    figures: list[NamedValue]
    tables: list[RunTable]
    inputs: list[RunLink]
    outputs: list[RunLink]
    more_links: int
    resumed_in: list[str]
    resume_command: str | None
    curves: bool
    samples: bool
    loop: bool
    console: bool
    resources: bool
    trackers: list[TrackedRunReply]
    models: list[str]
    stop: StopNote | None
    can_stop: bool


class PointsReply(BaseModel):
    """Points from number `first` on, which take the place of those the reader has. `width`: rows a point; past 1 there
    are `low` and `high`, the bounds of those rows."""

    first: int
    width: int
    step: list[float]
    mean: dict[str, list[float | None]]
    low: dict[str, list[float | None]]
    high: dict[str, list[float | None]]


class Moment(BaseModel):
    """A step marked in the charts. `ordinary`: one of many, nothing that went wrong."""

    step: int
    text: str
    section: str
    ordinary: bool = False


class CurvesReply(BaseModel):
    """`state`: send it with the next request to receive only new points. `anew`: discard earlier points. `behind`: the
    file is not read to its end yet; `read`: the share that is. `progress`: share of the planned steps.
    `broken`: lines that could not be read."""

    state: str
    anew: bool
    behind: bool
    read: float
    running: bool
    rows: int
    broken: int
    progress: float | None
    charts: list[CurveChart]
    step: PointsReply
    evaluation: PointsReply
    latest: list[KeyFigure]
    moments: list[Moment]


class EpisodeTurnReply(BaseModel):
    """A turn of the policy and what came of it: its message, results of its calls, what else it observed. `rewards`:
    numbers, or why there is none. `invalid`: calls that could not be run; `errors`: results that are errors.
    `oversized`: an observation was too long and replaced. `seconds`: until the environment answered."""

    messages: list[ShownMessage]
    rewards: dict[str, float | str]
    tokens: int
    seconds: float
    calls: int
    invalid: int
    errors: int
    oversized: bool


class EpisodeReply(BaseModel):
    """What happened in an environment. `opening`: what the policy read after the prompt. `ended`: done, or failed, or
    the budget (turns, tokens) that ended it. `rewards`: of the episode as a whole."""

    environment: str
    ended: str
    opening: list[ShownMessage]
    turns: list[EpisodeTurnReply]
    rewards: dict[str, float | str]


class SampleReply(BaseModel):
    """A rollout. `reward`: null where none was given, with the reasons in `failures`. `episode`: of one in an
    environment."""

    uid: str
    prompt: list[ShownMessage]
    response: str
    reward: float | None
    parts: dict[str, float | None]
    advantage: float | None
    verified: float | None
    tokens: int
    truncated: bool
    trained: bool
    failures: list[str]
    episode: EpisodeReply | None


class StepBounds(BaseModel):
    """The range of steps with rollouts."""

    first: int
    last: int


class PromptSamples(BaseModel):
    """A prompt and what was answered to it at each place; nothing where it was not asked there."""

    prompt: list[ShownMessage]
    samples: list[list[SampleReply]]


class SamplesSideBySide(BaseModel):
    """Places (a run at a step) in the order of the request; `steps`: the steps shown, null for a run without rollouts.
    Prompts that most places have come first; `total` of them."""

    steps: list[int | None]
    bounds: list[StepBounds | None]
    prompts: list[PromptSamples]
    total: int


class SamplesReply(BaseModel):
    """Rollouts of one step; `first` and `last`: the range of steps with rollouts. `episodes`: what those in an
    environment come to."""

    step: int | None
    first: int | None
    last: int | None
    total: int
    samples: list[SampleReply]
    episodes: RunTable | None = None


class SettingDifference(BaseModel):
    """A setting that differs between runs; null where a run does not have it."""

    name: str
    values: list[str | None]


class ComparedRuns(BaseModel):
    """Runs in the order they were asked for. `same`: how many settings they share. `groups`: ids of those that differ
    in seed and name alone; each run is in one."""

    runs: list[RunRow]
    differences: list[SettingDifference]
    same: int
    groups: list[list[str]]


class StopRequest(RequestBody):
    """`again`: stop now, without waiting for the step and its checkpoint."""

    again: bool = False
