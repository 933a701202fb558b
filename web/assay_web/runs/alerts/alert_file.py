"""`alerts.sqlite` of a workspace: rules and what rang. A rule rings once for a run, also over restarts and where two
servers evaluate it: a row of (rule, run) is added once. Leaves out: evaluating (`evaluation`)."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, NotFoundError
from assay.system.sqlite_file import SQLiteFile
from assay_web.runs.alerts.replies import AlertRule, NewAlertRule, RunAlert

FILE = "alerts.sqlite"
MOST_RULES = 100
MOST_LISTED = 200


class AlertFile(SQLiteFile):
    """Rules are JSON of `NewAlertRule`; of a deleted rule the alerts stay."""

    schema = """
CREATE TABLE rules (id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, by TEXT NOT NULL, created REAL NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0);
CREATE TABLE alerts (rule INTEGER NOT NULL, run TEXT NOT NULL, at REAL NOT NULL, alert TEXT NOT NULL, seen_by TEXT,
    PRIMARY KEY (rule, run));
CREATE INDEX alerts_by_time ON alerts (at);
"""
    version = 1

    def __init__(self, root: Path) -> None:
        super().__init__(root / FILE, wait=5.0)

    def rules(self) -> list[AlertRule]:
        with self.reading() as db:
            return [_rule(row) for row in db.execute("SELECT * FROM rules WHERE deleted = 0 ORDER BY id")]

    def add(self, rule: NewAlertRule, by: str) -> AlertRule:
        """Raises BadInputError for a rule that says nothing or is there, and for too many."""
        if rule.condition in ("above", "below") and (rule.metric is None or rule.value is None):
            raise BadInputError("name a metric and a value", field="metric" if rule.metric is None else "value")
        with self.writing() as db:
            rows = db.execute("SELECT * FROM rules WHERE deleted = 0").fetchall()
            if any(row["rule"] == rule.model_dump_json() for row in rows):
                raise BadInputError("there is such a rule already")
            if len(rows) >= MOST_RULES:
                raise BadInputError(f"there are {len(rows)} rules: delete one first")
            now = time.time()
            number = db.execute(
                "INSERT INTO rules (rule, by, created) VALUES (?, ?, ?)", (rule.model_dump_json(), by, now)
            ).lastrowid
        return AlertRule(**rule.model_dump(), id=int(number or 0), by=by, created=now)

    def delete(self, rule: int) -> None:
        """Raises NotFoundError."""
        with self.writing() as db:
            if not db.execute("UPDATE rules SET deleted = 1 WHERE id = ? AND deleted = 0", (rule,)).rowcount:
                raise NotFoundError("there is no such rule any more")

    def ring(self, alert: RunAlert) -> bool:
        """Whether it is the first of this rule and run."""
        with self.writing() as db:
            return bool(
                db.execute(
                    "INSERT OR IGNORE INTO alerts (rule, run, at, alert) VALUES (?, ?, ?, ?)",
                    (alert.rule, alert.run, alert.at, alert.model_dump_json(exclude={"seen_by"})),
                ).rowcount
            )

    def rung(self) -> set[tuple[int, str]]:
        """(rule, run) of all that rang."""
        with self.reading() as db:
            return {(row["rule"], row["run"]) for row in db.execute("SELECT rule, run FROM alerts")}

    def alerts(self, run: str | None = None) -> tuple[list[RunAlert], int]:
        """The newest first, and how many there are in all."""
        with self.reading() as db:
            (total,) = db.execute("SELECT count(*) FROM alerts WHERE ? IN (run, '')", (run or "",)).fetchone()
            rows = db.execute(
                "SELECT * FROM alerts WHERE ? IN (run, '') ORDER BY at DESC, rowid DESC LIMIT ?",
                (run or "", MOST_LISTED),
            )
            return [RunAlert(**json.loads(row["alert"]), seen_by=row["seen_by"]) for row in rows], int(total)

    def mark_seen(self, rule: int, run: str, by: str) -> None:
        """Raises NotFoundError."""
        with self.writing() as db:
            if not db.execute(
                "UPDATE alerts SET seen_by = coalesce(seen_by, ?) WHERE rule = ? AND run = ?", (by, rule, run)
            ).rowcount:
                raise NotFoundError("there is no such alert")


def _rule(row: sqlite3.Row) -> AlertRule:
    fields: dict[str, Any] = json.loads(row["rule"])
    return AlertRule(**fields, id=row["id"], by=row["by"], created=row["created"])
