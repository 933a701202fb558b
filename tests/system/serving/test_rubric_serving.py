"""A rubric through `assay score`, here and behind a server: the same scores, one shared pass, a wrong rubric alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from assay_command import captured

from assay.domain import Message
from assay.score import Score
from assay.statistics.logistic import sigmoid
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.process import running_server
from assay_serving.rubrics.rubric import with_rubric
from assay_serving.scorer import ScoreItem

QUESTION = "Name a metal that was known in antiquity, and say in one sentence what it was used for. " * 4
RUBRIC = [
    "Names a metal.",
    {"text": "Says what it was used for.", "weight": 2},
    {"text": "Contains an error.", "polarity": "negative"},
    {"text": "Is brief.", "name": "brief", "must_have": True, "constraints": [{"kind": "max_words", "limit": 9}]},
]


@pytest.fixture(scope="module")
def rubric_file(tiny_principle_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rubric") / "metals.yaml"
    scorers = [{"name": "ask", "model": str(tiny_principle_model)}]
    path.write_text(yaml.safe_dump({"kind": "rubric", "scorers": scorers}))
    return path


def test_scores_are_the_same_here_and_served(
    rubric_file: Path, tiny_principle_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    good = {"prompt": QUESTION, "responses": ["Gold, for jewels.", "Iron " * 20], "rubric": RUBRIC}
    rows.write_text("\n".join(json.dumps(row) for row in (good, good | {"rubric": ["x"] * 1000})) + "\n")
    run, here, served = captured(capsys), tmp_path / "here.jsonl", tmp_path / "served.jsonl"
    code, _, errors = run("score", rows, "--model", rubric_file, "--device", "cpu", "--out", here)
    assert code == 2
    assert "row 2: 2 of 2 responses: field 'rubric': has 1000 items; a rubric has 1 to 100" in errors
    scorer = open_scorer(ModelConfig(str(rubric_file), device="cpu"))
    with running_server({"metals": scorer}) as server:
        code, _, _ = run("score", rows, "--reward", server.url, "--out", served)
    assert code == 2
    first, again = ([json.loads(line) for line in path.read_text().splitlines()] for path in (here, served))
    assert [score["error"]["code"] for score in first[1]["scores"]] == ["bad_input"] * 2
    for local, remote in zip(first[0]["scores"], again[0]["scores"], strict=True):
        assert local["reward"] == pytest.approx(remote["reward"], abs=1e-5)
        assert [part["name"] for part in remote["parts"]] == ["item-1", "item-2", "item-3", "brief"]
    gold, iron = again[0]["scores"]
    assert (gold["parts"][3]["evidence"], iron["parts"][3]["gate"]) == (
        "max_words: 3 words, at most 9 allowed",
        "must_have",
    )
    # The parts are what the principle model says of each item by itself.
    plain = PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu"))
    [asked] = plain.score([ScoreItem((Message("user", QUESTION),), "Gold, for jewels.", "Names a metal.")])
    assert isinstance(asked, Score)
    assert gold["parts"][0]["value"] == pytest.approx(sigmoid(asked.reward), abs=1e-5)


def test_sixteen_items_of_eight_responses_share_one_pass(rubric_file: Path) -> None:
    """What an item costs is its own text: positions computed, at least five times fewer than one by one."""
    scorer = open_scorer(ModelConfig(str(rubric_file), device="cpu"))
    principles = scorer._scorers["ask"]  # type: ignore[attr-defined]
    label = with_rubric(None, [f"Says that reason {number} holds." for number in range(16)])
    responses = [f"Response {number}: " + "copper was used for tools and pots. " * 4 for number in range(8)]
    results = scorer.score([ScoreItem((Message("user", QUESTION),), text, label=label) for text in responses])
    assert all(isinstance(result, Score) and len(result.parts) == 16 for result in results)
    assert principles.last_tokens >= 5 * principles.last_computed
