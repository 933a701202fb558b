"""Webhooks end to end: a real receiver, events of votes and runs, retries over a restart, what is refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from annotating import cast, import_pairs, take
from web_pages import running_web, signed_in

from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue
from assay_web.accounts.access_file import FILE as ACCESS
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost
from assay_web.webhooks.event import Alert, emit
from assay_web.webhooks.sender import signature
from assay_web.webhooks.webhook_file import FILE

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"


@dataclass
class Receiver:
    """`status`: that it answers. `taken`: (headers, body) of each request."""

    url: str
    status: int = 204
    location: str | None = None
    taken: list[tuple[dict[str, str], str]] = field(default_factory=list)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [payload for _, body in self.taken if (payload := json.loads(body))["type"] == kind]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            receiver.taken.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(receiver.status)
            if receiver.location is not None:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/hook?from=assay")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def until(condition: Callable[[], Any], patience_s: float = 60) -> Any:
    deadline = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def make(client: httpx.Client, url: str, *events: str, private: bool = True) -> tuple[str, str]:
    body = {"url": url, "events": list(events), "private": private}
    reply = client.post("/api/webhooks", json=body).raise_for_status().json()
    return reply["secret"], reply["webhook"]["id"]


def deliveries(client: httpx.Client, webhook: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/api/webhooks/{webhook}/deliveries").json()["deliveries"]
    return found


def test_votes_decisions_and_runs_are_told_signed_and_once(workspace: Workspace) -> None:
    ids = import_pairs(workspace, 4)
    with receiving() as receiver, running_web(workspace, webhooks_every_s=0.2) as url, signed_in(url) as client:
        kinds = ("queue.progress", "queue.done", "decisions.made", "run.ended", "alert")
        secret, webhook = make(client, receiver.url, *kinds)
        client.post(f"/api/webhooks/{webhook}/test").raise_for_status()
        until(lambda: receiver.events("ping"))
        headers, body = receiver.taken[0]
        expected = signature(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body)
        assert headers["webhook-signature"] == expected
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
        until(lambda: (workspace.root / FILE).is_file() and noted(workspace))
        assert not receiver.events("run.ended"), "the import was before the webhook"

        create_queue(workspace, "first", [QueueItem(c) for c in ids], gold_checks=0.0, run_id=None)
        for _ in ids:
            item = take(client, "first")["item"]
            cast(client, "first", item, "ada", choice="first").raise_for_status()
            # Deliveries run side by side: the end may arrive before the progress that was told first.
            until(lambda: receiver.events("queue.progress"))
        [done] = until(lambda: receiver.events("queue.done"))
        expected_data = {"queue": "first", "project": "default", "items": 4, "votes": 4, "conflicts": 0}
        assert done["data"] == expected_data
        client.post("/api/queues/first/resolution", json={}).raise_for_status()
        [decided] = until(lambda: receiver.events("decisions.made"))
        assert decided["data"]["kind"] == "queue-resolve"
        assert sum(decided["data"]["pools"].values()) == 4
        with pytest.raises(ValueError, match="broken"), start_run(workspace, "train", {}):
            raise ValueError("broken")
        ended = until(lambda: [e for e in receiver.events("run.ended") if e["data"]["kind"] == "train"])
        assert (ended[0]["data"]["status"], len(ended)) == ("failed", 1)
        assert emit(workspace, Alert("run-1", "kl", "KL 12.4 is above 10")) == 1
        assert until(lambda: receiver.events("alert"))[0]["data"]["rule"] == "kl"
        names = [headers["webhook-id"] for headers, _ in receiver.taken]
        assert len(set(names)) == len(names), "nothing was told twice"
        assert all("ada" not in body for _, body in receiver.taken[1:]), "nobody's name"


def noted(workspace: Workspace) -> bool:
    from assay_web.webhooks.webhook_file import WebhookFile

    with WebhookFile(workspace.root / FILE) as file:
        return "begun" in file.noted()


@pytest.mark.slow
def test_what_was_refused_is_sent_again_after_a_restart_and_the_log_says_why(workspace: Workspace) -> None:
    with receiving() as receiver:
        receiver.status = 503
        with running_web(workspace) as url, signed_in(url) as client:
            _, webhook = make(client, receiver.url, "alert")
            emit(workspace, Alert("run-1", "kl", "too high"))
            [waiting] = until(lambda: [d for d in deliveries(client, webhook) if d["attempts"]])
            assert (waiting["state"], waiting["status"]) == ("waiting", 503)
            assert waiting["error"] == "the receiver answered 503"
            assert waiting["address"] == "127.0.0.1"
        receiver.status = 200
        with running_web(workspace) as url, signed_in(url) as client:
            [sent] = until(lambda: [d for d in deliveries(client, webhook) if d["state"] == "delivered"])
            assert (sent["id"], sent["attempts"]) == (waiting["id"], 2)
            assert len({headers["webhook-id"] for headers, _ in receiver.taken}) == 1, "it can be told"

            receiver.status, receiver.location = 302, "http://127.0.0.1:1/elsewhere"
            client.post(f"/api/webhooks/{webhook}/test").raise_for_status()
            redirected = until(lambda: [d for d in deliveries(client, webhook) if d["status"] == 302])
            assert "not followed" in redirected[0]["error"]
            receiver.status, receiver.location = 410, None
            client.post(f"/api/webhooks/deliveries/{redirected[0]['id']}/again").raise_for_status()
            until(lambda: client.get("/api/webhooks").json()["webhooks"][0]["ended"])
            assert emit(workspace, Alert("run-1", "kl", "again")) == 0
            client.delete(f"/api/webhooks/{webhook}").raise_for_status()
            assert client.get("/api/webhooks").json()["webhooks"] == []


def test_who_may_make_webhooks_and_where(workspace: Workspace) -> None:
    with AccessFile(workspace.root / ACCESS) as access:
        add_account(access, Passwords(CHEAP), "ada", "admin", PASSWORD, by="test")
        add_account(access, Passwords(CHEAP), "cora", "curator", PASSWORD, by="test")
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        with signed_in(url, "cora", PASSWORD) as cora:
            assert cora.get("/api/webhooks").status_code == 403
            body = {"url": "https://example.org/", "events": ["alert"]}
            assert cora.post("/api/webhooks", json=body).status_code == 403
        with signed_in(url, "ada", PASSWORD) as ada:
            for address in ("https://127.0.0.1/", "https://localhost/", "http://127.0.0.1/", "https://[::1]/"):
                refused = ada.post("/api/webhooks", json={"url": address, "events": ["alert"]})
                assert refused.status_code == 422, address
            metadata = {"url": "http://169.254.169.254/latest", "events": ["alert"], "private": True}
            assert ada.post("/api/webhooks", json=metadata).status_code == 422
            assert ada.post("/api/webhooks", json={"url": url, "events": ["vote"], "private": True}).status_code == 422
            secret, webhook = make(ada, f"{url}/api/session", "alert")
            listed = ada.get("/api/webhooks").text + ada.get("/api/audit").text
            assert secret not in listed
            assert webhook in listed
    assert (workspace.root / FILE).stat().st_mode & 0o777 == 0o600
