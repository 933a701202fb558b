"""Real preference data in TRL's forms: the store is the same, table by table, whichever way the rows were read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from assay.store.integrity import dangling, repeated
from assay.workspace import Workspace
from assay_pipelines.importers import bulk
from assay_pipelines.importers.formats import ImportConfig
from assay_pipelines.importers.importing import ImportReport, open_import, run_import

TABLES = ("prompts", "responses", "comparisons", "origins", "judgments", "annotators", "rejects")
ROWS = 2500
DAMAGE = (b'{"prompt": "a"', b"\xff\xfe", b"", b'{"prompt": "p", "chosen": "\\ud800", "rejected": "b"}', b"[]")


def pairs(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            if isinstance(row.get("chosen"), str) and isinstance(row.get("rejected"), str) and row["prompt"]:
                yield row


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    prompt = "\n".join(turn["content"] for turn in row["prompt"])
    kept = {key: row[key] for key in ("id", "source", "category", "license", "rationale", "lang", "meta", "ratings")}
    return {"prompt": prompt, "chosen": row["chosen"], "rejected": row["rejected"], **kept, "length": len(prompt) / 3}


def as_messages(row: dict[str, Any]) -> dict[str, Any]:
    said = [{"role": "assistant", "content": row[side]} for side in ("chosen", "rejected")]
    return {
        "chosen": [*row["prompt"], said[0]],
        "rejected": [*row["prompt"], said[1]],
        "score": 0.1 * len(row["chosen"]),
    }


def taken(path: Path, home: Path) -> tuple[dict[str, list[tuple[Any, ...]]], ImportReport]:
    workspace = Workspace.create(home)
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    with workspace.store.unit() as db:
        found = {}
        for table in TABLES:
            columns = "COLUMNS(lambda c: c NOT IN ('run_id', 'created_at'))::VARCHAR"
            found[table] = db.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()
        assert dangling(db) == repeated(db) == {}
    report.run_id = ""
    return found, report


@pytest.mark.parametrize("form", [as_text, as_messages])
@pytest.mark.parametrize("name", ["hh_helpful_base_test", "alpacaeval_cot_explained_pairs", "ukpconvarg1_pairs"])
def test_both_ways_fill_the_same_tables(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: Any
) -> None:
    path = tmp_path / f"{name}.jsonl"
    with path.open("wb") as out:
        for number, row in enumerate(islice(pairs(shared_data / f"{name}.jsonl.gz"), ROWS)):
            out.write(json.dumps(form(row), ensure_ascii=bool(number % 2)).encode() + b"\n")
            if number % 500 == 0:
                out.write(DAMAGE[number // 500 % len(DAMAGE)] + b"\n")
    by_sql = taken(path, tmp_path / "sql")
    monkeypatch.setattr(bulk, "can_read", lambda source: False)
    by_row = taken(path, tmp_path / "rows")
    assert by_sql == by_row
    assert len(by_sql[0]["comparisons"]) > 1000
    assert by_sql[0]["rejects"]
