"""`assay rubric`: rubrics written from feedback, mended from rollouts that exploit an item, bad input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from assay_command import captured
from empty_workspaces import new_workspace

from assay.domain import Message
from assay.ids import prompt_id
from assay_pipelines.judging.fake_endpoint import JudgeRequest, fake_endpoint
from assay_pipelines.rubrics.exploits import exploited_items

PLAIN = {"weight": 3, "polarity": "positive", "must_have": False, "veto": False}
CITES = {"text": "Cites a source", "name": "cites"}
SHORT = {"text": "Is short", "constraints": [{"kind": "max_words", "limit": 9}]}


def item(reason: str, text: str, name: str, **more: Any) -> dict[str, Any]:
    return {"reason": reason, "text": text, "name": name, **PLAIN, **more}


def writer(request: JudgeRequest) -> Mapping[str, Any]:
    """Writes items of what the material holds; of nothing, an unusable rubric."""
    sections = request.sections
    items = []
    if "Feedback on a response" in sections:
        items.append(item("feedback", f"Heeds: {sections['Feedback on a response']}", "feedback"))
    if "Rubric so far" in sections:
        bad = sections["Bad response that satisfies the item cites"]
        items += [item("kept", "Cites a source", "cites")]
        items += [item("rollouts", f"Does as {bad}", "fake", polarity="negative", veto=True)]
    return {"items": items}


def rollouts(path: Path, prompt: str) -> Path:
    """Bad responses cite most; `brief` tells good from bad."""
    rows = []
    for number in range(6):
        good = number < 3
        parts = [
            {"name": "cites", "value": 0.3 if good else 0.9, "weight": 1.0},
            {"name": "long", "value": 0.1 if good else 0.8, "weight": -1.0},
        ]
        held = {"held": -2.0 if good else -4.0}
        scores = {"rubric": {"reward": 0.5, "parts": parts}}
        rows.append(
            {"prompt_id": prompt, "response": f"r{number}", "verified": float(good), "scores": scores, "parts": held}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rubrics_are_drafted_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = captured(capsys)
    workspace = new_workspace(tmp_path / "ws")
    file, drafted, mended = tmp_path / "prompts.jsonl", tmp_path / "drafted.jsonl", tmp_path / "mended.jsonl"
    rows = [
        {"prompt": "one", "feedback": ["It names no date."], "source": "a"},
        {"prompt": "two", "rubric": [CITES, SHORT]},
        {"prompt": "three"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with fake_endpoint(writer) as fake:
        asking = ("--base-url", fake.base_url, "--model", "fake", "--workspace", workspace.root)
        code, out, _ = run("rubric", "draft", file, "--out", drafted, *asking)
        assert (code, "1 rubrics written, 1 failed" in out, "has 0 items" in out) == (2, True, True)
        one, two, three = (json.loads(line) for line in drafted.read_text().splitlines())
        assert one["rubric"] == [{"text": "Heeds: It names no date.", "name": "feedback", "weight": 3.0}]
        assert (one["source"], two, three) == ("a", rows[1], rows[2])

        seen = rollouts(tmp_path / "rollouts.jsonl", prompt_id((Message("user", "two"),)))
        code, out, errors = run("rubric", "refine", drafted, "--rollouts", seen, "--out", mended, *asking)
        assert code == 0, errors
        assert "1 prompts with exploited items" in out
        two = json.loads(mended.read_text().splitlines()[1])
        assert two["rubric"][0] == SHORT  # what a program grades is not the model's to write
        assert two["rubric"][2] == {
            "text": "Does as r3",
            "name": "fake",
            "weight": 3.0,
            "polarity": "negative",
            "veto": True,
        }
        calls = len(fake.requests)
        assert run("rubric", "refine", drafted, "--rollouts", seen, "--out", mended, *asking)[0] == 0
        assert len(fake.requests) == calls  # an answered call is not made again
    code, out, _ = run("rubric", "check", mended)
    assert (code, out.strip()) == (0, "3 rows: 2 with a rubric, 4 items")


def test_only_items_that_bad_responses_satisfy_better_are_exploited(tmp_path: Path) -> None:
    [[exploit]] = exploited_items(rollouts(tmp_path / "r.jsonl", "p"), part="rubric", against="verified").values()
    assert (exploit.item, exploit.area, exploit.responses) == ("cites", 0.0, ("r5", "r4", "r3"))
    # A held-out model's rewards have a scale of their own.
    [[held]] = exploited_items(tmp_path / "r.jsonl", part="rubric", against="held").values()
    assert held == exploit


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = captured(capsys)
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps({"prompt": "q", "rubric": ["a"] * 1000}) + "\n")
    code, _, errors = run("rubric", "check", wrong)
    assert (code, errors.count("\n")) == (2, 1)
    assert "row 1" in errors
    assert "has 1000 items" in errors
    workspace = new_workspace(tmp_path / "ws")
    good = tmp_path / "good.jsonl"
    good.write_text(json.dumps({"prompt": "q", "rubric": ["a"]}) + "\n")
    asking = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--workspace", workspace.root, "--out", wrong)
    code, _, errors = run("rubric", "refine", good, "--rollouts", good, *asking)
    assert (code, errors.count("\n")) == (2, 1)
    assert "no rollout with items of 'rubric'" in errors
