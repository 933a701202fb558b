"""Who may do what on the web server, over real HTTP and in a real browser.

Passwords are hashed at little cost, which is a setting; `test_password_hashes.py` measures what ships.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.errors import ConflictError, NotFoundError
from assay.workspace import Workspace
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import anybody, person_now
from assay_web.accounts.access_file import FILE, AccessFile, digest
from assay_web.accounts.accounts import add_account, change_account, set_password
from assay_web.accounts.invitations import invite, invite_to_new_password, open_invitation, setup_token
from assay_web.accounts.passwords import Passwords
from assay_web.app import create_app
from assay_web.server.gate import SAFE_METHODS
from assay_web.settings import PasswordCost, SignInLimits, WebSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
#: Routes that change something for somebody who is not signed in: nobody else's are.
OPEN_CHANGES = {"sign_in", "accept_invitation"}
#: Routes that change nothing and are no GET for the size of what they are asked.
QUESTIONS = {"score_in_playground"}


@contextmanager
def with_accounts(workspace: Workspace, **settings: Any) -> Iterator[str]:
    """A server with the accounts ada (admin) and grace (annotator)."""
    with AccessFile(workspace.root / FILE) as access:
        passwords = Passwords(CHEAP)
        add_account(access, passwords, "ada", "admin", PASSWORD, by="test")
        add_account(access, passwords, "grace", "annotator", PASSWORD, by="test")
    with running_web(workspace, open_access=False, password_cost=CHEAP, **settings) as url:
        yield url


def test_every_route_asks_who_it_is_and_every_change_is_recorded(workspace: Workspace) -> None:
    """Of the application as it is put together: no area can forget it."""
    app = create_app(workspace)
    api = [route for route in all_routes(app) if route.path.startswith("/api")]
    described = [each["operationId"] for path in app.openapi()["paths"].values() for each in path.values()]
    assert set(described) <= {route.name for route in api}, "routes that this test does not see"
    problems = []
    for route in api:
        asked = [dependant.call for dependant in all_dependants(route.dependant)]
        guarded = any(hasattr(call, "permission") for call in asked)
        changes = bool((route.methods or set()) - SAFE_METHODS)
        if changes and not isinstance(route, AuditedRoute) and route.name not in QUESTIONS:
            problems.append(f"{route.name}: a change that is not in the audit log")
        if changes and not guarded and (anybody not in asked or route.name not in OPEN_CHANGES):
            problems.append(f"{route.name}: a change without a guard")
        if not guarded and anybody not in asked and person_now not in asked:
            problems.append(f"{route.name}: asks nobody who they are")
    assert not problems
    assert len({route.name for route in api}) == len(api)


def all_routes(router: Any) -> Iterator[APIRoute]:
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from all_routes(included)


def all_dependants(dependant: Any) -> Iterator[Any]:
    for each in dependant.dependencies:
        yield each
        yield from all_dependants(each)


def test_changes_without_the_sessions_token_are_refused(workspace: Workspace) -> None:
    with running_web(workspace) as url, signed_in(url) as client:
        del client.headers["X-CSRF-Token"]
        refused = client.delete("/api/session")
        assert refused.status_code == 403
        assert refused.json()["code"] == "forbidden"
        assert client.get("/api/session").json()["name"] == "ada"


def test_other_names_and_other_sites_are_refused(workspace: Workspace) -> None:
    with running_web(workspace) as url:
        assert httpx.get(f"{url}/api/session", headers={"Host": "assay.attacker.example"}).status_code == 403
        sent = httpx.post(f"{url}/api/session", json={"name": "eve"}, headers={"Origin": "http://attacker.example"})
        assert sent.status_code == 403
        assert not sent.cookies


def test_a_session_ends(workspace: Workspace) -> None:
    with running_web(workspace) as url, signed_in(url) as client:
        assert client.delete("/api/session").status_code == 204
        assert client.get("/api/session").json()["name"] is None
    with running_web(workspace, session_idle_s=600.0) as url, signed_in(url) as client:
        assert client.get("/api/session").json()["name"] == "ada"
        with AccessFile(workspace.root / FILE) as access, access.writing() as db:
            db.execute("UPDATE sessions SET seen_at = seen_at - 601")
        assert client.get("/api/session").json()["name"] is None


def test_a_session_begun_without_a_password_is_nobodys_where_there_are_accounts(workspace: Workspace) -> None:
    with running_web(workspace) as url, signed_in(url, "ada") as client:
        cookies = dict(client.cookies)
    with with_accounts(workspace) as url, httpx.Client(base_url=url, cookies=cookies) as client:
        assert client.get("/api/session").json()["name"] is None
        assert client.get("/api/accounts").status_code == 401


def test_the_first_administrator_and_those_invited(workspace: Workspace) -> None:
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        with httpx.Client(base_url=url) as nobody:
            assert nobody.get("/api/session").json()["first_start"] is True
        with AccessFile(workspace.root / FILE) as access:
            earlier, token = setup_token(access), setup_token(access)
            assert digest(token) in (workspace.root / FILE).read_bytes().decode("latin-1") + wal(workspace)
            assert token not in (workspace.root / FILE).read_bytes().decode("latin-1") + wal(workspace)
        with httpx.Client(base_url=url) as client:
            assert looked_at(client, earlier).status_code == 404  # the one of an earlier start
            assert looked_at(client, token).json()["role"] == "admin"
            for password, why in (("short", "10 characters"), ("ada lovelace", "beside the name")):
                refused = accepted(client, token, "Ada Lovelace", password)
                assert refused.status_code == 422
                assert why in refused.json()["detail"]
            session = accepted(client, token, " Ada Lovelace ", PASSWORD)
            assert session.json()["name"] == "Ada Lovelace"
            assert "httponly" in session.headers["set-cookie"].lower()
            assert "samesite=strict" in session.headers["set-cookie"].lower()
            assert looked_at(client, token).status_code == 404
            assert accepted(client, token, "eve", PASSWORD).status_code == 404  # once
            client.headers["X-CSRF-Token"] = session.json()["csrf"]
            link = client.post("/api/invitations", json={"role": "curator", "days": 3}).json()
            path, _, invitation = link["path"].partition("#")
            assert path == "/invitation"
        with httpx.Client(base_url=url) as client:
            assert accepted(client, invitation, "ada lovelace", PASSWORD).status_code == 409  # but for its capitals
            assert accepted(client, invitation, "grace", PASSWORD).json()["role"] == "curator"
            assert client.get("/api/accounts").status_code == 403
        with AccessFile(workspace.root / FILE) as access:
            late, _ = invite(access, "viewer", by="Ada Lovelace", days=1)
            with access.writing() as db:
                db.execute("UPDATE invitations SET expires_at = ? WHERE digest = ?", (time.time() - 1, digest(late)))
        with httpx.Client(base_url=url) as client:
            assert looked_at(client, late).status_code == 404
            assert accepted(client, late, "late", PASSWORD).status_code == 404


def wal(workspace: Workspace) -> str:
    return (workspace.root / f"{FILE}-wal").read_bytes().decode("latin-1")


def looked_at(client: httpx.Client, token: str) -> httpx.Response:
    return client.get("/api/invitation", headers={"X-Invitation": token})


def accepted(client: httpx.Client, token: str, name: str, password: str) -> httpx.Response:
    return client.post("/api/invitation", json={"token": token, "name": name, "password": password})


def test_roles_and_disabling_count_at_once(workspace: Workspace) -> None:
    with with_accounts(workspace) as url, signed_in(url, "ada", PASSWORD) as ada:
        with signed_in(url, "GRACE", PASSWORD) as grace:  # whatever the capitals
            assert grace.get("/api/session").json()["name"] == "grace"
            assert grace.get("/api/audit").status_code == 403
            assert ada.patch("/api/accounts/grace", json={"role": "admin"}).status_code == 204
            assert grace.get("/api/audit").status_code == 200
            link = grace.post("/api/invitations", json={"role": "admin"}).json()
            assert ada.patch("/api/accounts/grace", json={"role": "viewer"}).status_code == 204
            assert grace.get("/api/audit").status_code == 403
            # Whoever may invite no more has no link left either.
            assert looked_at(grace, link["path"].partition("#")[2]).status_code == 404
            assert ada.patch("/api/accounts/grace", json={"disabled": True}).status_code == 204
            assert grace.get("/api/session").json()["name"] is None
        refused = httpx.post(f"{url}/api/session", json={"name": "grace", "password": PASSWORD})
        assert (refused.status_code, refused.json()["detail"]) == (401, "wrong name or password")
        for change in ({"role": "curator"}, {"disabled": True}):
            alone = ada.patch("/api/accounts/ada", json=change)
            assert alone.status_code == 409
            assert "only administrator" in alone.json()["detail"]
        assert ada.patch("/api/accounts/nobody", json={"role": "viewer"}).status_code == 404
        lines = ada.get("/api/audit", params={"by": "ada"}).json()["lines"]
        assert [(line["action"], line["subject"]) for line in lines[:3]] == [
            ("change_account", "grace"),
            ("change_account", "grace"),
            ("change_account", "grace"),
        ]
        assert lines[0]["detail"] == '{"disabled": true}'
        assert lines[0]["address"] == "127.0.0.1"


def test_a_new_password_ends_the_other_sessions(workspace: Workspace) -> None:
    new = "another horse, another battery"
    with (
        with_accounts(workspace) as url,
        signed_in(url, "grace", PASSWORD) as here,
        signed_in(url, "grace", PASSWORD) as elsewhere,
    ):
        assert here.put("/api/session/password", json={"current": "wrong", "new": new}).status_code == 403
        assert here.put("/api/session/password", json={"current": PASSWORD, "new": "grace"}).status_code == 422
        assert here.put("/api/session/password", json={"current": PASSWORD, "new": new}).status_code == 204
        assert here.get("/api/session").json()["name"] == "grace"
        assert elsewhere.get("/api/session").json()["name"] is None
        assert httpx.post(f"{url}/api/session", json={"name": "grace", "password": PASSWORD}).status_code == 401
        with signed_in(url, "ada", PASSWORD) as ada:
            link = ada.post("/api/accounts/grace/password-link", json={}).json()["path"].partition("#")[2]
        with httpx.Client(base_url=url) as client:
            assert looked_at(client, link).json()["name"] == "grace"
            assert accepted(client, link, "", PASSWORD).json()["name"] == "grace"
        assert here.get("/api/session").json()["name"] is None


def test_signing_in_is_limited_and_says_nothing_of_who_there_is(workspace: Workspace) -> None:
    limits = SignInLimits(by_pair=3, by_address=8, refill_s=900.0)
    with with_accounts(workspace, sign_in_limits=limits) as url:
        tried = {name: [attempt(url, name, "wrong password") for _ in range(4)] for name in ("grace", "nobody")}
        for replies in tried.values():
            assert [reply.status_code for reply in replies] == [401, 401, 401, 429]
            assert int(replies[3].headers["Retry-After"]) == pytest.approx(300, abs=5)
        same = [[reply.json()["detail"][:30] for reply in replies] for replies in tried.values()]
        assert same[0] == same[1]
        assert attempt(url, "grace", PASSWORD).status_code == 429  # the right one waits as well
        assert attempt(url, "ada", PASSWORD).status_code == 200  # and takes nothing from the address
        assert [attempt(url, f"name {n}", "x").status_code for n in range(3)] == [401, 401, 429]
        with AccessFile(workspace.root / FILE) as access, access.reading() as db:
            refused = db.execute("SELECT person, subject FROM audit WHERE action = 'sign_in_refused'").fetchall()
        assert [tuple(row) for row in refused] == [("", "grace")] * 3 + [("", "")] * 5, "never what was typed"
    with running_web(workspace, open_access=False, sign_in_limits=limits, password_cost=CHEAP) as url:
        assert attempt(url, "grace", PASSWORD).status_code == 429, "a restart forgets nothing"


@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("https://annotate.example.org", "max-age=31536000"),
        ("http://annotate.example.org", None),
        ("https://localhost:8443", None),
        ("https://[::1]:8443", None),
    ],
)
def test_browsers_are_told_to_come_back_by_https(workspace: Workspace, address: str, sent: str | None) -> None:
    """A page, the API and a refusal; not by this machine's own names, for which it would count at every port."""
    app = create_app(workspace, WebSettings(allowed_hosts=("*",)))
    with TestClient(app, base_url=address) as client:
        for path in ("/", "/api/session", "/api/accounts", "/api/none"):
            assert client.get(path).headers.get("strict-transport-security") == sent


def attempt(url: str, name: str, password: str) -> httpx.Response:
    return httpx.post(f"{url}/api/session", json={"name": name, "password": password})


def test_a_hash_of_another_cost_is_made_anew(workspace: Workspace) -> None:
    with with_accounts(workspace, sign_in_limits=SignInLimits()) as url:
        attempt(url, "ada", PASSWORD).raise_for_status()
    assert "m=256,t=1" in kept_hash(workspace)
    dearer = PasswordCost(passes=2, memory_kib=512, lanes=1)
    with running_web(workspace, open_access=False, password_cost=dearer) as url:
        assert attempt(url, "ada", "wrong password").status_code == 401
        assert "m=256,t=1" in kept_hash(workspace)
        for _ in range(2):
            assert attempt(url, "ada", PASSWORD).status_code == 200
            assert "m=512,t=2" in kept_hash(workspace)


def kept_hash(workspace: Workspace) -> str:
    db = sqlite3.connect(workspace.root / FILE)
    try:
        found: str = db.execute("SELECT password FROM accounts WHERE name = 'ada'").fetchone()[0]
        return found
    finally:
        db.close()


def test_open_access_leaves_the_accounts_alone(workspace: Workspace) -> None:
    with AccessFile(workspace.root / FILE) as access:
        add_account(access, Passwords(CHEAP), "ada", "admin", PASSWORD, by="test")
        add_account(access, Passwords(CHEAP), "grace", "admin", PASSWORD, by="test")
        change_account(access, "grace", role="viewer")
        token, _ = invite(access, "viewer", by="ada", days=1)
    with running_web(workspace) as url, signed_in(url, "anybody") as client:
        assert client.get("/api/accounts").status_code == 200
        assert client.patch("/api/accounts/grace", json={"role": "admin"}).status_code == 409
        assert client.post("/api/invitations", json={"role": "admin"}).status_code == 409
        assert client.post("/api/accounts/ada/password-link", json={}).status_code == 409
        assert client.put("/api/session/password", json={"current": "", "new": PASSWORD}).status_code == 409
        assert accepted(client, token, "eve", PASSWORD).status_code == 409


@pytest.mark.slow
def test_servers_of_two_workspaces_on_one_machine_know_their_own_sessions(tmp_path: Path) -> None:
    one, two = (Workspace.create(tmp_path / name) for name in ("one", "two"))
    with running_web(one) as first, running_web(two) as second, httpx.Client() as browser:  # sends cookies to all ports
        browser.post(f"{first}/api/session", json={"name": "ada"})
        browser.post(f"{second}/api/session", json={"name": "grace"})
        assert browser.get(f"{first}/api/session").json()["name"] == "ada"
        assert browser.get(f"{second}/api/session").json()["name"] == "grace"


def test_a_name_counts_once_however_it_is_spelled(workspace: Workspace) -> None:
    limits = SignInLimits(by_pair=2, by_address=100)
    with with_accounts(workspace, sign_in_limits=limits) as url:
        with AccessFile(workspace.root / FILE) as access:
            passwords = Passwords(CHEAP)
            add_account(access, passwords, "Zo\u00e9 Roe", "viewer", PASSWORD, by="test")
            with pytest.raises(ConflictError):
                add_account(access, passwords, "Zoe\u0301  Roe", "viewer", PASSWORD, by="test")
        spellings = ("zo\u00e9 roe", "zoe\u0301 roe", "zo\u00e9   roe", " Zo\u00e9  Roe")
        told = [httpx.post(f"{url}/api/session", json={"name": n, "password": "wrong"}).status_code for n in spellings]
        assert told == [401, 401, 429, 429], "spaces and accents gave more attempts at one account"
    with running_web(workspace) as url:  # an annotator's name everywhere
        assert httpx.post(f"{url}/api/session", json={"name": "a/b"}).status_code == 422


def test_a_new_password_ends_links_that_would_set_another(workspace: Workspace) -> None:
    with AccessFile(workspace.root / FILE) as access:
        passwords = Passwords(CHEAP)
        add_account(access, passwords, "ada", "admin", PASSWORD, by="test")
        token, _ = invite_to_new_password(access, "ada", by="test", days=1)
        set_password(access, passwords, "ada", f"{PASSWORD} two")
        with pytest.raises(NotFoundError):
            open_invitation(access, token)


@pytest.mark.browser
@pytest.mark.slow
def test_somebody_signs_in_and_out(workspace: Workspace, browser: Browser) -> None:
    with running_web(workspace) as url, opened(browser, url, name=None) as page:
        page.goto("/")
        page.get_by_label("Name").fill("ada")
        check_accessible(page)
        screenshot(page, "sign-in")
        page.get_by_role("button", name="Begin").click()
        page.get_by_role("navigation", name="Areas").wait_for()
        check_accessible(page)
        page.goto("/access")
        page.get_by_text("This server runs without accounts").wait_for()
        page.get_by_text("No accounts", exact=True).wait_for()
        page.get_by_role("tab", name="Invitations").click()
        page.get_by_text("Nobody has been invited").wait_for()
        assert page.get_by_role("button", name="Make a link").count() == 0
        screenshot(page, "access-open")
        page.get_by_role("button", name="Signed in as ada, admin").click()
        page.get_by_role("menuitem", name="Sign out").click()
        page.get_by_label("Name").wait_for()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_from_the_first_link_to_the_audit_log(workspace: Workspace, browser: Browser, scheme: Any) -> None:
    from playwright.sync_api import expect

    narrow = {"viewport": {"width": 390, "height": 844}, "color_scheme": scheme}
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        with AccessFile(workspace.root / FILE) as access:
            token = setup_token(access)
        with opened(browser, url, name=None, color_scheme=scheme) as page:
            page.goto("/")
            page.get_by_text("There are no accounts yet").wait_for()
            pictured(page, f"access-first-start-{scheme}")
            accept_in(page, f"/invitation#{token}", "Ada Lovelace", f"access-invitation-{scheme}")
            page.get_by_role("link", name="Access").click()
            page.get_by_role("tab", name="Invitations").click()
            page.get_by_role("button", name="Make a link").click()
            field = page.get_by_label("Link", exact=True)
            field.wait_for()
            pictured(page, f"access-link-{scheme}")
            link = field.input_value()
            assert link.startswith(f"{url}/invitation#")
            page.keyboard.press("Escape")
            page.get_by_text("open", exact=True).wait_for()
            pictured(page, f"access-invitations-{scheme}")
            with opened(browser, url, name=None, **narrow) as phone:
                accept_in(phone, link, "Grace Hopper", f"access-invitation-phone-{scheme}")
                assert phone.get_by_role("link", name="Access").count() == 0
                phone.goto(link)  # once
                phone.get_by_text("This link cannot be used").wait_for()
                pictured(phone, f"access-used-link-phone-{scheme}")
            page.get_by_role("tab", name="Accounts").click()
            page.get_by_role("combobox", name="Role of Grace Hopper").click()
            page.get_by_role("option", name="Curator").click()
            expect(page.get_by_role("combobox", name="Role of Grace Hopper")).to_have_value("Curator")
            pictured(page, f"access-accounts-{scheme}")
            page.get_by_role("combobox", name="Role of Ada Lovelace").click()
            page.get_by_role("option", name="Viewer").click()
            page.get_by_text("is the only administrator").wait_for()
            pictured(page, f"access-only-admin-{scheme}")
            page.get_by_role("button", name="More of Grace Hopper").click()
            page.get_by_role("menuitem", name="Disable").click()
            page.get_by_role("dialog").get_by_role("button", name="Disable").click()
            page.get_by_text("disabled", exact=True).wait_for()
            page.get_by_role("tab", name="Audit log").click()
            page.get_by_role("cell", name="make invitation").wait_for()
            expect(page.get_by_role("cell", name="change account")).to_have_count(2)
            pictured(page, f"access-audit-{scheme}")
            page.get_by_role("combobox", name="Change", exact=True).click()
            page.get_by_role("option", name="make invitation").click()
            page.wait_for_url("**/access/audit?action=make_invitation")
            expect(page.get_by_role("row")).to_have_count(2)
            for tab in ("accounts", "invitations", "audit"):
                page.set_viewport_size({"width": 390, "height": 844})
                page.goto(f"/access/{tab}")
                page.get_by_role("table").wait_for()
                assert page.evaluate("document.documentElement.scrollWidth") <= 390
                pictured(page, f"access-{tab}-phone-{scheme}")


def accept_in(page: Page, link: str, name: str, picture: str) -> None:
    page.goto(link)
    page.get_by_label("Name").fill(name)
    page.get_by_label("New password").fill(f"{name}!")
    page.get_by_text("It is little more than the name").wait_for()
    pictured(page, picture)
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.get_by_role("button", name=f"Signed in as {name}").wait_for()
    assert "#" not in page.url


def pictured(page: Page, name: str) -> None:
    check_accessible(page)
    screenshot(page, name)


@pytest.mark.slow
@pytest.mark.browser
def test_a_password_is_changed_and_the_rate_limit_is_said(workspace: Workspace, browser: Browser) -> None:
    limits = SignInLimits(by_pair=2, by_address=30)
    with with_accounts(workspace, sign_in_limits=limits) as url:
        with opened(browser, url, name="grace", password=PASSWORD) as page:
            page.goto("/annotate")
            page.get_by_role("button", name="Signed in as grace, annotator").click()
            page.get_by_role("menuitem", name="Change password").click()
            page.get_by_label("Password until now").fill(PASSWORD)
            page.get_by_label("New password").fill("another horse, another battery")
            page.get_by_label("The same again").fill("another horse, another battery")
            pictured(page, "access-password")
            page.get_by_role("button", name="Change the password").click()
            page.get_by_text("Your password is changed").wait_for()
            page.goto("/access/audit")
            page.get_by_text("You are here as annotator").wait_for()
            pictured(page, "access-not-admin")
        with opened(browser, url, name=None) as page:
            page.goto("/")
            for said in ("wrong name or password", "wrong name or password", "too many attempts"):
                page.get_by_label("Name").fill("grace")
                page.get_by_role("textbox", name="Password").fill(PASSWORD)
                with page.expect_response("**/api/session"):
                    page.get_by_role("button", name="Sign in").click()
                page.get_by_role("alert").get_by_text(said).wait_for()
            pictured(page, "access-rate-limit")
