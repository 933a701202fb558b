"""Annotation over real HTTP and in a real browser: what is told when, to whom, and what a sitting shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from annotating import ATTRIBUTES, OPINION, REASONING, cast, import_pairs, make, prompt_of, standing, take
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem, ShownOpinion
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.annotation.recovery import open_ledger
from assay_web.access.guard import COOKIE
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import ROLES, add_account
from assay_web.accounts.passwords import Passwords
from assay_web.accounts.sessions import begin_session
from assay_web.settings import PasswordCost, WebSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def place(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """One workspace for the tests that do not kill its server; each makes queues of its own."""
    import shutil

    root = shutil.copytree(empty_workspace, tmp_path_factory.mktemp("annotate") / "workspace")
    workspace = Workspace.open(root)
    import_pairs(workspace, 90)
    return workspace


@pytest.fixture(scope="module")
def comparisons(place: Workspace) -> list[str]:
    with place.store.unit() as db:
        return [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]


@pytest.fixture(scope="module")
def url(place: Workspace) -> Iterator[str]:
    with running_web(place) as found:
        yield found


def test_before_a_vote_no_reply_tells_what_judges_or_others_said(
    place: Workspace, comparisons: list[str], url: str
) -> None:
    opinions = (ShownOpinion(OPINION, "A", REASONING),)
    items = [QueueItem(c, attributes=ATTRIBUTES, opinions=opinions) for c in comparisons[:3]]
    create_queue(place, "blind", items, overlap=2, gold_checks=0.0, run_id=None)
    with signed_in(url, "ann") as ann, signed_in(url, "ben") as ben:
        while (item := take(ann, "blind")["item"]) is not None:
            cast(ann, "blind", item, "ann", choice="first", rationale="ann's own reason").raise_for_status()
        told = []
        ben.event_hooks["response"] = [lambda reply: told.append(reply.read())]
        found = take(ben, "blind")
        for path in ("/api/queues", "/api/queues/blind", "/api/annotate/queues/blind/live", "/api/session"):
            ben.get(path).raise_for_status()
        ben.get("/api/annotate/queues/blind/own").raise_for_status()
        ben.post("/api/annotate/queues/blind/renewal", json={"ticket": found["item"]["ticket"]}).raise_for_status()
        refused = cast(ben, "blind", found["item"] | {"seal": "0" * 16}, "ben", choice="first")
        assert refused.status_code == 409
        assert cast(ben, "blind", found["item"], "ben").status_code == 422, "neither a choice nor a reason to skip"
        assert ben.post("/api/annotate/queues/blind/reveal", json={"ticket": found["item"]["ticket"]}).is_error
        for reply in told:
            for secret in (OPINION, REASONING, "ann's own reason", *comparisons):
                assert secret.encode() not in reply
        receipt = cast(ben, "blind", found["item"], "ben", choice="second", strength=1).json()["receipt"]
        assert [(o["by"], o["rationale"]) for o in receipt["opinions"]] == [(OPINION, REASONING)]
        assert receipt["votes"] == [], "others' votes are for adjudicators"
        (vote,) = [v for v in standing(place, "blind") if v.annotator == "ben"]
        assert receipt["opinions"][0]["said"] == ("first" if vote.shown_order == "AB" else "second")
        assert vote.answer == ("B" if vote.shown_order == "AB" else "A")
        assert vote.strength == 1


def test_a_vote_counts_once_however_often_it_is_sent_and_undo_goes_back_one(
    place: Workspace, comparisons: list[str], url: str
) -> None:
    make(place, "once", comparisons[:4])
    with signed_in(url, "ann") as ann:
        item = take(ann, "once")["item"]
        assert take(ann, "once")["item"]["ticket"] == item["ticket"], "the place in the queue survives a reload"
        replies = [cast(ann, "once", item, "ann", choice="first", rationale="why").json() for _ in range(3)]
        assert [reply["receipt"]["repeated"] for reply in replies] == [False, True, True]
        assert len({reply["next"]["item"]["ticket"] for reply in replies}) == 1
        other = cast(ann, "once", item, "ann", choice="second", rationale="why")
        assert other.status_code == 422
        assert "undo it first" in other.json()["detail"]
        following = replies[0]["next"]["item"]
        cast(ann, "once", following, "ann", choice="tie").raise_for_status()
        assert len(standing(place, "once")) == 2
        held = take(ann, "once")["item"]["ticket"]
        undo = {"ticket": following["ticket"], "held": held}
        for _ in range(3):  # a reply that is lost is asked for again
            again = ann.post("/api/annotate/queues/once/undo", json=undo).json()
            assert again["item"]["first"] == following["first"]
            assert again["progress"]["mine"] == 1
        stale = ann.post("/api/annotate/queues/once/undo", json={"ticket": again["item"]["ticket"]})
        assert stale.status_code == 409, "it was not cast"
        assert len(standing(place, "once")) == 1
        with open_ledger(place) as ledger, ledger.reading() as db:
            assert db.execute("SELECT count(*) FROM leases WHERE annotator = 'ann'").fetchone()[0] == 1
        assert cast(ann, "once", following, "ann", choice="tie").status_code == 422, "it was taken back"


def test_refusals_tell_what_can_be_tried_again(place: Workspace, comparisons: list[str], url: str) -> None:
    make(place, "lost", comparisons[:1], lease_seconds=0.2)
    with signed_in(url, "ann") as ann, signed_in(url, "ben") as ben:
        item = take(ann, "lost")["item"]
        theirs = cast(ben, "lost", item, "ann", choice="first")
        assert (theirs.status_code, theirs.json()["code"]) == (403, "another_person")
        time.sleep(0.25)
        cast(ben, "lost", take(ben, "lost")["item"], "ben", choice="first").raise_for_status()
        late = cast(ann, "lost", item, "ann", choice="first", rationale="too late")
        assert late.status_code == 409, "given away for good: a 503 would be tried again for ever"
        assert "ran out" in late.json()["detail"]
        assert take(ann, "lost")["empty"] == "done"
        assert ann.post("/api/annotate/queues/nowhere/item").status_code == 404


def test_what_people_are_told_of_gold_checks_names_none(place: Workspace, comparisons: list[str], url: str) -> None:
    with place.store.unit() as db:
        insert_decisions(db, [Decision(c, "gold", "A", "people_majority", "known") for c in comparisons[60:]], None)
    make(place, "checked", comparisons[:40], gold_checks=0.2)
    with signed_in(url, "ann") as ann:
        own, shares, seen = [], [], take(ann, "checked")
        for _ in range(21):
            reply = cast(ann, "checked", seen["item"], "ann", choice="first")
            seen = reply.json()["next"]
            own.append(ann.get("/api/annotate/queues/checked/own").json())
            shares.append(seen["progress"]["share"])
            assert seen["progress"]["mine"] == len(own), "checks count as any other vote"
        assert [figures["votes"] for figures in own] == [0] * 19 + [20] * 2, "whole blocks only"
        whole = own[-1]
        assert whole["checks"] == 4, "a fifth of 20"
        votes = standing(place, "checked")
        assert len({v.comparison_id for v in votes[:20] if v.check_label is not None}) == 4
        assert whole["passed"] == sum(v.answer == "A" for v in votes[:20] if v.check_label is not None)
        assert all(share * 20 == pytest.approx(round(share * 20)) for share in shares)
        for _ in range(21):  # whoever takes votes back one by one learns nothing by it
            last = take(ann, "checked")["progress"]["last"]
            ann.post("/api/annotate/queues/checked/undo", json={"ticket": last}).raise_for_status()
            assert ann.get("/api/annotate/queues/checked/own").json() == whole
        assert standing(place, "checked") == []


def test_adjudication_is_blind_until_asked_otherwise(place: Workspace, comparisons: list[str], url: str) -> None:
    make(place, "split", comparisons[:2], overlap=2)
    with signed_in(url, "ann") as ann, signed_in(url, "ben") as ben, signed_in(url, "cleo") as cleo:
        for client, name, answer in ((ann, "ann", "A"), (ben, "ben", "B")):
            while (item := take(client, "split")["item"]) is not None:
                with open_ledger(place) as ledger, ledger.reading() as db:
                    (order,) = db.execute("SELECT shown_order FROM leases WHERE annotator = ?", (name,)).fetchone()
                choice = "first" if order[0] == answer else "second"
                cast(client, "split", item, name, choice=choice, rationale=f"{name}'s reason").raise_for_status()
        conflict = "/api/annotate/queues/split/conflict"
        nothing = ann.post(conflict).json()
        assert (nothing["item"], nothing["progress"]["waiting"]) == (None, 0), "not by somebody who voted on it"
        given = cleo.post(conflict)
        assert "'s reason" not in given.text
        first = given.json()["item"]
        assert first["role"] == "blind"
        assert (given.json()["progress"]["waiting"], given.json()["progress"]["mine"]) == (2, 0)
        with signed_in(url, "dora") as dora:
            theirs = dora.post(conflict).json()
            assert theirs["progress"]["waiting"] == 1, "one is before cleo"
            release = "/api/annotate/queues/split/release"
            dora.post(release, json={"ticket": theirs["item"]["ticket"]}).raise_for_status()
        reply = cast(cleo, "split", first, "cleo", choice="both_bad").json()
        assert {v["by"]: v["rationale"] for v in reply["receipt"]["votes"]} == {
            "ann": "ann's reason",
            "ben": "ben's reason",
        }
        assert (reply["next"]["progress"]["waiting"], reply["next"]["progress"]["mine"]) == (1, 1)
        second = reply["next"]["item"]
        revealed = cleo.post("/api/annotate/queues/split/reveal", json={"ticket": second["ticket"]}).json()
        assert {v["by"] for v in revealed["votes"]} == {"ann", "ben"}
        assert {v["said"] for v in revealed["votes"]} == {"first", "second"}
        done = cast(cleo, "split", revealed["item"], "cleo", choice="first").json()
        assert (done["next"]["item"], done["next"]["progress"]["waiting"]) == (None, 0)
        assert {v.role for v in standing(place, "split") if v.annotator == "cleo"} == {"blind", "open"}
        queue = next(q for q in cleo.get("/api/queues").json() if q["name"] == "split")
        assert queue["counts"]["annotators"] == {"ann": 2, "ben": 2}


@pytest.mark.slow
def test_queues_are_made_extended_closed_and_reported(place: Workspace, comparisons: list[str], url: str) -> None:
    with signed_in(url, "cleo") as cleo:
        asked = {"name": "made-here", "pools": ["unverified"], "limit": 5, "overlap": "all", "gold_checks": 0}
        made = cleo.post("/api/queues", json=asked).json()
        assert (made["overlap"], made["counts"]["items"]) == ("all", 5)
        assert cleo.post("/api/queues", json=asked | {"overlap": 2}).status_code == 422
        assert cleo.post("/api/queues", json=asked | {"name": "none", "sources": ["nowhere"]}).status_code == 422
        more = cleo.post("/api/queues/made-here/items", json={"comparison_ids": comparisons}).json()
        assert more == {"added": len(comparisons) - 5}
        cast(cleo, "made-here", take(cleo, "made-here")["item"], "cleo", choice="first").raise_for_status()
        reply = cast(cleo, "made-here", take(cleo, "made-here")["item"], "cleo", skip="not_for_me").json()
        assert (reply["next"]["progress"]["mine"], reply["next"]["progress"]["passed"]) == (1, 1)
        assert cleo.post("/api/queues/made-here/close").json()["closed"]
        assert take(cleo, "made-here")["empty"] is None, "what is before somebody stays theirs"
        with signed_in(url, "ann") as ann:
            assert take(ann, "made-here")["empty"] == "closed"
        assert not cleo.post("/api/queues/made-here/reopen").json()["closed"]
        report = cleo.get("/api/queues/made-here/report").json()
        found = [(one["annotator"], one["votes"], one["skips"], one["passed_on"]) for one in report["annotators"]]
        assert found == [("cleo", 1, 0, 1)]
        told = cleo.get("/api/queues/made-here").json()
        assert (told["mine"], told["counts"]["votes"], told["counts"]["annotators"]) == (1, 1, {"cleo": 1})
        with place.store.unit() as db:
            row = db.execute("SELECT config->>'person' FROM runs WHERE kind = 'queue-create'").fetchone()
        assert row == ("cleo",)


def test_votes_are_turned_into_decisions(place: Workspace, comparisons: list[str], url: str) -> None:
    with signed_in(url, "dora") as dora:
        asked = {"name": "decided", "comparison_ids": comparisons[-3:], "overlap": 2, "gold_checks": 0}
        dora.post("/api/queues", json=asked).raise_for_status()
        voted = take(dora, "decided")["item"]
        cast(dora, "decided", voted, "dora", choice="first").raise_for_status()
        at = "/api/queues/decided/resolution"
        assert dora.get(at).json()["waiting"] == 3, "two people are asked"
        preview = dora.get(at, params={"least_votes": 1}).json()
        assert (preview["gold"], preview["waiting"], preview["new"]) == (1, 2, 0)
        written = [dora.post(at, json={"least_votes": 1}).json()["new"] for _ in range(2)]
        assert written == [1, 0]
    with place.store.unit() as db:
        found = db.execute(
            """SELECT pool, rule, config->>'person' FROM current_decisions JOIN runs USING (run_id)
               WHERE kind = 'queue-resolve' AND list_contains($ids, comparison_id)""",
            {"ids": comparisons[-3:]},
        ).fetchall()
    assert found == [("gold", "people_majority", "dora")]


CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)


def test_roles_see_and_do_what_is_theirs(place: Workspace, comparisons: list[str], url: str) -> None:
    make(place, "roles", comparisons[:4])
    item, conflict = "/api/annotate/queues/roles/item", "/api/annotate/queues/roles/conflict"
    with AccessFile(place.root / FILE) as access:
        for role in ROLES:
            add_account(access, Passwords(CHEAP), f"some {role}", role, "a long password", by="test")
        tokens = {role: begin_session(access, f"some {role}", role, WebSettings()) for role in ROLES}
    statuses = {}
    for role, token in tokens.items():
        with httpx.Client(base_url=url, cookies={f"{COOKIE}_{url.rpartition(':')[2]}": token}) as client:
            client.headers["X-CSRF-Token"] = client.get("/api/session").json()["csrf"]
            queue = client.get("/api/queues/roles").json()
            assert (queue["counts"] is not None) == (role in ("curator", "admin")), "counts would tell of gold checks"
            assert (client.get("/api/annotate/queues/roles/live").json()["conflicts"] is not None) == (
                queue["counts"] is not None
            )
            statuses[role] = [
                client.post(item).status_code,
                client.get("/api/annotate/queues/roles/own").status_code,
                client.post(conflict).status_code,
                client.get("/api/queues/roles/report").status_code,
                client.post("/api/queues/roles/reopen").status_code,
            ]
    assert statuses["viewer"] == [403] * 5
    assert statuses["annotator"] == [200, 200, 403, 403, 403]
    assert statuses["curator"] == statuses["admin"] == [200] * 5


@pytest.mark.browser
def test_a_sitting_in_the_browser(place: Workspace, comparisons: list[str], url: str, browser: Browser) -> None:
    opinions = (ShownOpinion(OPINION, "A", REASONING),)
    checked = {"A": "runs", "B": "does not run"}
    items = [
        QueueItem(c, attributes=ATTRIBUTES, opinions=opinions, pre_verification=checked, reason="judges disagree")
        for c in comparisons[:6]
    ]
    guideline = "Read both to the end."
    create_queue(place, "sitting", items, overlap=2, gold_checks=0.0, run_id=None, guideline=guideline)
    with opened(browser, url, color_scheme="light") as page:
        page.goto("/annotate")
        page.get_by_role("link", name="Annotate sitting").wait_for()
        check_accessible(page)
        screenshot(page, "annotate-queues")
        page.get_by_role("link", name="Annotate sitting").click()
        prompt_of(page)
        page.locator(".katex").first.wait_for()
        page.locator(".hljs-keyword").first.wait_for()
        check_accessible(page)
        screenshot(page, "annotate-sitting")
        page.keyboard.press("d")
        page.locator("mark").first.wait_for()
        check_accessible(page)
        screenshot(page, "annotate-diff")
        page.keyboard.press("d")
        assert OPINION not in page.content()
        page.keyboard.press("1")
        page.keyboard.press("b")
        page.get_by_label("Stored").get_by_text("B is slightly better").wait_for()
        page.get_by_text(OPINION).wait_for()
        check_accessible(page)
        screenshot(page, "annotate-opinions")
        page.keyboard.press("Enter")
        prompt_of(page)
        page.keyboard.press("s")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("c")
        page.get_by_label("Stored").get_by_text("Skipped").wait_for()
        page.keyboard.press("u")
        page.get_by_text("1 of 6", exact=True).wait_for()
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        check_accessible(page)
        screenshot(page, "annotate-keys")
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="hidden")
        page.keyboard.press("q")
        page.get_by_role("heading", name="Annotate", exact=True).wait_for()
    with open_ledger(place) as ledger, ledger.reading() as db:
        held = "SELECT count(*) FROM leases JOIN items USING (item_id) WHERE queue = 'sitting'"
        assert db.execute(held).fetchone()[0] == 0, "leaving gives the item back"


@pytest.mark.slow
@pytest.mark.browser
def test_annotating_on_a_phone_in_the_dark(
    place: Workspace, comparisons: list[str], url: str, browser: Browser
) -> None:
    make(place, "phone", comparisons[:3], lease_seconds=600)
    make(place, "voted", comparisons[3:4], overlap=2)
    for name in ("ann", "ben"):
        with signed_in(url, name) as client:
            cast(client, "voted", take(client, "voted")["item"], name, choice="first").raise_for_status()
    look: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    with opened(browser, url, name="dora", **look) as page:
        page.goto("/annotate/queue/phone")
        prompt_of(page)
        a, b = (page.get_by_label(f"Response {letter}").bounding_box() for letter in "AB")
        assert a is not None
        assert b is not None
        assert b["y"] >= a["y"] + a["height"], "stacked"
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        check_accessible(page)
        screenshot(page, "annotate-phone")
        for _ in range(3):
            before = prompt_of(page)
            page.get_by_role("button", name="Both good").click()
            page.wait_for_function(
                "text => !(document.querySelector('[aria-label=\"Response A\"]')?.innerText === text)", arg=before
            )
        page.get_by_text("Nothing is left for you here").wait_for()
        check_accessible(page)
        page.goto("/annotate/queue/voted/report")
        page.get_by_role("heading", name="Agreement").wait_for()
        check_accessible(page)
        page.goto("/annotate/new")
        page.get_by_label("Guideline").wait_for()
        check_accessible(page)
    assert [v.answer for v in standing(place, "phone")] == ["both_good"] * 3
