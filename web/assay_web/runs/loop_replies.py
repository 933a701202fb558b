"""Request and reply models of the routes of online loops."""

from typing import Literal

from pydantic import BaseModel

from assay.browsing.messages import ShownMessage
from assay_web.server.request_body import RequestBody

#: `pausing`, `stopping`: ordered, and its step is not done.
LoopPhase = Literal["running", "pausing", "paused", "stopping", "ended"]
Limited = Literal["labels", "money", "steps", "minutes"]


class LoopLimitReply(BaseModel):
    """One limit of the budget: what is spent of it, what the configuration says, and what was ordered in its place;
    null: no limit, or no order."""

    name: Limited
    spent: float
    configured: float | None
    ordered: float | None


class LoopEventReply(BaseModel):
    """`at`: seconds since the epoch."""

    step: int
    at: float
    kind: str
    text: str
    trouble: bool


class OnlineLoopReply(BaseModel):
    """State of an online loop. `waiting`: questions without an answer yet. `contradictions`: labels of pairs that
    another answer contradicts. `every`, `count`: so many labels in every so-many-th step. `gold`: whether a reward is
    watched that is not trained on. `ensemble`: whether the reward has members whose agreement is measured.
    `events`: newest first."""

    phase: LoopPhase
    step: int | None
    answered: int
    waiting: int
    contradictions: int
    selector: str
    source: str
    every: int
    count: int
    when_spent: Literal["go_on", "stop"]
    gold: bool
    ensemble: bool
    limits: list[LoopLimitReply]
    events: list[LoopEventReply]
    more_events: int


class AskedLabelReply(BaseModel):
    """A pair that was asked about. `why`: what the selector measured. `label`: A, the first response, B or tie; null:
    no answer (`waiting`: not yet). `held_out`: not trained on. Times in seconds since the epoch."""

    step: int
    comparison_id: str
    prompt: list[ShownMessage]
    responses: list[str]
    selector: str
    why: dict[str, float | None]
    source: str
    label: Literal["A", "B", "tie"] | None
    waiting: bool
    held_out: bool
    contradicts: bool
    cost: float
    asked_at: float | None
    answered_at: float | None


class AskedLabelsReply(BaseModel):
    """A page, newest first."""

    total: int
    waiting: int
    labels: list[AskedLabelReply]


class LoopLimitsOrder(RequestBody):
    """All limits that are ordered; null: as configured."""

    labels: int | None = None
    money: float | None = None
    steps: int | None = None
    minutes: float | None = None


class LoopOrder(RequestBody):
    """What is null stays as it is."""

    state: Literal["run", "pause", "stop"] | None = None
    limits: LoopLimitsOrder | None = None
