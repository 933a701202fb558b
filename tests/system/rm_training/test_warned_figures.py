"""What a figure rests on is said beside it: left out, truncated, failed items; in terminal, JSON, card and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run
from pair_files import write_pairs

from assay.domain import Message, PreferencePair
from assay.runs.coverage import Coverage
from assay.workspace import Workspace
from assay_rm_training.benchmarks.stored_results import newest_results
from assay_web.rewards.leaderboard_routes import _entry
from assay_web.runs.records import record_of, row_of

FAST = ("--base", "tiny", "--lr", "0.005", "--head-lr", "0.005", "--batch-size", "4", "--device", "cpu")


def pairs_file(path: Path, short: int, long: int) -> Path:
    """Pairs of which the `long` ones have 300 words a side."""
    pairs = [
        PreferencePair((Message("user", f"Question {n}?"),), "yes! " * size, "no? " * size)
        for n, size in enumerate([2] * short + [300] * long)
    ]
    write_pairs(path, pairs)
    return path


def judgebench(folder: Path, count: int, scored: int) -> tuple[Path, Path]:
    """A benchmark's items, and recorded scores of the first `scored`; the others are failures."""
    items = [
        {
            "pair_id": f"u-{n}",
            "source": "livebench-math",
            "question": f"Question {n}?",
            "response_model": "m",
            "response_A": "a",
            "response_B": "b",
            "label": "A>B",
        }
        for n in range(count)
    ]
    scores: list[dict[str, Any]] = [
        {"id": f"u-{n}", "scores": [1.0, 0.0]} if n < scored else {"id": f"u-{n}", "scores": [None, None]}
        for n in range(count)
    ]
    for row in scores[scored:]:
        row["truncated"] = True
    files = folder / "items.jsonl", folder / f"scores-{scored}.jsonl"
    for file, rows in zip(files, (items, scores), strict=True):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


@pytest.mark.slow
def test_a_training_that_lost_most_of_its_data_says_so(workspace: Workspace, tmp_path: Path, assay: Run) -> None:
    train, held = pairs_file(tmp_path / "train.jsonl", 6, 30), pairs_file(tmp_path / "held.jsonl", 5, 0)
    where = ("-w", workspace.root)
    options = ("train", "bt", "--data", train, "--eval-data", held, *FAST, "--max-length", "128", *where)
    code, out, err = assay(*options, "--name", "shown")
    assert code == 0, err
    assert "WARNING: trained on under half of its data: 6 of 36 pairs; left out: 30 (" in out.replace("\n", " ")
    assert "the figures rest on 5 pairs, fewer than 30" in out.replace("\n", " ")
    code, out, err = assay(*options, "--name", "told", "--json")
    assert code == 0, err
    told: dict[str, Any] = json.loads(out)
    assert told["coverage"] | {"left_out": None} == {
        "total": 36, "used": 6, "share": 6 / 36, "left_out": None, "truncated": 0, "truncated_share": 0.0
    }  # fmt: skip
    assert len(told["warnings"]) == 2
    card = (workspace.models / "told" / "README.md").read_text()
    assert all(warning in card for warning in told["warnings"])
    assert card.index("Warnings") < card.index("## Evaluation")
    with workspace.store.unit() as db:
        record = record_of(db, told["run_id"])
    assert record is not None
    row = row_of(record, workspace)
    assert row.status == "done"
    assert row.warnings == told["warnings"]


@pytest.mark.slow
def test_a_complete_training_has_no_warning_and_reads_the_bases_own_length(
    workspace: Workspace, tmp_path: Path, assay: Run
) -> None:
    pairs = [
        PreferencePair((Message("user", f"Question {n}?"),), "yes! " * size, "no? " * size)
        for n, size in enumerate([2] * 8 + [400] * 2)  # over 1024 tokens of the tiny model, which reads 4096
    ]
    write_pairs(tmp_path / "train.jsonl", pairs)
    code, out, err = assay(
        "train", "bt", "--data", tmp_path / "train.jsonl", *FAST, "--name", "full", "--json", "-w", workspace.root
    )
    assert code == 0, err
    told = json.loads(out)
    assert told["pairs"] == 10, told["left_out"]
    assert told["warnings"] == []
    spec = json.loads((workspace.models / "full" / "assay.json").read_text())
    assert spec["trained_length"] == 4096
    assert "Warnings" not in (workspace.models / "full" / "README.md").read_text()


@pytest.mark.slow
def test_an_evaluation_is_of_the_length_and_precision_that_are_asked_for(
    workspace: Workspace, tmp_path: Path, assay: Run, tiny_reward_model: Path
) -> None:
    data = pairs_file(tmp_path / "pairs.jsonl", 30, 10)  # the model was trained with 512 tokens
    where = ("--data", data, "--model", tiny_reward_model, "--json", "-w", workspace.root)
    code, out, err = assay("eval", *where)
    assert code == 0, err
    trained = json.loads(out)
    assert (trained["scored"], trained["pairs"]) == (30, 40)
    assert trained["warnings"] == [
        "only 30 of 40 pairs (75.0 %) could be scored: 10 (chosen too_long, rejected too_long)"
    ]
    code, out, err = assay("eval", *where, "--max-length", "2048", "--dtype", "bfloat16")
    assert code == 0, err
    longer = json.loads(out)
    assert (longer["scored"], longer["warnings"]) == (40, [])
    assert (longer["model"]["max_length"], longer["model"]["dtype"]) == (2048, "bfloat16")
    code, out, err = assay("eval", *where[:-3], "-w", workspace.root)
    assert "WARNING" in out
    assert "only 30 of 40 pairs" in out.replace("\n", " ")


def test_no_benchmark_result_below_nine_tenths_of_the_items_is_ranked(
    workspace: Workspace, tmp_path: Path, assay: Run
) -> None:
    items, few = judgebench(tmp_path, 41, 6)
    enough = judgebench(tmp_path, 41, 40)[1]
    where = ("--bench", "judgebench", "--path", items, "-w", workspace.root)
    code, out, err = assay("eval", *where, "--scores", few, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["truncated_share"] == 0.0  # 35 of the others were truncated: 35 / 6 = 5.83 was the share
    assert (told["coverage"], told["ranked"]) == (6 / 41, False)
    assert len(told["warnings"]) == 2
    code, out, err = assay("eval", *where, "--scores", few)
    assert "WARNING" in out
    assert "is not ranked" in out
    code, out, err = assay("eval", *where, "--scores", enough, "--scores", few)
    assert "(not ranked)" in " ".join(out.split())
    assert "*" not in out.split("below each value")[0].replace("**", "")
    with workspace.store.unit() as db:
        entries = [_entry(one) for one in newest_results(db)]
    unranked = [entry for entry in entries if not entry.ranked]
    assert unranked
    assert all(entry.coverage < 0.9 and entry.warnings for entry in unranked)
    assert [entry.failures_wrong for entry in unranked] == [pytest.approx(6 / 41)] * len(unranked)
    with workspace.store.unit() as db:
        record = record_of(db, told["run_id"])
    assert record is not None
    row = row_of(record, workspace)
    assert row.warnings == told["warnings"]
    assert row.figure is not None
    assert (row.figure.label, row.figure.value) == ("overall", 1.0)


@pytest.mark.parametrize(("total", "used", "truncated"), [(0, 0, 0), (10, 0, None), (7, 6, 6), (100, 100, 100)])
def test_shares_are_shares(total: int, used: int, truncated: int | None) -> None:
    coverage = Coverage(total, used, truncated=truncated)
    assert 0 <= coverage.share <= 1
    assert coverage.truncated_share is None or 0 <= coverage.truncated_share <= 1
