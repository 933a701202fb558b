"""JSON arrays, which are read without being held: with a mark in front, packed, with bad elements, cut off."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers.containers import json_elements
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\,[]{}: \né', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\', max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)
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


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 18])
@settings(max_examples=60)
@given(values=st.lists(JSON_VALUE, max_size=5), indent=st.sampled_from([None, 1]))
def test_elements_are_cut_where_json_cuts_them(chunk: int, values: list[Any], indent: int | None) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_elements, "CHUNK", chunk)
        elements = list(json_elements.JsonElements(io.BytesIO(b"\n " + text.encode() + b" ")))
    assert [json.loads(element) for element in elements] == values
