"""Principles in a sitting, in a real browser: answers and evidence on their way to the store, and undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.annotation.vote_journal import fold
from assay.workspace import Workspace
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CLEAR, CITES = "is clear", "says where its claims come from"
GOOD = "Use a **set** to drop them: `dict.fromkeys(items)` keeps the order.\n\n1. It costs $O(n)$.\n2. See [the manual](https://docs.python.org/3/)."
BAD = "Sort it first, then compare neighbours."


@pytest.fixture(scope="module")
def place(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = shutil.copytree(empty_workspace, tmp_path_factory.mktemp("principles") / "workspace")
    workspace = Workspace.open(root)
    rows = [{"prompt": f"How do I drop duplicates from list {n}?", "chosen": GOOD, "rejected": BAD} for n in range(4)]
    file = root.parent / "pairs.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    run_import(workspace, open_import(workspace, ImportConfig(str(file))))
    return workspace


@pytest.fixture(scope="module")
def url(place: Workspace) -> Iterator[str]:
    with running_web(place) as found:
        yield found


def make(url: str, name: str, **more: Any) -> None:
    with signed_in(url) as client:
        body = {"name": name, "gold_checks": 0, "principles": [CLEAR, f" {CITES} "], **more}
        made = client.post("/api/queues", json=body)
        assert made.status_code == 200, made.text


def standing(workspace: Workspace) -> list[tuple[str, str, str, str, str | None]]:
    """Of the view: who, of which response, principle, answer, evidence."""
    fold(workspace)
    with workspace.store.unit() as db:
        return db.execute(
            """SELECT n.name, r.content, p.statement, v.answer, v.evidence FROM standing_principle_judgments v
               JOIN annotators n USING (annotator_id) JOIN principles p USING (principle_id)
               JOIN responses r USING (response_id) ORDER BY ALL"""
        ).fetchall()


@pytest.mark.slow
def test_the_body_of_a_vote_carries_them(place: Workspace, url: str) -> None:
    make(url, "by-http", overlap=2)
    for name, said in (("bea", "yes"), ("cleo", "no")):
        with signed_in(url, name) as client:
            item = client.post("/api/annotate/queues/by-http/item").json()["item"]
            assert item["principles"] == [CLEAR, CITES]
            side = "first" if item["first"] == BAD else "second"
            vote = {"person": name, "ticket": item["ticket"], "seal": item["seal"], "choice": "tie"}
            answer = {"place": side, "principle": CLEAR, "answer": said, "evidence": "Sort it"}

            def post(answer: dict[str, str], vote: dict[str, str] = vote, client: Any = client) -> Any:
                return client.post("/api/annotate/queues/by-http/votes", json={**vote, "principles": [answer]})

            for wrong in ({"principle": "is kind"}, {"evidence": "Bubble sort"}, {"answer": "maybe"}):
                refused = post({**answer, **wrong})
                assert refused.status_code in (400, 422), refused.text
            assert post(answer).json()["receipt"]["repeated"] is False
            assert post(answer).json()["receipt"]["repeated"] is True
    assert standing(place) == [("bea", BAD, CLEAR, "yes", "Sort it"), ("cleo", BAD, CLEAR, "no", "Sort it")]
    with signed_in(url) as client:
        (found,) = client.get("/api/queues/by-http/report").json()["principles"]
    assert (found["principle"], found["answers"], found["items"], found["percent"]) == (CLEAR, 2, 1, 0.0)


def test_an_adjudicator_sees_what_others_said_of_principles_when_they_see_the_votes(url: str) -> None:
    make(url, "contested", overlap=2, seed=5)
    at = "/api/annotate/queues/contested"
    for name, wins, said in (("bea", GOOD, "yes"), ("cleo", BAD, "no")):
        with signed_in(url, name) as client:
            item = client.post(f"{at}/item").json()["item"]
            while item is not None:
                place = "first" if item["first"] == wins else "second"
                bad = "first" if item["first"] == BAD else "second"
                vote = {"person": name, "ticket": item["ticket"], "seal": item["seal"], "choice": place}
                answer = {"place": bad, "principle": CLEAR, "answer": said, "evidence": "Sort it"}
                item = client.post(f"{at}/votes", json=vote | {"principles": [answer]}).json()["next"]["item"]
    with signed_in(url, "dora") as dora:
        given = dora.post(f"{at}/conflict")
        assert "Sort it first" in given.text
        assert not any(said in given.text for said in ("bea", "cleo", '"evidence"')), "blind until it is asked for"
        item = given.json()["item"]

        def check(votes: list[dict[str, Any]], item: dict[str, Any]) -> None:
            bad = "first" if item["first"] == BAD else "second"
            answers = {vote["by"]: vote["principles"] for vote in votes}
            common = {"place": bad, "principle": CLEAR, "evidence": "Sort it"}
            assert answers == {"bea": [common | {"answer": "yes"}], "cleo": [common | {"answer": "no"}]}

        blind = {"person": "dora", "ticket": item["ticket"], "seal": item["seal"], "choice": "tie"}
        reply = dora.post(f"{at}/votes", json=blind).json()
        check(reply["receipt"]["votes"], item)
        second = dora.post(f"{at}/reveal", json={"ticket": reply["next"]["item"]["ticket"]}).json()
        check(second["votes"], second["item"])


def select(page: Page, letter: str, from_text: str, to_text: str) -> None:
    """The words of a response from the first of one text node to the last of another, as a mouse would leave them."""
    found = page.evaluate(
        """([letter, from, to]) => {
            const nodes = [];
            const walker = document.createTreeWalker(
                document.querySelector(`[aria-label="Response ${letter}"] [data-response]`), NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) nodes.push(walker.currentNode);
            const [one, two] = [from, to].map((words) => nodes.find((node) => node.nodeValue.includes(words)));
            const start = one.nodeValue.indexOf(from);
            const end = two.nodeValue.indexOf(to) + to.length;
            getSelection().setBaseAndExtent(one, start, two, end);
            return getSelection().toString();
        }""",
        [letter, from_text, to_text],
    )
    assert from_text in found
    assert to_text in found


def highlighted(page: Page) -> list[str]:
    found: list[str] = page.evaluate(
        "[...(CSS.highlights.get('assay-evidence') ?? [])].map((range) => range.toString())"
    )
    return found


@pytest.mark.slow
@pytest.mark.browser
def test_answers_and_evidence_in_the_browser(place: Workspace, url: str, browser: Browser) -> None:
    make(url, "by-browser")
    with opened(browser, url, color_scheme="light") as page:
        page.goto("/annotate/queue/by-browser")
        panel = page.get_by_role("region", name="Principles")
        panel.get_by_text("Principles, 0 of 4 answered").wait_for()
        first = page.get_by_label("Response A").inner_text()
        good, bad = ("A", "B") if "set" in first else ("B", "A")
        page.keyboard.press("p")
        page.keyboard.type("1")  # A is clear
        page.keyboard.press("ArrowDown")
        page.keyboard.type("1")  # B too
        page.keyboard.press("ArrowDown")
        select(page, good, "Use a", "keeps the order.")
        page.keyboard.press("e")
        evidence = "Use a **set** to drop them: `dict.fromkeys(items)` keeps the order."
        panel.get_by_text(evidence).wait_for()
        page.wait_for_function("CSS.highlights.get('assay-evidence')?.size === 1")
        assert highlighted(page) == ["Use a set to drop them: dict.fromkeys(items) keeps the order"]
        page.get_by_role("radiogroup", name=f"{good}: {CITES}").get_by_role("radio", name="yes").click()
        select(page, bad, "Sort it first", "neighbours.")
        page.keyboard.press("e")
        panel.get_by_text(BAD).wait_for()
        page.get_by_role("button", name=f"Remove the evidence of {bad}: {CITES}").click()
        check_accessible(page)
        screenshot(page, "annotate-principles")

        page.reload()
        panel.get_by_text("Principles, 3 of 4 answered").wait_for()
        panel.get_by_text(evidence).wait_for()
        page.wait_for_function("CSS.highlights.get('assay-evidence')?.size === 1")
        ticket = page.evaluate("Object.keys(localStorage).find((name) => name.startsWith('assay.draft:'))")
        assert ticket is not None

        page.keyboard.press("a")
        page.get_by_role("region", name="Last vote").wait_for()
        panel.get_by_text("Principles, 0 of 4 answered").wait_for()
        page.wait_for_function("!CSS.highlights.get('assay-evidence')?.size")
        told = [row[1:] for row in standing(place) if row[0] == "ada"]
        assert told == sorted(
            [
                (GOOD, CLEAR, "yes", None),
                (BAD, CLEAR, "yes", None),
                (GOOD, CITES, "yes", evidence),
            ],
            key=lambda row: (row[0], row[1]),
        )

        page.keyboard.press("u")
        page.get_by_role("region", name="Last vote").wait_for(state="detached")
        assert [row for row in standing(place) if row[0] == "ada"] == []
        panel.get_by_text("Principles, 3 of 4 answered").wait_for()
        page.get_by_role("radiogroup", name=f"{bad}: {CLEAR}").get_by_role("radio", name="no", exact=True).click()
        page.keyboard.press("t")
        page.get_by_role("region", name="Last vote").wait_for()
        told = [row[1:] for row in standing(place) if row[0] == "ada"]
        assert sorted(told) == sorted(
            [(GOOD, CLEAR, "yes", None), (BAD, CLEAR, "no", None), (GOOD, CITES, "yes", evidence)]
        )


@pytest.mark.slow
@pytest.mark.browser
def test_on_a_phone_in_the_dark_words_may_be_written(url: str, browser: Browser) -> None:
    make(url, "on-a-phone", seed=3)
    look: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}
    with opened(browser, url, name="dora", **look) as page:
        page.goto("/annotate/queue/on-a-phone")
        panel = page.get_by_role("region", name="Principles")
        panel.get_by_role("radiogroup", name=f"A: {CLEAR}").get_by_role("radio", name="partly").click()
        panel.get_by_role("button", name="Attach selected words").click()
        box = panel.get_by_label("Words of A that show it")
        box.fill("first, then compare" if "Sort" in page.get_by_label("Response A").inner_text() else "a set to drop")
        box.press("Enter")
        panel.get_by_text("Attached to A.").wait_for()
        page.wait_for_function("CSS.highlights.get('assay-evidence')?.size === 1")
        check_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        panel.scroll_into_view_if_needed()
        screenshot(page, "annotate-principles-phone", full_page=True)
