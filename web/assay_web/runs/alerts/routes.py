"""Routes of alerts: rules, what rang, taking an alert off the page."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Path, Request

from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator, Viewer
from assay_web.runs.alerts.alert_file import AlertFile
from assay_web.runs.alerts.evaluation import AlertWatch
from assay_web.runs.alerts.replies import AlertRule, NewAlertRule, RunAlerts

router = APIRouter(tags=["runs"], route_class=AuditedRoute)


async def alert_file_of(request: Request) -> AlertFile:
    watch: AlertWatch = request.app.state.alerts
    return watch.file


Alerts: TypeAlias = Annotated[AlertFile, Depends(alert_file_of)]
RuleNumber: TypeAlias = Annotated[int, Path(ge=1, lt=2**53)]


@router.get("/api/runs/alerts")
def run_alerts(person: Viewer, alerts: Alerts, run: str | None = None) -> RunAlerts:
    """Rules, and what rang, of one run or of all. Does not read the store."""
    listed, total = alerts.alerts(run)
    return RunAlerts(rules=alerts.rules(), alerts=listed, more=total - len(listed))


@router.post("/api/runs/alerts")
def add_alert_rule(person: Curator, alerts: Alerts, body: NewAlertRule, request: Request) -> AlertRule:
    """Watch runs from now on; a rule rings once for each run."""
    note_change(request, **body.model_dump(exclude_none=True))
    return alerts.add(body, person.name)


@router.delete("/api/runs/alerts/{rule}")
def delete_alert_rule(person: Curator, alerts: Alerts, rule: RuleNumber) -> None:
    """What it rang for stays listed."""
    alerts.delete(rule)


@router.post("/api/runs/alerts/{rule}/{run}/seen")
def mark_alert_seen(person: Curator, alerts: Alerts, rule: RuleNumber, run: str) -> None:
    """Take an alert off the page."""
    alerts.mark_seen(rule, run, person.name)
