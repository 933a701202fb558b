"""Ratings, steps, spans and rankings in a browser: each answered on the page, and in the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from annotating import cast, take
from web_pages import check_accessible, check_looks, opened, running_web, screenshot, signed_in

from assay.annotation.vote_journal import fold
from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.annotation.question_types.rating import AnnotationScale
from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, named_tasks, tasks_of
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

if TYPE_CHECKING:
    from playwright.sync_api import Browser

STEPS = "First, 2 + 2 = 4.\n\nThen 4 + 1 = 6.\n\nSo it is 6."


@pytest.fixture
def asked(workspace: Workspace, tmp_path: Path) -> Iterator[tuple[Workspace, str]]:
    """A queue of each question, of one prompt's three answers."""
    path = tmp_path / "answers.jsonl"
    row = {"prompt": "2 + 2 + 1?", "responses": [STEPS, "Five, I think.", "It is 5."], "scores": [1, 2, 3]}
    path.write_text(json.dumps(row) + "\n")
    run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    with workspace.store.unit() as db:
        (ids,) = db.execute("SELECT list(response_id) FROM responses WHERE contains(content, 'First')").fetchone() or (
            [],
        )
    scales = (AnnotationScale("helpfulness"), AnnotationScale("truth", 0, 3))
    for name in ("rating", "steps", "spans"):
        question = TaskQuestion(name, scales, ("slip", "style"))
        create_task_queue(workspace, name, named_tasks(workspace, question, ids), question, run_id=None)
    ranking = TaskQuestion("ranking")
    create_task_queue(workspace, "ranking", tasks_of(workspace, ranking, Selection()), ranking, run_id=None)
    with running_web(workspace) as url:
        yield workspace, url


@pytest.mark.slow
def test_a_curator_makes_a_queue_of_ratings_and_adjudicates_their_spread(
    asked: tuple[Workspace, str], browser: Browser
) -> None:
    from playwright.sync_api import expect

    workspace, url = asked
    with opened(browser, url, name="cora") as page:
        page.goto("/annotate/new")
        page.get_by_role("textbox", name="Name", exact=True).fill("grades")
        page.get_by_role("combobox", name="Question").click()
        page.get_by_role("option", name="Mark words of a response").click()
        assert page.get_by_label("Gold checks, %").is_disabled()
        page.get_by_text("No gold checks and no adjudication").wait_for()
        page.get_by_role("combobox", name="Question").click()
        page.get_by_role("option", name="Rate a response").click()
        page.get_by_label("Scales").first.fill("truth:0-3")
        page.keyboard.press("Enter")
        page.get_by_text("truth:0-3").wait_for()
        page.get_by_label("People who see each").fill("2")
        check_looks(page, "new-queue")
        page.get_by_role("button", name="Make the queue").click()
        page.get_by_role("listitem").filter(has_text="grades").get_by_text("Rate a response", exact=True).wait_for()
    for name, value in (("ann", 1), ("ben", 5)):
        with signed_in(url, name) as client:
            while (item := take(client, "grades")["item"]) is not None:
                cast(client, "grades", item, name, response={"ratings": {"overall": value, "truth": 2}})
    with opened(browser, url, name="cora") as page:
        page.goto("/annotate")
        check_looks(page, "queues")
        page.get_by_role("link", name="Adjudicate 3").click()
        page.get_by_role("button", name="Show before deciding").click()
        page.get_by_text("overall 5, truth 2").wait_for()
        check_looks(page, "adjudicate-rating")
        page.keyboard.type("32")
        page.keyboard.press("Enter")
        page.get_by_text("overall 1, truth 2").wait_for()  # of this item, after the own answer
        page.goto("/annotate/queue/grades/report")
        agreement = page.get_by_role("region", name="Agreement")
        agreement.get_by_role("rowheader", name="truth").wait_for()
        expect(agreement).to_contain_text("100.0 %")
        check_looks(page, "label-report")
    query = "SELECT value FROM standing_response_judgments WHERE origin LIKE 'adjudication:open/grades/%' ORDER BY 1"
    assert said(workspace, query) == [(2.0,), (3.0,)]


def said(workspace: Workspace, query: str) -> list[tuple[Any, ...]]:
    fold(workspace)
    with workspace.store.unit() as db:
        return db.execute(query).fetchall()


@pytest.mark.slow
def test_every_question_is_answered_on_the_page(asked: tuple[Workspace, str], browser: Browser) -> None:
    workspace, url = asked
    with opened(browser, url) as page:
        page.goto("/annotate/queue/rating")
        page.get_by_label("helpfulness").wait_for()
        check_accessible(page)
        screenshot(page, "question-rating")
        page.keyboard.type("43")
        page.keyboard.press("Enter")
        page.get_by_text("Nothing is left for you here").wait_for()

        page.goto("/annotate/queue/steps")
        page.get_by_text("Then 4 + 1 = 6.").wait_for()
        page.keyboard.type("y")
        check_accessible(page)
        screenshot(page, "question-steps")
        page.keyboard.type("n")
        page.reload()  # what was begun is there again
        page.get_by_text("Step 3 of 3").wait_for()
        page.keyboard.press("Enter")
        page.get_by_text("Nothing is left for you here").wait_for()

        page.goto("/annotate/queue/spans")
        text = page.locator(".session-spans")
        text.wait_for()
        text.evaluate(
            """(element) => {
                const range = document.createRange();
                const at = element.firstChild.data.indexOf("4 + 1 = 6");
                range.setStart(element.firstChild, at);
                range.setEnd(element.firstChild, at + 9);
                getSelection().addRange(range);
            }"""
        )
        page.keyboard.type("1")
        page.get_by_label("Marked").get_by_text("4 + 1 = 6").wait_for()
        check_accessible(page)
        screenshot(page, "question-spans")
        page.keyboard.press("Enter")
        page.get_by_text("Nothing is left for you here").wait_for()

        page.goto("/annotate/queue/ranking")
        page.get_by_label("Response C").wait_for()
        page.keyboard.type("b=a")
        check_accessible(page)
        screenshot(page, "question-ranking")
        page.keyboard.type("c")
        page.keyboard.press("Enter")
        page.get_by_text("Nothing is left for you here").wait_for()

    ratings = "SELECT aspect, value FROM standing_response_judgments WHERE origin LIKE 'queue/%' ORDER BY 1"
    assert said(workspace, ratings) == [("helpfulness", 4.0), ("truth", 3.0)]
    marks = """SELECT step, label, value, substring(content, start + 1, "end" - start)
               FROM standing_step_judgments JOIN responses USING (response_id) ORDER BY step NULLS LAST"""
    assert said(workspace, marks) == [
        (0, None, 1.0, "First, 2 + 2 = 4."),
        (1, None, -1.0, "Then 4 + 1 = 6."),
        (None, "slip", None, "4 + 1 = 6"),
    ]
    orders = "SELECT answer, count(*) FROM standing_judgments WHERE origin LIKE 'queue/%' GROUP BY 1 ORDER BY 1"
    assert dict(said(workspace, orders))["tie"] == 1
    assert sum(dict(said(workspace, orders)).values()) == 3
