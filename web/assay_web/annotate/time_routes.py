"""Routes of working time and pay by person, as a reply and as a CSV file.

Leaves out: what counts as time (`assay_pipelines.annotation.time_report`). Rates are the reader's own and stored
nowhere.
"""

import csv
import io
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from assay.errors import BadInputError
from assay_pipelines.annotation.queues import list_queues
from assay_pipelines.annotation.time_report import IDLE_S, WorkTime, work_times
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Curator
from assay_web.access.queue_access import require_visible, visible_queues
from assay_web.service import ServiceNow

router = APIRouter(tags=["queues"], route_class=AuditedRoute)


class PayRow(BaseModel):
    """`pay`: at the asked rate, rounded to hundredths; null without one. `rate`: items an hour, null without time."""

    time: WorkTime
    title: str
    rate: float | None
    pay: float | None


class PayReport(BaseModel):
    """By person and queue. `idle_s`: at most so many seconds of one answer count."""

    rows: list[PayRow]
    idle_s: float
    seconds: float
    items: int
    pay: float | None


def pay_report(
    person: Curator,
    service: ServiceNow,
    queue: Annotated[list[str] | None, Query(max_length=200, description="None: all of one's projects.")] = None,
    since: Annotated[float, Query(ge=0, le=1e11, description="Seconds since the epoch; included.")] = 0.0,
    until: Annotated[float, Query(ge=0, le=1e11, description="Seconds since the epoch; not included.")] = 1e11,
    idle_s: Annotated[float, Query(ge=10, le=3_600)] = IDLE_S,
    per: Literal["hour", "item"] = "hour",
    amount: Annotated[float | None, Query(ge=0, le=1e9)] = None,
) -> PayReport:
    if until <= since:
        raise BadInputError("the last day is before the first one")
    service.annotation.outbox.deliver_all()
    everything = [*list_queues(service.workspace), *list_queues(service.workspace, deleted=True)]
    visible = {record.name: record.title for record in visible_queues(service, person, everything)}
    chosen = [require_visible(service, person, name) for name in queue] if queue else list(visible)
    times = work_times(
        service.annotation.ledger,
        [name for name in chosen if name in visible],
        since=since,
        until=until,
        idle_s=idle_s,
    )
    rows = [
        PayRow(
            time=time,
            title=visible[time.queue],
            rate=3600 * time.items / time.seconds if time.seconds else None,
            pay=None if amount is None else round(amount * (time.seconds / 3600 if per == "hour" else time.items), 2),
        )
        for time in times
    ]
    return PayReport(
        rows=rows,
        idle_s=idle_s,
        seconds=sum(time.seconds for time in times),
        items=sum(time.items for time in times),
        pay=None if amount is None else round(sum(row.pay or 0.0 for row in rows), 2),
    )


PayNow = Annotated[PayReport, Depends(pay_report)]
_COLUMNS = ("annotator", "queue", "items", "answers", "active_hours", "items_per_hour", "pay", "answers_cut_to_cap")
_MORE_COLUMNS = ("hours_left_out", "answers_without_time", "first", "last", "idle_cap_seconds")


@router.get("/api/pay")
def get_pay_report(report: PayNow) -> PayReport:
    """Who worked how long, on how many items, and what it comes to."""
    return report


@router.get("/api/pay.csv", response_class=Response)
def get_pay_table(report: PayNow) -> Response:
    """The same as CSV: hours in decimals, times in UTC."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow((*_COLUMNS, *_MORE_COLUMNS))
    for row in report.rows:
        t = row.time
        table.writerow(
            (
                *(_cell(t.annotator), _cell(row.title), t.items, t.answers, f"{t.seconds / 3600:.4f}"),
                *("" if row.rate is None else f"{row.rate:.1f}", "" if row.pay is None else f"{row.pay:.2f}"),
                *(t.capped, f"{t.idle / 3600:.4f}", t.untimed, _moment(t.first), _moment(t.last), f"{report.idle_s:g}"),
            )
        )
    headers = {"Content-Disposition": 'attachment; filename="working-time.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _cell(text: str) -> str:
    """Not a formula to a spreadsheet, whatever somebody is called."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
