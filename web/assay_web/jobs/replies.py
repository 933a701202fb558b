"""Request and reply models of the routes of jobs, besides forms (`forms`) and logs (`log`)."""

from typing import Literal

from pydantic import BaseModel

from assay_pipelines.curation.loop.estimating import JudgeCost
from assay_pipelines.llm.calls import RunSpending
from assay_web.jobs.job import JobStatus
from assay_web.jobs.kind import Area, Lane, SettingValue
from assay_web.server.request_body import RequestBody


class JobSettings(RequestBody):
    """`settings`: by the names of the form; what is left out, null or empty is the command's default."""

    kind: str
    settings: dict[str, SettingValue]


class JobRequest(JobSettings):
    """`token`: of the estimate that was shown; needed where judges or people would be asked."""

    token: str | None = None


class KindReply(BaseModel):
    """A kind of job. `command`: its first words."""

    name: str
    title: str
    area: Area
    lane: Lane
    command: str


class KindsReply(BaseModel):
    """In the order of the registry."""

    kinds: list[KindReply]


class EstimateReply(BaseModel):
    """What a job would ask and take at most; see `StageEstimate`. `comparisons`: it would look at, `steps`: of a
    training, null where that is not known. `token`: starting takes it, which says that this estimate was seen.
    `command`: what would be run."""

    command: str
    comparisons: int | None
    steps: int | None
    judges: list[JudgeCost]
    calls: int
    tokens: int
    cost: float | None
    people: int
    known: bool
    spent: float
    budget: float | None
    not_counted: list[str]
    token: str


class JobCount(BaseModel):
    """What a job counts now: `done` of `total` things called `unit`, with `rate` a second over the last minute.
    `total`: null where it is not known; a step that counts nothing is at 0. `seconds_left`: at this rate, null without
    one. `at`: when something was counted last, in seconds since the epoch. `ended`: no more will be counted here."""

    what: str
    done: int
    total: int | None
    unit: str
    rate: float | None
    seconds_left: float | None
    began: float
    at: float
    ended: bool


class ExpectedReply(BaseModel):
    """What the estimate said when the job was started. `spent`: before it, of the same budget."""

    calls: int
    cost: float | None
    budget: float | None
    spent: float


class JobRecord(BaseModel):
    """A job. `started`: when it was asked for. `status`: see `JobStatus`; `why`: in one line, null where the status
    says it all. `warnings`: of its run, which ended but not well. `waits_for`: ids of jobs, or of a run that holds the
    store. `can_resume`: ended before its end, or not well; not if its command would do all of its work again, or
    something of its input was refused and there is nothing to go on from. `resumed_by`: the job that goes on with it.
    `progress`: the outermost count first, as its run noted it; of one that has ended, where it was. `spent`: null where
    no model was called, or the store has not told yet. Seconds since the epoch."""

    id: str
    kind: str
    title: str
    area: Area | Literal["other"]
    settings: dict[str, SettingValue]
    command: str
    by: str
    started: float
    ended: float | None
    status: JobStatus
    why: str | None
    warnings: list[str]
    waits_for: list[str]
    resumes: str | None
    resumed_by: str | None
    can_resume: bool
    run_id: str | None
    progress: list[JobCount]
    spent: RunSpending | None
    expected: ExpectedReply | None


class JobsReply(BaseModel):
    """The newest first. `total`: of all jobs. `elsewhere`: a run that holds the store and was started by other means,
    with its progress. `now`: the server's clock, in seconds since the epoch."""

    jobs: list[JobRecord]
    total: int
    elsewhere: str | None
    elsewhere_progress: list[JobCount]
    now: float
