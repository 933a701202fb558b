"""`assay judge ...` as a person runs it, against our fake endpoint and vLLM's server where there is one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from empty_workspaces import new_workspace

from assay.cli.main import main
from assay_pipelines.judging.fake_endpoint import fake_endpoint, longer_wins
from assay_serving.chat.scripted import always, once

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `assay ...` in this process; returns exit code, output, errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def root(tmp_path: Path, command: Command) -> Path:
    workspace = new_workspace(tmp_path / "workspace")
    rows = [
        {
            "prompt": f"Question {n}: what is {n} + {n}?",
            "chosen": f"It is {2 * n}, because twice {n} is {2 * n}.",
            "rejected": f"{2 * n + 1}",
            "category": "math",
        }
        for n in range(20)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert command("data", "import", str(file), "--source", "sums", "-w", str(workspace.root))[0] == 0
    return workspace.root


def parsed(output: str) -> Any:
    return json.loads(output.strip().splitlines()[-1])


def test_a_judge_with_a_budget_is_resumed_and_reported(root: Path, command: Command) -> None:
    with fake_endpoint(longer_wins(), faults=once("500")) as fake:
        endpoint = (
            "--base-url",
            fake.base_url,
            "--model",
            "fake",
            "--price-in",
            "1",
            "--price-out",
            "2",
            "-w",
            str(root),
        )
        code, out, _ = command("judge", "run", "--judge", "openai", *endpoint, "--max-calls", "21")
        assert code == 0
        assert "stopped: budget of 21 calls" in out
        assert "left for the next run" in out
        code, out, _ = command("judge", "run", "--judge", "openai", *endpoint, "--json")
        (told,) = parsed(out)["judges"]
        assert code == 0
        assert told["known"] + told["answered"] == 20
        assert told["stopped"] is None
        assert not fake.repeats()
        assert command("judge", "attributes", *endpoint)[0] == 0
        code, out, _ = command("judge", "verify", *endpoint, "--limit", "3")
        assert "6 of 6 responses answered" in out
    code, out, _ = command("judge", "report", "-w", str(root))
    assert code == 0
    for words in (
        "20 opinions",
        "first shown wins",
        "unreadable",
        "tokens",
        "cost 0.",
        "attributes by",
        "correctness by",
    ):
        assert words in out
    code, out, _ = command("judge", "report", "-w", str(root), "--json")
    (judge,) = parsed(out)["judges"]
    assert judge["outcomes"] == {"answered": 20, "server_error": 20}


def test_errors_are_one_line_with_the_right_code(root: Path, command: Command) -> None:
    where = ("-w", str(root))
    for arguments, code, words in (
        (("run", *where), 2, "--judge or --judges"),
        (("run", "--judge", "oracle", *where), 2, "no judge is named 'oracle'; one of"),
        (("run", "--judge", "openai", "--model", "m", *where), 2, "--base-url is needed"),
        (("run", "--judge", "openai", "--model", "m", "--base-url", "host", *where), 2, "not an http(s) address"),
        (("run", "--judge", "recorded", *where), 3, "no human annotator"),
        (("run", "--judges", "nothing.yaml", *where), 2, "no such file"),
        (("attributes", *where), 2, "--rules"),
    ):
        found, _, err = command("judge", *arguments)
        assert (found, len(err.strip().splitlines())) == (code, 1), err
        assert words in err
    with fake_endpoint(longer_wins(), faults=always("401")) as fake:
        found, _, err = command(
            "judge", "run", "--judge", "openai", "--model", "m", "--base-url", fake.base_url, *where
        )
    assert found == 5
    assert "refuses model 'm'" in err


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("--judge", "reward-model", "--model", "tiny", "--samples", "3"), "--samples"),
        (("--judge", "verifier", "--both-orders", "--name", "v"), "--name, --both-orders"),
        (("--judge", "simulated", "--prompts", "mine"), "--prompts"),
        (("--judge", "local", "--model", "tiny", "--price-in", "1"), "--price-in"),
        (("--judge", "openai", "--accuracy", "0.9"), "--accuracy"),
        (("--judge", "recorded", "--file", "votes.jsonl", "--voters", "ana%"), "--voters"),
        (("--judges", "judges.yaml", "--samples", "1"), "--samples"),
    ],
)
def test_an_option_that_the_judge_would_pass_over_is_refused(
    root: Path, command: Command, arguments: tuple[str, ...], refused: str
) -> None:
    code, _, err = command("judge", "run", *arguments, "-w", str(root))
    assert code == 2
    assert f"does not take {refused}" in err


def test_a_dead_endpoint_fails_the_command_and_says_what_is_left(root: Path, command: Command) -> None:
    with fake_endpoint(longer_wins(), faults=always("400")) as fake:
        arguments = ("--judge", "openai", "--model", "m", "--base-url", fake.base_url, "-w", str(root))
        code, out, _ = command("judge", "run", *arguments)
    assert code == 5
    assert "10 calls in a row failed" in out
    assert "left for the next run" in out


@pytest.mark.slow
def test_few_questions_to_an_endpoint_that_never_replies_fail_too(root: Path, command: Command) -> None:
    with fake_endpoint(longer_wins(), faults=always("500")) as fake:
        at = ("--judge", "openai", "--base-url", fake.base_url, "--model", "m", "-w", str(root), "--limit", "1")
        code, out, err = command("judge", "run", *at)
    assert code == 5, err
    assert "0 of 1 comparisons answered" in out


def test_a_dry_run_says_what_it_takes_and_asks_nothing(root: Path, command: Command) -> None:
    with fake_endpoint(longer_wins()) as fake:
        arguments = ("--judge", "openai", "--model", "m", "--base-url", fake.base_url, "-w", str(root), "--json")
        prices = ("--price-in", "1", "--price-out", "2", "--both-orders", "--limit", "5")
        (told,) = parsed(command("judge", "run", *arguments, *prices, "--dry-run")[1])["judges"]
        assert (told["questions"], told["calls"], len(fake.requests)) == (5, 10, 0)
        (real,) = parsed(command("judge", "run", *arguments, *prices)[1])["judges"]
        assert real["attempts"] == told["calls"]
        assert 1 / 1.5 < told["tokens"] / (real["tokens_in"] + real["tokens_out"]) < 1.5
        assert 1 / 1.5 < told["cost"] / real["cost"] < 1.5
        (left,) = parsed(command("judge", "run", *arguments, *prices, "--dry-run")[1])["judges"]
        assert (left["questions"], left["cost"]) == (0, 0)


def test_several_judges_from_a_file(root: Path, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "judges.yaml"
    file.write_text(
        "judges:\n  - {kind: simulated, truth: source, accuracy: 0.9}\n"
        "  - {kind: simulated, truth: source, accuracy: 0.6, both_orders: true, name: other}\n"
    )
    code, out, _ = command("judge", "run", "--judges", str(file), "-w", str(root), "--json")
    assert code == 0
    assert [j["answered"] for j in parsed(out)["judges"]] == [20, 20]
    assert "simulated@" in command("judge", "report", "-w", str(root))[1]


def test_prompts_are_shown_copied_and_used(root: Path, command: Command, tmp_path: Path) -> None:
    assert "You compare two responses" in command("judge", "prompts")[1]
    folder = tmp_path / "mine"
    assert "prompts written" in command("judge", "prompts", "--copy-to", str(folder))[1]
    (folder / "guideline.md").write_text("Prefer rhymes.", encoding="utf-8")
    with fake_endpoint(longer_wins()) as fake:
        arguments = ("--judge", "openai", "--model", "m", "--base-url", fake.base_url, "--limit", "1", "-w", str(root))
        assert command("judge", "run", *arguments, "--prompts", str(folder))[0] == 0
        assert "Prefer rhymes." in fake.requests[0].body["messages"][0]["content"]


@pytest.mark.vllm
def test_the_judge_asks_vllm(root: Path, command: Command) -> None:
    """Needs a vLLM chat server: ASSAY_VLLM_CHAT_URL (ending in /v1) and ASSAY_VLLM_CHAT_MODEL."""
    url, model = os.environ.get("ASSAY_VLLM_CHAT_URL"), os.environ.get("ASSAY_VLLM_CHAT_MODEL")
    if not (url and model):
        pytest.skip("no vLLM chat server: set ASSAY_VLLM_CHAT_URL and ASSAY_VLLM_CHAT_MODEL")
    arguments = ("--judge", "openai", "--base-url", url, "--model", model, "--limit", "5", "--max-tokens", "300")
    code, out, _ = command("judge", "run", *arguments, "-w", str(root), "--json")
    (told,) = parsed(out)["judges"]
    assert code == 0
    assert told["asked"] == 5
    assert told["answered"] >= 3  # its decoding is constrained to the schema; only the token limit can cut an answer
    assert told["tokens_out"] > 0
