"""`assay score`: files and texts, broken lines, a server or a model, scores kept in the workspace."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

from assay.cli.main import main
from assay.domain import Message
from assay.http.listening import Tls
from assay.models.calibration import Calibration
from assay.runs.calibrations import record_calibration, refresh_probabilities
from assay.score import Score
from assay.system.name_lock import locked_name
from assay.workspace import Workspace
from assay_rm_training.calibration.stored import stored_calibrations
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server
from assay_serving.score_files import ScoreFile, ScoreReport, read_rows, score_rows
from assay_serving.scorer import ScoreItem

LINES = [
    json.dumps({"id": "one", "prompt": "Name a metal.", "response": "Gold.", "extra": 1}),
    json.dumps({"id": 2, "prompt": [{"role": "user", "content": "Name a metal."}], "responses": ["Gold.", "Glass."]}),
    "{broken",
    json.dumps({"id": "no-prompt", "response": "Gold."}),
    "",
    json.dumps({"id": "long", "prompt": "Name a metal.", "responses": ["x" * 3000, "Tin."]}),
    json.dumps({"prompt": "Name a metal.", "response": ""}),
    json.dumps({"id": "both", "prompt": "a", "response": "b", "responses": ["c"]}),
]


@pytest.fixture(scope="module")
def offline(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))


@pytest.fixture(scope="module")
def url(offline: TransformersScorer) -> Iterator[str]:
    with running_server({"tiny-rm": offline}) as running:
        yield running.url


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(LINES) + "\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, captured.out, captured.err


def reward_of(scorer: TransformersScorer, response: str) -> float:
    [result] = scorer.score([ScoreItem((Message("user", "Name a metal."),), response)])
    assert isinstance(result, Score)
    return result.reward


def check(lines: Sequence[dict[str, Any]], offline: TransformersScorer) -> None:
    assert [line["row"] for line in lines] == [1, 2, 3, 4, 6, 7, 8]
    assert [line.get("id") for line in lines] == ["one", 2, None, "no-prompt", "long", None, "both"]
    gold, pair, broken, missing, long, empty, both = lines
    assert gold["score"]["reward"] == pytest.approx(reward_of(offline, "Gold."), abs=1e-5)
    expected = [reward_of(offline, "Gold."), reward_of(offline, "Glass.")]
    assert [score["reward"] for score in pair["scores"]] == pytest.approx(expected, abs=1e-5)
    for line in (broken, missing, both):
        assert line["error"]["code"] == "bad_input"
        assert not {"score", "scores"} & set(line)
    assert long["scores"][0]["error"]["code"] == "too_long"
    assert long["scores"][1]["reward"] == pytest.approx(reward_of(offline, "Tin."), abs=1e-5)
    assert empty["score"]["reward"] == pytest.approx(reward_of(offline, ""), abs=1e-5)


def test_every_line_in_gives_one_line_out(
    capsys: pytest.CaptureFixture[str],
    lines_file: Path,
    tiny_reward_model: Path,
    url: str,
    offline: TransformersScorer,
    tmp_path: Path,
) -> None:
    sources: list[list[str]] = [["--model", str(tiny_reward_model), "--device", "cpu"], ["--reward", url]]
    for number, source in enumerate(sources):
        out = tmp_path / f"out-{number}.jsonl"
        code, stdout, stderr = run(capsys, "score", lines_file, *source, "--out", out, "--json")
        assert code == 2
        summary = json.loads(stdout)
        assert (summary["rows"], summary["scored"], summary["failed"]) == (7, 5, 4)
        assert summary["failures"] == {"bad_input": 3, "too_long": 1}
        for complaint in ("row 3: broken JSON", "row 4: field 'prompt': missing", "row 6: 1 of 2 responses", "row 8: "):
            assert complaint in stderr
        check([json.loads(line) for line in out.read_text().splitlines()], offline)


def test_a_row_of_no_responses_is_one_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "a", "responses": []}) + "\n" + json.dumps({"prompt": "a", "steps": []}))
    assert [(row.items, str(row.error)) for row in read_rows(path)] == [
        ((), "field 'responses': is empty"),
        ((), "field 'steps': is empty"),
    ]


def test_standard_output_and_compressed_input(
    capsys: pytest.CaptureFixture[str], url: str, offline: TransformersScorer, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode()))
    code, stdout, _ = run(capsys, "score", path, "--reward", url)
    assert code == 2
    check([json.loads(line) for line in stdout.splitlines()], offline)


def test_texts_on_the_command_line(capsys: pytest.CaptureFixture[str], url: str, offline: TransformersScorer) -> None:
    texts = ["--prompt", "Name a metal.", "--response", "Gold.", "--response", "Glass."]
    code, stdout, _ = run(capsys, "score", "--reward", url, *texts)
    assert code == 0
    assert [line.split()[-1] for line in stdout.splitlines()] == ["Gold.", "Glass."]
    assert float(stdout.split()[0]) == pytest.approx(reward_of(offline, "Gold."), abs=1e-4)
    code, stdout, _ = run(capsys, "score", "--reward", url, *texts, "--json")
    assert [s["model"] for s in json.loads(stdout)["scores"]] == ["tiny-rm"] * 2


def test_saved_scores_are_in_the_workspace_with_their_run(
    capsys: pytest.CaptureFixture[str], lines_file: Path, url: str, offline: TransformersScorer, workspace: Workspace
) -> None:
    out = lines_file.with_name("out.jsonl")
    arguments = ("score", lines_file, "--reward", url, "--out", out, "--save", "-w", workspace.root, "--json")
    summary = json.loads(run(capsys, *arguments)[1])
    again = json.loads(run(capsys, *arguments)[1])
    assert summary["run"] != again["run"]
    # "Gold." is there twice; a failure is stored, too
    assert (summary["stored"], summary["stored_before"], again["stored"], again["stored_before"]) == (5, 1, 0, 6)
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT content, reward, error, model, model_version, scores.run_id
               FROM scores JOIN responses USING (response_id) ORDER BY content"""
        ).fetchall()
        runs = db.execute("SELECT kind, status FROM runs").fetchall()
    scored = {content: reward for content, reward, *_ in rows}
    assert len(rows) == len(scored) == 5  # "Gold." was scored twice, and everything a second time
    assert scored["Gold."] == pytest.approx(reward_of(offline, "Gold."), abs=1e-5)
    assert scored["x" * 3000] is None
    for _, reward, error, model, version, run_id in rows:
        assert (reward is None) == (error is not None)
        assert (model, version, run_id) == ("tiny-rm", offline.info.version, summary["run"])
    assert runs == [("score", "done")] * 2
    as_model = ("--model" if argument == "--reward" else argument for argument in arguments)  # the server, too
    for run_id in (json.loads(run(capsys, *as_model)[1])["run"], summary["run"]):
        lineage = json.loads(run(capsys, "lineage", run_id, "-w", workspace.root, "--json", "--depth", "1")[1])
        reads = {node["id"] for branch in lineage["came_from"] for node in branch["nodes"]}
        assert reads == {str(lines_file), offline.info.version}
    relations = {branch["relation"]: len(branch["nodes"]) for branch in lineage["came_of_it"]}
    assert relations == {"wrote": 1, "scored": 5, "wrote prompts": 1, "wrote responses": 5}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_scores_in_another_number_format_stand_beside_the_first(
    capsys: pytest.CaptureFixture[str], tiny_reward_model: Path, offline: TransformersScorer, workspace: Workspace
) -> None:
    asked = (
        "score",
        "--model",
        tiny_reward_model,
        "--device",
        "cpu",
        "--prompt",
        "Name a metal.",
        "--response",
        "Tin.",
    )
    at = ("--save", "-w", workspace.root)
    printed = json.loads(run(capsys, *asked, *at, "--json")[1])
    halves = [json.loads(run(capsys, *asked, *at, "--dtype", "bfloat16", "--json")[1]) for _ in range(2)]
    assert [one["dtype"] for one in (printed, *halves)] == ["float32", "bfloat16", "bfloat16"]
    version = offline.info.version
    rewards = {version: printed, f"{version}+bfloat16": halves[0]}
    with workspace.store.unit() as db:
        stored = db.execute("SELECT model_version, reward FROM scores").fetchall()
    assert dict(stored) == {name: one["scores"][0]["reward"] for name, one in rewards.items()}
    assert len(stored) == 2
    calibration = Calibration(2.0, 0.5, "test", 10)
    record_calibration(workspace, version, calibration, None)
    assert refresh_probabilities(workspace, version, calibration) == 2
    with workspace.store.unit() as db:
        [counted] = stored_calibrations(db)
    assert (counted.version, counted.scores) == (version, 2)
    _, line, stderr = run(capsys, *asked, "--dtype", "bfloat16")
    assert line.split() == [f"{halves[0]['scores'][0]['reward']:.4f}", "bfloat16", "Tin."]
    file = workspace.root / "lines.jsonl"
    file.write_text(json.dumps({"prompt": "Name a metal.", "response": "Tin."}))
    for more, dtype in (((), None), (("--dtype", "bfloat16"), "bfloat16")):
        scored = run(capsys, "score", file, "--model", tiny_reward_model, "--device", "cpu", *more)[1]
        assert json.loads(scored).get("dtype") == dtype
    assert stderr.strip().endswith("1 row: 1 response scored, 0 failed, in bfloat16")


def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str], lines_file: Path, url: str) -> None:
    code, _, stderr = run(capsys, "score", lines_file, "--reward", url, "--out", "/dev/full")
    assert code == 5
    assert "/dev/full: No space left on device" in stderr.splitlines()[-1]


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound and not listening, as a server that loads its model
        taken.bind(("127.0.0.1", 0))
        where = f"http://127.0.0.1:{taken.getsockname()[1]}"
        arguments = ("--reward", where, "--wait", "0.5", "--prompt", "a", "--response", "b")
        code, _, stderr = run(capsys, "score", *arguments)
    assert code == 5
    assert f"{where} is not ready after 0.5 s" in stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_server_with_a_certificate_of_its_own(
    capsys: pytest.CaptureFixture[str], offline: TransformersScorer, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert, key, ca = (tmp_path / name for name in ("server.pem", "server.key", "ca.pem"))
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(cert)
    authority.cert_pem.write_to_path(ca)
    asked = ("--prompt", "Name a metal.", "--response", "Gold.", "--wait", "1")
    with running_server({"tiny-rm": offline}, tls=Tls(str(cert), str(key))) as running:
        assert running.url.startswith("https://")
        code, stdout, _ = run(capsys, "score", "--reward", running.url, "--ca", ca, *asked, "--json")
        assert code == 0
        (score,) = json.loads(stdout)["scores"]
        assert score["reward"] == pytest.approx(reward_of(offline, "Gold."), abs=1e-5)
        code, _, stderr = run(capsys, "score", "--reward", running.url, *asked)
        assert code == 5  # nobody that this machine believes has signed it
        code, _, stderr = run(capsys, "score", "--reward", running.url, "--ca", tmp_path / "none.pem", *asked)
        assert (code, stderr) == (3, f"assay: no such file: {tmp_path / 'none.pem'}\n")
        code, _, stderr = run(capsys, "score", "--model", "tiny", "--ca", ca, *asked)
        assert (code, stderr) == (2, "assay: --ca is for a server: --reward https://...\n")


def test_wrong_calls_are_one_line(
    capsys: pytest.CaptureFixture[str], lines_file: Path, url: str, tmp_path: Path
) -> None:
    for arguments, code, words in (
        (["--reward", url], 2, "FILE"),
        ([lines_file, "--prompt", "a", "--reward", url], 2, "either"),
        (["--prompt", "a", "--reward", url], 2, "--response"),
        ([lines_file], 2, "--reward"),
        ([lines_file, "--reward", url, "--out", lines_file], 2, "is the input"),
        ([lines_file, "--reward", url, "--json"], 2, "--out"),
        ([tmp_path / "none.jsonl", "--reward", url], 2, "no such file"),
        ([lines_file, "--reward", url, "--out", tmp_path / "no" / "folder"], 2, "cannot be written"),
        ([lines_file, "--reward", url, "--model", "other"], 3, "tiny-rm"),
        ([lines_file, "--reward", "http://"], 2, "address"),
        ([lines_file, "--model", tmp_path / "nothing"], 3, "no model"),
        ([lines_file, "--model", tmp_path / "nothing.yaml"], 3, "no model"),
    ):
        found, _, stderr = run(capsys, "score", *arguments)
        assert found == code, (arguments, stderr)
        assert words in stderr.splitlines()[-1]
        assert stderr.splitlines()[-1].startswith("assay: ")
    assert lines_file.read_text().splitlines() == LINES


KILLED = """
import os, sys
from assay_serving.engines import transformers
from assay.cli.main import main
score, calls = transformers.TransformersScorer.score, []
def stop(self, items, on_progress=None):
    calls.append(len(items))
    if len(calls) == 3:
        os.kill(os.getpid(), 9)
    return score(self, items)
transformers.TransformersScorer.score = stop
from assay_serving import score_files
score_files.ITEMS_AT_ONCE = 4
main(sys.argv[1:])
"""


def test_a_row_without_responses_does_not_stop_what_continues(offline: TransformersScorer, tmp_path: Path) -> None:
    lines, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines.write_text(json.dumps({"prompt": "Name a metal.", "responses": []}) + "\n")
    file = ScoreFile(out, {})
    score_rows(offline, read_rows(lines), report=file.report, write=file.write)
    file.close(complete=False)
    again = ScoreFile(out, {})
    assert (again.report, again.last_row) == (ScoreReport(rows=1, failures=Counter(bad_input=1)), 1)
    again.close(complete=True)


@pytest.mark.slow
def test_a_killed_command_resumes_after_its_last_line(
    tmp_path: Path, tiny_reward_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"id": n, "prompt": "Name a metal.", "response": f"Metal {n}."}) for n in range(16)]
    rows[2], rows[5] = "", "{broken"
    lines, out, again = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    lines.write_text("\n".join(rows) + "\n")
    command = ["score", str(lines), "--model", str(tiny_reward_model), "--device", "cpu", "--out", str(out)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    part = out.with_name("out.jsonl.part")
    assert not out.exists()
    before, stated = part.read_text(), out.with_name("out.jsonl.part.json").read_text()
    assert 0 < before.count("\n") < 15
    part.write_text(before + "\0" * 40 + "\n" + '{"row": 99, "sco')  # as a power failure and a kill may leave it
    with locked_name(out):  # another command is at it
        code, _, err = run(capsys, *command)
    assert (code, "is making it; wait for it or name another --out" in err) == (2, True)
    code, _, err = run(capsys, *command)
    assert code == 2  # one line is broken
    assert f"{before.count(chr(10))} rows were scored before; going on after them" in err
    assert "15 rows: 14 responses scored" in err
    assert "1 failed (bad_json 1)" in err or "1 failed" in err
    assert out.read_text().startswith(before)
    assert not list(tmp_path.glob("*.part*"))
    code, _, _ = run(capsys, *command[:-1], again)
    assert (code, out.read_text()) == (2, again.read_text())
    # lines whose scores were not saved, or another model's, are not gone on with
    part.write_text(before)
    about = out.with_name("out.jsonl.part.json")
    about.write_text(json.dumps(json.loads(stated) | {"save": True}, sort_keys=True))
    code, _, err = run(capsys, *command)
    assert "scored before" not in err
    part.write_text(before)
    about.write_text(json.dumps({"source": "another"}))
    code, _, err = run(capsys, *command)
    assert "scored before" not in err
    assert out.read_text() == again.read_text()


@pytest.mark.slow
def test_a_killed_command_that_saves_resumes_without_a_file(
    tmp_path: Path, tiny_reward_model: Path, capsys: pytest.CaptureFixture[str], workspace: Workspace
) -> None:
    lines = tmp_path / "in.jsonl"
    rows = [json.dumps({"id": n, "prompt": "Name a metal.", "response": f"Metal {n}."}) for n in range(16)]
    lines.write_text("\n".join(rows) + "\n")
    score = ["score", str(lines), "--model", str(tiny_reward_model), "--device", "cpu"]
    command = [*score, "--save", "-w", str(workspace.root)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    code, out, err = run(capsys, *command)
    assert code == 0
    assert "rows were scored before; going on after them" in err
    assert f"in {workspace.root}" in err.splitlines()[-1]
    assert out == run(capsys, *score)[1]
    assert list((workspace.root / "evaluations").iterdir()) == []
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(reward) FROM scores").fetchall() == [(16,)]
        mark = db.execute("SELECT run_id, count(*) FROM scores GROUP BY 1").fetchall()
    assert len(mark) == 2  # some were stored by the run that was killed
    code, _, err = run(capsys, *command)
    assert "stored 0 results of " in err.splitlines()[-1]
    assert "16 there already" in err.splitlines()[-1]
