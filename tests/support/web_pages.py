"""A real web server and a real browser for the tests of pages."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn

from assay.workspace import Workspace
from assay_web.app import create_app
from assay_web.settings import WebSettings, page_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",  # where temporary folders of tests may be, or little room
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_S = 240  #: how long a page or a server takes says how busy the machine is
#: Nothing moves any more; what goes on for ever, as a sign of loading, does not count.
AT_REST = """() => document.getAnimations().every(
    (one) => one.playState !== "running" || one.effect?.getComputedTiming().endTime === Infinity)"""
#: Names a folder where pictures of the pages are kept, to be looked at.
SCREENSHOTS = "ASSAY_SCREENSHOTS"
#: The folder whose pictures are in git and in the documentation; only they are kept there.
DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
COLOURS = 256  #: of a picture in the documentation


@contextmanager
def running_web(workspace: Workspace, *, port: int = 0, **settings: Any) -> Iterator[str]:
    """The web server of a workspace, from a thread of this process, without accounts unless told. `port` 0: any."""
    app = create_app(workspace, WebSettings(**{"open_access": True, **settings}))
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextmanager
def signed_in(url: str, name: str = "ada", password: str | None = None) -> Iterator[httpx.Client]:
    """A client with a session, whose changes carry its token."""
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        session = client.post("/api/session", json={"name": name, "password": password})
        session.raise_for_status()
        client.headers["X-CSRF-Token"] = session.json()["csrf"]
        yield client


@contextmanager
def chromium() -> Iterator[Browser]:
    """Skips without Chromium, and without a built page."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("no Chromium binary (apt-get install chromium)")
    if not (page_folder() / "index.html").is_file():
        pytest.skip("the page is not built (python web/build_frontend.py)")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, name: str | None = "ada", password: str | None = None, **context: Any
) -> Iterator[Page]:
    """A page in a profile of its own, signed in unless `name` is None. Fails when its script throws."""
    options = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **context}
    with browser.new_context(base_url=url, **options) as profile:
        profile.set_default_timeout(PATIENCE_S * 1000)
        page = profile.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: errors.append(f"asked {request.url}") if foreign(request.url, url) else None)
        if name is not None:
            signed = profile.request.post("/api/session", data={"name": name, "password": password})
            assert signed.ok, signed.text()
        yield page
        assert not errors, errors


def foreign(requested_url: str, url: str) -> bool:
    return not requested_url.startswith((url, "data:", "blob:"))


def check_accessible(page: Page) -> None:
    """No violation of WCAG 2.1 A and AA that axe finds in what is shown when nothing moves any more."""
    for tries_left in reversed(range(5)):
        page.wait_for_function(AT_REST)
        problems = violations_of(page)
        if not problems or not tries_left:
            break
        page.wait_for_timeout(500)  # it was still being drawn
    assert not problems, "\n".join(problems)


def violations_of(page: Page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:160] for node in violation['nodes'][:3]]}"
        for violation in violations.response["violations"]
    ]


def check_looks(page: Page, name: str) -> None:
    """Nothing sticks out and everything can be read, on a phone and a desk, in both schemes."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(AT_REST)  # the menu slides away
            page.wait_for_function(f"document.documentElement.scrollWidth <= {width}")
            screenshot(page, f"{name}-{scheme}-{width}", full_page=True)
        check_accessible(page)


def screenshot(page: Page, name: str, *, full_page: bool = False) -> None:
    """Keep a picture where $ASSAY_SCREENSHOTS names a folder, unless that is the documentation's."""
    if (folder := kept_in()) and folder != DOCUMENTED:
        page.screenshot(path=folder / f"{name}.png", full_page=full_page)


def picture(page: Page, name: str, *, height: int) -> None:
    """Keep a picture that the documentation shows: 1280 x `height` pixels from the page's top, with few colours."""
    from PIL import Image

    page.set_viewport_size({"width": 1280, "height": height})
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)  # what depends on the size is drawn anew
    if folder := kept_in():
        screenshot = Image.open(BytesIO(page.screenshot())).convert("RGB")
        few = screenshot.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(folder / f"{name}.png", optimize=True)


def kept_in() -> Path | None:
    folder_name = os.environ.get(SCREENSHOTS)
    if not folder_name:
        return None
    folder = Path(folder_name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
