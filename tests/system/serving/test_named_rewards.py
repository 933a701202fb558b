"""`assay rl` with several rewards by name: of a served model, of its steps, of the answer after the thinking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.workspace import Workspace
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server


@pytest.fixture(scope="module")
def server(tiny_reward_model: Path) -> Iterator[str]:
    with running_server({"tiny-rm": TransformersScorer.load(ModelConfig(str(tiny_reward_model)))}) as running:
        yield running.url


def trained(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], recipe: str, rewards: list[str], prompts: Path
) -> dict[str, Any]:
    from assay.cli.main import main

    arguments = ["rl", "-w", str(workspace.root), "--policy", "tiny", "--steps", "1", "--json", "--recipe", recipe]
    arguments += ["--prompts", str(prompts), "--prompts-per-step", "2", "--group-size", "3", "--max-new-tokens", "8"]
    arguments += [word for reward in rewards for word in ("--reward", reward)]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    payload = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0, payload
    return dict(payload)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    checks = [{"kind": "no_commas"}]
    rows = [{"prompt": f"Name colour {n}.", "constraints": checks} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rollouts(payload: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(payload["folder"]) / "rollouts.jsonl").read_text().splitlines()]


def test_parts_by_name_with_the_steps_of_a_served_model(
    workspace: Workspace, server: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two parts and a process reward of one model: each under its own name, only whole responses' scores are stored."""
    rewards = ["verifier", f"process=steps:{server}#tiny-rm", f"quality={server}"]
    payload = trained(workspace, capsys, "mrt", rewards, prompts)
    rows = rollouts(payload)
    assert all(set(row["parts"]) == {"verifier", "process", "quality"} for row in rows)
    assert all(row["reward"] == row["parts"]["verifier"] for row in rows)
    assert all(0 < row["parts"]["process"] < 1 for row in rows)
    assert all(row["scores"]["process"]["parts"][0]["name"] == "step-1" for row in rows)
    with workspace.store.unit() as db:
        stored = db.execute("SELECT reward FROM scores WHERE run_id = ?", [payload["run"]]).fetchall()
    whole = {row["response_id"]: row["parts"]["quality"] for row in rows}
    assert sorted(reward for (reward,) in stored) == pytest.approx(sorted(whole.values()))


def test_without_an_answer_there_is_no_reward_and_the_run_says_so(
    workspace: Workspace, server: str, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli.main import main

    arguments = ["rl", "-w", str(workspace.root), "--policy", "tiny", "--steps", "1", "--recipe", "rlmt"]
    arguments += ["--reward", f"answer:{server}", "--prompts", str(prompts), "--max-new-tokens", "4"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code != 0
    assert "nothing follows '</think>'" in capsys.readouterr().err.strip().splitlines()[-1]
