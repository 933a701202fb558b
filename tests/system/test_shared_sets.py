"""Real preference data: what the importers make of the published sets, counted by hand from the files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from assay.workspace import Workspace
from assay_pipelines.importers.formats import ImportConfig
from assay_pipelines.importing import ImportReport, open_import, run_import


def take(workspace: Workspace, path: Path) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path))))


def records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def test_hh_slice_in_the_publishers_form(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "native" / "hh_harmless_base_test_raw_slice.jsonl.gz"
    report = take(workspace, path)
    empty = sum(
        any(not row[side].rpartition("\n\nAssistant:")[2].strip() for side in ("chosen", "rejected"))
        for row in records(path)
    )
    assert report.recognised == "HH-RLHF text in JSON Lines"
    assert report.rows == len(records(path))
    assert report.pairs == report.rows - empty
    normalised = take(workspace, shared_data / "hh_harmless_base_test.jsonl.gz")
    known = normalised.pairs - normalised.new.comparisons
    assert known > 0.5 * report.pairs, "both forms of the set give the same comparisons the same ids"
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM pools WHERE label IS NULL").fetchone() == (0,)


def test_helpful_set_has_no_reject(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "hh_helpful_base_test.jsonl.gz"
    report = take(workspace, path)
    assert (report.rows, report.pairs, report.rejected) == (len(records(path)),) * 2 + ({},)


def test_ukp_votes_ties_and_rejects(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "ukpconvarg1_pairs.jsonl.gz"
    rows = [row for row in records(path) if row["responses"][0] != row["responses"][1]]
    report = take(workspace, path)
    assert report.pairs == len(rows)
    assert report.rejected == {"the two sides are identical": report.rows - len(rows)}
    said = {
        (row["prompt"][0]["content"], frozenset(row["responses"]), vote["annotator"], chosen(row, vote["value"]))
        for row in rows
        for vote in row["ratings"]["votes"]
    }
    with workspace.store.unit() as db:
        counted = dict(
            db.execute(
                "SELECT kind, count(*) FROM judgments JOIN annotators USING (annotator_id) GROUP BY 1"
            ).fetchall()
        )
        voters = db.execute("SELECT count(*) FROM annotators WHERE kind = 'human'").fetchone()
    assert counted["human"] == len(said)
    assert voters == (len({voter for _, _, voter, _ in said}),)
    gold = Counter(row["ratings"]["gold"] for row in rows)
    assert counted["source"] <= gold["A"] + gold["B"] + gold["tie"]


def chosen(row: dict[str, Any], value: str) -> str:
    return str(row["responses"]["AB".index(value)]) if value in ("A", "B") else value


def test_sets_without_pairs_say_why(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "webgpt_comparisons_test.jsonl.gz"
    report = take(workspace, path)
    ties = sum(row["chosen"] is None for row in records(path))
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM pools WHERE label = 'tie'").fetchone() == (ties,)
    assert report.pairs == report.rows
