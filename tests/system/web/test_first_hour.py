"""From an empty workspace to a trained policy with mouse and keyboard alone, in Chromium.

Its pictures are those of docs/web/first-hour.md."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from web_pages import check_accessible, opened, picture, running_web

from assay.workspace import Workspace
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.invitations import link_of, setup_token
from assay_web.served.endpoint import endpoints_of
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
TOPICS = ("rivers", "bread", "trains", "winter", "chess", "maps", "bees", "glass")


@pytest.fixture
def workspace(empty_workspace: Path, tmp_path: Path) -> Iterator[Workspace]:
    opened_workspace = Workspace.open(shutil.copytree(empty_workspace, tmp_path / "workspace"))
    yield opened_workspace
    for endpoint in endpoints_of(opened_workspace):  # of a test that has failed
        if endpoint.state()[0] not in ("stopped", "failed"):
            endpoint.process.interrupt()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """48 pairs under names that nobody knows, whose labels are 0 and 1; one row has no second response."""
    path = tmp_path / "answers.csv"
    rows = ["question;first answer;second answer;winner"]
    for n in range(48):
        topic = TOPICS[n % len(TOPICS)]
        good = f"Here is fact {n} about {topic}: they have been with us for {100 + n} years."
        bad = f"I do not know {topic}."
        first, second = (good, bad) if n % 2 else (bad, good)
        rows.append(f"Tell me fact {n} about {topic}.;{first};{second};{1 - n % 2}")
    rows.append("And this?;one answer only;;0")
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.browser
def test_from_an_empty_workspace_to_a_policy(workspace: Workspace, table: Path, browser: Browser) -> None:
    access = AccessFile(workspace.root / FILE)
    token = setup_token(access)
    access.close()
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url, opened(browser, url, name=None) as page:
        sign_up(page, link_of(url, token))
        upload_and_map(page, table)
        run_job(page, "Clean", "Clean")
        run_job(page, "Deduplicate", "Deduplicate")
        annotate(page, 3)
        make_training_set(page)
        train(page)
        evaluate(page)
        serve(page)
        score(page)
        train_policy(page)
        stop_serving(page)
        with workspace.store.unit() as db:
            kinds = dict(db.execute("SELECT kind, count(*) FROM artifacts GROUP BY 1").fetchall())
        assert (kinds["reward_model"], kinds["policy"]) == (1, 1)


def sign_up(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_label("Name").fill("ada")
    for field in page.locator("input[type=password]").all():
        field.fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.get_by_role("heading", name="Bring data").wait_for()
    check_accessible(page)
    picture(page, "first-hour-1", height=560)
    page.get_by_role("link", name="Try it with a sample").click()
    page.get_by_role("heading", name="The first hour").wait_for()
    check_accessible(page)
    page.get_by_role("link", name="Use a file of your own").click()


def upload_and_map(page: Page, table: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files(table)
    page.get_by_text("Say what the columns are").wait_for()
    for column, role in (
        ("question", "Prompt"),
        ("first answer", "Response A"),
        ("second answer", "Response B"),
        ("winner", "Label: which is better"),
    ):
        choose(page, f"What {column} is", role)
    page.get_by_text("Would be refused").wait_for()
    choose(page, "What 0 means", "A is better")
    choose(page, "What 1 means", "B is better")
    page.get_by_text("48 of the first 49 rows can be read").first.wait_for()
    check_accessible(page)
    picture(page, "first-hour-2", height=900)
    page.get_by_role("button", name="Import", exact=True).click()
    job_done(page)


def choose(page: Page, field: str, option: str) -> None:
    page.get_by_role("combobox", name=field, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def job_done(page: Page) -> None:
    page.wait_for_url(re.compile("/jobs/job-"))
    ended = page.get_by_text(re.compile("^(done.*|failed|not complete|interrupted)$", re.IGNORECASE)).first
    ended.wait_for()
    assert ended.inner_text().lower().startswith("done"), page.inner_text("main")


def go_on(page: Page, action: str) -> None:
    """To the next step, by the bar above every page."""
    page.get_by_role("complementary", name="The first hour").get_by_role("link", name=action, exact=True).click()


def run_job(page: Page, action: str, title: str) -> None:
    go_on(page, action)
    page.get_by_role("heading", name=title).first.wait_for()
    start(page)


def start(page: Page) -> None:
    page.get_by_role("button", name="What would it take?").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    job_done(page)


def annotate(page: Page, votes: int) -> None:
    go_on(page, "Make a queue")
    page.get_by_label("Name").first.fill("first")
    page.get_by_label("At most").fill(str(votes))
    page.get_by_label("Guideline").fill("Which one tells a fact?")
    page.get_by_role("button", name="Make the queue").click()
    page.get_by_role("link", name="Annotate first").click()
    for vote in range(votes):
        fact = page.get_by_text("Here is fact")
        fact.wait_for()
        if vote == 0:
            picture(page, "first-hour-3", height=620)
        box = fact.bounding_box()
        assert box is not None
        with page.expect_response(re.compile("/votes")):
            page.keyboard.press("a" if box["x"] < 640 else "b")
    page.get_by_text("All queues").click()
    page.get_by_role("button", name="More for first").click()
    page.get_by_role("menuitem", name="Decide by the votes").click()
    page.get_by_role("dialog").get_by_role("button", name="Decide", exact=True).click()
    page.get_by_text(re.compile(f"Written: {votes} new decisions")).wait_for()
    page.keyboard.press("Escape")


def make_training_set(page: Page) -> None:
    go_on(page, "Make a training set")
    form = page.get_by_role("form", name="Make a training set")
    form.get_by_label("Name").fill("facts")
    form.get_by_label("Held out, % of the prompts").fill("25")
    form.get_by_role("button", name="Make a training set").click()
    page.get_by_text("facts-holdout").first.wait_for()


def train(page: Page) -> None:
    go_on(page, "Train")
    page.get_by_role("combobox", name="Base model").fill("tiny")
    start(page)


def evaluate(page: Page) -> None:
    go_on(page, "Evaluate")
    start(page)
    picture(page, "first-hour-4", height=620)


def serve(page: Page) -> None:
    go_on(page, "Serve")
    page.get_by_role("button", name="Serve it").click()
    page.get_by_role("link", name="Try it in the playground").wait_for()


def score(page: Page) -> None:
    go_on(page, "Open the playground")
    page.get_by_label("Message 1", exact=True).fill("Tell me about bees.")
    page.get_by_label("Response 1", exact=True).fill("Here is fact 1 about bees: they have been with us for 101 years.")
    page.get_by_label("Response 2", exact=True).fill("I do not know bees.")
    page.keyboard.press("Control+Enter")
    page.get_by_text(re.compile("^Scored ")).wait_for()
    picture(page, "first-hour-5", height=700)


def train_policy(page: Page) -> None:
    go_on(page, "Train a policy")
    page.get_by_role("combobox", name="Policy", exact=True).fill("tiny")
    page.get_by_role("textbox", name="Steps", exact=True).fill("2")
    start(page)
    page.get_by_role("link", name="its run").click()
    page.wait_for_url(re.compile("/runs/run-"))
    page.get_by_role("heading").first.wait_for()
    page.wait_for_timeout(1000)  # the curves are drawn
    picture(page, "first-hour-6", height=760)
    page.get_by_role("link", name="Assay", exact=True).click()
    page.get_by_role("heading", name="Home").wait_for()
    check_accessible(page)


def stop_serving(page: Page) -> None:
    page.goto("/rewards/served")
    page.get_by_role("button", name="Stop serving").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop serving").click()
    page.get_by_text("stopped", exact=True).wait_for()
