"""The six journeys of docs/architecture.md run through the modules that it lists; a score and a vote through few."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from annotating import import_pairs, make
from crossing import Crossing, crossing
from web_pages import running_web, signed_in

from assay.cli.main import main
from assay.score import Score, ScoreResult
from assay.workspace import Workspace
from assay_serving.process import running_server
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_serving.server.core.settings import ServerSettings

ARCHITECTURE = Path(__file__).resolve().parents[3] / "docs" / "architecture.md"
JOURNEYS = ("import", "train", "score", "rollout", "vote", "stage")
MOST_OF_A_SCORE, MOST_OF_A_VOTE = 15, 17
#: What every request of the web server passes: limits, origin, session, role, audit log.
WEB_GATE = (
    *("assay_web.server.", "assay_web.access.", "assay_web.accounts.", "assay_web.service", "assay.http."),
    "assay.system.hash_chain",  # of the audit log
)
#: What a message is: carried along, not a step.
MESSAGE = "assay.conversation.message"
METRICS = "assay_serving.server.metrics."  #: counters that steps raise
#: Types of an item that a vote carries along.
ITEM_TYPES = frozenset(
    {MESSAGE, "assay.browsing.messages", "assay_pipelines.annotation.items", "assay.data.pair_attributes"}
    | {"assay.system.sqlite_file"}
)


class Engine:
    info = ModelInfo("rm", "v1", "scalar", "t", 100, False, "passed", "float32", "cpu")
    score_identity = ""

    def score(self, items: Sequence[ScoreItem], on_progress: Any = None) -> list[ScoreResult]:
        return [Score(1.0, "rm", "v1", "t", 3, False) for _ in items]


def listed(journey: str) -> list[str]:
    """Modules that the section of a journey lists, in its order."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### .*\({journey}\)$(.*?)(?=^##|\Z)", text, flags=re.M | re.S)
    return re.findall(r"`(assay[\w.]+)`", section)


def pairs_file(folder: Path) -> Path:
    file = folder / "pairs.jsonl"
    rows = [{"prompt": f"Question {n}?", "chosen": "Yes, it is.", "rejected": "No."} for n in range(16)]
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return file


def recorded(*arguments: object) -> Crossing:
    with crossing() as crossed, pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0
    return crossed


@pytest.fixture
def journeys(workspace: Workspace, tmp_path: Path) -> dict[str, Callable[[], Crossing]]:
    at = ("--workspace", workspace.root)

    def imported() -> Crossing:
        return recorded("data", "import", pairs_file(tmp_path), *at)

    def trained() -> Crossing:
        file = pairs_file(tmp_path)
        return recorded("train", "bt", "--base", "tiny", "--data", file, "--eval-data", file, "--device", "cpu", *at)

    def scored() -> Crossing:
        settings = ServerSettings(api_keys=("key",))
        with (
            crossing(recording=False) as crossed,
            running_server({"rm": Engine()}, settings=settings) as running,
            httpx.Client(base_url=running.url, headers={"Authorization": "Bearer key"}) as client,
        ):
            client.get("/healthz").raise_for_status()
            crossed.recording = True
            reply = client.post("/v1/score", json={"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]})
            crossed.recording = False
        assert [result["reward"] for result in reply.json()["results"]] == [1.0, 1.0]
        return crossed

    def rolled_out() -> Crossing:
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text("\n".join(json.dumps({"prompt": f"Question {n}?"}) for n in range(4)), encoding="utf-8")
        settings = ("steps=1", *(f"sampling.{s}" for s in ("prompts_per_step=2", "group_size=2", "max_new_tokens=4")))
        options = [part for setting in settings for part in ("--set", setting)]
        with running_server({"rm": Engine()}, settings=ServerSettings()) as running:
            plan = ("--recipe", "grpo", "--policy", "tiny", "--prompts", prompts, "--reward", running.url)
            return recorded("rl", *plan, "--device", "cpu", *options, *at)

    def voted() -> Crossing:
        comparisons = import_pairs(workspace, 3)
        with crossing(recording=False) as crossed, running_web(workspace) as url:
            make(workspace, "queue", comparisons)
            with signed_in(url, "bea") as client:
                item = client.post("/api/annotate/queues/queue/item").json()["item"]
                vote = {"person": "bea", "ticket": item["ticket"], "seal": item["seal"], "choice": "first"}
                crossed.recording = True
                reply = client.post("/api/annotate/queues/queue/votes", json=vote)
                crossed.recording = False
            assert reply.json()["receipt"]["repeated"] is False
        return crossed

    def staged() -> Crossing:
        recorded("data", "import", pairs_file(tmp_path), *at)
        return recorded("data", "dedup", *at)

    return dict(zip(JOURNEYS, (imported, trained, scored, rolled_out, voted, staged), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", JOURNEYS)
def test_a_journey_runs_through_the_modules_that_the_documentation_lists(
    name: str, journeys: dict[str, Callable[[], Crossing]]
) -> None:
    modules = journeys[name]().modules
    missing = [module for module in listed(name) if module not in modules]
    assert not missing, f"listed and not called: {missing}; called: {list(modules)}"
    if name == "score":
        assert "assay_serving.server.batching.batcher" in modules  # other threads are recorded
        steps = [module for module in modules if module != MESSAGE and not module.startswith(METRICS)]
        assert len(steps) <= MOST_OF_A_SCORE, " ".join(steps)
    if name == "vote":
        own = [module for module in modules if not module.startswith(WEB_GATE) and module not in ITEM_TYPES]
        assert len(own) <= MOST_OF_A_VOTE, " ".join(own)


def test_every_journey_lists_its_modules() -> None:
    assert all(len(listed(name)) >= 5 for name in JOURNEYS)
