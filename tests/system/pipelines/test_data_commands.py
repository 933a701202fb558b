"""The commands as a user runs them: a whole way through the data, and what they say when something is wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from assay_command import exit_code

from assay.cli.main import main
from assay.workspace import Workspace


def assay(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As a program would answer; what starts one is in `tests/system/repository`."""
    words, out, err = [str(argument) for argument in arguments], io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.delenv("ASSAY_WORKSPACE", raising=False)
        patch.chdir(cwd or Path.cwd())
        code = exit_code(*words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


class InProcess:
    """The command without the cost of a new interpreter, for the commands that are expected to work."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys, self.monkeypatch = capsys, monkeypatch
        monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)

    def run(self, *arguments: object, cwd: Path | None = None) -> tuple[int, str]:
        if cwd is not None:
            self.monkeypatch.chdir(cwd)
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code, self.capsys.readouterr().out

    def __call__(self, *arguments: object, cwd: Path) -> dict[str, Any]:
        code, out = self.run(*arguments, "--json", cwd=cwd)
        assert code == 0
        found = json.loads(out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> InProcess:
    return InProcess(capsys, monkeypatch)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [
        {"prompt": f"question {n}", "chosen": f"good {n}", "rejected": f"bad {n}", "category": f"t{n % 3}"}
        for n in range(30)
    ]
    rows.append({"prompt": "question 0 ", "chosen": "GOOD 0", "rejected": "bad 0", "category": "t0"})
    rows.append({"prompt": "question 1", "chosen": "same", "rejected": "Same ", "category": "t0"})
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "{broken"]) + "\n")
    return path


def test_the_whole_way_through_the_data(answer: InProcess, tmp_path: Path, pairs: Path) -> None:
    here = tmp_path / "ws"
    assert assay("init", here).returncode == 0
    imported = answer("data", "import", pairs, cwd=here)
    assert (imported["rows"], imported["pairs"], imported["new"]["comparisons"]) == (33, 32, 32)
    assert list(imported["rejected"].values()) == [1]
    assert answer("data", "import", pairs, cwd=here)["new"]["comparisons"] == 0
    assert answer("data", "clean", cwd=here)["discarded"]["identical_responses"] == 1
    assert answer("data", "dedup", cwd=here)["duplicates"] == 1
    assert answer("data", "stats", cwd=here)["pools"] == {"unverified": 30, "discarded": 2}
    made = answer("data", "snapshot", "train", "--holdout", "0.3", "--seed", "1", cwd=here)["snapshots"]
    assert [s["name"] for s in made] == ["train", "train-holdout"]
    assert sum(s["items"] for s in made) == 30
    exported = answer("data", "export", here / "train.jsonl", "--snapshot", "train", cwd=here)
    assert exported["pairs"] == made[0]["items"]
    other = tmp_path / "other"
    answer("init", other, cwd=tmp_path)
    back = answer("data", "import", here / "train.jsonl", cwd=other)
    assert back["new"]["comparisons"] == made[0]["items"]
    again = answer("data", "snapshot", "train", cwd=other)["snapshots"][0]
    assert again["items"] == made[0]["items"]
    tree = answer("lineage", "train", cwd=here)
    assert tree["kind"] == "snapshot"
    assert str(pairs) in json.dumps(tree)
    assert "came of it" in answer.run("lineage", "train", cwd=here)[1]
    assert len(answer("data", "snapshots", cwd=here)["snapshots"]) == 2


def test_an_import_of_labels_alone_says_what_is_new(answer: InProcess, workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "rated.jsonl"
    rows = [{"prompt": "Why?", "response": f"Because {n}.", "clarity_rating": n, "depth_rating": 3} for n in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = answer.run("data", "import", path, cwd=workspace.root)[1]
    assert "0 known already; 1 new prompts, 2 responses, 0 judgments" in said
    assert "4 statements about single responses: 4 new ratings and labels\n" in said
    again = answer.run("data", "import", path, cwd=workspace.root)[1]
    assert "4 statements about single responses: none of them new\n" in again


def test_doctor_reports_and_fails_on_damage(answer: InProcess, workspace: Workspace) -> None:
    _, healthy = answer.run("doctor", "--json", "-w", workspace.root)
    checks = {check["name"]: check for check in json.loads(healthy)["checks"]}
    assert checks["references"]["state"] == "ok"
    assert checks["torch"]["state"] == "ok"
    assert "bfloat16" in checks["device"]["detail"]
    with workspace.store.unit() as db:
        db.execute("INSERT INTO comparisons VALUES ('c-1', 'p-1', 'r-1', 'r-2', NULL)")
        db.execute(
            """INSERT INTO runs (run_id, kind, config, code_version, status, pid, host)
               VALUES ('run-dead', 'import', '{}', '0', 'running', NULL, ?)""",
            [os.uname().nodename],
        )
    code, sick = answer.run("doctor", "-w", workspace.root)
    assert code == 1
    assert "PROBLEM  references: point nowhere" in sick
    assert "marked as interrupted: run-dead" in sick


@pytest.mark.parametrize(
    ("content", "arguments", "code", "message"),
    [
        ("", [], 2, "the file is empty: no rows"),
        ("{broken\n", [], 2, "row 1: none of the first 1 rows can be read: broken JSON"),
        ('{"a": "x", "b": "y"}\n', ["--map", "prompt=q"], 2, "field 'q': no such column; there are a, b"),
        ('{"a": "x", "b": "y"}\n', ["--map", "nonsense"], 2, "--map takes OURS=THEIRS"),
        ('{"a": "x", "b": "y"}\n', ["--map", "best=a"], 2, "cannot map to 'best'"),
        ('{"a": "x", "b": "y"}\n', ["--format", "yaml"], 2, "no format is named 'yaml'"),
        ('{"a": "x", "b": "y"}\n', [], 2, "cannot tell what the columns mean (a, b)"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_code(
    workspace: Workspace, tmp_path: Path, content: str, arguments: list[str], code: int, message: str
) -> None:
    path = tmp_path / "input.jsonl"
    path.write_text(content)
    done = assay("data", "import", path, "-w", workspace.root, *arguments)
    assert done.returncode == code
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("assay: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["demo", "--nope"], 2, "No such option: --nope; see"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["data", "import"], 2, "Missing argument 'FILE'; see"),
        (["train", "bt", "--batch-size", "many"], 2, "'--batch-size': must be a whole number, not 'many'"),
        (["init", "/proc/no-folder-can-be-here"], 5, "/proc/no-folder-can-be-here: "),
    ],
)
def test_wrong_usage_is_one_line_and_an_exit_code(arguments: list[str], code: int, message: str) -> None:
    done = assay(*arguments)
    assert done.returncode == code
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("assay: ")
    assert message in line
    machine = assay(*arguments, "--json")
    assert message in json.loads(machine.stdout)["error"]["message"]


def test_a_command_without_arguments_shows_its_help() -> None:
    for arguments in ([], ["data"]):
        done = assay(*arguments)
        assert done.returncode == 2
        assert "Usage:" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert "assay: " not in done.stderr


def test_things_that_are_not_there(tmp_path: Path, workspace: Workspace) -> None:
    for arguments, code, message in (
        (("data", "stats", "-w", tmp_path / "nowhere"), 3, "no workspace at"),
        (("data", "import", tmp_path / "no.jsonl", "-w", workspace.root), 2, "no such file"),
        (("data", "export", tmp_path / "x.jsonl", "--snapshot", "none", "-w", workspace.root), 3, "no snapshot 'none'"),
        (("data", "snapshot", "train", "-w", workspace.root), 2, "the store is empty"),
        (("lineage", "j-none", "-w", workspace.root), 3, "nothing in"),
    ):
        done = assay(*arguments)
        assert done.returncode == code, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    machine = assay("data", "stats", "-w", tmp_path / "nowhere", "--json")
    assert json.loads(machine.stdout)["error"]["code"] == "not_found"


MY_LAYOUT = """
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow


class MyLayout(RecordLayout):
    title = "support tickets"
    source = "tickets"

    def parse(self, record):
        turns = [{"role": "user", "content": record["ticket"]}]
        return [PairRow(turns, record["good"], record["bad"], "first", record_id=str(record["number"])).check()]
"""


def test_an_importer_in_a_file_of_the_user(answer: InProcess, tmp_path: Path) -> None:
    assert answer.run("init", tmp_path)[0] == 0
    (tmp_path / "mine.py").write_text(MY_LAYOUT)
    rows = [{"ticket": f"It fails {n}.", "good": f"Try {n}.", "bad": f"No {n}.", "number": n} for n in range(5)]
    rows.append({"ticket": "Both.", "good": "same", "bad": "same", "number": 5})
    (tmp_path / "tickets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = answer("data", "import", "tickets.jsonl", "--format", "mine.py:MyLayout", cwd=tmp_path)
    assert (report["pairs"], report["new"]["comparisons"], report["recognised"]) == (
        5,
        5,
        "support tickets in JSON Lines",
    )
    assert report["rejected"] == {"the two sides are identical": 1}
    with Workspace.open(tmp_path).store.unit() as db:
        origins = db.execute("SELECT source, record_id FROM origins ORDER BY record_id").fetchall()
        (config,) = db.execute("SELECT config->>'format' FROM runs WHERE kind = 'import'").fetchall()
    assert origins == [("tickets", str(n)) for n in range(5)]
    assert config == ("mine.py:MyLayout",)
