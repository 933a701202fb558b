"""Episodes in a browser: turn by turn on the run page, two of them compared, the turns of one marked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from recorded_episodes import failed, played, rollout_row, write_rollouts
from typed_rows import HOSTILE
from web_pages import check_looks, opened, running_web

from assay.data.snapshots import Selection
from assay.domain import Message
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.annotation.rollouts import queue_rollouts
from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, tasks_of
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.tool_use import Tools

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ITEM = PromptItem((Message("system", "Be brief."), Message("user", "What is 12 * (3 + 4)?")))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.mark.slow
def test_episodes_are_read_compared_and_marked(workspace: Workspace, browser: Browser) -> None:
    right = ["I add first.\n" + call("calculator", expression="3+4") + call("calculator", expression="12*7"), "84"]
    wrong = [f"<tool_call>{{no json {HOSTILE}</tool_call>", call("shell", run="ls"), "x" * 900 + HOSTILE]
    rows = [rollout_row(played(Tools(), ITEM, turns), reward=reward) for turns, reward in ((right, 1.0), (wrong, 0.0))]
    with start_run(workspace, "rl", {"name": "episodes"}) as run:
        write_rollouts(run.folder, [*rows, failed(rows[0], message=f"no answer within 60 s {HOSTILE * 4}")])
    with start_run(workspace, "queue-create", {}) as created:
        queue_rollouts(workspace, run.id, "pairs", created, gold_checks=0)
    question = TaskQuestion("steps", by_turns=True)
    create_task_queue(workspace, "turns", tasks_of(workspace, question, Selection()), question, run_id=None)
    with running_web(workspace) as url, opened(browser, url) as page:
        page.goto(f"/runs/{run.id}/samples?order=worst")
        page.get_by_text("2 calls could not be run").wait_for()
        assert page.get_by_text("not_applicable").count() == 0
        for _ in range(3):
            page.get_by_role("button", name="Turn by turn").first.click()
        assert (
            page.get_by_role("group", name="Result of shell").locator("pre").inner_text().startswith("error: there is")
        )
        page.locator("summary", has_text="Success, calls").click()
        page.get_by_role("heading", name="3 episodes, 1 of them failed (1 environment_timeout)").wait_for()
        check_looks(page, "run-episodes")
        for queue in ("pairs", "turns"):
            page.goto(f"/annotate/queue/{queue}")
            page.get_by_role("region", name="Prompt").wait_for()
            check_looks(page, f"episodes-{queue}")
        steps = page.get_by_role("listitem").filter(has=page.locator(".message"))
        count = steps.count()
        assert count in (2, 3)
        page.keyboard.type("y" * count)
        page.keyboard.press("Enter")
        page.locator(".session-steps li").nth(4 - count).wait_for()  # the other one, of 3 or 2 turns
        assert page.title() != "ran"
