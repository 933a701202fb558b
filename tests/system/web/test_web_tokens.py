"""API tokens of people over real HTTP: what they may, what they never may, and when they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from web_pages import running_web, signed_in

from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import Role, add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
ROLES: dict[str, Role] = {"ada": "admin", "cora": "curator", "nora": "annotator", "vera": "viewer"}


@pytest.fixture
def url(workspace: Workspace) -> Iterator[str]:
    with AccessFile(workspace.root / FILE) as access:
        for name, role in ROLES.items():
            add_account(access, Passwords(CHEAP), name, role, PASSWORD, by="test")
    with running_web(workspace, open_access=False, password_cost=CHEAP) as found:
        yield found


@contextmanager
def program(url: str, token: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


def make(client: httpx.Client, role: Role, **body: object) -> tuple[str, str]:
    reply = client.post("/api/tokens", json={"label": "a script", "role": role, **body}).raise_for_status().json()
    return reply["secret"], reply["token"]["id"]


def test_a_token_acts_in_its_persons_name_and_the_log_says_which(workspace: Workspace, url: str) -> None:
    with signed_in(url, "cora", PASSWORD) as cora, signed_in(url, "ada", PASSWORD) as ada:
        secret, token_id = make(cora, "curator")
        with program(url, secret) as bot:
            assert bot.get("/api/session").json()["name"] == "cora"
            bot.post("/api/rewards/keys", json={"name": "trainer"}).raise_for_status()  # no CSRF token
        listed = cora.get("/api/tokens").json()["tokens"]
        assert [each["id"] for each in listed] == [token_id]
        assert listed[0]["used_at"] is not None
        [line] = ada.get("/api/audit", params={"action": "make_serving_key"}).json()["lines"]
        assert (line["person"], json.loads(line["detail"])["token"]) == ("cora", token_id)
        assert ada.get("/api/tokens?everybody=true").json()["tokens"][0]["name"] == "cora"
        assert cora.get("/api/tokens?everybody=true").status_code == 403
        for stored in (workspace.root / FILE, workspace.root / f"{FILE}-wal"):
            assert secret.encode() not in stored.read_bytes(), "only its hash is kept"


def test_a_token_never_may_more_than_its_person(url: str) -> None:
    with signed_in(url, "nora", PASSWORD) as nora, signed_in(url, "ada", PASSWORD) as ada:
        for role in ("viewer", "curator", "admin"):
            refused = nora.post("/api/tokens", json={"label": "more", "role": role})
            assert refused.status_code == 403, "an annotator's program may not read records either"
        assert nora.post("/api/tokens", json={"label": "x", "role": "annotator", "name": "ada"}).status_code == 422
        less, _ = make(ada, "viewer")
        full, _ = make(ada, "admin")
        with program(url, less) as bot:
            assert bot.get("/api/comparisons").status_code == 200
            assert bot.post("/api/queues", json={"name": "first"}).status_code == 403
            assert bot.get("/api/accounts").status_code == 403
        with program(url, full) as bot:
            assert bot.get("/api/accounts").status_code == 200
            for method, path, body in (
                ("POST", "/api/tokens", {"label": "a child", "role": "admin"}),
                ("GET", "/api/tokens", None),
                ("DELETE", "/api/session", None),
                ("PUT", "/api/session/password", {"current": PASSWORD, "new": "another long one"}),
            ):
                assert bot.request(method, path, json=body).status_code == 403, (method, path)


def test_a_token_ends_with_its_revocation_its_time_its_account_and_its_role(workspace: Workspace, url: str) -> None:
    with signed_in(url, "ada", PASSWORD) as ada, signed_in(url, "cora", PASSWORD) as cora:
        revoked, revoked_id = make(cora, "curator")
        brief, _ = make(cora, "curator", days=1e-7)
        kept, _ = make(cora, "curator")
        statuses = {name: program_status(url, token) for name, token in {"revoked": revoked, "kept": kept}.items()}
        assert set(statuses.values()) == {200}
        with signed_in(url, "vera", PASSWORD) as vera:
            assert vera.delete(f"/api/tokens/{revoked_id}").status_code == 404, "another's"
        cora.delete(f"/api/tokens/{revoked_id}").raise_for_status()
        assert program_status(url, revoked) == 401
        assert program_status(url, brief) == 401
        assert program_status(url, kept[:-1]) == 401
        assert program_status(url, "assay_pat_") == 401
        ada.patch("/api/accounts/cora", json={"role": "viewer"}).raise_for_status()
        with program(url, kept) as bot:
            assert bot.get("/api/comparisons").status_code == 200
            assert bot.post("/api/queues", json={"name": "first"}).status_code == 403, "with the next request"
        ada.patch("/api/accounts/cora", json={"disabled": True}).raise_for_status()
        assert program_status(url, kept) == 401
        ada.patch("/api/accounts/cora", json={"disabled": False}).raise_for_status()
        assert program_status(url, kept) == 401, "a token of before does not come back"
        viewing, _ = make(ada, "viewer")
        ada.patch("/api/accounts/vera", json={"role": "admin"}).raise_for_status()
    with signed_in(url, "vera", PASSWORD) as vera:
        vera.patch("/api/accounts/ada", json={"role": "annotator"}).raise_for_status()
    assert program_status(url, viewing) == 401, "what annotators may not read, no program of theirs may"
    with httpx.Client(base_url=url, headers={"Authorization": "Basic YTpi"}) as proxied:
        assert proxied.get("/api/session").status_code == 200, "another scheme is a proxy's"


def program_status(url: str, token: str) -> int:
    with program(url, token) as bot:
        return bot.get("/api/session").status_code
