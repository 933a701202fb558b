"""From votes to a training set over HTTP and in a browser: the job that makes it, its figures, its download."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.cli.main import main
from assay.data.snapshots import get_snapshot, load_pairs
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.audit_log import read_audit
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Browser

ROWS = 60
CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"


def assay(workspace: Workspace, *arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "-w", str(workspace.root)])
    assert ended.value.code == 0, arguments


@pytest.fixture(scope="module")
def labelled(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """ROWS pairs of one source, a queue of six of them, and a benchmark that nothing was checked against."""
    folder = tmp_path_factory.mktemp("sets")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    rows = [{"prompt": f"What is {n} + {n}?", "chosen": f"{2 * n}", "rejected": f"{n}"} for n in range(1, ROWS + 1)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "bench.jsonl").write_text(json.dumps({"prompt": "Never seen?"}) + "\n")
    assay(workspace, "data", "import", folder / "sums.jsonl", "--source", "sums")
    assay(workspace, "data", "benchmarks", "add", "bench", folder / "bench.jsonl")
    assay(workspace, "queue", "create", "first", "--limit", 6, "--gold-checks", 0)
    return workspace


@pytest.fixture(scope="module")
def address(labelled: Workspace) -> Iterator[str]:
    with running_web(labelled) as url:
        yield url


def made(client: httpx.Client, **asked: Any) -> dict[str, Any]:
    """The job, ended."""
    begun = client.post("/api/jobs", json={"kind": "snapshot", "settings": asked})
    assert begun.status_code == 200, begun.text
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        job: dict[str, Any] = client.get(f"/api/jobs/{begun.json()['id']}").json()
        if job["status"] in ("done", "failed"):
            return job
        time.sleep(0.1)
    raise AssertionError("the job did not end")


def test_a_set_is_made_told_of_and_downloaded(labelled: Workspace, address: str) -> None:
    with signed_in(address) as client:
        stage = made(client, name="sums", source=["sums"], holdout=0.25, seed=3)
        assert stage["status"] == "done", stage
        assert stage["command"] == ("assay data snapshot sums --source sums --holdout 0.25 --seed 3")
        kept, out = get_snapshot(labelled, "sums"), get_snapshot(labelled, "sums-holdout")
        found = client.get("/api/training-sets/sums").json()
        told = found["made"]
        assert (told["items"], told["pairs"], told["content_hash"]) == (kept.items, kept.items, kept.content_hash)
        assert told["held_out"] == {"name": "sums-holdout", "items": out.items}
        assert kept.items + out.items == ROWS
        assert told["command"] == "assay train bt --data sums --eval-data sums-holdout"
        assert found["contamination"] == ["bench: not checked"]
        assert "not checked against benchmark 'bench'; run: assay data decontaminate" in found["stops_training"]
        assert [one["name"] for one in client.get("/api/training-sets").json()["sets"]] == ["sums"]

        reply = client.get("/api/training-sets/sums/pairs.jsonl")
        assert reply.headers["content-disposition"] == 'attachment; filename="sums.jsonl"'
        lines = [json.loads(line) for line in reply.text.splitlines()]
        pairs = load_pairs(labelled, "sums")
        assert [(line["comparison_id"], line["chosen"][0]["content"]) for line in lines] == [
            (pair.comparison_id, pair.chosen) for pair in pairs
        ]
        (download,) = read_audit(_access(labelled), subject="sums")
        assert download.action == "download_training_set"
        started = read_audit(_access(labelled), action="start_job")
        assert any("data snapshot sums" in str(line.detail) for line in started)


@pytest.mark.slow
def test_what_cannot_be_made_is_said_as_the_command_says_it(labelled: Workspace, address: str) -> None:
    with signed_in(address) as client:
        assert made(client, name="taken")["status"] == "done"
        assert made(client, name="taken")["status"] == "done", "the same content again is no error"
        taken = made(client, name="taken", holdout=0.5)
        assert taken["status"] == "failed"
        assert "'taken' exists with other content, and snapshots do not change: choose a new name" in taken["why"]
        with pytest.raises(Exception, match="no snapshot 'taken-holdout'"):
            get_snapshot(labelled, "taken-holdout")
        nothing = made(client, name="nothing", pool=["silver"])
        assert "'nothing' would be empty: the pools hold 60 unverified" in nothing["why"]
        narrow = made(client, name="narrow", holdout=1e-9)
        assert "none of the 60 labelled comparisons falls to its share" in narrow["why"]
        for wrong in ({"name": "../x"}, {"name": "x", "holdout": 1.0}, {"name": "x", "pool": ["--pool"]}, {"nam": "x"}):
            assert client.post("/api/jobs", json={"kind": "snapshot", "settings": wrong}).status_code == 422
        for path in ("never", "never/pairs.jsonl"):
            assert client.get(f"/api/training-sets/{path}").status_code == 404


@pytest.mark.slow
def test_a_large_set_is_not_downloaded_but_its_command_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_web.training_sets.routes.MOST_ITEMS", 3)
    with signed_in(address) as client:
        assert made(client, name="large")["status"] == "done"
        reply = client.get("/api/training-sets/large/pairs.jsonl")
        assert reply.status_code == 422
        assert "assay data export large.jsonl --snapshot large" in reply.json()["detail"]


def test_who_may(labelled: Workspace) -> None:
    access = _access(labelled)
    for name in ("viewer", "annotator", "curator"):
        add_account(access, Passwords(CHEAP), name, name, PASSWORD, by="test")
    access.close()
    with running_web(labelled, open_access=False, password_cost=CHEAP) as url:
        asked = {"kind": "snapshot", "settings": {"name": "-x"}}
        for name, status in (("viewer", 403), ("annotator", 403), ("curator", 422)):
            with signed_in(url, name, PASSWORD) as client:
                assert client.post("/api/jobs", json=asked).status_code == status, name
                assert client.get("/api/training-sets").status_code == (403 if name == "annotator" else 200)
                downloaded = client.get("/api/training-sets/never/pairs.jsonl").status_code
                assert downloaded == (404 if name == "curator" else 403)


@pytest.mark.slow
def test_from_votes_to_a_training_set_on_the_page(labelled: Workspace, address: str, browser: Browser) -> None:
    with opened(browser, address) as page:
        page.goto("/annotate/queue/first")
        for left in range(6, 0, -1):
            page.get_by_role("button", name=re.compile("^A is better|^A\\b")).first.wait_for()
            with page.expect_response("**/votes"):
                page.keyboard.press("a")
            page.get_by_text(f"{7 - left} of 6", exact=True).wait_for()
        page.goto("/annotate")
        page.get_by_role("button", name="More for first").click()
        page.get_by_role("menuitem", name="Decide by the votes").click()
        page.get_by_role("button", name="Decide", exact=True).click()
        page.get_by_text("Written: 6 new decisions.").wait_for()
        form = page.get_by_role("form", name="Make a training set")
        assert form.get_by_label("Name").input_value() == "first-train"
        form.get_by_label("Held out").fill("0")
        check_accessible(page)
        screenshot(page, "training-set-dialog")
        form.get_by_role("button", name="Make a training set").click()
        card = page.get_by_role("region", name="Training set first-train")
        card.wait_for()
        snapshot = get_snapshot(labelled, "first-train")
        assert snapshot.pools == {"gold": 6}
        assert snapshot.content_hash in card.inner_text()
        assert "assay train bt --data first-train" in card.inner_text()
        assert "not checked against benchmark 'bench'" in card.inner_text()
        check_accessible(page)
        screenshot(page, "training-set-made")
        with page.expect_download() as downloading:
            card.get_by_role("link", name="Download").click()
        lines = Path(downloading.value.path()).read_text().splitlines()
        assert (downloading.value.suggested_filename, len(lines)) == ("first-train.jsonl", 6)
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
        with opened(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
            page.goto("/data")
            page.locator(".comparisons").wait_for()
            screenshot(page, f"data-{scheme}-{width}")
            page.get_by_role("link", name="Training sets").click()
            page.get_by_role("region", name="Training set first-train").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            check_accessible(page)
            screenshot(page, f"training-sets-{scheme}-{width}", full_page=True)


def _access(workspace: Workspace) -> AccessFile:
    return AccessFile(workspace.root / FILE)
