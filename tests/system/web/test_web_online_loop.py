"""The page of an online loop: what it shows of the run's files, who may order it, and a real loop that obeys."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from web_pages import PATIENCE_S, check_accessible, opened, running_web, screenshot, signed_in

from assay.runs.json_log import read_metrics
from assay.runs.process import FILE
from assay.runs.record import Run, start_run
from assay.workspace import Workspace
from assay_pipelines.online.config import loop_of
from assay_pipelines.online.journal import CONTROL, LOOP_FILE, Control, Journal, LabelRow
from assay_web.accounts.access_file import FILE as ACCESS
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import Role, add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PASSWORD = "correct horse battery"
ACCOUNTS: dict[str, Role] = {"grace": "annotator", "noor": "viewer", "edsger": "curator"}
LOOP: dict[str, Any] = {
    "name": "looped",
    "policy": "tiny",
    "set": {
        "steps": 4000,
        "sampling.prompts_per_step": 4,
        "sampling.group_size": 4,
        "sampling.max_new_tokens": 8,
        "checkpoint_every": 1000,
    },
    "training": {"prompts": ["constrained:24"], "device": "cpu", "watch": ["verifier"]},
    "reward": {"labels": 12, "members": 3, "l2": 0.1},
    "labels": {"every": 2, "count": 4, "source": {"kind": "judge", "judge": {"kind": "online_labels:LongerIsBetter"}}},
    "budget": {"labels": 24},
}


def asked(number: int, **more: Any) -> LabelRow:
    prompt = [{"role": "user", "content": f"Question {number}?"}]
    made = LabelRow(number, prompt, ["yes", "no"], f"c-{number:032x}", "disagreement", {"spread": 0.5}, "people")
    return replace(made, asked_at=100.0 + number, **more)


@contextmanager
def recorded(workspace: Workspace) -> Iterator[Run]:
    """A loop that is going on, of which three pairs were asked about; one is waited for."""
    with start_run(workspace, "rl", {"name": "looped"}) as run:
        (run.folder / LOOP_FILE).write_text(json.dumps({"config": loop_of(LOOP).to_dict()}))
        row = {"step": 3, "rollouts": 4, "reward_mean": 0.5, "labels_spent": 2.0, "seconds_training": 90.0}
        (run.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        journal = Journal(run.folder)
        journal.add_labels([asked(1), asked(2, label="B", answered_at=110.0, cost=0.25), asked(3)])
        journal.add_labels([asked(1, label="A", answered_at=120.0, cost=0.25, held_out=True)])  # its answer came later
        journal.event(2, "refit", labels=2, model="looped-reward-2", seconds=0.1, agreement=0.75, held_out=0)
        journal.event(2, "kept", model="looped-reward-1", refused="looped-reward-2", why="it is the same")
        journal.event(3, "alarm", action="return", alarm=1.0, alarm_score=1.5)
        yield run


@pytest.fixture
def accounts(workspace: Workspace) -> Iterator[str]:
    cheap = PasswordCost(passes=1, memory_kib=256, lanes=1)
    with AccessFile(workspace.root / ACCESS) as access:
        for name, role in ACCOUNTS.items():
            add_account(access, Passwords(cheap), name, role, PASSWORD, by="test")
    with running_web(workspace, open_access=False, password_cost=cheap) as url:
        yield url


def test_who_sees_a_loop_and_who_orders_it(workspace: Workspace, accounts: str) -> None:
    with recorded(workspace) as run:
        path = f"/api/runs/{run.id}/loop"
        for name, seen, ordered in (("grace", 403, 403), ("noor", 200, 403), ("edsger", 200, 200)):
            with signed_in(accounts, name, PASSWORD) as client:
                assert client.get(path).status_code == seen
                assert client.get(f"{path}/labels").status_code == seen
                assert client.post(f"{path}/order", json={"state": "pause"}).status_code == ordered
            assert (run.folder / CONTROL).exists() == (ordered == 200)
    with AccessFile(workspace.root / ACCESS) as access, access.reading() as db:
        lines = db.execute("SELECT person, subject, detail FROM audit WHERE action = 'order_loop'").fetchall()
    assert [tuple(line) for line in lines] == [("edsger", run.id, '{"state": "pause"}')]


@pytest.fixture
def client(workspace: Workspace) -> Iterator[httpx.Client]:
    with running_web(workspace) as url, signed_in(url) as found:
        yield found


def test_what_a_loop_shows_of_its_files(workspace: Workspace, client: httpx.Client) -> None:
    with recorded(workspace) as run:
        assert client.get(f"/api/runs/{run.id}").json()["loop"]
        shown = client.get(f"/api/runs/{run.id}/loop").json()
        assert (shown["phase"], shown["answered"], shown["waiting"], shown["gold"]) == ("running", 2, 1, True)
        spent = {limit["name"]: (limit["spent"], limit["configured"]) for limit in shown["limits"]}
        assert spent == {"labels": (3, 24), "money": (0.5, None), "steps": (3, None), "minutes": (1.5, None)}
        events = [(event["step"], event["kind"], event["text"]) for event in shown["events"]]
        after = "the last good checkpoint is taken up, and labels are bought there"
        assert events[0] == (3, "alarm", f"An alarm (alarm 1, alarm_score 1.5): {after}.")
        assert events[1] == (2, "kept", "looped-reward-1 stays; looped-reward-2 does not take over: it is the same.")
        ordered = "it orders 75% of the step's pairs as the version before"
        assert events[2:] == [(2, "refit", f"looped-reward-2 was fitted on 2 labels in 0.1 s; {ordered}.")]
        told = client.get(f"/api/runs/{run.id}/loop/labels").json()
        labels = [(one["step"], one["label"], one["waiting"], one["held_out"]) for one in told["labels"]]
        assert labels == [(3, None, True, False), (2, "B", False, False), (1, "A", False, True)]
        second = client.get(f"/api/runs/{run.id}/loop/labels", params={"limit": 1, "offset": 1}).json()
        assert [one["why"] for one in second["labels"]] == [{"spread": 0.5}]
        waiting = client.get(f"/api/runs/{run.id}/loop/labels", params={"waiting": True}).json()
        assert (waiting["total"], waiting["labels"][0]["step"]) == (1, 3)
        curves = client.get(f"/api/runs/{run.id}/curves").json()
        assert [(one["step"], one["text"]) for one in curves["moments"]] == [(2, "kept"), (3, "alarm")]
        with start_run(workspace, "rl", {}) as other:
            missing = client.get(f"/api/runs/{other.id}/loop")
            assert (missing.status_code, missing.json()["detail"]) == (404, f"{other.id} is no online loop")
            assert not client.get(f"/api/runs/{other.id}").json()["loop"]


def test_pairs_that_are_waited_for_cost_already(workspace: Workspace, client: httpx.Client) -> None:
    with recorded(workspace) as run:
        people = {"kind": "people", "price": 0.75, "overlap": 2}
        config = loop_of({**LOOP, "labels": {**LOOP["labels"], "source": people}}).to_dict()
        (run.folder / LOOP_FILE).write_text(json.dumps({"config": config}))
        limits = client.get(f"/api/runs/{run.id}/loop").json()["limits"]
        assert [limit["spent"] for limit in limits if limit["name"] == "money"] == [0.5 + 1.5]


def test_an_order_changes_what_it_names_and_a_wrong_one_nothing(workspace: Workspace, client: httpx.Client) -> None:
    with recorded(workspace) as run:
        path = f"/api/runs/{run.id}/loop/order"
        limits = {"labels": 40, "money": 2.5, "steps": None, "minutes": None}
        assert client.post(path, json={"limits": limits}).json() == {"state": "run", **limits}
        assert client.post(path, json={"state": "pause"}).json() == {"state": "pause", **limits}
        assert client.get(f"/api/runs/{run.id}/loop").json()["phase"] == "pausing"
        for body, field in (
            ({"limits": {"labels": -1}}, "labels"),
            ({"limits": {"labels": 1.5}}, "limits.labels"),
            ({"limits": {"money": "much"}}, "limits.money"),
            ({"state": "halt"}, "state"),
            ({"stat": "run"}, "stat"),
        ):
            refused = client.post(path, json=body)
            assert refused.status_code == 422, body
            detail = refused.json()["detail"]
            assert field in detail
            assert "\n" not in detail
        infinite = client.post(
            path, content='{"limits": {"money": 1e999}}', headers={"Content-Type": "application/json"}
        )
        assert infinite.status_code == 422
        assert Control.read(run.folder) == Control("pause", 40, 2.5)
        (run.folder / CONTROL).write_text("{")
        assert client.get(f"/api/runs/{run.id}/loop").json()["phase"] == "running", "as the loop takes it"
        assert client.post(path, json={"state": "pause", "limits": limits}).status_code == 200
        assert client.post(path, json={"limits": {}}).json()["labels"] is None, "as configured again"
        assert not [one.name for one in run.folder.iterdir() if one.name.startswith((".", "control.json."))]
        (run.folder / FILE).write_text((run.folder / FILE).read_text().replace('"running"', '"done"'))
        ended = client.post(path, json={"state": "run"})
        assert (ended.status_code, ended.json()["detail"]) == (409, "the run has ended: done")
        assert Control.read(run.folder).state == "pause"
        assert client.get(f"/api/runs/{run.id}/loop").json()["phase"] == "ended"


@contextmanager
def looping(workspace: Workspace, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`assay loop` on `tiny`: its process, and the folder of its run once it has bought labels."""
    file = folder / "looped.yaml"
    file.write_text(yaml.safe_dump(LOOP), encoding="utf-8")
    command = [sys.executable, "-m", "assay.cli", "loop", str(file), "-w", str(workspace.root)]
    paths = os.pathsep.join([*filter(None, sys.path), str(Path(__file__).parents[2] / "support")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (begun := list(workspace.runs.glob("*/events.jsonl"))):
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline, "no run"
            time.sleep(0.05)
        yield process, begun[0].parent
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.browser
def test_a_loop_is_watched_paused_continued_and_finished(
    workspace: Workspace, browser: Browser, tmp_path: Path
) -> None:
    with (
        running_web(workspace, store_wait_s=0.3) as url,
        looping(workspace, tmp_path) as (process, folder),
        opened(browser, url) as page,
    ):
        page.goto(f"/runs/{folder.name}")
        page.get_by_role("tab", name="Online loop").click()
        budget = page.get_by_role("region", name="Budget")
        budget.get_by_role("button", name="Pause").click()
        budget.get_by_text("paused", exact=True).wait_for()
        steps = len(read_metrics(folder))
        page.get_by_role("region", name="Events").get_by_text("Paused by an order").wait_for()
        for title in ("Policy reward", "Gold reward", "Labels", "Agreement of the ensemble", "Spread of the ensemble"):
            page.get_by_role("img", name=re.compile(f"^{title} by step")).wait_for()
        table = page.get_by_role("table", name="Pairs that were asked about")
        table.get_by_text(re.compile("^preference spread")).first.wait_for()
        page.set_viewport_size({"width": 390, "height": 900})
        page.wait_for_function("document.documentElement.scrollWidth <= 390")
        page.set_viewport_size({"width": 1280, "height": 900})
        check_accessible(page)
        screenshot(page, "run-online-loop", full_page=True)
        budget.get_by_role("textbox", name="Limit of labels").fill("30")
        budget.get_by_role("button", name="Change the budget").click()
        budget.get_by_text("(configured: 24)").wait_for()
        assert Control.read(folder) == Control("pause", 30)
        assert len(read_metrics(folder)) <= steps + 1, "it is held"
        budget.get_by_role("button", name="Go on").click()
        budget.get_by_text("running", exact=True).wait_for()
        page.get_by_role(
            "img", name=re.compile(rf"^Policy reward by step.* at (?!{steps}\.|{steps + 1}\.)\d+\.$")
        ).wait_for()
        budget.get_by_role("button", name="Finish now").click()
        page.get_by_role("dialog").get_by_role("button", name="Finish now").click()
        assert process.wait(PATIENCE_S) == 0
        budget.get_by_text("ended", exact=True).wait_for()
        budget.get_by_role("button", name="Pause").wait_for(state="hidden")
        page.get_by_text(re.compile("^done")).first.wait_for()
    assert Control.read(folder) == Control("stop", 30)
