"""The hygiene commands as a user runs them, from the import to training and evaluation with the ledger."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.workspace import Workspace


class Assay:
    """The command in this process: exit code and output; `--json` as an object."""

    def __init__(self, capsys: pytest.CaptureFixture[str], workspace: Workspace) -> None:
        self.capsys, self.workspace = capsys, workspace

    def run(self, *arguments: object) -> tuple[int, str, str]:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "-w", str(self.workspace.root)])
        assert isinstance(ended.value.code, int)
        captured = self.capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    def text(self, *arguments: object) -> str:
        code, out, err = self.run(*arguments)
        assert code == 0, err
        return out

    def __call__(self, *arguments: object) -> dict[str, Any]:
        found = json.loads(self.text(*arguments, "--json"))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str], workspace: Workspace) -> Assay:
    return Assay(capsys, workspace)


def sentence(chance: random.Random, count: int) -> str:
    return " ".join(f"word{chance.randrange(3000)}" for _ in range(count))


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Path]:
    """20 pairs of which one is a near-duplicate, one a duplicate, one a contradiction, two are in the benchmark."""
    chance = random.Random(0)
    benchmark = [sentence(chance, 20) for _ in range(5)]
    rows = [
        {"prompt": sentence(chance, 20), "chosen": sentence(chance, 12), "rejected": sentence(chance, 12)}
        for _ in range(16)
    ]
    rows[3]["prompt"] = f"please {benchmark[1]} now"
    rows[4]["prompt"] = f"{benchmark[2].upper()}!"
    rows += [
        {**rows[10], "chosen": f"{rows[10]['chosen']} indeed"},
        {**rows[11], "prompt": rows[11]["prompt"].upper()},
        {**rows[12], "chosen": rows[12]["rejected"], "rejected": rows[12]["chosen"]},
        {**rows[13], "chosen": "same", "rejected": " Same"},
    ]
    held = [{"prompt": benchmark[n], "chosen": sentence(chance, 9), "rejected": sentence(chance, 9)} for n in range(3)]
    return {
        "train": write(tmp_path / "train.jsonl", rows),
        "benchmark": write(tmp_path / "bench.jsonl", [{"prompt": prompt} for prompt in benchmark]),
        "held": write(tmp_path / "held.jsonl", held),
    }


@pytest.mark.slow
def test_from_import_to_evaluation(assay: Assay, data: dict[str, Path], tmp_path: Path) -> None:
    assert assay("data", "import", data["train"], "--source", "noisy")["pairs"] == 20
    assert assay("data", "clean")["discarded"]["identical_responses"] == 1
    shown = assay("data", "contradictions")
    assert shown["total"] == 1
    assert shown["contradictions"][0]["exact"]
    assert "one pair: c-" in assay.text("data", "contradictions", "--limit", "1")
    counts = assay("data", "dedup")
    assert (counts["duplicates"], counts["contradictions"]) == (1, 1)

    reported = assay("data", "near-dup")
    assert (reported["clusters"], reported["extra"], reported["discarded"]) == (1, 1, 0)
    assert "near-dup" not in assay.text("data", "stats"), "only reported"
    assert assay("data", "near-dup", "--action", "discard")["discarded"] == 1
    assert "0 clusters" in assay.text("data", "near-dup")

    code, _, err = assay.run("data", "decontaminate")
    assert (code, "no benchmark is registered: assay data benchmarks add NAME FILE" in err) == (3, True)
    assert assay("data", "benchmarks", "add", "bench", data["benchmark"])["prompts"] == 5
    assert "bench: 5 prompts" in assay.text("data", "benchmarks", "list")
    assay("data", "snapshot", "leaky")
    train = ("train", "bt", "--base", "tiny", "--max-length", "384", "--batch-size", "16", "--device", "cpu")
    code, _, err = assay.run(*train, "--data", "leaky", "--name", "one")
    assert code == 2
    assert "snapshot 'leaky' is not checked against benchmark 'bench'; run: assay data decontaminate" in err
    found = assay("data", "decontaminate", "--action", "report")["benchmarks"][0]
    assert (found["hits"], found["discarded"]) == (2, 0)
    assert "bench: 2 overlaps (13 words" in assay.text("data", "benchmarks", "status", "leaky")
    code, _, err = assay.run(*train, "--data", "leaky", "--name", "one")
    assert (code, "has 2 overlaps with benchmark 'bench'" in err) == (2, True)

    waiver = ("--waive-contamination", "bench=a test of leaks")
    leaky = assay(*train, "--data", "leaky", "--name", "leaky", *waiver)
    assert (leaky["contamination"][0]["state"], leaky["contamination"][0]["waived"]) == ("overlaps", "a test of leaks")
    card = (Path(leaky["path"]) / "README.md").read_text(encoding="utf-8")
    assert "| contamination | bench: training data of leaky: 2 overlaps (13 words" in card
    assert "waived: a test of leaks |" in card
    with assay.workspace.store.unit() as db:
        kept = db.execute("SELECT run_id, benchmark, state, reason FROM contamination_waivers").fetchall()
    assert kept == [(leaky["run_id"], "bench", "overlaps", "a test of leaks")]
    said = assay.text("eval", "--model", "leaky", "--data", data["held"], "--device", "cpu")
    assert "contamination, 3 prompts of a registered benchmark; the training data against bench: 2 overlaps" in said
    assert "waived: a test of leaks" in said
    assert "choosing the longer response (characters)" in said
    other = assay("eval", "--model", "leaky", "--data", data["train"], "--device", "cpu", "--limit", "3")
    assert other["contamination"] == [], "that is no benchmark"

    assert assay("data", "decontaminate")["benchmarks"][0]["discarded"] == 2
    assay("data", "snapshot", "clean")
    clean = assay(*train, "--data", "clean", "--name", "clean")
    assert clean["contamination"][0]["state"] == "clean"
    evaluated = assay("eval", "--model", "clean", "--data", data["held"], "--device", "cpu")["contamination"]
    assert [(line["state"], line["evaluated"]) for line in evaluated] == [("clean", 3)]
    pools = assay("data", "stats")["decisions"]
    assert {rule.rpartition(" ")[2]: n for rule, n in pools.items()} == {
        "contamination": 2,
        "contradiction": 1,
        "duplicate": 1,
        "identical_responses": 1,
        "near_duplicate": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["data", "near-dup", "--threshold", "2"], 2, "field 'threshold': must be at most 1, not 2"),
        (["data", "near-dup", "--over", "answers"], 2, "field 'over': unknown over 'answers'; one of pair, prompt"),
        (["data", "near-dup", "--action", "drop"], 2, "unknown action 'drop'; one of discard, report"),
        (["data", "decontaminate", "--unit", "token"], 2, "unknown unit 'token'; one of word, character"),
        (["data", "decontaminate", "--ngram", "0"], 2, "field 'ngram': must be at least 1"),
        (["data", "decontaminate", "--action", "drop"], 2, "unknown action 'drop'; one of discard, report"),
        (["data", "benchmarks", "add", "x", "nowhere.json"], 2, "nowhere.json: no such file"),
        (["data", "benchmarks", "status", "none"], 3, "no snapshot 'none'"),
        (["data", "contradictions", "--limit", "-1"], 2, "field 'limit': must not be negative"),
        (["data", "stats", "--languages", "-1"], 2, "field 'languages': must not be negative"),
        (["train", "bt", "--data", "x", "--waive-contamination", "bench"], 2, "takes BENCHMARK=REASON, not 'bench'"),
    ],
)
def test_wrong_input_is_one_clear_line(assay: Assay, arguments: list[str], code: int, message: str) -> None:
    ended, _, err = assay.run(*arguments)
    assert ended == code
    assert message in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_published_benchmarks_against_published_data(assay: Assay, shared_data: Path, tmp_path: Path) -> None:
    """AlpacaEval's own prompts are in the set of its judgments; JudgeBench's are in neither set."""
    native = shared_data / "native"
    assay("data", "benchmarks", "add", "rm-bench-chat", native / "rm_bench_chat_filtered_slice.json.gz")
    assay("data", "benchmarks", "add", "judgebench", native / "judgebench_gpt-4o-2024-05-13_slice.jsonl.gz")
    assay("data", "benchmarks", "add", "alpaca-eval", shared_data / "alpacaeval2_multi_model.jsonl.gz")
    assay("data", "import", shared_data / "hh_helpful_base_test.jsonl.gz")
    assay("data", "import", shared_data / "alpacaeval_cot_explained_pairs.jsonl.gz")
    found = {row["benchmark"]: row for row in assay("data", "decontaminate", "--action", "report")["benchmarks"]}
    assert found["judgebench"]["hits"] == 0
    assert found["alpaca-eval"]["hits"] >= 347, "its 347 prompts at the least"
    with assay.workspace.store.unit() as db:
        missed = db.execute(
            """SELECT count(*) FROM prompts p JOIN benchmark_prompts b
                   ON b.benchmark = 'alpaca-eval' AND b.content = p.messages[1].content
               WHERE p.prompt_id NOT IN (SELECT prompt_id FROM contamination_hits WHERE check_id = ?)""",
            [found["alpaca-eval"]["check_id"]],
        ).fetchall()
    assert missed == [(0,)]


def test_near_misses_of_a_published_benchmark_stay(assay: Assay, shared_data: Path, tmp_path: Path) -> None:
    """13 consecutive words of each JudgeBench prompt planted: all found; 12 of them: none."""
    native = shared_data / "native" / "judgebench_gpt-4o-2024-05-13_slice.jsonl.gz"
    assay("data", "benchmarks", "add", "judgebench", native)
    with assay.workspace.store.unit() as db:
        prompts = [row[0].split() for row in db.execute("SELECT content FROM benchmark_prompts").fetchall()]
    runs = [words[20:33] for words in prompts if len(words) > 40 and all(w.isalpha() for w in words[20:33])]
    assert runs
    rows = []
    for number, run in enumerate(runs):
        rows.append({"prompt": f"planted {number} {' '.join(run)} end", "chosen": "a", "rejected": "b"})
        rows.append({"prompt": f"missed {number} {' '.join(run[:12])} end", "chosen": "a", "rejected": "b"})
    assay("data", "import", write(tmp_path / "rows.jsonl", rows))
    (found,) = assay("data", "decontaminate")["benchmarks"]
    assert (found["hits"], found["discarded"]) == (len(runs), len(runs))
    with assay.workspace.store.unit() as db:
        left = db.execute(
            "SELECT q.messages[1].content FROM pools p JOIN prompts q USING (prompt_id) WHERE pool <> 'discarded'"
        ).fetchall()
    assert all(row[0].startswith("missed") for row in left)
    assert len(left) == len(runs)
