"""Rules about runs ring for what they say, once, also over a restart of the server."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInputError
from assay.runs.process import FILE
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_web.runs.alerts.evaluation import AlertWatch, alert_text
from assay_web.runs.alerts.replies import NewAlertRule
from assay_web.webhooks.webhook_file import FILE as WEBHOOKS
from assay_web.webhooks.webhook_file import WebhookFile


@contextmanager
def watching(workspace: Workspace) -> Iterator[AlertWatch]:
    watch = AlertWatch(workspace)
    yield watch
    watch.stop()


def add_rows(folder: Path, *rows: dict[str, Any]) -> None:
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def rule(condition: Any, **fields: Any) -> NewAlertRule:
    return NewAlertRule(condition=condition, **fields)


def test_metrics_ring_once(workspace: Workspace) -> None:
    with WebhookFile(workspace.root / WEBHOOKS) as webhooks:
        webhooks.add("https://example.org/hook", ["alert"], private=False, by="ada")
    with start_run(workspace, "train", {}) as run:
        with watching(workspace) as watch:
            watch.file.add(rule("above", metric="loss", value=2, steps=3), "ada")
            watch.file.add(rule("below", metric="eval/accuracy", value=0.5), "ada")
            watch.file.add(rule("not_finite"), "ada")
            watch.file.add(rule("above", metric="loss", value=2, kind="rl"), "ada")
            watch.file.add(rule("above", metric="loss", value=2, run="run-of-others"), "ada")
            add_rows(
                run.folder, {"step": 1, "loss": 3, "accuracy": 0.1}, {"step": 2, "loss": 3}, {"step": 3, "loss": 1}
            )
            add_rows(run.folder, {"step": 4, "loss": 3}, {"step": 5, "loss": 3})
            assert watch.evaluate() == [], "not three in a row, and the accuracy is not of held-out data"
            with (run.folder / "metrics.jsonl").open("a") as stream:
                stream.write(
                    '{"step": 6, "loss": 4.5}\nnot JSON\n[1]\n{"step": 7, "kind": "eval", "accuracy": 0.25}\n{"st'
                )
            assert [alert_text(alert) for alert in watch.evaluate()] == [
                f"{run.id} (train): loss is above 2.0 (4.5) at step 6",
                f"{run.id} (train): eval/accuracy is below 0.5 (0.25) at step 7",
            ]
            add_rows(run.folder, {"x": 1})  # ends the line that was half written
            add_rows(run.folder, {"step": 8, "loss": float("nan")}, {"step": 9, "loss": 5}, {"step": 10, "loss": 5})
            add_rows(run.folder, {"step": 11, "loss": 5})
            (alert,) = watch.evaluate()
            assert (alert.condition, alert.metric, alert.step, alert.reading) == ("not_finite", "loss", 8, None)
        with watching(workspace) as again:
            add_rows(run.folder, {"step": 12, "loss": 5})
            assert again.evaluate() == []
            assert [alert.step for alert in again.file.alerts()[0]] == [8, 7, 6]
            again.file.mark_seen(alert.rule, run.id, "bob")
            assert [one.seen_by for one in again.file.alerts(run.id)[0]] == ["bob", None, None]
    with WebhookFile(workspace.root / WEBHOOKS) as webhooks:
        told = [json.loads(one.body)["data"]["message"] for one in webhooks.claim(time.time(), lease_s=1, most=9)]
    assert [text.partition(": ")[2] for text in told] == [
        "loss is above 2.0 (4.5) at step 6",
        "eval/accuracy is below 0.5 (0.25) at step 7",
        "loss is not a finite number at step 8",
    ]


def test_runs_that_fail_stand_still_or_are_gone(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="old"), start_run(workspace, "train", {}) as old:
        raise ValueError("old")
    past = time.time() - 3600
    for path in old.folder.iterdir():
        os.utime(path, (past, past))
    with watching(workspace) as watch:
        watch.file.add(rule("failed"), "ada")
        watch.file.add(rule("stalled", minutes=5), "ada")
    # While no server runs:
    with pytest.raises(ValueError, match="disk"), start_run(workspace, "rl", {}) as failed:
        raise ValueError("disk full")
    with start_run(workspace, "rl", {}) as still, watching(workspace) as watch:
        process = json.loads((still.folder / FILE).read_text())
        (still.folder / FILE).write_text(json.dumps({**process, "started": "2026-01-01T00:00:00+00:00"}))
        add_rows(still.folder, {"step": 1})
        (alert,) = watch.evaluate()
        assert (alert.run, alert.detail) == (failed.id, "ValueError: disk full"), "the old one was over before the rule"
        for path in still.folder.iterdir():
            os.utime(path, (past, past))
        (alert,) = watch.evaluate()
        assert alert_text(alert) == f"{still.id} (rl): no progress for 5 minutes"
        (still.folder / FILE).write_text(json.dumps({**process, "pid": 2**22 + 1}))
        (alert,) = watch.evaluate()
        assert (alert.condition, alert.detail) == ("failed", "its process is gone")
        assert watch.evaluate() == []


def test_a_rule_that_says_nothing_is_refused(workspace: Workspace) -> None:
    with watching(workspace) as watch:
        for bad in (rule("above", metric="loss"), rule("below", value=1)):
            with pytest.raises(BadInputError, match="metric and a value"):
                watch.file.add(bad, "ada")
        kept = watch.file.add(rule("failed"), "ada")
        watch.file.delete(kept.id)
        assert watch.file.rules() == []
