"""Imports of large rows: in bounded memory, and a row or a file beyond every bound costs nothing else."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from large_rows import IMPORT, write

from assay.data.json_lines import ROW_BYTES
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers import rows
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

MB = 1_000_000
GOOD = '{"prompt": "why?", "chosen": "because", "rejected": "no"}'


def imported(folder: Path, path: Path, *, batch: int) -> dict[str, Any]:
    command = [sys.executable, "-c", IMPORT, str(folder / "workspace"), str(path), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "error" not in report, report["error"]
    return report


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.json", "unpaired.jsonl"])
def test_memory_follows_the_batch_and_not_the_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [MB] * 60, unpaired=name.startswith("unpaired"))
    report = imported(tmp_path, path, batch=8 * MB)
    assert (report["rows"], report["pairs"], report["rejected"]) == (60, 30 if "un" in name else 60, {})
    assert report["peak_mb"] < 600


@pytest.mark.slow
def test_a_document_that_all_rows_of_a_parquet_file_share_is_not_multiplied(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    document = [{"role": "user", "content": "word " * 200_000}]
    path = tmp_path / "shared.parquet"
    sides = ("chosen", "rejected")
    answers = [{side: [{"role": "assistant", "content": f"{side} {n}"}] for side in sides} for n in range(120)]
    pq.write_table(pa.Table.from_pylist([{"prompt": document, **answer} for answer in answers]), path)
    report = imported(tmp_path, path, batch=8 * MB)
    assert (report["pairs"], report["rejected"]) == (120, {})
    assert report["peak_mb"] < 480


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("rows-of-40-kB.jsonl", [40_000] * 7000),
        ("rows-of-40-kB.parquet", [40_000] * 7000),
        ("rows-of-400-kB.jsonl", [400_000] * 300),
        ("rows-of-2-MB.jsonl", [2 * MB] * 150),
        ("rows-of-12-MB.jsonl", [12 * MB] * 3),
        ("one-of-30-MB.jsonl", [500] * 200 + [30 * MB] + [500] * 200),
        ("one-of-30-MB.parquet", [500] * 200 + [30 * MB] + [500] * 200),
        ("one-of-30-MB.csv", [500] * 200 + [30 * MB] + [500] * 200),
    ],
)
def test_files_of_large_rows_take_less_than_one_and_a_half_gigabytes(
    tmp_path: Path, name: str, sizes: list[int]
) -> None:
    report = imported(tmp_path, write(tmp_path / name, sizes), batch=rows.BATCH_BYTES)
    assert (report["rows"], report["pairs"], report["rejected"]) == (len(sizes), len(sizes), {})
    print(f"{name}: {report['peak_mb']:.0f} MB")
    assert report["peak_mb"] < 1500


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv", "x.parquet"])
def test_a_row_that_is_too_large_is_a_reject_and_the_others_are_imported(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    path = write(tmp_path / name, [500, 500, ROW_BYTES + 4 * MB, 500, 500])
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    assert (report.rows, report.pairs, report.rejected) == (5, 4, {"the row is larger than 32 MiB": 1})
    assert report.first_rejects == ["row 3: the row is larger than 32 MiB"]


@pytest.mark.slow
def test_a_large_cell_of_quotes_and_line_breaks_ends_where_csv_ends_it(workspace: Workspace, tmp_path: Path) -> None:
    cell = ("a line of some length, with a comma and a " + '""quote""' + "\n") * (ROW_BYTES // 40)
    path = tmp_path / "x.csv"
    path.write_text(f'prompt,chosen,rejected\n"p, q",a,b\np,"{cell}",b\n"r\ns",a,b\n')
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    assert (report.rows, report.pairs, report.first_rejects) == (3, 2, ["row 2: the row is larger than 32 MiB"])


@pytest.mark.parametrize("suffix", [pytest.param(".gz", marks=pytest.mark.slow), ".zst"])
def test_a_compressed_bomb_ends_in_one_line_and_the_rows_before_it_are_imported(
    workspace: Workspace, tmp_path: Path, suffix: str
) -> None:
    content = f"{GOOD}\n".encode() + b" " * 80 * MB
    path = tmp_path / f"x.jsonl{suffix}"
    if suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        import pyarrow as pa

        path.write_bytes(pa.compress(content, codec="zstd", asbytes=True))
    with pytest.raises(BadInputError, match=r"not read beyond row .*: it expands to more than 200 times its size"):
        run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM comparisons").fetchall() == [(1,)]


@pytest.mark.slow
def test_a_parquet_bomb_is_refused_before_it_is_unpacked(workspace: Workspace, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    table = pa.table({"prompt": ["why?"] * 3, "chosen": ["a", "x" * 40 * MB, "y" * 40 * MB], "rejected": ["b"] * 3})
    pq.write_table(table, path, compression="gzip")
    with pytest.raises(BadInputError, match="it expands to more than 200 times its size"):
        run_import(workspace, open_import(workspace, ImportConfig(str(path))))


def test_a_file_damaged_within_its_first_rows_keeps_what_comes_before(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(f"[{GOOD}, {GOOD.replace('why', 'how')}, ")
    with pytest.raises(BadInputError, match="the JSON array is damaged after row 2"):
        run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM comparisons").fetchall() == [(2,)]
