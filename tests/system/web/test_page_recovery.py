"""The page through failures: of one area, of a file that an upgrade removed, of the server."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reserved_ports import reserved_port
from web_pages import opened, running_web

from assay.workspace import Workspace
from assay_web.settings import page_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_one_failed_area_leaves_the_others(workspace: Workspace, browser: Browser) -> None:
    def broken(route: Route) -> None:
        route.fulfill(json={"runs": None, "total": 0, "kinds": None, "held": None})

    with running_web(workspace) as url, opened(browser, url) as page:
        page.route("**/api/runs?*", broken)
        page.route("**/api/runs", broken)
        page.goto("/runs")
        page.get_by_text("Runs cannot be shown").wait_for()
        page.get_by_role("link", name="Annotate").click()
        page.get_by_text("There are no queues yet").wait_for()
        page.unroute("**/api/runs?*")
        page.unroute("**/api/runs")
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("heading", name="Runs").wait_for()
        assert page.get_by_text("cannot be shown").count() == 0


@pytest.mark.slow
def test_files_that_an_upgrade_removed_reload_the_page_once(
    workspace: Workspace, browser: Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "static"
    shutil.copytree(page_folder(), folder)
    with running_web(workspace, page=folder) as url, opened(browser, url) as page:
        page.goto("/annotate")
        page.get_by_text("There are no queues yet").wait_for()
        loads: list[str] = []
        page.on("load", lambda _: loads.append("load"))
        upgrade(folder)
        with page.expect_event("load"):
            page.get_by_role("link", name="Data").click()
        page.get_by_role("heading", name="Data").wait_for()
        assert loads.count("load") == 1
        # A file that is missing for good is named, beside the areas that are there; it reloads nothing again and again.
        for file in (folder / "assets").glob("*RunsPage*.js"):
            file.unlink()
        loads.clear()
        with page.expect_event("load"):
            page.get_by_role("link", name="Runs").click()
        page.get_by_text("Runs cannot be shown").wait_for()
        assert loads.count("load") == 1
        page.get_by_role("link", name="Annotate").click()
        page.get_by_text("There are no queues yet").wait_for()


def upgrade(folder: Path) -> None:
    """Another build of the same page: every file below assets has another name."""
    files = [path for path in (folder / "assets").iterdir() if path.suffix in (".js", ".css")]
    names = sorted((path.name for path in files), key=len, reverse=True)
    for path in (*files, folder / "index.html"):
        text = path.read_text(encoding="utf-8")
        for name in names:
            text = text.replace(f"/{name}", f"/next-{name}").replace(f"assets/next-next-{name}", f"assets/next-{name}")
        path.write_text(text, encoding="utf-8")
    for path in files:
        path.rename(path.with_name(f"next-{path.name}"))


@pytest.mark.slow
def test_a_server_that_comes_back_is_noticed_without_a_reload_by_hand(workspace: Workspace, browser: Browser) -> None:
    servers, port = ExitStack(), reserved_port()
    url = servers.enter_context(running_web(workspace, port=port))
    with servers, opened(browser, url) as page:
        page.goto("/annotate")
        page.get_by_text("There are no queues yet").wait_for()
        servers.close()
        page.get_by_role("link", name="Runs").click()  # whose file the page does not have yet
        page.get_by_text("this goes on by itself when it is back").wait_for()
        page.get_by_role("link", name="Annotate").click()
        page.get_by_role("heading", name="Annotate").wait_for()
        page.get_by_role("link", name="Runs").click()
        servers.enter_context(running_web(workspace, port=port))
        page.get_by_role("heading", name="Runs").wait_for()
        page.get_by_text("0 runs").wait_for()
