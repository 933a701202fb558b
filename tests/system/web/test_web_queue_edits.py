"""Running a queue over HTTP: settings, assignment, own answers and notes, many items at once, working time, choosing by
fields and likeness."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from annotating import cast, import_pairs, make, take
from web_pages import running_web, signed_in

from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.embedding.hashing import HashingEncoder
from assay_pipelines.embedding.stored import embed_comparisons
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.audit_log import read_audit
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    import httpx

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"


@pytest.fixture
def team(workspace: Workspace) -> Iterator[tuple[Workspace, list[str], str]]:
    """A curator cora and annotators ann and ben of the default project; comparisons, no queue yet."""
    ids = import_pairs(workspace, 12)
    with AccessFile(workspace.root / FILE) as access:
        passwords = Passwords(CHEAP)
        for name, role in (("cora", "curator"), ("ann", "annotator"), ("ben", "annotator")):
            add_account(access, passwords, name, role, PASSWORD, by="test")  # type: ignore[arg-type]
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        yield workspace, ids, url


def vote_on(client: httpx.Client, queue: str, person: str, number: int, **more: Any) -> list[dict[str, Any]]:
    items = []
    for _ in range(number):
        items.append(take(client, queue)["item"])
        cast(client, queue, items[-1], person, choice="first", **more).raise_for_status()
    return items


def test_settings_are_edited_and_two_editors_lose_nothing(team: tuple[Workspace, list[str], str]) -> None:
    workspace, ids, url = team
    make(workspace, "first", ids[:6], guideline="as made")
    with signed_in(url, "cora", PASSWORD) as cora, signed_in(url, "ann", PASSWORD) as ann:
        edit = cora.put("/api/queues/first/guideline", json={"text": "cora's", "version": 1})
        assert (edit.status_code, edit.json()["version"], edit.json()["person"]) == (200, 2, "cora")
        late = cora.put("/api/queues/first/guideline", json={"text": "late", "version": 1})
        assert (late.status_code, "changed the guideline meanwhile" in late.json()["detail"]) == (409, True)
        assert [v["text"] for v in cora.get("/api/queues/first/guideline").json()] == ["cora's", "as made"]
        reply = take(ann, "first")
        assert (reply["guideline"], reply["guideline_version"], reply["title"]) == ("cora's", 2, "first")
        change = {"title": "Tone", "description": "What sounds right", "priority": 3, "suggestions": "before"}
        assert cora.patch("/api/queues/first", json=change).json()["title"] == "Tone"
        refused = cora.patch("/api/queues/first", json={"qualify_checks": 5})
        assert "0 items with a known answer" in refused.json()["detail"]
        settings = cora.get("/api/queues/first/settings").json()
        assert [settings["options"][name] for name in ("description", "priority", "suggestions")] == [
            "What sounds right",
            3,
            "before",
        ]
        assert {event["change"] for event in settings["history"]} == {"guideline", "renamed", "options"}
        assert settings["known_people"] == ["ann", "ben", "cora"]
        assert ann.get("/api/queues/first/settings").status_code == 403
        for change_to, empty in (("paused", "paused"), ("resumed", None)):
            cora.put("/api/queues/first/state", json={"change": change_to}).raise_for_status()
            with signed_in(url, "ben", PASSWORD) as ben:
                assert take(ben, "first")["empty"] == empty
        cora.put("/api/queues/first/state", json={"change": "deleted"}).raise_for_status()
        assert (ann.get("/api/queues").json(), ann.post("/api/annotate/queues/first/item").status_code) == ([], 404)
        assert [queue["title"] for queue in cora.get("/api/queues-deleted").json()] == ["Tone"]
        body = {"name": "first", "pools": ["unverified"]}
        assert "its votes keep the name" in cora.post("/api/queues", json=body).json()["detail"]
        cora.put("/api/queues/first/state", json={"change": "restored"}).raise_for_status()
        assert [queue["title"] for queue in ann.get("/api/queues").json()] == ["Tone"]
    with AccessFile(workspace.root / FILE) as access:
        actions = [line.action for line in read_audit(access, person="cora", most=50)]
    assert {"edit_queue_guideline", "edit_queue", "turn_queue_by_name"} <= set(actions)


def test_a_queue_is_for_those_it_is_assigned_to(team: tuple[Workspace, list[str], str]) -> None:
    workspace, ids, url = team
    make(workspace, "first", ids[:6])
    with (
        signed_in(url, "cora", PASSWORD) as cora,
        signed_in(url, "ann", PASSWORD) as ann,
        signed_in(url, "ben", PASSWORD) as ben,
    ):
        strange = cora.put("/api/projects/default/groups/night", json={"people": ["zoe"]})
        assert "zoe is no member" in strange.json()["detail"]
        cora.put("/api/projects/default/groups/night", json={"people": ["ben"]}).raise_for_status()
        cora.put("/api/queues/first/people", json={"people": [], "groups": ["night"]}).raise_for_status()
        assert [len(client.get("/api/queues").json()) for client in (cora, ann, ben)] == [1, 0, 1]
        assert (ann.post("/api/annotate/queues/first/item").status_code, take(ben, "first")["empty"]) == (404, None)
        looked_after = cora.post("/api/annotate/queues/first/item").json()
        assert (looked_after["item"], looked_after["empty"]) == (None, "not_assigned")
        assert cora.get("/api/queues").json()[0]["assigned"] is False
        cora.put("/api/projects/default/groups/night", json={"people": []}).raise_for_status()
        assert ben.get("/api/queues").json() == []
        cora.put("/api/queues/first/people", json={}).raise_for_status()
        assert len(ann.get("/api/queues").json()) == 1


@pytest.mark.slow
def test_own_answers_suggestions_and_notes(team: tuple[Workspace, list[str], str]) -> None:
    workspace, ids, url = team
    items = [QueueItem(c, opinions=(ShownOpinion("judge-1", "A", "it runs"),)) for c in ids[:4]]
    create_queue(workspace, "first", items, gold_checks=0.0, run_id=None)
    with signed_in(url, "cora", PASSWORD) as cora, signed_in(url, "ann", PASSWORD) as ann:
        plain = take(ann, "first")["item"]
        assert plain["suggestions"] == []
        assert cast(ann, "first", plain, "ann", choice="first").json()["receipt"]["opinions"] == []
        cora.patch("/api/queues/first", json={"suggestions": "before"}).raise_for_status()
        held = take(ann, "first")
        assert held["item"]["suggestions"] == [], "it was before the person already"
        cora.patch("/api/queues/first", json={"suggested_by": ["judge-2"]}).raise_for_status()
        receipt = cast(ann, "first", held["item"], "ann", choice="first").json()["receipt"]
        assert receipt["opinions"] == [], "after the vote neither, but of the judges that the queue shows"
        cora.patch("/api/queues/first", json={"suggested_by": []}).raise_for_status()
        ann.post("/api/annotate/queues/first/release", json={"ticket": take(ann, "first")["item"]["ticket"]})
        reply = take(ann, "first")
        assert [o["by"] for o in reply["item"]["suggestions"]] == ["judge-1"]
        assert (reply["progress"]["answered"], reply["progress"]["expected"]) == (2, 4)
        ticket = reply["item"]["ticket"]
        note = {"ticket": ticket, "kind": "comment", "text": "cut off", "key": "request-1"}
        assert ann.post("/api/annotate/queues/first/notes", json=note).json()["item"] == reply["item"]["number"]
        assert len(cora.get("/api/queues/first/notes").json()) == 1
        (seen,) = cora.get("/api/queues/first/notes").json()
        answer = {"resolved": True, "reply": "skip it"}
        cora.put(f"/api/queues/first/notes/{seen['id']}", json=answer).raise_for_status()
        (own,) = ann.get("/api/annotate/queues/first/notes").json()
        assert (own["resolved_by"], own["reply"]) == ("cora", "skip it")
        cast(ann, "first", reply["item"], "ann", choice="second", strength=2).raise_for_status()
        answers = ann.get("/api/annotate/queues/first/answers").json()
        assert [a["said"] for a in answers["answers"]] == ["second", "first", "first"]
        assert (answers["total"], answers["changeable"], answers["answers"][0]["notes"]) == (3, True, 1)
        first = answers["answers"][-1]
        again = ann.post("/api/annotate/queues/first/revision", json={"ticket": first["ticket"]}).json()
        assert (again["item"]["number"], again["previous"]["said"]) == (first["item"], "first")
        cast(ann, "first", again["item"], "ann", choice="second").raise_for_status()
        link = ann.post("/api/annotate/queues/first/item", params={"item": first["item"]}).json()
        assert (link["item"]["number"], link["previous"]["said"], link["previous"]["changes"]) == (
            first["item"],
            "second",
            1,
        )
        assert ann.post("/api/annotate/queues/first/item", params={"item": 10**6}).status_code == 409
        cora.post("/api/queues/first/close").raise_for_status()
        current = ann.get("/api/annotate/queues/first/answers").json()
        assert current["changeable"] is False
        refused = ann.post("/api/annotate/queues/first/revision", json={"ticket": current["answers"][0]["ticket"]})
        assert (refused.status_code, "is closed" in refused.json()["detail"]) == (409, True)


@pytest.mark.slow
def test_many_items_at_once_and_working_time(team: tuple[Workspace, list[str], str]) -> None:
    workspace, ids, url = team
    make(workspace, "first", ids[:6])
    make(workspace, "second", ids[6:8])
    with signed_in(url, "cora", PASSWORD) as cora, signed_in(url, "ann", PASSWORD) as ann:
        vote_on(ann, "first", "ann", 2, seconds=30.0)
        vote_on(ann, "first", "ann", 1, seconds=4000.0)
        held = take(ann, "first")["item"]["ticket"]
        ann.post("/api/annotate/queues/first/release", json={"ticket": held}).raise_for_status()
        page = cora.get("/api/queues/first/items", params={"state": "done"}).json()
        assert (page["total"], [row["voters"] for row in page["rows"]]) == (3, [["ann"]] * 3)
        numbers = [row["item"] for row in cora.get("/api/queues/first/items", params={"state": "open"}).json()["rows"]]
        assert len(numbers) == 3
        changes = "/api/queues/first/items/change"
        cora.post(changes, json={"items": numbers[:1], "change": "removed"}).raise_for_status()
        cora.post(changes, json={"items": numbers[1:], "change": "assigned", "people": ["ben"]}).raise_for_status()
        assert take(ann, "first")["empty"] == "done"
        removed = cora.get("/api/queues/first/items", params={"state": "removed"}).json()
        assert [row["item"] for row in removed["rows"]] == numbers[:1]
        sent = {"items": numbers[1:], "to": "second", "remove": True}
        assert cora.post("/api/queues/first/items/sending", json=sent).json() == {"items": 2}
        assert cora.get("/api/queues/second/items").json()["total"] == 4
        some = [row["item"] for row in page["rows"]][:2]
        decided = cora.post("/api/queues/first/items/resolution", json={"items": some}).json()
        assert (decided["items"], decided["gold"], decided["new"]) == (2, 2, 2)
        assert cora.get("/api/queues/first/items", params={"text": "list 3?"}).json()["total"] <= 1
        report = cora.get("/api/pay", params={"amount": 36, "per": "hour", "idle_s": 300}).json()
        (row,) = report["rows"]
        assert (row["time"]["items"], row["time"]["seconds"], row["time"]["capped"], row["pay"]) == (3, 360.0, 1, 3.6)
        assert cora.get("/api/pay", params={"amount": 0.5, "per": "item", "until": 5}).json()["rows"] == []
        table = list(csv.DictReader(io.StringIO(cora.get("/api/pay.csv", params={"amount": 2, "per": "item"}).text)))
        assert [(line["annotator"], line["items"], line["pay"]) for line in table] == [("ann", "3", "6.00")]
        assert ann.get("/api/pay").status_code == 403
        unknown = cora.get("/api/pay", params={"queue": "nothing"})
        assert (unknown.status_code, "first" in unknown.text) == (404, False), "without a word of the others"


@pytest.mark.slow
def test_items_are_chosen_by_fields_and_by_likeness(workspace: Workspace) -> None:
    rows = [
        {
            "prompt": f"{'Sort the list' if n % 2 else 'Write a poem on rain'} number {n}",
            "chosen": f"good {n}",
            "rejected": f"bad {n}",
            "region": "north" if n % 3 else "south",
            "ticket": f"id-{n}",
        }
        for n in range(30)
    ]
    file = workspace.root.parent / "regions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run_import(workspace, open_import(workspace, ImportConfig(str(file))))
    with running_web(workspace) as url, signed_in(url, "cora") as cora:
        fields = {field["name"]: field for field in cora.get("/api/comparison-fields").json()}
        assert {v["value"]: v["count"] for v in fields["region"]["values"]} == {"north": 20, "south": 10}
        assert "ticket" not in fields, "it is another one for each"
        chosen = {"name": "south", "fields": [{"name": "region", "values": ["south"]}], "gold_checks": 0}
        made = cora.post("/api/queues", json=chosen)
        assert made.json()["counts"]["items"] == 10, made.text
        rated = {**chosen, "name": "rated", "question": "rating", "pools": []}
        assert cora.post("/api/queues", json=rated).json()["counts"]["items"] == 20
        with workspace.store.unit() as db:
            poem = db.execute(
                """SELECT comparison_id FROM comparisons JOIN prompts USING (prompt_id)
                   WHERE list_last(messages).content LIKE '%poem%' ORDER BY 1 LIMIT 1"""
            ).fetchall()[0][0]
        path = f"/api/comparisons/{poem}/similar"
        assert cora.get(path).json()["space"] is None
        embed_comparisons(workspace, HashingEncoder(256), Selection(), None)
        near = cora.get(path, params={"most": 5}).json()
        assert (near["space"], near["searched"], len(near["rows"])) == ("hashing-256@1", 30, 5)
        assert all("poem" in row["prompt"] for row in near["rows"])
        similar = {"name": "poems", "similar_to": poem, "limit": 9, "gold_checks": 0}
        assert cora.post("/api/queues", json=similar).json()["counts"]["items"] == 9
