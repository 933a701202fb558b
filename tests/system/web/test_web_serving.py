"""Serving from the page: real `assay serve` processes that outlive the web server, swaps under load, keys."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from web_pages import check_looks, opened, running_web, signed_in

from assay.runs.record import start_run
from assay.system.hash_chain import check_audit_log
from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE as ACCESS
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.served.endpoint import endpoints_of
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
RULE = """kind: composed
parts: [{{name: brief, constraints: [{{kind: max_words, limit: {words}}}], measure: passed}}]
combine: {{kind: weighted_sum, weights: {{brief: 1}}}}
"""
ENDPOINTS = "/api/rewards/endpoints"


@pytest.fixture
def place(workspace: Workspace) -> Iterator[Workspace]:
    """A workspace with two reward models that need no torch: 1 for at most three words, and for at most five. What
    serves when a test ends is killed."""
    with start_run(workspace, "compose", {}) as run:
        for name, words in (("brief", 3), ("longer", 5)):
            file = workspace.models / f"{name}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(RULE.format(words=words))
            run.add_artifact("reward_model", name, file, content_hash=name)
    try:
        yield workspace
    finally:
        for endpoint in endpoints_of(workspace):
            if endpoint.process.is_alive():
                os.killpg(endpoint.process.pid, signal.SIGKILL)


def until(condition: Callable[[], Any], patience_s: float = 120) -> Any:
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value


def endpoint(client: httpx.Client, number: int = 0) -> dict[str, Any]:
    [*listed] = client.get(ENDPOINTS).raise_for_status().json()["endpoints"]
    found: dict[str, Any] = listed[number]
    return found


def ready(client: httpx.Client) -> dict[str, Any] | None:
    now = endpoint(client)
    assert now["state"] in ("starting", "ready"), (now["state"], now["why"])
    return now if now["state"] == "ready" else None


def test_a_served_model_outlives_the_web_server_and_is_swapped_without_a_refused_request(place: Workspace) -> None:
    with running_web(place) as url, signed_in(url) as client:
        listed = client.get(ENDPOINTS).json()
        assert {model["name"] for model in listed["models"]} == {"brief", "longer"}
        assert client.post(ENDPOINTS, json={"model": "none of ours"}).status_code == 404
        assert client.post(ENDPOINTS, json={"model": "brief", "name": "--host"}).status_code == 422
        started = client.post(ENDPOINTS, json={"model": "brief", "name": "rule"}).raise_for_status().json()
        assert started["state"] == "starting"
        assert started["command"] == "assay serve brief --name rule --port 0"
        made = client.post("/api/rewards/keys", json={"name": "trainer", "days": 1}).raise_for_status().json()
        assert client.post("/api/rewards/keys", json={"name": "trainer"}).status_code == 422, "the name is taken"
        now = until(lambda: ready(client))
        assert now["kind"] == "composed"
        assert made["secret"] not in client.get("/api/rewards/keys").text
        [served] = client.get("/api/rewards/served").json()["servers"]
        assert [model["name"] for model in served["models"]] == ["rule"], "the playground has it by itself"

    [kept] = endpoints_of(place)
    assert (kept.folder / "key").stat().st_mode & 0o777 == 0o600
    with running_web(place) as url, signed_in(url) as client:
        again = endpoint(client)
        assert (again["id"], again["state"], again["url"]) == (now["id"], "ready", now["url"])
        address = again["url"]
        question = {
            "prompt": [{"role": "user", "content": "Which metal?"}],
            "responses": ["Gold of course", "Gold of course my friend"],
            "models": [{"address": address, "model": "rule"}],
        }
        with requests_of(address, made["secret"]) as statuses:
            client.post(f"{ENDPOINTS}/{now['id']}/swap", json={"model": "longer"}).raise_for_status()
            swapped = until(lambda: (e := endpoint(client))["swap"]["state"] != "loading" and e)
            until(lambda: len(statuses) > 3)
        assert (swapped["swap"]["state"], swapped["model"]) == ("done", "longer"), swapped["swap"]
        assert swapped["version"] != now["version"]
        assert set(statuses) == {200}
        reply = client.post("/api/rewards/playground", json=question).raise_for_status().json()
        assert [score["reward"] for score in reply["columns"][0]["scores"]] == [1.0, 1.0]

        client.delete("/api/rewards/keys/trainer").raise_for_status()
        until(lambda: httpx.get(f"{address}/v1/models", headers=bearer(made["secret"])).status_code == 401, 10)
        client.post(f"{ENDPOINTS}/{now['id']}/stop").raise_for_status()
        stopped = until(lambda: (e := endpoint(client))["state"] == "stopped" and e)
        assert stopped["why"] == "stopped by ada"
        assert client.get("/api/rewards/served").json()["servers"] == []
        assert client.post("/api/rewards/playground", json=question).status_code == 404
        assert client.post(f"{ENDPOINTS}/{now['id']}/stop").status_code == 409
        actions = client.get("/api/audit").json()["actions"]
        assert {"start_serving", "swap_served_model", "stop_serving", "make_serving_key", "revoke_serving_key"} <= set(
            actions
        )
        assert made["secret"] not in client.get("/api/audit").text
    state = check_audit_log(place.root)
    assert state is not None
    assert state.broken is None


@contextmanager
def requests_of(url: str, key: str) -> Iterator[list[int]]:
    """The statuses of scoring requests that are sent without a pause while the block runs."""
    statuses: list[int] = []
    over = threading.Event()

    def send() -> None:
        with httpx.Client(headers=bearer(key)) as client:
            while not over.is_set():
                body = {"prompt": "Which metal?", "responses": [f"Gold {len(statuses)}"]}
                statuses.append(client.post(f"{url}/v1/score", json=body, timeout=60).status_code)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_says_why_and_roles_hold(place: Workspace) -> None:
    (place.models / "brief.yaml").write_text("kind: composed\nparts: []\n")
    with AccessFile(place.root / ACCESS) as access:
        for name, role in (("cora", "curator"), ("vera", "viewer"), ("nora", "annotator"), ("ada", "admin")):
            add_account(access, Passwords(CHEAP), name, role, PASSWORD, by="test")  # type: ignore[arg-type]
    with running_web(place, open_access=False, password_cost=CHEAP) as url:
        with signed_in(url, "vera", PASSWORD) as vera, signed_in(url, "nora", PASSWORD) as nora:
            assert vera.get(ENDPOINTS).status_code == 200
            assert vera.post(ENDPOINTS, json={"model": "brief"}).status_code == 403
            assert vera.get("/api/rewards/keys").status_code == 403
            assert nora.get(ENDPOINTS).status_code == 403
        with signed_in(url, "cora", PASSWORD) as cora, signed_in(url, "ada", PASSWORD) as ada:
            admin_key = {"name": "root", "scope": "admin"}
            assert cora.post("/api/rewards/keys", json=admin_key).status_code == 403, "no admin's key for a curator"
            ada.post("/api/rewards/keys", json=admin_key).raise_for_status()
            assert cora.delete("/api/rewards/keys/root").status_code == 403
            cora.post(ENDPOINTS, json={"model": "brief", "port": 0}).raise_for_status()
            failed = until(lambda: (e := endpoint(cora))["state"] == "failed" and e)
            assert "brief.yaml" in failed["why"], failed["why"]
            log = cora.get(f"{ENDPOINTS}/{failed['id']}/log").json()["text"]
            assert failed["why"] in log


def test_an_endpoint_that_was_killed_is_not_said_to_run(place: Workspace, tmp_path: Path) -> None:
    with running_web(place) as url, signed_in(url) as client:
        client.post(ENDPOINTS, json={"model": "brief"}).raise_for_status()
        [started] = endpoints_of(place)
        os.killpg(started.process.pid, signal.SIGKILL)
        gone = until(lambda: (e := endpoint(client))["state"] == "stopped" and e)
        assert gone["why"] == "its process was ended from outside"


@pytest.mark.slow
@pytest.mark.browser
def test_a_model_is_served_scored_and_stopped_with_the_mouse(place: Workspace, browser: Browser) -> None:
    """Also the other pages of access for programs: nothing sticks out of them, and axe finds nothing."""
    with running_web(place) as url, opened(browser, url) as page:
        page.goto("/rewards/served?model=brief")
        page.get_by_text("assay serve brief --name brief --port 0").wait_for()
        page.get_by_role("button", name="Serve it", exact=True).click()
        card = page.get_by_role("region", name="Served as brief")
        card.get_by_text("ready", exact=True).wait_for()
        check_looks(page, "served")
        card.get_by_role("link", name="Try it in the playground").click()
        page.get_by_label("Message 1", exact=True).fill("Which metal?")
        page.get_by_label("Response 1", exact=True).fill("Gold.")
        page.get_by_role("button", name="Score", exact=True).click()
        page.get_by_role("table").get_by_text("1.00").first.wait_for()
        page.goto("/rewards/served")
        card.get_by_role("button", name="Stop serving").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop serving").click()
        card.get_by_text("stopped by ada").wait_for()
        page.goto("/access/webhooks")
        page.get_by_role("textbox", name="Tell the program at").fill("http://127.0.0.1:9/hook")
        page.get_by_role("checkbox", name="It may be at a private address").check()
        page.get_by_role("button", name="Make the webhook").click()
        page.get_by_role("textbox", name="Secret").wait_for()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Send a test").click()
        page.get_by_text("no connection").wait_for()
        check_looks(page, "webhooks")
