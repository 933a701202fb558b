"""Request and reply models of alerts about runs."""

from typing import Literal

from pydantic import BaseModel, Field

from assay_web.server.request_body import RequestBody

Condition = Literal["not_finite", "above", "below", "stalled", "failed"]


class NewAlertRule(RequestBody):
    """What to watch. `metric`: a number of metrics.jsonl; of held-out evaluations with eval/ before; none: any, where
    only finiteness is asked. `steps`: rows in a row that must be above or below `value`. `minutes`: without progress.
    `kind`, `run`: only these runs."""

    condition: Condition
    metric: str | None = Field(default=None, max_length=200)
    value: float | None = Field(default=None, allow_inf_nan=False)
    steps: int = Field(default=1, ge=1, le=1_000_000)
    minutes: float = Field(default=30, gt=0, le=100_000, allow_inf_nan=False)
    kind: str | None = Field(default=None, max_length=40)
    run: str | None = Field(default=None, max_length=40)


class AlertRule(NewAlertRule):
    """A rule that holds from `created` (seconds since the epoch) on."""

    id: int
    by: str
    created: float


class RunAlert(BaseModel):
    """A rule that a run met, once. `reading`: the value at `step`, null where it is not finite, and of rules without a
    metric. `detail`: the error of a failed run. `seen_by`: who took it off the page."""

    rule: int
    run: str
    run_kind: str
    at: float
    condition: Condition
    metric: str | None
    value: float | None
    steps: int
    minutes: float
    step: int | None
    reading: float | None
    detail: str
    seen_by: str | None


class RunAlerts(BaseModel):
    """The rules, and what rang, newest first; `more` are not listed."""

    rules: list[AlertRule]
    alerts: list[RunAlert]
    more: int
