"""The data browser over real HTTP and in a real browser, on a workspace filled by the product's own importers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.data.snapshots import Selection, create_snapshot
from assay.score import Score, ScoreFailure
from assay.store.feedback_intake import principle_schema, store_principle_judgments
from assay.store.records import Decision, Evidence, insert_decisions, insert_scores
from assay.workspace import Workspace
from assay_pipelines.hygiene.cleaning import CleanConfig, clean
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.asking import ask
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.llm.questions import load_questions

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Browser, Page

ROWS = 400
SHOWN: list[dict[str, Any]] = [
    {
        "id": "shown-1",
        "prompt": [
            {"role": "user", "content": "How do I solve a quadratic equation?"},
            {"role": "assistant", "content": "By hand or in **Python**?"},
            {"role": "user", "content": "Both, please. Does it cost $5 or $10?"},
        ],
        "chosen": [
            {
                "role": "assistant",
                "content": "With $ax^2 + bx + c = 0$:\n\n\\[ x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a} \\]\n\n"
                "```python\nimport cmath\n\ndef roots(a, b, c):\n    # both of them\n"
                "    d = cmath.sqrt(b * b - 4 * a * c)\n    return (-b + d) / (2 * a), (-b - d) / (2 * a)\n```\n\n"
                "| case | roots |\n|---|---|\n| d > 0 | 2 |\n| d = 0 | 1 |\n",
            }
        ],
        "rejected": [
            {
                "role": "assistant",
                "content": "<script>window.ran = true</script><img src=x onerror='window.ran = true'>\n\n"
                "Use the [formula](https://example.org/quadratic). ![seen](https://example.org/pixel.png)",
            }
        ],
        "category": "maths",
        "language": "en",
        "license": "CC-BY-4.0",
    }
]


def rows() -> list[dict[str, Any]]:
    plain = [
        {
            "id": f"plain-{n}",
            "prompt": [{"role": "user", "content": f"Question {n}: which of the two cities is larger?"}],
            "chosen": [{"role": "assistant", "content": f"The first one, by {n} thousand people."}],
            "rejected": [{"role": "assistant", "content": f"Hard to say without a map. ({n})"}],
            "category": "geography" if n % 2 else "trivia",
            "language": "de" if n % 5 == 0 else "en",
            "license": "MIT",
        }
        for n in range(ROWS)
    ]
    return SHOWN + plain


def contrary(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "id": f"second-{row['id']}", "chosen": row["rejected"], "rejected": row["chosen"]}


def imported(workspace: Workspace, file: Path, found: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    run_import(workspace, open_import(workspace, ImportConfig(str(file))))


def fill(workspace: Workspace, folder: Path) -> str:
    """Imports of two sources, a judge's opinions, cleaning, scores, principle votes, decisions, a snapshot. Returns the
    comparison that has all of them."""
    imported(workspace, folder / "cities.jsonl", rows())
    imported(workspace, folder / "survey.jsonl", [contrary(row) for row in rows()[:3]])
    with workspace.store.unit() as db:
        (name,) = db.execute("SELECT comparison_id FROM origins WHERE record_id = 'shown-1'").fetchall()[0]
        truth = dict(db.execute("SELECT comparison_id, label FROM source_labels WHERE label IS NOT NULL").fetchall())
        (a, b, chosen), *_ = db.execute(
            """SELECT response_a, response_b, answer FROM comparisons JOIN judgments USING (comparison_id)
               JOIN annotators USING (annotator_id) WHERE comparison_id = ? AND name = 'cities'""",
            [name],
        ).fetchall()
    judge = SimulatedJudge({**truth, name: chosen}, SimulatedConfig(accuracy=0.8, samples=2))
    ask(workspace, judge, load_questions(workspace, [name, *list(truth)[::7]]), None)
    clean(workspace, CleanConfig(), None)
    better, worse = (a, b) if chosen == "A" else (b, a)
    principles = {
        "messages": SHOWN[0]["prompt"],
        "response": SHOWN[0]["chosen"][0]["content"],
        "kind": "human",
        "voter": "expert-1",
        "source": "cities",
        "record_id": "shown-1",
    }
    with workspace.store.unit() as db:
        answers = (("gives code that runs", "yes", "def roots(a, b, c)"), ("names its sources", "no", None))
        store_principle_judgments(
            db,
            pa.Table.from_pylist(
                [
                    {**principles, "row": n + 1, "principle": said, "answer": answer, "evidence": evidence}
                    for n, (said, answer, evidence) in enumerate(answers)
                ],
                schema=principle_schema(),
            ),
            None,
        )
        given: list[tuple[str, Any]] = [
            (
                better,
                Score(2.125, "rm-large", "v-1", "t", tokens=180, truncated=False, probability=0.93, uncertainty=0.2),
            ),
            (worse, ScoreFailure("too_long", "4097 tokens of 4096")),
        ]
        insert_scores(db, given, model="rm-large", version="v-1", template_hash="t", run_id=None)
        insert_decisions(db, [Decision(name, "pending", None, "conflict", "two sources contradict each other")], None)
        rows_read = db.execute("SELECT judgment_id FROM opinions WHERE comparison_id = ?", [name]).fetchall()
        basis = [Evidence("checked", judgment) for (judgment,) in rows_read[1:]]
        basis.append(Evidence("counted", rows_read[0][0]))
        reason = "an expert read both"
        insert_decisions(db, [Decision(name, "gold", chosen, "adjudication", reason, 2.0, 1, basis)], None)
    create_snapshot(workspace, "train", Selection(pools=("gold",)), None)
    return str(name)


@pytest.fixture(scope="module")
def shown(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A running server's address, and the comparison to look at."""
    folder = tmp_path_factory.mktemp("data")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    name = fill(workspace, folder)
    with running_web(workspace) as url:
        yield url, name


def listed(client: httpx.Client, **asked: Any) -> list[dict[str, Any]]:
    """Every row of the question, a page at a time."""
    found, after = [], None
    while True:
        page = client.get("/api/comparisons", params={**asked, **({"after": after} if after else {})})
        assert page.status_code == 200, page.text
        found += page.json()["rows"]
        if (after := page.json()["after"]) is None:
            return found


def counted(client: httpx.Client, **asked: Any) -> int:
    """The parts of the number, each of which ends after some milliseconds."""
    number, after = 0, None
    while True:
        part = client.get("/api/comparisons/count", params={**asked, **({"after": after} if after else {})}).json()
        number += int(part["matches"])
        if (after := part["after"]) is None:
            return number


def test_pages_filters_and_counts_over_http(shown: tuple[str, str]) -> None:
    url, name = shown
    with signed_in(url) as client:
        assert len(listed(client)) == ROWS + 1
        geography = listed(client, category=["geography"], limit=77)
        assert len(geography) == ROWS // 2
        assert [row["comparison_id"] for row in listed(client, category=["geography"], order="newest")] == [
            row["comparison_id"] for row in geography
        ][::-1]
        assert counted(client, category="geography") == ROWS // 2
        assert [row["comparison_id"] for row in listed(client, text="QUADRATIC equation")] == [name]
        assert [row["comparison_id"] for row in listed(client, id="second-shown-1")] == [name]
        assert [row["comparison_id"] for row in listed(client, scored_by="rm-large", reward_low=2)] == [name]
        assert {row["comparison_id"] for row in listed(client, conflict="sources")} >= {name}
        assert len(listed(client, source="survey", label="none")) == 2  # the third has been decided
        facets = client.get("/api/comparisons/facets").json()
        assert facets["comparisons"] == ROWS + 1
        assert [model["model"] for model in facets["models"]] == ["rm-large"]
        for bad in ({"pool": "bronze"}, {"label": "C"}, {"after": "x"}, {"reward_low": 1}):
            assert client.get("/api/comparisons", params=bad).status_code in (400, 422)
        assert client.get("/api/comparisons/c-nothing").status_code == 404
        assert client.get("/api/lineage/c-nothing").status_code == 404


def test_a_comparison_and_its_lineage_over_http(shown: tuple[str, str]) -> None:
    url, name = shown
    with signed_in(url) as client:
        found = client.get(f"/api/comparisons/{name}").json()
        assert (found["pool"], len(found["decisions"]), len(found["origins"])) == ("gold", 2, 2)
        assert found["source_label"] is None
        assert {score["error"] for score in found["scores"]} == {None, "too_long: 4097 tokens of 4096"}
        down = client.get(f"/api/lineage/{name}", params={"direction": "down"}).json()
        assert [branch["relation"] for branch in down["branches"]] == ["judged in", "decided in", "held by"]
        (snapshot,) = down["branches"][2]["nodes"]
        up = client.get(f"/api/lineage/{snapshot['id']}", params={"direction": "up", "depth": 2}).json()
        assert name in json.dumps(up)
        file = next(branch for branch in client.get(f"/api/lineage/{found['run_id']}?direction=up").json()["branches"])
        assert file["nodes"][0]["kind"] == "file"
        assert client.get(f"/api/lineage/{file['nodes'][0]['id'].replace('/', '%2F')}").json()["kind"] == "file"


def grid(page: Page) -> Any:
    return page.get_by_role("grid")


@pytest.mark.slow
def test_the_list_is_filtered_scrolled_and_walked_by_keys(browser: Browser, shown: tuple[str, str]) -> None:
    from playwright.sync_api import expect

    url, name = shown
    with opened(browser, url) as page:
        page.goto("/data")
        grid(page).get_by_text("Question 1:").wait_for()
        page.get_by_text(f"{ROWS + 1} comparisons").wait_for()
        check_accessible(page)
        screenshot(page, "data-list")
        # Rows come while one scrolls; only those in view exist.
        while not page.get_by_text("That is all.").count():  # as often as a busy machine needs
            grid(page).press("End")
            page.wait_for_timeout(60)
        grid(page).press("End")
        grid(page).get_by_text(f"Question {ROWS - 1}:").wait_for()
        page.get_by_text("That is all.").wait_for()
        assert grid(page).locator("[role=row]").count() < 80
        # A search is in the address, marks what it found, and is there again after a reload.
        page.get_by_label("Text in a prompt or response").fill("quadratic")
        page.wait_for_url(re.compile(r"text=quadratic"))
        page.get_by_text("1 comparison", exact=True).wait_for()
        expect(grid(page).locator("mark")).to_have_count(2)
        page.reload()
        page.get_by_text("1 comparison", exact=True).wait_for()
        # A pasted id is known as one.
        page.get_by_label("Text in a prompt or response").fill(name)
        page.wait_for_url(re.compile(rf"\?id={name}"))
        page.get_by_text("1 comparison", exact=True).wait_for()
        page.get_by_role("button", name="Clear").click()
        # Filters by choosing.
        page.get_by_role("combobox", name="Category").click()
        page.get_by_role("option", name=re.compile("geography")).click()
        page.wait_for_url(re.compile("category=geography"))
        page.get_by_text(f"{ROWS // 2} comparisons").wait_for()
        page.keyboard.press("Escape")
        # Keys: the third row is opened, its neighbour, and back to where one was.
        grid(page).focus()
        grid(page).press("j")
        grid(page).press("ArrowDown")
        grid(page).press("Enter")
        page.get_by_role("region", name="Prompt").get_by_text("Question 5:").wait_for()
        page.keyboard.press("j")
        page.get_by_role("region", name="Prompt").get_by_text("Question 7:").wait_for()
        page.keyboard.press("Escape")
        selected = grid(page).locator("[aria-selected=true]")
        selected.get_by_text("Question 7:").wait_for()
        assert "category=geography" in page.url
        page.goto("/data?text=no+such+text+anywhere")
        page.get_by_text("No such comparison").wait_for()
        screenshot(page, "data-nothing")


def test_a_comparison_shows_all_and_runs_nothing_of_its_texts(browser: Browser, shown: tuple[str, str]) -> None:
    from playwright.sync_api import expect

    url, name = shown
    with opened(browser, url) as page:
        page.goto(f"/data/comparisons/{name}")
        page.locator(".katex-display").wait_for()
        page.locator("code.hljs .hljs-keyword").first.wait_for()
        expect(page.get_by_text("<script>window.ran = true</script>")).to_have_count(1)
        assert page.evaluate("window.ran") is None
        page.get_by_text("failed: too_long: 4097 tokens of 4096").wait_for()
        scores = page.get_by_role("region", name="Scores")
        expect(scores).to_contain_text(re.compile(r"2\.125.*± 0\.200", re.DOTALL))
        decisions = page.get_by_role("region", name="Decisions").locator("tbody tr")
        expect(decisions).to_have_count(2)
        expect(decisions.last).to_contain_text("an expert read both")
        judgments = page.get_by_role("region", name="Judgments")
        expect(judgments).to_contain_text("the sources contradict each other")
        expect(judgments.locator("tbody tr")).to_have_count(3)
        judgments.get_by_role("switch", name="2 single votes of judges").check()
        expect(judgments.locator("tbody tr")).to_have_count(5)
        expect(page.get_by_role("region", name="Origins")).to_contain_text("CC-BY-4.0")
        expect(page.get_by_role("region", name="Principle votes")).to_contain_text("def roots(a, b, c)")
        check_accessible(page)
        screenshot(page, "data-comparison", full_page=True)
        # The walk: to the snapshot that holds it, and on its page back to what it holds.
        lineage = page.get_by_role("region", name="Lineage")
        lineage.get_by_text("held by").wait_for()
        lineage.get_by_role("link", name=re.compile("snapshot train")).click()
        page.get_by_role("region", name="Came from").get_by_text("holds, decided").wait_for()
        check_accessible(page)
        opens = page.get_by_role("region", name="Came from").get_by_role("button", name=re.compile("Open d-"))
        opens.first.click()
        page.get_by_role("region", name="Came from").get_by_text("rests on").wait_for()
        screenshot(page, "data-lineage")


@pytest.mark.slow
def test_it_is_readable_on_a_phone_and_in_the_dark(browser: Browser, shown: tuple[str, str]) -> None:
    url, name = shown
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark"}
    with opened(browser, url, **phone) as page:
        page.goto("/data")
        grid(page).get_by_text("Question 1:").wait_for()
        page.get_by_role("button", name="Filters").click()
        page.get_by_role("combobox", name="Category").wait_for()
        check_accessible(page)
        screenshot(page, "data-list-phone-filters")
        page.get_by_role("button", name="Filters").click()
        screenshot(page, "data-list-phone")
        page.goto(f"/data/comparisons/{name}")
        page.locator(".katex-display").wait_for()
        page.get_by_text("held by").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        check_accessible(page)
        screenshot(page, "data-comparison-phone", full_page=True)
    with opened(browser, url, color_scheme="dark") as page:
        page.goto(f"/data/comparisons/{name}")
        page.locator(".katex-display").wait_for()
        page.get_by_text("held by").wait_for()
        check_accessible(page)
        screenshot(page, "data-comparison-dark", full_page=True)
        page.goto("/data?conflict=any")
        grid(page).get_by_text("conflict").first.wait_for()
        check_accessible(page)
        screenshot(page, "data-list-dark")
