"""`assay eval --bench` as a user runs it: on real slices with recorded scores, with models, into the workspace."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from assay_command import Run

from assay.workspace import Workspace


@pytest.fixture(autouse=True)
def _no_workspace_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)


def judgebench_rows(shared: Path) -> list[dict[str, Any]]:
    files = sorted((shared / "native").glob("judgebench_*"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def rm_bench_rows(shared: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted((shared / "native").glob("rm_bench_*")):
        domain = file.name.removeprefix("rm_bench_").split("_")[0]
        for row in json.loads(gzip.decompress(file.read_bytes())):
            yield domain, row


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_judgebench(path: Path, count: int, *, source: str = "livebench-math") -> Path:
    """Pairs whose right answer has more pluses."""
    rows = [
        {
            "pair_id": f"u-{n}",
            "source": source,
            "question": f"Question {n}?",
            "response_model": "m",
            "response_A": "+" if n % 2 else "++",
            "response_B": "++" if n % 2 else "+",
            "label": "B>A" if n % 2 else "A>B",
        }
        for n in range(count)
    ]
    return write_rows(path, rows)


def test_judgebench_by_length_on_the_publishers_files(shared_data: Path, tmp_path: Path, assay: Run) -> None:
    rows = judgebench_rows(shared_data)
    scores = [{"id": r["pair_id"], "scores": [len(r["response_A"]), len(r["response_B"])]} for r in rows]
    files = [flag for f in sorted((shared_data / "native").glob("judgebench_*")) for flag in ("--path", f)]
    code, out, err = assay(
        "eval", "--bench", "judgebench", *files, "--scores", write_rows(tmp_path / "s.jsonl", scores), "--json"
    )
    assert code == 0, err
    told = json.loads(out)
    right = [(len(r["response_A"]) > len(r["response_B"])) == (r["label"] == "A>B") for r in rows]
    assert told["aggregates"]["overall"] == told["aggregates"]["pooled"] == fmean(right)
    for model in {r["response_model"] for r in rows}:
        own = [ok for ok, r in zip(right, rows, strict=True) if r["response_model"] == model]
        assert told["aggregates"][f"response_model/{model}"] == pytest.approx(fmean(own))
    assert told["counts"]["items"] == told["sizes"]["overall"] == len(rows)
    assert told["missing"] == ["reasoning", "math", "coding"]
    assert told["complete"] is False
    assert told["protocol"]["tie"] == "equal scores decide B>A"
    assert told["intervals"]["overall"]["low"] < told["aggregates"]["overall"] < told["intervals"]["overall"]["high"]
    assert (told["run_id"], told["folder"]) == (None, None)

    constant = write_rows(tmp_path / "c.jsonl", [{"id": r["pair_id"], "scores": [0.5, 0.5]} for r in rows])
    code, out, _ = assay("eval", "--bench", "judgebench", *files, "--scores", constant, "--json")
    told = json.loads(out)
    assert told["aggregates"]["overall"] == fmean(r["label"] == "B>A" for r in rows)
    assert told["counts"]["ties"] == len(rows)
    code, out, _ = assay("eval", "--bench", "judgebench", *files, "--scores", constant, "--json", "--ties", "half")
    assert json.loads(out)["aggregates"]["overall"] == 0.5


def test_rm_bench_by_length_on_the_publishers_files(shared_data: Path, tmp_path: Path, assay: Run) -> None:
    """The files number their prompts each on their own: the same ids are matched in order, and that is told."""
    rows = list(rm_bench_rows(shared_data))
    scores = [{"id": r["id"], "scores": [len(text) for text in (*r["chosen"], *r["rejected"])]} for _, r in rows]
    files = [flag for f in sorted((shared_data / "native").glob("rm_bench_*")) for flag in ("--path", f)]
    code, out, err = assay(
        "eval", "--bench", "rm-bench", *files, "--scores", write_rows(tmp_path / "s.jsonl", scores), "--json"
    )
    assert code == 0, err
    told = json.loads(out)
    by_domain: dict[str, list[list[list[bool]]]] = {}
    for domain, row in rows:
        lengths = [[len(text) for text in row[side]] for side in ("chosen", "rejected")]
        matrix = [[lengths[0][i] > lengths[1][j] for j in range(3)] for i in range(3)]
        by_domain.setdefault(domain.split("-")[0], []).append(matrix)
    levels: dict[str, dict[str, float]] = {}
    for domain, matrices in by_domain.items():
        cell = [[fmean(m[i][j] for m in matrices) for j in range(3)] for i in range(3)]
        levels[domain] = {
            "easy": fmean([cell[1][0], cell[2][0], cell[2][1]]),
            "normal": fmean([cell[0][0], cell[1][1], cell[2][2]]),
            "hard": fmean([cell[0][1], cell[0][2], cell[1][2]]),
        }
        assert told["aggregates"][domain] == pytest.approx(fmean(levels[domain].values()))
        for level, value in levels[domain].items():
            assert told["aggregates"][f"{domain}/{level}"] == pytest.approx(value)
    for level in ("easy", "normal", "hard"):
        assert told["aggregates"][level] == pytest.approx(fmean(found[level] for found in levels.values()))
    overall = fmean(fmean(found.values()) for found in levels.values())
    assert told["aggregates"]["overall"] == pytest.approx(overall)
    named = [name for name in told["aggregates"] if name.startswith("overall/")]
    assert fmean(told["aggregates"][name] for name in named) == pytest.approx(
        fmean(told["aggregates"][name.replace("overall", domain)] for name in named for domain in by_domain)
    )
    assert len(named) == 9
    assert {name for name in named if name in told["intervals"]}, "with intervals, but for cells that are all one way"
    assert told["recorded"]["matched_in_order"] == 2
    assert told["missing"] == ["math"]
    code, out, _ = assay("eval", "--bench", "rm-bench", *files, "--scores", tmp_path / "s.jsonl")
    assert "2 rows share their ids and were matched in order" in out
    assert "not complete: no scored item of math" in out


@pytest.mark.slow
def test_recorded_scores_need_neither_torch_nor_a_workspace(tmp_path: Path) -> None:
    items = write_judgebench(tmp_path / "items.jsonl", 4)
    scores = write_rows(tmp_path / "scores.jsonl", [{"id": f"u-{n}", "scores": [1, 0]} for n in range(4)])
    script = (
        "import sys; from assay.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'torch', 'transformers', 'datasets', 'duckdb', 'polars'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, "eval", "--bench", "judgebench", "--path", items, "--scores", scores, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["aggregates"]["overall"] == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.jsonl", "scores.jsonl"]


def test_failures_are_told(tmp_path: Path, assay: Run) -> None:
    items = write_judgebench(tmp_path / "items.jsonl", 4)
    rows: list[dict[str, Any]] = [
        {"id": "u-0", "scores": [1, 0]},
        {"id": "u-1", "scores": [None, 0]},
        {"id": "u-2", "scores": [0, 1]},
    ]
    scores = write_rows(tmp_path / "scores.jsonl", rows)
    code, out, _ = assay("eval", "--bench", "judgebench", "--path", items, "--scores", scores)
    assert code == 0
    said = " ".join(out.split())
    assert "2 of 4 items failed and are left out: 1 (null), 1 (missing); overall with those as wrong 0.2500" in said
    code, out, _ = assay("eval", "--bench", "judgebench", "--path", items, "--scores", scores, "--json")
    told = json.loads(out)
    assert told["failures"] == {"null": 1, "missing": 1}
    assert told["aggregates"]["overall"] == 0.5
    assert told["aggregates_failures_wrong"]["overall"] == 0.25


def test_a_model_into_the_workspace_and_back(
    workspace: Workspace, tiny_reward_model: Path, tmp_path: Path, assay: Run
) -> None:
    items = write_judgebench(tmp_path / "items.jsonl", 6)
    where = ("-w", workspace.root)
    assert assay("data", "benchmarks", "add", "judgebench", items, *where)[0] == 0
    code, out, err = assay(
        "eval", "--bench", "judgebench", "--path", items, "--model", tiny_reward_model, "--device", "cpu",
        "--out", tmp_path / "figures", "--json", *where,
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    assert told["model_info"]["dtype"] == "float32"
    assert told["truncated_share"] == 0.0
    assert [(line["benchmark"], line["evaluated"]) for line in told["contamination"]] == [("judgebench", 6)]
    with workspace.store.unit() as db:
        results = db.execute("SELECT bench, model, aggregates->>'overall' FROM benchmark_results").fetchall()
        stored = db.execute("SELECT key, scores, credit FROM benchmark_items ORDER BY key").fetchall()
        kind = db.execute("SELECT kind, status FROM runs WHERE run_id = ?", [told["run_id"]]).fetchall()
        read = db.execute("SELECT kind FROM run_links WHERE run_id = ? AND direction = 'input'", [told["run_id"]])
        assert {row[0] for row in read.fetchall()} == {"file", "model"}
    assert [(b, m, float(v)) for b, m, v in results] == [("judgebench", "tiny-rm", told["aggregates"]["overall"])]
    assert [row[0] for row in stored] == [f"u-{n}" for n in range(6)]
    assert all(len(row[1]) == 2 for row in stored)
    assert fmean(row[2] for row in stored) == pytest.approx(told["aggregates"]["overall"])
    assert kind == [("eval", "done")]
    assert json.loads((tmp_path / "figures" / "benchmark.json").read_text())["aggregates"] == told["aggregates"]

    # Its items are recorded scores: no model is needed to see the same, or to compare.
    again = tmp_path / "figures" / "items.parquet"
    code, out, err = assay("eval", "--bench", "judgebench", "--path", items, "--scores", again, "--json")
    assert code == 0, err
    assert json.loads(out)["aggregates"] == told["aggregates"]
    code, out, err = assay(
        "eval", "--bench", "judgebench", "--path", items, "--scores", told["run_id"], "--json", *where
    )
    assert code == 0, err
    assert json.loads(out)["aggregates"] == told["aggregates"]


def test_several_side_by_side(tmp_path: Path, assay: Run) -> None:
    items = write_judgebench(tmp_path / "items.jsonl", 40)
    perfect: list[dict[str, Any]] = [{"id": f"u-{n}", "scores": [0, 1] if n % 2 else [1, 0]} for n in range(40)]
    worse = [{**row, "scores": row["scores"][::-1]} if n < 10 else row for n, row in enumerate(perfect)]
    worse[39] = {"id": "u-39", "scores": None}
    one, two = write_rows(tmp_path / "worse.jsonl", worse), write_rows(tmp_path / "perfect.jsonl", perfect)
    command = ("eval", "--bench", "judgebench", "--path", items, "--scores", one, "--scores", two)
    code, out, err = assay(*command, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert [model["model"] for model in told["models"]] == ["worse", "perfect"]
    (found,) = told["comparisons"]
    assert (found["reference"], found["model"], found["items"]) == ("worse", "perfect", 39)
    difference = found["differences"]["overall"]
    assert difference["difference"] == pytest.approx(10 / 39)
    assert 0 < difference["low"] < 10 / 39 < difference["high"]
    code, out, _ = assay(*command)
    assert "+0.2564" in out
    assert "difference from worse on the items both have a score of (39 with perfect)" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either pairs (--data) or a benchmark (--bench)"),
        (("--data", "x", "--bench", "pairs"), "give either pairs (--data) or a benchmark (--bench)"),
        (("--bench", "pairs", "--path", "x"), "name what is evaluated: --model, --judge or --scores"),
        (("--data", "x", "--model", "m", "--scores", "s"), "--scores goes with --bench"),
        (("--data", "x", "--model", "m", "--ties", "half"), "--ties goes with --bench"),
        (("--data", "x", "--model", "m", "--model", "n"), "--data evaluates one --model"),
        (("--data", "x"), "--data evaluates one --model"),
        (("--bench", "pairs", "--scores", "s", "--calibrate"), "--calibrate goes with --data"),
        (("--bench", "pairs", "--scores", "s", "--ties", "x"), "unknown ties 'x'; one of official, half"),
        (("--bench", "nope", "--scores", "s"), "no benchmark is named 'nope'"),
        (("--bench", "rm-bench", "--path", ".", "--judge", "m"), "RM-Bench is not judged in pairs"),
    ],
)
def test_options_that_do_not_go_together(assay: Run, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = assay("eval", *arguments)
    assert code == 2
    assert said in err
