"""`assay rl` with what a user brings: reward functions in the forms of TRL and verl and their faults, tables of
prompts, mixtures, held-out sets."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assay_command import captured
from pyarrow import parquet

from assay.workspace import Workspace

SMALL = ("--policy", "tiny", "--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4", "--steps", "1")

FUNCTIONS = """
import asyncio
import threading


def trl(completions, answer, **columns):
    assert all(isinstance(completion, str) for completion in completions)
    return [float(len(completion)) for completion in completions]


async def judged(prompt, response, **row):
    await asyncio.sleep(0)
    return 0.5


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info["index"]) == ("openai/gsm8k", int(extra_info["index"]))
    return {"score": float(ground_truth in solution_str)}


def moody(prompt, response, answer, **row):
    if answer == "4":
        raise ValueError("bad mood")
    return 1.0


def hangs(prompt, response, answer, **row):
    if answer == "4":
        threading.Event().wait()
    return 1.0
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FUNCTIONS, encoding="utf-8")
    rows = [{"prompt": "2+2?", "answer": "4"}, {"prompt": "3+3?", "answer": "6"}]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def rollouts(payload: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (Path(payload["folder"]) / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_functions_reward_a_run_and_a_fault_fails_its_rows(
    workspace: Workspace, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    common = ("rl", "-w", workspace.root, *SMALL, "--prompts", inputs / "sums.jsonl", "--json")
    functions = ("--reward", f"{inputs}/mine.py:trl", "--reward", f"judge={inputs}/mine.py:judged")
    code, out, err = run(*common, "--name", "functions", *functions)
    assert code == 0, err
    rows = rollouts(json.loads(out))
    assert all(row["reward"] == len(row["response"]) + 0.5 and row["parts"]["judge"] == 0.5 for row in rows)
    for name, reason in (("moody", "ValueError: bad mood"), ("hangs", "no answer in 0.3 s")):
        masked = (*common, "--name", name, "--reward", f"{inputs}/mine.py:{name}", "--reward-timeout", "0.3")
        code, out, err = run(*masked)
        assert code == 0, err
        payload = json.loads(out)
        assert payload["last_step"]["rewards_missing"] == payload["rewards_missing"] == 2
        failed = [row for row in rollouts(payload) if row["reward"] is None]
        assert len(failed) == 2
        assert all(reason in str(row["failures"]) for row in failed)
    code, out, err = run(*common[:-1], "--name", "said", "--reward", f"{inputs}/mine.py:moody")
    assert "no reward  2 of 4 rollouts, not trained on; the first, of step 1: moody: ValueError: bad mood" in out
    code, out, err = run(
        *common, "--name", "stopped", "--reward", f"{inputs}/mine.py:moody", "--on-reward-error", "stop"
    )
    assert code != 0
    assert "bad mood" in out + err


def verl_rows(folder: Path, number: int) -> list[dict[str, Any]]:
    """Rows as verl's `examples/data_preprocess/gsm8k.py` writes them."""
    file = folder / "gsm8k_train.jsonl.gz"
    if not file.is_file():
        pytest.skip("no gsm8k_train.jsonl.gz in the shared data")
    with gzip.open(file, "rt") as lines:
        problems = [json.loads(line) for line in islice(lines, number)]
    return [
        {
            "data_source": "openai/gsm8k",
            "prompt": problem["prompt"],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem["meta"]["answer"]},
            "extra_info": {"split": "train", "index": index, "question": problem["prompt"][0]["content"]},
        }
        for index, problem in enumerate(problems)
    ]


def test_rows_of_verl_a_mixture_and_held_out_sets(
    workspace: Workspace, inputs: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GSM8K in verl's Parquet form, with verl's function and the verifier; two held-out sets reported by name."""
    pytest.importorskip("math_verify", reason="needs the extra verifiers")
    run = captured(capsys)
    parquet.write_table(pa.Table.from_pylist(verl_rows(shared_data, 8)), inputs / "gsm8k.parquet")
    sources = ("--prompts", f"{inputs}/gsm8k.parquet@0.5", "--prompts", f"{inputs}/sums.jsonl@0.5")
    held_out = (
        "--evaluate",
        "2",
        "--eval-prompts",
        f"maths={inputs}/gsm8k.parquet",
        "--eval-prompts",
        inputs / "sums.jsonl",
    )
    rewards = ("--reward", "verifier", "--set", "checkpoint_every=1")
    common = ("rl", "-w", workspace.root, *SMALL, *sources, *rewards)
    code, out, err = run(*common, *held_out, "--name", "mixed", "--json")
    assert code == 0, err
    payload = json.loads(out)
    assert list(payload["sets"]) == ["maths", "sums.jsonl"]
    assert payload["before"] == payload["sets"]["maths"]["before"]
    assert payload["sets"]["sums.jsonl"]["after"]["prompts"] == 2
    folder = Path(payload["folder"])
    assert json.loads((folder / "evaluation.json").read_text())["sets"] == payload["sets"]
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["best_by"] == "eval_maths_reward_mean"
    assert plan["recipe"]["source"]["weights"] == {"gsm8k.parquet": 0.5, "sums.jsonl": 0.5}
    code, out, err = run("rl", "-w", workspace.root, "--resume", payload["run"], "--steps", "2", "--name", "more")
    assert code == 0, err
    assert "on maths" in out
    assert "on sums.jsonl" in out
    verl = (
        "--prompts",
        inputs / "gsm8k.parquet",
        "--reward",
        f"{inputs}/mine.py:compute_score",
        "--name",
        "verl",
        "--json",
    )
    code, out, err = run("rl", "-w", workspace.root, *SMALL, *verl)
    assert code == 0, err
    assert all(row["reward"] in (0.0, 1.0) for row in rollouts(json.loads(out)))


@pytest.mark.slow
def test_template_system_turn_and_stop_texts_of_a_run(
    workspace: Workspace, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are in the plan, in the saved policy's tokenizer, and shape what is generated."""
    run = captured(capsys)
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if loud %}!{% endif %}"
    (inputs / "chat.jinja").write_text(template, encoding="utf-8")
    (inputs / "system.txt").write_text("Answer with a number.", encoding="utf-8")
    letters = [text for letter in "aeiou" for text in ("--stop", letter)]
    options = ("--chat-template", inputs / "chat.jinja", "--chat-kwargs", "loud=true", *letters)
    common = ("rl", "-w", workspace.root, "--policy", "tiny", "--prompts", inputs / "sums.jsonl", "--steps", "1")
    small = ("--prompts-per-step", "2", "--group-size", "8", "--max-new-tokens", "16", "--evaluate", "1")
    reward = ("--reward", f"{inputs}/mine.py:trl", "--system-prompt", f"@{inputs}/system.txt", "--json")
    code, out, err = run(*common, *small, *options, *reward, "--name", "templated")
    assert code == 0, err
    payload = json.loads(out)
    recipe = json.loads((Path(payload["folder"]) / "plan.json").read_text())["recipe"]
    assert recipe["chat"] == {"template": template, "kwargs": {"loud": True}, "system": "Answer with a number."}
    assert recipe["sampling"]["stop"] == list("aeiou")
    responses = [row["response"] for row in rollouts(payload)]
    assert all(not set(response[:-1]) & set("aeiou") or len(response) < 16 for response in responses)
    assert any(set(response) & set("aeiou") for response in responses)
    assert (Path(payload["policy"]) / "chat_template.jinja").read_text() == template
    for wrong, message in (
        (("--chat-kwargs", "quiet=true", "--chat-template", inputs / "chat.jinja"), "no such variable"),
        (("--chat-kwargs", "quiet"), "NAME=VALUE"),
        (("--chat-template", inputs / "none.jinja"), "none.jinja"),
    ):
        code, out, err = run(*common, *small, *reward, *wrong, "--name", "wrong")
        assert code == 2
        assert message in out + err
