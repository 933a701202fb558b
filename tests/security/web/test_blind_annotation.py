"""What an annotator can learn of an item's label over HTTP: every route of the API, asked as an annotator.

The same walk as a curator meets every planted secret, so the secrets are where the routes read.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from annotating import cast, take
from web_pages import opened, running_web, signed_in

from assay.annotation.vote_journal import fold
from assay.data.snapshots import Selection, create_snapshot
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
QUEUE = "round-one"
COLLEAGUE, SOURCE, JUDGE = "zq-colleague", "zq-source", "zq-judge"
RATIONALE, REASONING, DECIDED = "zq-rationale-of-a-colleague", "zq-reasoning-of-a-judge", "zq-why-it-was-decided"
SNAPSHOT = "zq-snapshot"
SECRETS = (COLLEAGUE, SOURCE, RATIONALE, DECIDED, SNAPSHOT)
#: Fields of replies that hold labels, pools, votes, names and sources; an annotator may get them empty alone.
FIELDS = {
    *("label", "labels", "pool", "pools", "source", "sources", "judgments", "votes", "opinions", "rationale"),
    *("annotators", "passed_by", "counts", "agreement", "conflicts", "by", "decisions", "check_label", "comparison_id"),
}
WORDS = {"get_question_types"}  #: replies with the words of buttons, whose labels are no labels of comparisons
#: All that succeeds for an annotator.
OPEN_TO_ANNOTATORS = {
    *("get_session", "sign_out", "get_question_types", "get_queues", "get_queue_by_name"),
    *("take_item", "get_live_figures", "get_own_figures", "cast_vote", "undo_vote", "renew_lease", "release_item"),
    *("get_own_answers", "get_own_notes", "get_tokens"),  # one's own
}


@dataclass(frozen=True)
class Planted:
    """A served workspace with two annotators (nora, olga), a curator (cora), and a colleague's votes."""

    workspace: Workspace
    url: str
    comparisons: list[str]
    run: str


@pytest.fixture(scope="module")
def planted(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("blind")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    rows = [
        {"prompt": f"Which is the larger, {n} or {n + 1}?", "chosen": f"{n + 1} is larger.", "rejected": f"It is {n}."}
        for n in range(30)
    ]
    file = folder / f"{SOURCE}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = run_import(workspace, open_import(workspace, ImportConfig(str(file))))
    with workspace.store.unit() as db:
        comparisons = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]
        insert_decisions(db, [Decision(c, "gold", "A", "people_majority", DECIDED) for c in comparisons[20:]], None)
    create_snapshot(workspace, SNAPSHOT, Selection(pools=("gold",)), None)
    items = [QueueItem(c, opinions=(ShownOpinion(JUDGE, "A", REASONING),)) for c in comparisons[:10]]
    create_queue(workspace, QUEUE, items, overlap="all", gold_checks=0.2, run_id=None)
    with AccessFile(workspace.root / FILE) as access:
        passwords = Passwords(CHEAP)
        for name, role in (
            ("nora", "annotator"),
            ("olga", "annotator"),
            (COLLEAGUE, "annotator"),
            ("vera", "viewer"),
            ("cora", "curator"),
        ):
            add_account(access, passwords, name, role, PASSWORD, by="test")  # type: ignore[arg-type]
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        with signed_in(url, COLLEAGUE, PASSWORD) as colleague:
            while (item := take(colleague, QUEUE)["item"]) is not None:
                cast(colleague, QUEUE, item, COLLEAGUE, choice="first", rationale=RATIONALE).raise_for_status()
        fold(workspace)
        yield Planted(workspace, url, comparisons, report.run_id)


def test_no_reply_of_any_route_unblinds_an_annotator(planted: Planted) -> None:
    with signed_in(planted.url, "nora", PASSWORD) as nora:
        replies = walk(planted, nora, "nora")
    assert {name for name, reply in replies if reply.is_success} == OPEN_TO_ANNOTATORS
    for name, reply in replies:
        assert reply.status_code < 500, (name, reply.text)
        for secret in (*SECRETS, JUDGE, REASONING, *planted.comparisons):
            assert secret not in reply.text, (name, secret)
        if reply.content and reply.is_success and name not in WORDS:
            shown = {field for field, value in fields(reply.json()) if field in FIELDS and value}
            assert not shown, (name, shown)


def test_the_same_walk_as_a_curator_meets_every_secret(planted: Planted) -> None:
    with signed_in(planted.url, "cora", PASSWORD) as cora:
        replies = [reply.text for name, reply in walk(planted, cora, "cora", changes=False)]
        item = take(cora, QUEUE)["item"]
        receipt = cast(cora, QUEUE, item, "cora", choice="first").json()["receipt"]
    for secret in (*SECRETS, planted.comparisons[0]):
        assert any(secret in reply for reply in replies), secret
    if receipt["opinions"]:  # a gold check has none
        assert receipt["opinions"][0]["by"] == JUDGE


def test_agreement_is_for_those_who_do_not_vote_until_the_queue_is_closed(planted: Planted) -> None:
    live, own = f"/api/annotate/queues/{QUEUE}/live", f"/api/annotate/queues/{QUEUE}/own"
    with signed_in(planted.url, "olga", PASSWORD) as olga, signed_in(planted.url, "vera", PASSWORD) as vera:
        while (item := take(olga, QUEUE)["item"]) is not None:
            receipt = cast(olga, QUEUE, item, "olga", choice="first").json()["receipt"]
            assert receipt["opinions"] == [], "a vote can be undone after its receipt"
        assert olga.get(live).json()["agreement"] is None
        figures = olga.get(own).json()
        assert (figures["compared"], figures["agreed"], figures["agreement"]) == (0, 0, None)
        until = time.monotonic() + 240  # the figures are some seconds old
        while not vera.get(live).json()["agreement"]["with_ties"]["items"]:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert vera.post(f"/api/annotate/queues/{QUEUE}/item").status_code == 403, "who sees votes casts none"
        with signed_in(planted.url, "cora", PASSWORD) as cora:
            cora.post(f"/api/queues/{QUEUE}/close").raise_for_status()
            closed = olga.get(live).json()["agreement"]
            assert olga.get("/api/comparisons").status_code == 403, "what is read now is known in the next queue"
            cora.post(f"/api/queues/{QUEUE}/reopen").raise_for_status()
            assert closed["with_ties"]["items"] > 0
            assert olga.get(live).json()["agreement"] is None


def test_the_page_offers_an_annotator_their_queues_alone(planted: Planted, browser: Browser) -> None:
    with opened(browser, planted.url, name="nora", password=PASSWORD) as page:
        page.goto("/data")
        page.get_by_text("Data is not for the role annotator").wait_for()
        assert page.get_by_role("navigation", name="Areas").get_by_role("link").all_inner_texts() == [
            "Home",
            "Annotate",
        ]
        page.goto(f"/annotate/queue/{QUEUE}")
        page.get_by_text("votes are blind until then").wait_for()


def walk(
    planted: Planted, client: httpx.Client, person: str, *, changes: bool = True
) -> list[tuple[str, httpx.Response]]:
    """Each operation of the API's description with its reply, with real names wherever a name is asked for."""
    description = client.get("/openapi.json").json()
    item = take(client, QUEUE)["item"]
    vote = {"person": person, "ticket": item["ticket"], "seal": item["seal"], "choice": "first"}
    bodies = {
        "cast_vote": vote,
        "undo_vote": {"ticket": item["ticket"]},
        "add_queue_items": {"comparison_ids": planted.comparisons[:1]},
        "change_own_password": {"current": "wrong", "new": "another horse battery"},
        "sign_in": {"name": COLLEAGUE, "password": "wrong"},
    }
    operations = [
        (method, path, operation, operation["operationId"])
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    order = ["renew_lease", "release_item", "take_item", "cast_vote", "undo_vote", "sign_out"]
    operations.sort(key=lambda each: order.index(each[3]) if each[3] in order[:-1] else -1 if each[0] == "get" else 90)
    operations.sort(key=lambda each: each[3] == "sign_out")
    replies = []
    for method, path, operation, name in operations:
        if not changes and method != "get":
            continue
        for values in names_of(planted, path):
            if name == "cast_vote":  # the item that the walk has given back comes again
                taken = take(client, QUEUE)["item"]
                bodies["cast_vote"] |= {"ticket": taken["ticket"], "seal": taken["seal"]}
                bodies["undo_vote"] = {"ticket": taken["ticket"]}
            body = bodies.get(name) or sample_of(operation, description, item["ticket"])
            query = {p["name"]: query_of(p) for p in operation.get("parameters", []) if p["in"] == "query"}
            asked = {key: value for key, value in query.items() if value is not None}
            headers = {"X-Invitation": "none"} if name == "get_invitation" else {}
            replies.append((name, client.request(method, values, json=body, params=asked, headers=headers)))
    assert len({name for name, _ in replies}) == len([o for o in operations if changes or o[0] == "get"])
    return replies


def names_of(planted: Planted, path: str) -> list[str]:
    """The path with everything that its parameters may name."""
    names = {
        "{queue}": [QUEUE],
        "{comparison_id}": planted.comparisons[:1],
        "{run_id}": [planted.run],
        "{between}": ["people_source"],
        "{iteration}": ["1"],
        "{stage_id}": [planted.run],
        "{loop}": ["none"],
        "{check_id}": ["none"],
        "{content_hash}": ["none"],
        "{ticket}": ["none"],
        "{invitation_id}": ["none"],
        "{name}": [COLLEAGUE] if "accounts" in path else [SNAPSHOT, planted.comparisons[0], planted.run],
    }
    for parameter, values in names.items():
        if parameter in path:
            return [path.replace(parameter, value) for value in values]
    return [path]


def query_of(parameter: dict[str, Any]) -> Any:
    """A value for what is required, and nothing for the rest."""
    known = {"pool": "gold", "rule": "people_majority"}
    return known.get(parameter["name"], "none") if parameter.get("required") else None


def sample_of(operation: dict[str, Any], description: dict[str, Any], ticket: str) -> Any:
    """A body with the required fields of the operation's schema; null without one."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "schema" not in content:
        return None
    schema = content["schema"]
    if "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return {field: ticket if field == "ticket" else "none" for field in schema.get("required", ())}


def fields(reply: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(reply, dict):
        for field, value in reply.items():
            yield field, value
            yield from fields(value)
    elif isinstance(reply, list):
        for each in reply:
            yield from fields(each)
