"""How fast `assay data export` writes a curated store for other trainers, in what memory.

Peers, measured in the same run, each in a process of its own, writing the same rows: DuckDB's bare COPY from one flat
table, without the selection, the decisions and the joins of ids to texts that an export makes; and `datasets`:
to_json (in one process, and in one a core) and to_parquet of the same rows, loaded before its clock starts.

    python benchmarks/export_scale.py --quick
    python benchmarks/export_scale.py --rows 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from measure import ChildResult, Cost, Report, arguments, compare, run_child, spent
from preference_texts import write_pairs

MEASURES = (
    "pipelines/assay_pipelines/exporters",
    "platform/assay/store",
    "platform/assay/data",
)

TIMEOUT = 3600.0
CORES = len(os.sched_getaffinity(0))
#: Words of a row: as long as HH-RLHF's, about 1.5 kB.
LENGTHS = {"prompt": (10, 120), "chosen": (20, 160), "rejected": (20, 160)}
FLAT, STORE = "flat.duckdb", "workspace"
ENDINGS = ("jsonl", "parquet")


def prepare(folder: Path, rows: int) -> None:
    """A workspace with `rows` imported pairs, a flat table of what an export of them writes, and that as Parquet."""
    import duckdb

    from assay.workspace import Workspace
    from assay_pipelines.importers.run import open_import, run_import
    from assay_pipelines.importers.source import ImportConfig

    texts = folder / "pairs.jsonl"
    write_pairs(texts, rows, lengths=LENGTHS)
    workspace = Workspace.create(folder / STORE)
    run_import(workspace, open_import(workspace, ImportConfig(str(texts))))
    texts.unlink()
    rows_file = folder / "rows.parquet"
    if _assay(folder, rows_file) != rows:
        raise RuntimeError("the export is not what was imported")
    with duckdb.connect(str(folder / FLAT)) as db:
        db.execute(f"CREATE TABLE flat AS SELECT * FROM '{rows_file}'")


def _assay(folder: Path, out: Path) -> int:
    from assay.data.snapshots import Selection
    from assay.workspace import Workspace
    from assay_pipelines.exporters.export import export

    return export(Workspace.open(folder / STORE), out, Selection(), format="trl").rows


def _duckdb(folder: Path, out: Path) -> int:
    import duckdb

    form = "json" if out.suffix == ".jsonl" else "parquet"
    with duckdb.connect(str(folder / FLAT), read_only=True) as db:
        row = db.execute(f"COPY flat TO '{out}' (FORMAT {form})").fetchone()
    return int(row[0]) if row else 0


def _datasets(folder: Path, processes: int = 1) -> Callable[[Path], int]:
    import datasets

    datasets.disable_progress_bars()
    source = str(folder / "rows.parquet")
    loaded = datasets.load_dataset("parquet", data_files=source, split="train", cache_dir=str(folder / "cache"))

    def write(out: Path) -> int:
        if out.suffix == ".jsonl":
            loaded.to_json(str(out), num_proc=processes if processes > 1 else None)
        else:
            loaded.to_parquet(str(out))
        return len(loaded)

    return write


def child(name: str, folder: Path, ending: str) -> None:
    """One contender in this process: rows, wall and CPU seconds as JSON. The clock starts when libraries are loaded."""
    import_module("assay_pipelines.exporters.export" if name == "assay" else name.split(",")[0])
    contenders: dict[str, Callable[[], Callable[[Path], int]]] = {
        "assay": lambda: lambda out: _assay(folder, out),
        "duckdb": lambda: lambda out: _duckdb(folder, out),
        "datasets": lambda: _datasets(folder),
        "datasets, a process a core": lambda: _datasets(folder, CORES),
    }
    work = contenders[name]()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        out = Path(scratch) / f"out.{ending}"
        rows: list[int] = []
        cost = spent(lambda: rows.append(work(out)))
        print(json.dumps({"rows": rows[0], **asdict(cost), "mb": out.stat().st_size / 1e6}))


def measure(folder: Path, rows: int, options: argparse.Namespace, report: Report) -> None:
    peaks: dict[str, float] = {}
    written: dict[str, float] = {}

    def contender(name: str, ending: str) -> Callable[[], Cost]:
        def measured() -> Cost:
            result: ChildResult = run_child(
                [sys.executable, __file__, "--child", name, str(folder), ending], timeout=TIMEOUT
            )
            figures: dict[str, Any] = result.last_object()
            if figures["rows"] != rows:
                raise RuntimeError(f"{name} wrote {figures['rows']} of {rows} rows")
            key = f"{name} {ending}"
            peaks[key] = max(peaks.get(key, 0.0), result.peak_mb)
            written[key] = figures["mb"]
            return Cost(figures["wall_s"], figures["cpu_s"], rows)

        return measured

    print(f"{'':<34}{'rows/s':>10}{'peak MB':>9}{'file MB':>9}")
    for number, ending in enumerate(ENDINGS):
        names = ("assay", "datasets", "duckdb", *(("datasets, a process a core",) if ending == "jsonl" else ()))
        contenders = {name: contender(name, ending) for name in names}
        compared = compare(contenders, options, rounds=options.rounds, parts_left=len(ENDINGS) - number)
        for peer in names[1:]:
            title = "duckdb COPY of a flat table" if peer == "duckdb" else peer
            report.ratios[f"export {ending} / {title}"] = compared.ratio("assay", peer)
        for name in names:
            key, rate = f"{name} {ending}", compared.per_second(name)
            print(f"{key:<34}{rate.median:>10.0f}{peaks[key]:>9.0f}{written[key]:>9.0f}", flush=True)
            report.figures.setdefault("rows_per_second", {})[key] = str(rate)
    report.figures["peak_mb"] = {key: round(peak) for key, peak in peaks.items()}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the scratch files go; default: the system's")
    parser.add_argument("--child", nargs=3, metavar=("NAME", "FOLDER", "ENDING"), help="used by the benchmark itself")
    options = parser.parse_args()
    if options.child:
        name, folder, ending = options.child
        child(name, Path(folder), ending)
        return
    rows = 30_000 if options.quick else options.rows
    report = Report("export_scale", measures=MEASURES, peers=("datasets",), figures={"rows": rows})
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        prepare(Path(scratch), rows)
        measure(Path(scratch), rows, options, report)
    report.finish(options)


if __name__ == "__main__":
    main()
