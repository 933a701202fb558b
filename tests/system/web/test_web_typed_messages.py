"""Conversations with images, tools and thinking in a browser: looked at, voted on, rated, marked and ranked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from annotating import make
from typed_rows import HOSTILE, every_part, png, take
from web_pages import check_looks, opened, running_web

from assay.annotation.vote_journal import fold
from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.annotation.question_types.question_type import Submission
from assay_pipelines.annotation.question_types.rating import AnnotationScale
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, named_tasks, tasks_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CALL = '{\n  "town": "Ulm",\n  "day": 1.0\n}'


@pytest.fixture
def typed(workspace: Workspace, tmp_path: Path) -> Iterator[tuple[Workspace, str, str]]:
    """A comparison of an answer in several turns with a plain one, that all questions have been asked about."""
    take(workspace, tmp_path / "rows.jsonl", *every_part(picture=png(640, 360)))
    with workspace.store.unit() as db:
        ((typed_id,),) = db.execute("SELECT response_id FROM responses WHERE turns IS NOT NULL").fetchall()
        pairs = db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()
    make(workspace, "pairs", [pairs[0][0]])
    scales = (AnnotationScale("helpfulness"), AnnotationScale("truth", 0, 3))
    for name in ("rating", "steps", "spans"):
        question = TaskQuestion(name, scales, ("slip", "style"))
        create_task_queue(
            workspace, name, named_tasks(workspace, question, [typed_id]), question, run_id=None, overlap=2
        )
    ranking = TaskQuestion("ranking")
    create_task_queue(workspace, "ranking", tasks_of(workspace, ranking, Selection()), ranking, run_id=None, overlap=2)
    with AnnotationService(workspace) as service:
        answers: dict[str, dict[str, Any]] = {
            "rating": {"ratings": {"helpfulness": 4, "truth": None}},
            "steps": {"steps": [1, -1]},
            "spans": {"spans": [{"start": 0, "end": 10, "label": "style", "note": "not asked for"}]},
            "ranking": {"ranks": [1, 2, 2]},
        }
        for queue, answer in answers.items():
            item = service.next(queue, "grace")
            assert item is not None
            service.cast(item.ticket, "grace", Submission(response=answer))
    fold(workspace)
    with running_web(workspace) as url:
        yield workspace, url, pairs[0][0]


def check_parts(page: Page) -> None:
    """Every part is shown, folded where it is folded, and none of it runs."""
    page.get_by_role("img", name="Attachment").first.wait_for()
    page.evaluate("Promise.all([...document.images].map((image) => image.decode()))")  # throws for one that is broken
    assert page.get_by_role("group", name="Calls weather").locator("pre").inner_text() == CALL
    assert page.get_by_role("group", name="Result of weather").locator("pre").inner_text() == HOSTILE
    assert page.title() != "ran"
    for folded, inside in (("Tool weather", '"town"'), ("Thinking", "It looks like Ulm.")):
        part = page.locator("details", has=page.get_by_text(folded, exact=True))
        assert not part.get_by_text(inside).first.is_visible()
        part.locator("summary").click()
        part.get_by_text(inside).first.wait_for()
    for role in ("system", "developer", "user", "assistant", "tool"):
        assert page.locator(f".message[data-role={role}]").first.is_visible(), role


@pytest.mark.slow
def test_a_typed_comparison_is_shown_whole_with_all_its_labels(
    typed: tuple[Workspace, str, str], browser: Browser
) -> None:
    from playwright.sync_api import expect

    _, url, comparison = typed
    with opened(browser, url) as page:
        page.goto(f"/data/comparisons/{comparison}")
        check_parts(page)
        labels = {"Ratings": "4 (1 to 5)", "Step labels": "wrong", "Spans": "not asked for", "Rankings": "grace"}
        for section, words in labels.items():
            expect(page.get_by_role("region", name=section, exact=True)).to_contain_text(words)
        check_looks(page, "typed-comparison")


@pytest.mark.slow
def test_every_question_shows_typed_messages(typed: tuple[Workspace, str, str], browser: Browser) -> None:
    _, url, _ = typed
    with opened(browser, url) as page:
        for queue in ("pairs", "rating", "steps", "spans", "ranking"):
            page.goto(f"/annotate/queue/{queue}")
            page.get_by_role("region", name="Prompt").wait_for()
            check_parts(page)
            check_looks(page, f"typed-{queue}")
        page.goto("/annotate/queue/pairs")
        page.get_by_role("region", name="Prompt").wait_for()
        page.keyboard.type("d")  # the difference is that of the text views
        page.locator("mark").first.wait_for()
        page.keyboard.type("a")
        page.get_by_text("Nothing is left for you here").wait_for()
