"""`assay decode` on `tiny`: every decoder, rows that resume, failed rewards, best of fewer, what it refuses."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from assay_command import captured

from assay.workspace import Workspace

REWARDS = """
from pathlib import Path

def share(prompt, response, **row):
    return len(response.encode()) / 8

def picky(prompt, response, **row):
    if ord(response[0]) > 64:
        raise ValueError("unreadable")
    return 1.0

def broken(prompt, response, **row):
    if not Path(__file__).with_name("repaired").exists():
        raise ValueError("unreadable")
    return 2.0
"""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}+{n}?", "answer": f"{2 * n}"}) + "\n" for n in range(3)))
    (tmp_path / "mine.py").write_text(REWARDS, encoding="utf-8")
    return path


def arguments(workspace: Workspace, prompts: Path, reward: str = "share") -> tuple[object, ...]:
    source = ("-w", workspace.root, "--prompts", prompts, "--reward", f"{prompts.parent}/mine.py:{reward}")
    return (*source, "--max-new-tokens", "4", "--device", "cpu", "--json")


def test_best_of_n_resumes_and_estimates_the_best_of_fewer(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    command = ("decode", "best_of_n", "tiny", *arguments(workspace, prompts), "--set", "n=4", "--samples", "2")
    code, out, err = run(*command)
    assert code == 0, err
    first = json.loads(out)
    assert json.loads((workspace.runs / first["run"] / "decoding.json").read_text()) == first
    assert (first["prompts"], first["responses"], first["rewards_missing"], first["scored"]) == (3, 6, 0, 4)
    assert [(point["m"], point["rows"]) for point in first["best_of_m"]] == [(1, 6), (2, 6), (4, 6)]
    assert first["best_of_m"][2]["mean"] == pytest.approx(first["reward"]["mean"])
    assert first["best_of_m"][0]["mean"] <= first["best_of_m"][1]["mean"] <= first["reward"]["mean"]
    written = (workspace.runs / first["run"] / "responses.jsonl").read_bytes()
    rows = [json.loads(line) for line in written.splitlines()]
    assert all(row["reward"] == row["parts"]["share"] == max(row["candidates"]) for row in rows)
    assert rows[0]["verified"] in (0.0, 1.0)
    (stored,) = (workspace.root / "decoding").glob("*.jsonl")
    lines = stored.read_bytes().splitlines(keepends=True)
    marked = lines[0].replace(json.dumps(rows[0]["response"], ensure_ascii=False).encode(), b'"marked"', 1)
    stored.write_bytes(marked + lines[1][:20])  # as a kill leaves it
    code, out, err = run(*command)
    assert code == 0, err
    again = [
        json.loads(line)
        for line in (workspace.runs / json.loads(out)["run"] / "responses.jsonl").read_text("utf-8").splitlines()
    ]
    assert again[0]["response"] == "marked"  # read, not decoded again
    assert again[1:] == rows[1:]
    code, out, err = run(
        "measure",
        "support",
        f"a={workspace.runs / first['run'] / 'responses.jsonl'}",
        "b=tiny",
        *command[3:7],
        "--json",
    )
    assert code == 0, err  # the rows are samples to `assay measure`


@pytest.mark.slow
def test_beams_and_values_decode_and_another_beta_trains_no_other_value_model(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    common = arguments(workspace, prompts)
    code, out, err = run("decode", "beam", "tiny", *common, "--set", "block_tokens=2", "--set", "width=2")
    assert code == 0, err
    assert (json.loads(out)["kl_kind"], json.loads(out)["kl"]["low"]) == ("bound", None)
    kls = []
    for beta in (0, 5):
        settings = ("--set", "samples=2", "--set", "epochs=1", "--set", "lr=0.01", "--set", f"beta={beta}")
        code, out, err = run("decode", "vas", "tiny", *common, *settings)
        assert code == 0, err
        payload = json.loads(out)
        assert (payload["kl_kind"], payload["values"]["rows"], payload["scored"]) == ("by_token", 6, 1)
        kls.append(payload["kl"]["mean"])
    assert len(list((workspace.root / "decoding").glob("values-*.pt"))) == 1
    assert kls[0] < 1e-6 < kls[1]
    responses = len(list((workspace.root / "decoding").glob("*.jsonl")))
    other = prompts.parent / "other.jsonl"
    other.write_text('{"prompt": "why?"}\n', encoding="utf-8")
    code, out, err = run("decode", "vas", "tiny", *common, *settings, "--value-prompts", other)
    assert code == 0, err
    assert len(list((workspace.root / "decoding").glob("*.jsonl"))) == responses + 1, "other values, other responses"


def test_a_failed_reward_is_no_number_and_is_asked_for_again(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    code, out, err = run("decode", "best_of_n", "tiny", *arguments(workspace, prompts, "picky"), "--set", "n=6")
    assert code == 0, err
    payload = json.loads(out)
    rows = [json.loads(line) for line in (workspace.runs / payload["run"] / "responses.jsonl").open(encoding="utf-8")]
    assert any(None in row["candidates"] for row in rows)
    assert [row["reward"] for row in rows] == [1.0] * 3
    command = ("decode", "best_of_n", "tiny", *arguments(workspace, prompts, "broken"), "--set", "n=2")
    code, out, err = run(*command)
    assert code == 2, err
    assert "3 of 3 responses have no reward, the first: broken: " in err
    payload = json.loads(out)
    assert (payload["rewards_missing"], payload["reward"]["mean"], payload["best_of_m"]) == (3, None, [])
    rows = [json.loads(line) for line in (workspace.runs / payload["run"] / "responses.jsonl").open(encoding="utf-8")]
    assert "unreadable" in rows[0]["failures"][0]["message"]
    (prompts.parent / "repaired").touch()
    code, out, err = run(*command)
    assert code == 0, err
    assert (json.loads(out)["rewards_missing"], json.loads(out)["reward"]["mean"]) == (0, 2.0)


def test_stop_texts_and_the_form_of_a_conversation(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    command = ("decode", "best_of_n", "tiny", *arguments(workspace, prompts), "--set", "n=1")

    def first_response(*options: str) -> str:
        code, out, err = run(*command, *options)
        assert code == 0, err
        file = workspace.runs / json.loads(out)["run"] / "responses.jsonl"
        return str(json.loads(file.read_text(encoding="utf-8").split("\n")[0])["response"])

    whole = first_response()
    assert first_response("--stop", whole[1]) == whole[: whole.index(whole[1]) + 1] != whole
    first_response("--system-prompt", "Be brief.")
    assert len(list((workspace.root / "decoding").glob("*.jsonl"))) == 3, "another rendering, other responses"
    code, _, err = run(*command, "--chat-kwargs", "enable_thinking=false")
    assert (code, "the chat template has no such variable" in err.splitlines()[-1]) == (2, True)


CODE = """
from assay_policy_training.plugins.protocols import Rewards

class Fixed:
    name = "fixed"

    def score(self, items, responses):
        return Rewards.of(self.name, [1.0] * len(responses))

def fixed(response):
    return 1.0
"""


@pytest.mark.parametrize("name", ["Fixed", pytest.param("fixed", marks=pytest.mark.slow)])
def test_a_reward_whose_code_has_changed_is_asked_again(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    means = []
    for number in (1.0, 2.25):  # in two processes, of which each imports the file once
        file = prompts.parent / "changing.py"
        file.write_text(CODE.replace("1.0", str(number)), encoding="utf-8")
        sys.modules.pop(f"assay_file_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}", None)
        command = ("decode", "best_of_n", "tiny", *arguments(workspace, prompts), "--set", "n=1")
        code, out, err = captured(capsys)(*[f"{file}:{name}" if "mine.py" in str(word) else word for word in command])
        assert code == 0, err
        means.append(json.loads(out)["reward"]["mean"])
    assert means == [1.0, 2.25]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("best", "tiny"), "did you mean best_of_n"),
        (("best_of_n", "tiny", "--set", "n=0"), "decoder.n"),
        (("best_of_n", "tiny", "--set", "m=2"), "no setting of decoder 'best_of_n' is named 'm'"),
        (("beam", "tiny", "--set", "width"), "KEY=VALUE"),
        (("vas", "tiny", "--set", "beta=-1"), "decoder.beta"),
        (("best_of_n", "nowhere/model"), "nowhere/model"),
    ],
)
def test_bad_input_is_one_line(
    workspace: Workspace,
    prompts: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, ...],
    message: str,
) -> None:
    code, out, err = captured(capsys)("decode", *change, *arguments(workspace, prompts))
    assert code != 0, out
    (line,) = [line for line in err.splitlines() if line.startswith("error") or message in line]
    assert message in line
