"""Runs on the web: real trainings watched while they train, stopped from the page, resumed by a command."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pair_files import write_pairs
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.data.json_lines import Lines, parse_object
from assay.domain import Message, PreferencePair
from assay.runs.process import FILE, process_of
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE as ACCESS
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
SLOW = """
import sys, time
from assay.system.graceful_stop import stop_on_signal
from assay.runs.record import start_run
from assay.workspace import Workspace

with start_run(Workspace.open(sys.argv[1]), "train", {"name": "slow"}) as run, stop_on_signal() as end:
    print(run.id, flush=True)
    while True:  # a step that takes long
        time.sleep(0.05)
"""
PATIENCE = 240_000  #: milliseconds; how long a training takes to start says how busy the machine is


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("runs") / "workspace")


@pytest.fixture(scope="module")
def url(place: Workspace) -> Iterator[str]:
    with running_web(place, store_wait_s=0.3) as found:
        yield found


@contextmanager
def started(place: Workspace, words: str, *more: object) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """An `assay` command that makes a run; the process, and the run's id once it is written down."""
    before = {path.name for path in place.runs.iterdir()}
    command = [sys.executable, "-m", "assay.cli", *words.split(), *map(str, more), "-w", str(place.root)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE / 1000
        while not (new := [p for p in place.runs.glob("*/metrics.jsonl") if p.parent.name not in before]):
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline, "no run"
            time.sleep(0.05)
        yield process, new[0].parent.name
    finally:
        process.kill()
        process.communicate()


def pairs_file(path: Path, count: int) -> Path:
    rng = random.Random(count)
    words = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]
    pairs = []
    for number in range(count):
        text = " ".join(rng.choices(words, k=4))
        pairs.append(
            PreferencePair((Message("user", f"Name {number}."),), f"{text}!", f"{text}?", source="ab"[number % 2])
        )
    write_pairs(path, pairs)
    return path


def rows_of(place: Workspace, run: str) -> list[dict[str, Any]]:
    return [parse_object(line) for _, line in Lines(place.runs / run / "metrics.jsonl")]


def newest_step(page: Page) -> int:
    told = page.get_by_role("img", name=re.compile("^Loss by step")).get_attribute("aria-label") or ""
    return int(re.findall(r" at ([\d,]+)", told)[1].replace(",", ""))


def watch(page: Page, run: str) -> int:
    """See the curves of a run grow; the newest step that was seen."""
    page.get_by_role("img", name=re.compile("^Loss by step.* from .* at 1 to ")).wait_for(timeout=PATIENCE)
    seen = newest_step(page)
    deadline = time.monotonic() + PATIENCE / 1000
    while newest_step(page) <= seen:
        assert time.monotonic() < deadline, "the curves stand still"
        page.wait_for_timeout(100)
    return newest_step(page)


def stop(page: Page) -> None:
    page.get_by_role("button", name="Stop the run").click()
    asked = page.get_by_role("dialog", name="Stop the run?")
    asked.get_by_text("saves a checkpoint").wait_for()
    check_accessible(page)
    asked.get_by_role("button", name="Stop the run").click()
    asked.wait_for(state="hidden")


@pytest.mark.slow
@pytest.mark.browser
def test_a_training_is_watched_ended_and_gone_on_with(
    place: Workspace, url: str, browser: Browser, tmp_path: Path
) -> None:
    data, held = pairs_file(tmp_path / "train.jsonl", 32), pairs_file(tmp_path / "held.jsonl", 20)
    asked = "train bt --base tiny --batch-size 8 --lr 0.003 --eval-every 5 --epochs 100000 --device cpu --name watched"
    with started(place, asked, "--data", data, "--eval-data", held) as (process, run), opened(browser, url) as page:
        page.goto("/runs?kind=train&status=running")
        row = page.get_by_role("row", name=re.compile("watched"))
        row.get_by_text("running").wait_for()
        row.get_by_role("cell", name=re.compile(r"^step \d+, loss")).wait_for(timeout=PATIENCE)
        screenshot(page, "runs-list-running")
        row.get_by_role("link", name="watched").click()
        watch(page, run)
        page.get_by_role("img", name=re.compile("^Accuracy by step.*held-out: from")).wait_for()
        page.get_by_role("img", name=re.compile("^Accuracy by source, over the run")).wait_for()
        page.get_by_text("A reward model reads pairs and writes none").wait_for()
        check_accessible(page)
        page.get_by_role("button", name="Loss: table of numbers").click()
        table = page.get_by_role("group", name="Loss, numbers")
        assert table.get_by_role("columnheader").all_inner_texts() == ["step", "training", "held-out"]
        screenshot(page, "run-training-live")
        stop(page)
        page.get_by_text("It was ended before its time").wait_for(timeout=PATIENCE)
        page.get_by_text("ada asked for its end").wait_for()
        page.get_by_text(f"assay train bt --resume {run}", exact=True).wait_for()
        check_accessible(page)
        screenshot(page, "run-interrupted")
        assert process.wait(PATIENCE / 1000) == 130
        steps = [row["step"] for row in rows_of(place, run) if row["kind"] == "train"]
        with started(place, f"train bt --resume {run}") as (again, later):
            page.goto(f"/runs/{later}")
            assert watch(page, later) > steps[-1]
            page.get_by_role("tab", name="Lineage").click()
            page.get_by_role("region", name="Inputs").get_by_role("link", name="train, interrupted").click()
            page.get_by_text("It is resumed in").wait_for()
            page.goto("/runs?status=interrupted")
            row = page.get_by_role("row", name=run)
            row.get_by_role("cell", name=re.compile(rf"^step {steps[-1]}, loss")).wait_for(timeout=PATIENCE)
            with signed_in(url) as client:
                assert client.post(f"/api/runs/{later}/stop", json={}).status_code == 200
            assert again.wait(PATIENCE / 1000) == 130
        found = [row["step"] for row in rows_of(place, later) if row["kind"] == "train"]
    assert found == list(range(1, len(found) + 1)), "it went on after the very step it was ended at"
    assert len(found) > len(steps)


@pytest.mark.slow
@pytest.mark.browser
def test_a_policy_training_is_watched_ended_and_gone_on_with(place: Workspace, url: str, browser: Browser) -> None:
    asked = "rl --recipe grpo --reward verifier --watch verifier --policy tiny --steps 4000 --prompts constrained:8 "
    asked += "--prompts-per-step 2 --group-size 4 --max-new-tokens 8 --name policy --set checkpoint_every=0"
    with started(place, asked) as (process, run), opened(browser, url) as page:
        page.goto(f"/runs/{run}")
        watch(page, run)
        for title in (
            "Verifier pass rate",
            "KL to the starting policy",
            "Entropy",
            "Response length",
            "Clipped tokens",
        ):
            page.get_by_role("img", name=re.compile(f"^{title}")).wait_for()
        for section in ("Reward", "Over-optimisation", "Sampler and trainer", "Time"):
            page.get_by_role("region", name=section, exact=True).wait_for()
        page.get_by_role("progressbar", name="Share of the planned steps").wait_for()
        check_accessible(page)
        screenshot(page, "run-policy-live", full_page=True)
        page.get_by_role("tab", name="Samples").click()
        page.get_by_text(re.compile(r"8 rollouts of step \d+, the newest")).wait_for()
        page.get_by_label("Step", exact=True).first.fill("2")
        page.get_by_text("8 rollouts of step 2").wait_for()
        assert page.get_by_role("table", name="Rollouts").get_by_role("row").count() == 9
        check_accessible(page)
        screenshot(page, "run-samples")
        stop(page)
        page.get_by_text(f"assay rl --resume {run}", exact=True).wait_for(timeout=PATIENCE)
        assert process.wait(PATIENCE / 1000) == 130
        steps = len(rows_of(place, run))
        with started(place, f"rl --resume {run}") as (again, later):
            page.goto(f"/runs/{later}")
            assert watch(page, later) > steps
            again.kill()  # without a word: the page finds out
            page.get_by_text("Its process is gone without a word").wait_for(timeout=PATIENCE)
        assert [row["step"] for row in rows_of(place, later)] == list(range(1, len(rows_of(place, later)) + 1))
        page.goto(f"/runs/compare?run={run}&run={later}")
        page.get_by_text(re.compile(r"settings are the same")).wait_for()
        name = re.compile(f"^Reward by step.*{run[-6:]}: from.*{later[-6:]}: from")
        page.get_by_role("img", name=name).wait_for()
        check_accessible(page)
        screenshot(page, "runs-compared", full_page=True)


@pytest.mark.slow
@pytest.mark.browser
def test_a_run_that_is_at_a_long_step_is_shown_ending_and_can_be_ended_at_once(
    place: Workspace, url: str, browser: Browser
) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(place.root)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        run = process.stdout.readline().strip()
        with opened(browser, url, color_scheme="dark") as page, signed_in(url, "bob") as bob:
            page.goto(f"/runs/{run}")
            page.get_by_text("Nothing was measured yet").wait_for()
            stop(page)
            page.get_by_text("ada asked for its end").wait_for()
            check_accessible(page)
            screenshot(page, "run-ending-dark")
            assert bob.get("/api/runs", params={"text": run}).json()["runs"][0]["status"] == "ending"
            # Asked by somebody else as well: that is no second request, which would not wait for the step.
            assert bob.post(f"/api/runs/{run}/stop", json={}).json()["by"] == "ada"
            time.sleep(0.2)
            assert process.poll() is None
            page.get_by_role("button", name="End at once").click()
            page.get_by_role("dialog").get_by_text("loses what it did since its last checkpoint").wait_for()
            page.get_by_role("dialog").get_by_role("button", name="End at once").click()
            page.get_by_text("Nothing was saved to resume from").wait_for()
            assert process.wait(PATIENCE / 1000) != 0
            with Workspace.open(place.root).store.unit() as db:
                told = db.execute("SELECT status, error FROM runs WHERE run_id = ?", [run]).fetchone()
            assert told == ("interrupted", "KeyboardInterrupt")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with signed_in(url) as found:
        yield found


def test_a_process_that_may_not_be_the_runs_is_not_asked_to_end(place: Workspace, client: httpx.Client) -> None:
    with start_run(place, "train", {"name": "ours"}) as run:
        path = run.folder / FILE
        ours = process_of(run.folder)
        assert ours is not None
        assert ours.birth is not None
        for other, said in (
            (replace(ours, birth=f"{ours.birth}0"), "another has its number"),
            (replace(ours, host="elsewhere"), "the run is on elsewhere"),
            (replace(ours, status="done"), "the run has ended: done"),
        ):
            path.write_text(json.dumps(asdict(other)))
            with place.store.unit() as db:
                db.execute("UPDATE runs SET status = 'running', error = NULL WHERE run_id = ?", [run.id])
            refused = client.post(f"/api/runs/{run.id}/stop", json={})
            assert refused.status_code == 409
            assert said in refused.json()["detail"]
            shown = client.get(f"/api/runs/{run.id}").json()
            # Of another machine's process nothing is known here.
            expected = "running" if other.host == "elsewhere" else "done" if other.status == "done" else "interrupted"
            assert (shown["run"]["status"], shown["can_stop"]) == (expected, False)
        path.write_text(json.dumps(asdict(ours)))
        assert client.get(f"/api/runs/{run.id}").json()["can_stop"]
    assert not client.get(f"/api/runs/{run.id}").json()["can_stop"]
    assert not (run.folder / "stop.json").exists()
    for strange in ("run-20200101-000000-aaaaaa", "..%2F..%2Fetc"):
        assert client.post(f"/api/runs/{strange}/stop", json={}).status_code in (404, 405, 422)
        assert client.get(f"/api/runs/{strange}/curves").status_code in (404, 422)


def test_warnings_stand_beside_the_figures_once(place: Workspace, client: httpx.Client) -> None:
    with start_run(place, "train", {"name": "warned"}) as run:
        run.metrics.update({"accuracy": 1.0, "warnings": ["the figures rest on 2 pairs, fewer than 30"]})
    shown = client.get(f"/api/runs/{run.id}").json()
    assert shown["run"]["warnings"] == ["the figures rest on 2 pairs, fewer than 30"]
    assert [figure["name"] for figure in shown["figures"]] == ["accuracy"]


def test_only_curators_end_runs(workspace: Workspace) -> None:
    cheap = PasswordCost(passes=1, memory_kib=256, lanes=1)
    with AccessFile(workspace.root / ACCESS) as access:
        for name, role in (("grace", "annotator"), ("edsger", "curator")):
            add_account(access, Passwords(cheap), name, role, "a long password", by="test")  # type: ignore[arg-type]
    with (
        running_web(workspace, open_access=False, password_cost=cheap) as url,
        start_run(workspace, "train", {}) as run,
    ):
        path = run.folder / FILE
        path.write_text(path.read_text().replace('"running"', '"done"'))  # so that nobody's signal comes here
        for name, seen, status in (("grace", 403, 403), ("edsger", 200, 409)):
            with signed_in(url, name, "a long password") as client:
                assert client.get(f"/api/runs/{run.id}").status_code == seen
                assert client.post(f"/api/runs/{run.id}/stop", json={}).status_code == status


def failing(place: Workspace) -> str:
    with pytest.raises(ValueError, match="the disk"), start_run(place, "import", {"name": "broken"}) as run:
        raise ValueError("the disk is <full>")
    return run.id


@pytest.mark.slow
def test_lists_and_one_run_while_another_process_holds_the_store(place: Workspace, client: httpx.Client) -> None:
    failed = failing(place)
    found = client.get("/api/runs", params={"text": "BROK"}).json()
    assert [(run["id"], run["status"], run["error"]) for run in found["runs"]] == [
        (failed, "failed", "ValueError: the disk is <full>")
    ]
    with start_run(place, "rl", {"name": "mine", "recipe": {"steps": 4}}) as run:
        (run.folder / "metrics.jsonl").write_text(
            '{"step": 1, "rollouts": 2, "reward_mean": 0.5}\n{"step": 2, "rollouts": 2, "reward_mean": 0.75}\n{"ste'
        )
        assert client.get(f"/api/runs/{run.id}").json()["run"]["name"] == "mine"
        store = str(place.store.path)
        command = [sys.executable, "-c", HOLD, store]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            held = client.get("/api/runs").json()
            assert "held by" in held["held"]
            shown = {row["id"]: row for row in held["runs"]}
            assert (shown[failed]["status"], shown[run.id]["status"], shown[run.id]["step"]) == ("failed", "running", 2)
            assert shown[run.id]["figure"] == {"label": "reward", "value": 0.75, "share": False}
            # A run that goes on is looked at without the store.
            assert client.get(f"/api/runs/{run.id}").json()["run"]["figure"]["value"] == 0.75
            assert client.get(f"/api/runs/{run.id}/curves").json()["step"]["mean"]["reward_mean"] == [0.5, 0.75]
            busy = client.get(f"/api/runs/{failed}")
            assert (busy.status_code, busy.json()["code"]) == (503, "busy")
        finally:
            holder.communicate()
    ended = client.get(f"/api/runs/{run.id}").json()
    assert (ended["run"]["status"], ended["samples"], ended["resume_command"]) == ("done", False, None)
    assert {"name": "recipe.steps", "value": "4"} in ended["config"]
    compared = client.get("/api/runs/compare", params={"run": [run.id, failed]}).json()
    assert {"name": "name", "values": ["mine", "broken"]} in compared["differences"]
    assert client.get("/api/runs/compare", params={"run": [run.id, run.id]}).status_code == 422


@pytest.mark.slow
@pytest.mark.browser
def test_a_failed_run_says_why_and_an_empty_workspace_what_to_do(
    place: Workspace, url: str, browser: Browser, workspace: Workspace
) -> None:
    failed = failing(place)
    with (
        pytest.raises(KeyboardInterrupt),
        start_run(place, "import", {"name": "a name of so many words that it would take all the width"}),
    ):
        raise KeyboardInterrupt
    with opened(browser, url, viewport={"width": 390, "height": 800}) as page:
        page.goto(f"/runs/{failed}")
        page.get_by_role("alert").get_by_text("ValueError: the disk is <full>").wait_for()
        check_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        screenshot(page, "run-failed-phone")
        page.goto("/runs")
        page.get_by_text("interrupted", exact=True).first.wait_for()
        cut = "labels => labels.filter(label => label.scrollWidth > label.clientWidth).map(label => label.innerText)"
        assert page.locator(".mantine-Badge-label").evaluate_all(cut) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        check_accessible(page)
        screenshot(page, "runs-phone")
    with running_web(workspace) as other, opened(browser, other) as page:
        page.goto("/runs")
        page.get_by_text("Nothing has run yet").wait_for()
        page.get_by_role("link", name="Train a policy").wait_for()
        check_accessible(page)
        page.goto("/runs?status=failed")
        page.get_by_text("No such run").wait_for()
