"""How fast `assay data export` writes a curated store for other trainers, in what memory.

Peers, measured in the same run, each in a process of its own, writing the same rows: DuckDB's bare COPY from one flat
table, without the selection, the decisions and the joins of ids to texts that an export makes; and `datasets`:
to_json and to_parquet of the same rows, loaded before its clock starts.

    python benchmarks/export_scale.py --quick
    python benchmarks/export_scale.py --rows 1000000
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import ChildResult, Report, arguments, interleaved, ratio, run_child, versions
from preference_texts import write_pairs

MEASURES = (
    "pipelines/assay_pipelines/exporters",
    "platform/assay/store",
    "platform/assay/data",
)

TIMEOUT = 3600.0
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


def _datasets(folder: Path) -> Callable[[Path], int]:
    import datasets

    datasets.disable_progress_bars()
    source = str(folder / "rows.parquet")
    loaded = datasets.load_dataset("parquet", data_files=source, split="train", cache_dir=str(folder / "cache"))

    def write(out: Path) -> int:
        if out.suffix == ".jsonl":
            loaded.to_json(str(out))
        else:
            loaded.to_parquet(str(out))
        return len(loaded)

    return write


def child(name: str, folder: Path, ending: str) -> None:
    """One contender in this process: its rows and seconds as JSON. The clock starts when libraries are loaded."""
    import duckdb  # noqa: F401

    import assay_pipelines.exporters.export  # noqa: F401

    contenders: dict[str, Callable[[], Callable[[Path], int]]] = {
        "assay": lambda: lambda out: _assay(folder, out),
        "duckdb": lambda: lambda out: _duckdb(folder, out),
        "datasets": lambda: _datasets(folder),
    }
    work = contenders[name]()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        out = Path(scratch) / f"out.{ending}"
        started = time.perf_counter()
        rows = work(out)
        seconds = time.perf_counter() - started
        print(json.dumps({"rows": rows, "seconds": seconds, "mb": out.stat().st_size / 1e6}))


def measure(folder: Path, rows: int, rounds: int, report: Report) -> None:
    peaks: dict[str, float] = {}
    written: dict[str, float] = {}

    def contender(name: str, ending: str) -> Callable[[], float]:
        def measured() -> float:
            result: ChildResult = run_child(
                [sys.executable, __file__, "--child", name, str(folder), ending], timeout=TIMEOUT
            )
            figures: dict[str, Any] = result.last_object()
            if figures["rows"] != rows:
                raise RuntimeError(f"{name} wrote {figures['rows']} of {rows} rows")
            key = f"{name} {ending}"
            peaks[key] = max(peaks.get(key, 0.0), result.peak_mb)
            written[key] = figures["mb"]
            return float(rows / figures["seconds"])

        return measured

    print(f"{'':<18}{'rows/s':>10}{'peak MB':>9}{'file MB':>9}")
    for ending in ENDINGS:
        rates = interleaved({name: contender(name, ending) for name in ("assay", "datasets", "duckdb")}, rounds)
        report.ratios[f"export {ending} / datasets"] = ratio(rates["assay"], rates["datasets"])
        report.ratios[f"export {ending} / duckdb COPY of a flat table"] = ratio(rates["assay"], rates["duckdb"])
        for name, contender_rates in rates.items():
            key = f"{name} {ending}"
            middle = sorted(contender_rates)[len(contender_rates) // 2]
            print(f"{key:<18}{middle:>10.0f}{peaks[key]:>9.0f}{written[key]:>9.0f}", flush=True)
            report.figures.setdefault("rows_per_second", {})[key] = [round(rate) for rate in contender_rates]
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
    rows, rounds = (30_000, 3) if options.quick else (options.rows, options.rounds)
    report = Report(
        "export_scale", measures=MEASURES, figures={"rows": rows, "versions": versions("duckdb", "datasets", "pyarrow")}
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        prepare(Path(scratch), rows)
        measure(Path(scratch), rows, rounds, report)
    report.finish(options)


if __name__ == "__main__":
    main()
