"""Awkward texts and other keyboards on the page of annotators: long, right to left, code, tables, TeX, hostile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from awkward_texts import PAIRS, fill
from web_pages import check_accessible, opened, running_web

from assay.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

#: What sticks out of the page at the right, in pixels.
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
WIDTHS = "[...document.querySelectorAll('.session-pair > *')].map((one) => one.getBoundingClientRect().width)"
#: The columns of each table with the least width of one, and whether it scrolls by itself.
TABLES = """[...document.querySelectorAll('.session-pair .markdown-table')].map((table) => [
    Math.min(...[...table.querySelectorAll('th')].map((cell) => cell.getBoundingClientRect().width)),
    table.scrollWidth > table.clientWidth])"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("awkward")
    workspace = Workspace.create(root / "workspace")
    fill(workspace, root)
    with running_web(workspace) as url:
        yield url


def at(page: Page, queue: str) -> None:
    page.goto(f"/annotate/queue/{queue}")
    page.locator(".session-answers .panel").first.wait_for()


@pytest.mark.slow
def test_nothing_sticks_out_and_responses_have_their_room(address: str, browser: Browser) -> None:
    with opened(browser, address) as page:
        for queue in PAIRS:
            at(page, queue)
            for width in (390, 1280, 1920):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(OVERHANG) <= 0, (queue, width)
                assert min(page.evaluate(WIDTHS)) >= min(600, width - 40), (queue, width)
            assert page.title() != "ran"
            if queue == "table":
                tables = page.evaluate(TABLES)
                assert min(least for least, _ in tables) > 20, "no column of one letter a line"
                assert any(scrolls for _, scrolls in tables)
            if queue == "code":
                code = page.locator(".session-pair pre").filter(has_text="def median").inner_text()
                assert "\n    ordered = sorted(values)\n" in code
            if queue == "right-to-left":
                assert page.locator(".session-pair ol").evaluate("one => getComputedStyle(one).direction") == "rtl"
            if queue in ("right-to-left", "hostile"):
                page.set_viewport_size({"width": 390, "height": 844})
                check_accessible(page)


@pytest.mark.slow
def test_the_prompt_stays_in_view_and_the_panel_folds(address: str, browser: Browser) -> None:
    with opened(browser, address) as page:
        at(page, "long")
        page.mouse.move(400, 600)
        page.mouse.wheel(0, 3000)
        pinned = page.get_by_role("region", name="Prompt, pinned")
        assert pinned.bounding_box() is not None
        page.keyboard.press("o")
        pinned.get_by_role("group", name="Conversation").wait_for()
        check_accessible(page)
        page.keyboard.press("\\")
        page.get_by_role("region", name="Guideline").wait_for(state="detached")
        page.reload()
        page.locator(".session-answers .panel").first.wait_for()
        assert page.get_by_role("region", name="Guideline").count() == 0, "it is remembered"
        assert page.get_by_role("region", name="Principles").is_visible(), "what is asked stays"


@pytest.mark.slow
def test_keys_work_under_caps_lock_and_in_cyrillic(address: str, browser: Browser) -> None:
    with opened(browser, address) as page:
        keyboard = page.context.new_cdp_session(page)

        def press(code: str, key: str) -> None:
            for kind in ("keyDown", "keyUp"):
                keyboard.send("Input.dispatchKeyEvent", {"type": kind, "code": code, "key": key})

        at(page, "tex")
        press("Digit2", "2")
        press("KeyM", "ь")
        page.locator(".session-pair .message-plain").first.wait_for()  # as written
        press("KeyM", "M")  # Caps Lock: no Shift
        press("KeyB", "и")
        page.get_by_text("Nothing is left for you here").wait_for()
        press("KeyH", "р")
        page.get_by_role("dialog").get_by_text("B is clearly better").wait_for()
        page.get_by_role("button", name="Change the answer").click()
        page.get_by_text("You have answered this item").wait_for()
        press("KeyA", "Ф")
        page.get_by_role("region", name="Last vote").get_by_text("A is clearly better").wait_for()
