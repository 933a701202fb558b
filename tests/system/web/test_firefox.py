"""The main tasks in Firefox: an annotator signs in, votes by keys, takes one back; the areas are shown."""

from __future__ import annotations

import pytest
from annotating import import_pairs, make, standing
from firefox import firefox
from web_pages import running_web

from assay.workspace import Workspace

AREAS = {
    "/annotate": "Annotate",
    "/curate": "Curate",
    "/data": "Data",
    "/rewards": "Rewards",
    "/runs": "Runs",
    "/jobs": "Jobs",
    "/access": "Access",
}


def shown(letter: str) -> str:
    return f"""document.querySelector('[aria-label="Response {letter}"]')?.textContent ?? ''"""


@pytest.mark.slow
def test_an_annotators_task_and_every_area(workspace: Workspace) -> None:
    make(workspace, "first", import_pairs(workspace, 3))
    with running_web(workspace) as url, firefox() as tab:
        tab.open(f"{url}/annotate/queue/first")
        tab.click("input")
        tab.press("ada")
        tab.click("button[type=submit]")

        # Formulas and colours come after the text.
        tab.wait_for(f"({shown('A')}).includes('answer')")
        tab.wait_for("document.querySelector('.katex') !== null && document.querySelector('.hljs-keyword') !== null")
        assert tab.evaluate("document.title") == "first - Annotate - Assay"
        first = tab.evaluate(shown("A"))
        tab.press("a")
        tab.wait_for(f"({shown('A')}).includes('answer') && ({shown('A')}) !== {first!r}")
        assert len(standing(workspace, "first")) == 1
        tab.press("u")
        tab.wait_for(f"({shown('A')}) === {first!r}")
        assert standing(workspace, "first") == []
        for _ in range(3):
            before = tab.evaluate(shown("A"))
            tab.press("b")
            tab.wait_for(f"({shown('A')}) !== {before!r}")
        assert len(standing(workspace, "first")) == 3

        for path, heading in AREAS.items():
            tab.open(f"{url}{path}")
            tab.wait_for(f"document.querySelector('h1')?.textContent === '{heading}'")
            assert not tab.evaluate("document.body.innerText.includes('That did not work')"), path
