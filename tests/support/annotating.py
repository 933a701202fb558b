"""Annotation over HTTP as its tests take it: pairs worth showing, queues of them, one person's requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

from assay.data.pair_attributes import PairAttributes
from assay.workspace import Workspace
from assay_pipelines.annotation.assignment import Assignment
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.question_types.pair import placed
from assay_pipelines.annotation.question_types.question_type import PlacedAnswer, Submission
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.annotation.recording import Overlap
from assay_pipelines.annotation.recovery import open_ledger
from assay_pipelines.annotation.service import AnnotationService, Receipt
from assay_pipelines.annotation.votes import QueueVote, queue_votes
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

if TYPE_CHECKING:
    from playwright.sync_api import Page

CODE = "Use a `set`:\n\n```python\ndef unique(items):\n    return list(dict.fromkeys(items))\n```\n\nIt costs $O(n)$."
ATTRIBUTES = PairAttributes("coding help", "objective", "low", "working code", "Prefer code that runs.")
OPINION, REASONING = "judge-of-the-tests", "the first one runs, the second one does not"


def import_pairs(workspace: Workspace, number: int) -> list[str]:
    """Conversations of several turns with code and maths, through the importer; returns comparison ids."""
    rows = [
        {
            "prompt": [
                {"role": "user", "content": f"How do I drop duplicates from list {n}?"},
                {"role": "assistant", "content": "Should the order stay?"},
                {"role": "user", "content": "Yes, and tell me how long it takes for $n$ items."},
            ],
            "chosen": f"{CODE} (answer {n})",
            "rejected": f"Sort it first, then compare neighbours; that is \\(O(n \\log n)\\). (answer {n})",
        }
        for n in range(number)
    ]
    file = workspace.root.parent / f"pairs-{number}.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    run_import(workspace, open_import(workspace, ImportConfig(str(file))))
    with workspace.store.unit() as db:
        return [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]


def make(workspace: Workspace, name: str, comparisons: list[str], overlap: Overlap = 1, **settings: Any) -> None:
    items = [QueueItem(c, attributes=ATTRIBUTES, reason="judges disagree") for c in comparisons]
    create_queue(workspace, name, items, overlap=overlap, run_id=None, **{"gold_checks": 0.0, **settings})


def standing(workspace: Workspace, queue: str) -> list[QueueVote]:
    with open_ledger(workspace) as ledger:
        return queue_votes(ledger, queue)


def take(client: httpx.Client, queue: str) -> dict[str, Any]:
    reply = client.post(f"/api/annotate/queues/{queue}/item")
    assert reply.status_code == 200, reply.text
    ticket: dict[str, Any] = reply.json()
    return ticket


def body_of(item: dict[str, Any], person: str, **more: Any) -> dict[str, Any]:
    return {"person": person, "ticket": item["ticket"], "seal": item["seal"], "seconds": 2.0, **more}


def cast(client: httpx.Client, queue: str, item: dict[str, Any], person: str, **more: Any) -> httpx.Response:
    return client.post(f"/api/annotate/queues/{queue}/votes", json=body_of(item, person, **more))


def prompt_of(page: Page) -> str:
    """The text of a response, with its formulas drawn: what draws them is loaded after the plain text."""
    page.get_by_role("button", name="A is better").wait_for()
    page.wait_for_load_state("networkidle")
    response_text = page.get_by_label("Response A").inner_text()
    assert response_text
    return response_text


def vote(service: AnnotationService, assignment: Assignment, choice: str, **fields: Any) -> Receipt:
    """Cast a vote by position on the screen."""
    return service.cast(assignment.ticket, assignment.annotator, Submission(choice=choice, **fields))


def skip(service: AnnotationService, assignment: Assignment, reason: str, text: str = "", **fields: Any) -> Receipt:
    submission = Submission(skip=reason, rationale=text or None, **fields)
    return service.cast(assignment.ticket, assignment.annotator, submission)


def vote_canonically(service: AnnotationService, assignment: Assignment, answer: str, **fields: Any) -> Receipt:
    """Cast a vote in canonical A and B; `principles` are canonical too."""
    order = assignment.shown_order
    answers = [
        PlacedAnswer("first" if a.response == order[0] else "second", a.principle, a.answer, a.evidence)
        for a in fields.pop("principles", ())
    ]
    return vote(service, assignment, placed(answer, order), principles=answers, **fields)
