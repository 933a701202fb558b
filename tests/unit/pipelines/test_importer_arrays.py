"""JSON arrays, which are read without being held: with a mark in front, packed, with bad elements, cut off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

EXPLICIT = {"prompt": "Why is the sky blue?", "chosen": "Rayleigh scattering.", "rejected": "It is painted."}


def take(workspace: Workspace, path: Path) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path))))


def test_arrays_in_any_dress(workspace: Workspace, tmp_path: Path) -> None:
    text = json.dumps([EXPLICIT, [1], {**EXPLICIT, "chosen": "Other.", "margin": 1.0}], indent=2)
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf\n  " + text.encode())
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("bom.json", "packed.json.gz"):
        report = take(workspace, tmp_path / name)
        assert (report.rows, report.pairs) == (3, 2)
        assert report.recognised == "TRL pairs with an explicit prompt in a JSON array"
    with workspace.store.unit() as db:
        rejected = db.execute('SELECT "row", field, reason FROM rejects').fetchall()
    assert rejected == [(2, None, "not a JSON object")] * 2
    (tmp_path / "cut.json").write_bytes(text.encode()[:-40])
    with pytest.raises(BadInputError, match="the JSON array is damaged after row 2"):
        take(workspace, tmp_path / "cut.json")
