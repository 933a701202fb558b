"""The pictures that the documentation shows: what its pages say is there is there, then they are taken.

`make docs` runs it with ASSAY_SCREENSHOTS=docs/screenshots and so renews them; without that variable it only looks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from showcase import GUIDELINE, PRINCIPLES, desk_ids, fill, good_answers, pairs, reward_models, vote
from web_pages import opened, picture, running_web, signed_in

from assay.workspace import Workspace
from assay_pipelines.online.config import EXAMPLE, load_loop
from assay_pipelines.online.run import run_loop
from assay_serving.process import running_server
from assay_web.accounts.access_file import FILE as ACCESS
from assay_web.accounts.access_file import AccessFile
from assay_web.accounts.accounts import Role, add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost, RewardServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
PATIENCE = 600_000  #: milliseconds; a step of SmolLM2's training says how busy the machine is
STEPS = 12
ACCOUNTS: dict[str, Role] = {
    "Ada": "admin",
    "Grace": "curator",
    "Ben": "annotator",
    "Mara": "annotator",
    "Noor": "viewer",
}
ADVICE = (
    "Blot it at once, do not rub. Pour cold water through from the back, then leave salt or baking soda on it for an "
    "hour and wash it as the label says. For an old stain try oxygen bleach, on white cloth only.",
    "Red wine is made from dark grapes.",
    "Just buy a new tablecloth.",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Workspace:
    """`browser` first: without one nothing is filled."""
    folder = tmp_path_factory.mktemp("showcase")
    workspace = Workspace.create(folder / "helpful")
    fill(workspace, folder)
    return workspace


@pytest.fixture(scope="module")
def url(place: Workspace) -> Iterator[str]:
    with running_web(place) as found:
        yield found


@dataclass(frozen=True)
class Rewards:
    """The pages beside a reward server, and that server's address."""

    url: str
    server: str


@pytest.fixture(scope="module")
def rewards(place: Workspace, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rewards]:
    with (
        reward_models(place, tmp_path_factory.mktemp("models")) as engines,
        running_server(engines) as server,
        running_web(place, reward_servers=(RewardServer(server.url),)) as found,
    ):
        yield Rewards(found, server.url)


@contextmanager
def training(place: Workspace, server: str) -> Iterator[str]:
    """A policy that learns from the reward server while the verifier looks on; the run's id."""
    before = {path.name for path in place.runs.iterdir()}
    words = "rl --recipe grpo --watch verifier --policy smollm2 --prompts constrained:16 --prompts-per-step 2 "
    words += f"--group-size 4 --max-new-tokens 48 --lr 1e-5 --name improved --steps {STEPS}"
    command = [sys.executable, "-m", "assay.cli", *words.split(), "--reward", server, "--model", "helpful-v2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "-w", str(place.root)], env=environment, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + PATIENCE / 1000
        while not (new := [p for p in place.runs.glob("*/metrics.jsonl") if p.parent.name not in before]):
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline, "no run"
            time.sleep(0.1)
        yield new[0].parent.name
    finally:
        process.kill()
        process.communicate()


def test_annotating(place: Workspace, url: str, browser: Browser) -> None:
    ids = desk_ids(place)
    with signed_in(url) as ada:
        asked = {"guideline": GUIDELINE, "overlap": 2, "reason": "the sources contradict each other"}
        rich = {
            **asked,
            "name": "code-and-maths",
            "comparison_ids": [ids[n] for n in (0, 1, 8)],
            "principles": PRINCIPLES,
        }
        every = {**asked, "name": "help-desk", "comparison_ids": ids, "gold_checks": 0.15}
        for queue in (rich, every):
            made = ada.post("/api/queues", json={"gold_checks": 0, **queue})
            assert made.status_code == 200, made.text
    likes = dict.fromkeys(good_answers(), 1.0)
    doubts = [row["rejected"][0]["content"] for row in pairs()]
    vote(url, "code-and-maths", "grace", likes, 3)
    vote(url, "help-desk", "grace", likes, 30)
    vote(url, "help-desk", "ben", likes | dict.fromkeys(doubts[2::5], 2.0), 24)
    vote(url, "help-desk", "mara", likes | dict.fromkeys(doubts[::8], 2.0), 12)
    with opened(browser, url) as page:
        page.goto("/annotate/queue/code-and-maths")
        page.get_by_role("button", name="A is better").wait_for()
        page.get_by_text(GUIDELINE).wait_for()
        page.keyboard.press("2")
        picture(page, "annotate", height=820)
        page.goto("/annotate/queue/help-desk/report")
        page.get_by_role("heading", name="Agreement").wait_for()
        picture(page, "annotate-agreement", height=480)
    with opened(browser, url, name="noor") as page:
        page.goto("/annotate/queue/help-desk/adjudicate")
        page.get_by_role("button", name="A is better").wait_for()
        page.keyboard.press("v")
        page.get_by_text("grace").first.wait_for()
        picture(page, "annotate-adjudicate", height=600)
    with signed_in(url) as ada:
        resolved = ada.post("/api/queues/help-desk/resolution", json={})
        assert resolved.status_code == 200, resolved.text


def test_curating(place: Workspace, url: str, browser: Browser) -> None:
    with opened(browser, url) as page:
        page.goto("/curate/funnel")
        page.get_by_role("link", name="pool gold").wait_for()
        picture(page, "curate-funnel", height=880)
        page.goto("/curate/stages")
        page.get_by_role("button", name="Begin a stage").click()
        page.get_by_role("menuitem", name="Clean").click()
        page.get_by_role("button", name="What would it take?").click()
        page.get_by_role("button", name="Start").click()
        page.get_by_role("region", name="Clean, done").wait_for(timeout=PATIENCE)
        page.goto("/jobs/new/stage1")
        page.get_by_role("combobox", name="File").fill("loops/autumn.yaml")
        page.keyboard.press("Escape")  # closes what is proposed
        page.get_by_role("button", name="What would it take?").click()
        page.get_by_role("dialog").get_by_text("In all").wait_for(timeout=PATIENCE)
        picture(page, "curate-stages", height=580)


def test_looking_through_data(place: Workspace, url: str, browser: Browser) -> None:
    with opened(browser, url) as page:
        page.goto("/data")
        page.get_by_role("grid").get_by_text("without induction").wait_for()
        page.get_by_role("grid").get_by_text("conflict").first.wait_for()
        picture(page, "data", height=820)
        page.goto(f"/data/comparisons/{desk_ids(place)[0]}")
        page.locator(".hljs-keyword").first.wait_for()
        page.get_by_role("region", name="Judgments").wait_for()
        picture(page, "data-comparison", height=1160)


def test_comparing_rewards(place: Workspace, rewards: Rewards, browser: Browser) -> None:
    with opened(browser, rewards.url) as page:
        page.goto("/rewards")
        page.get_by_label("Message 1", exact=True).fill("How do I get red wine out of a tablecloth?")
        for n, text in enumerate(ADVICE):
            if n == 2:
                page.get_by_role("button", name="Add response").click()
            page.get_by_label(f"Response {n + 1}", exact=True).fill(text)
        for name in ("helpful-v1", "helpful-v2", "helpful-both"):
            page.get_by_label(name, exact=True).check()
        page.get_by_role("button", name="Score", exact=True).click()
        table = page.get_by_role("region", name="Scores")
        table.get_by_text("rank 1").nth(2).wait_for()
        picture(page, "rewards-playground", height=800)
        page.goto("/rewards/leaderboards/rm-bench")
        page.get_by_role("region", name=re.compile("Substance")).or_(
            page.get_by_text("Substance against style")
        ).first.wait_for()
        picture(page, "rewards-rm-bench", height=915)


def test_watching_a_run(place: Workspace, rewards: Rewards, browser: Browser) -> None:
    with training(place, rewards.server) as run, opened(browser, rewards.url) as page:
        page.goto(f"/runs/{run}")
        enough = re.compile(f"^Reward by step.* at {STEPS}")
        page.get_by_role("img", name=enough).wait_for(timeout=PATIENCE)
        picture(page, "run-curves", height=930)
        page.get_by_role("tab", name="Samples").click()
        page.get_by_role("table", name="Rollouts").get_by_role("row").nth(8).wait_for()
        picture(page, "run-samples", height=860)


def test_a_loop_that_buys_labels(place: Workspace, url: str, browser: Browser) -> None:
    """The configuration that `assay loop --example` prints, as it stands."""
    looped = run_loop(place, load_loop(EXAMPLE))
    with opened(browser, url) as page:
        page.goto(f"/runs/{looped.run_id}/loop")
        page.get_by_role("img", name=re.compile("^KL to the starting policy")).wait_for()
        picture(page, "run-loop", height=1480)


def test_managing_access(place: Workspace, browser: Browser) -> None:
    with AccessFile(place.root / ACCESS) as access:
        for name, role in ACCOUNTS.items():
            add_account(access, Passwords(CHEAP), name, role, PASSWORD, by="Ada")
    with (
        running_web(place, open_access=False, password_cost=CHEAP) as url,
        opened(browser, url, name="Ada", password=PASSWORD) as page,
    ):
        for name in ("Grace", "Mara", "Ben"):
            with signed_in(url, name, PASSWORD):
                pass
        page.goto("/access/accounts")
        page.get_by_role("combobox", name="Role of Grace").wait_for()
        picture(page, "access", height=400)
