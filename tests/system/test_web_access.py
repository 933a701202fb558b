"""Who may do what on the web server, over real HTTP and in a real browser."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import pytest
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
    with running_web(workspace, session_idle_s=1.0) as url, signed_in(url) as client:
        assert client.get("/api/session").json()["name"] == "ada"
        time.sleep(1.1)
        assert client.get("/api/session").json()["name"] is None


@pytest.mark.browser
def test_somebody_signs_in_and_out(workspace: Workspace, browser: Browser) -> None:
    with running_web(workspace) as url, opened(browser, url, name=None) as page:
        page.goto("/")
        page.get_by_label("Name").fill("ada")
        check_accessible(page)
        screenshot(page, "sign-in")
        page.get_by_role("button", name="Begin").click()
        page.get_by_role("navigation", name="Areas").wait_for()
        check_accessible(page)
        page.get_by_role("button", name="Signed in as ada, admin").click()
        page.get_by_role("menuitem", name="Sign out").click()
        page.get_by_label("Name").wait_for()
