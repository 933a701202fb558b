"""What the redo log costs an import, and how long it takes to make a store from it, to back it up and to restore it.

The peer of the import is the same import without the log, in the same run. Each work has a process of its own. The
store of the second part holds an import, a decision and two scores for each comparison, and a snapshot.

    python benchmarks/rebuild_scale.py --quick
    python benchmarks/rebuild_scale.py --sizes 100000 1000000      # a million: 5 GB of disk
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from measure import ChildResult, Cost, Report, arguments, compare, run_child, spent
from preference_texts import write_pairs

MEASURES = (
    "platform/assay/backups",
    "platform/assay/store",
    "pipelines/assay_pipelines/importers",
)

TIMEOUT = 3600.0


def with_log(file: Path, folder: Path) -> int:
    from assay.workspace import Workspace
    from assay_pipelines.importers.run import open_import, run_import
    from assay_pipelines.importers.source import ImportConfig

    workspace = Workspace.open(folder / "workspace")
    return run_import(workspace, open_import(workspace, ImportConfig(str(file)))).new.comparisons


def without_log(file: Path, folder: Path) -> int:
    """The same with nothing written to the log: no workspace is ever opened like this."""
    from assay.store.log_writer import LogWriter

    LogWriter.append = lambda self, connection, capture: None  # type: ignore[method-assign]
    return with_log(file, folder)


def curate(file: Path, folder: Path) -> int:
    """A decision, two scores and a place in a snapshot for each comparison."""
    from assay.data.snapshots import Selection, create_snapshot
    from assay.workspace import Workspace

    workspace = Workspace.open(folder / "workspace")
    with workspace.store.unit() as db:
        db.execute(
            """INSERT INTO decisions (comparison_id, pool, label, rule, reason)
               SELECT comparison_id, 'gold', 'A', 'benchmark', 'for the benchmark' FROM comparisons"""
        )
        db.execute(
            """INSERT INTO scores (response_id, model_version, template_hash, model, reward, tokens, truncated)
               SELECT response_id, 'v', 't', 'm', random(), 10, false FROM responses"""
        )
    return create_snapshot(workspace, "all", Selection(), None).items


def rebuild_store(file: Path, folder: Path) -> int:
    from assay.backups.rebuild import rebuild
    from assay.workspace import Workspace

    return rebuild(Workspace.open(folder / "workspace")).rows["comparisons"]


def backup(file: Path, folder: Path) -> int:
    from assay.backups.backup import back_up
    from assay.workspace import Workspace

    back_up(Workspace.open(folder / "workspace"), folder / "backups")
    return int(file.name.split("-")[1].removesuffix(".jsonl"))


def restore_backup(file: Path, folder: Path) -> int:
    from assay.backups.manifest import newest_in
    from assay.backups.restoring import restore

    return restore(newest_in(folder / "backups"), folder / "restored")[1].rows["comparisons"]


WORKS: dict[str, Callable[[Path, Path], int]] = {
    work.__name__: work for work in (with_log, without_log, curate, rebuild_store, backup, restore_backup)
}


def child(name: str, file: Path, folder: Path) -> None:
    """One work in this process: its rows, wall and CPU seconds as JSON."""
    import duckdb  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import assay_pipelines.importers.run  # noqa: F401

    if not (folder / "workspace").exists():
        from assay.workspace import Workspace

        Workspace.create(folder / "workspace")
    rows: list[int] = []
    cost = spent(lambda: rows.append(WORKS[name](file, folder)))
    print(json.dumps({"rows": rows[0], **asdict(cost)}))


def run(name: str, file: Path, rows: int, folder: Path) -> ChildResult:
    """Raises RuntimeError if rows are lost."""
    result = run_child([sys.executable, __file__, "--child", name, file, folder], timeout=TIMEOUT)
    if result.last_object()["rows"] != rows:
        raise RuntimeError(f"{name} took {result.last_object()['rows']} of {rows} rows")
    return result


def cost_of_the_log(file: Path, rows: int, options: argparse.Namespace, report: Report) -> None:
    def contender(name: str) -> Callable[[], Cost]:
        def measured() -> Cost:
            with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
                figures = run(name, file, rows, Path(scratch)).last_object()
            return Cost(figures["wall_s"], figures["cpu_s"], rows)

        return measured

    contenders = {name: contender(name) for name in ("with_log", "without_log")}
    compared = compare(contenders, options, rounds=options.rounds)
    report.ratios["import / import without the log"] = compared.ratio("with_log", "without_log")
    report.figures["rows_per_second"] = {name: str(compared.per_second(name)) for name in contenders}


def recovery(folder: Path, sizes: list[int], report: Report) -> None:
    """One store of every size: seconds and peak memory of each work; prints the table."""
    table = []
    works = ("with_log", "curate", "rebuild_store", "backup", "restore_backup")
    print(f"{'rows':>9} {'store MB':>9} {'log MB':>7} " + " ".join(f"{name:>15}" for name in works))
    for rows in sizes:
        file, home = folder / f"pairs-{rows}.jsonl", folder / f"home-{rows}"
        write_pairs(file, rows)
        home.mkdir()
        results = {name: run(name, file, rows, home) for name in works}
        log = home / "workspace" / "log"
        entry = {
            "rows": rows,
            "store_mb": round((home / "workspace" / "assay.duckdb").stat().st_size / 1e6),
            "log_mb": round(sum(path.stat().st_size for path in log.rglob("*") if path.is_file()) / 1e6),
            **{f"{name}_s": round(result.last_object()["wall_s"], 1) for name, result in results.items()},
            **{f"{name}_cpu_s": round(result.last_object()["cpu_s"], 1) for name, result in results.items()},
            **{f"{name}_peak_mb": round(result.peak_mb) for name, result in results.items()},
        }
        table.append(entry)
        seconds = " ".join(f"{entry[f'{name}_s']:>13} s" for name in works)
        print(f"{rows:>9} {entry['store_mb']:>9} {entry['log_mb']:>7} {seconds}", flush=True)
        shutil.rmtree(home)
        file.unlink()
    report.figures["recovery"] = table


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=200_000, help="of the comparison of imports")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 1_000_000], help="of the stores made anew")
    parser.add_argument("--folder", type=Path, help="where the scratch files go; default: the system's")
    parser.add_argument("--child", nargs=3, metavar=("NAME", "FILE", "FOLDER"), help="used by the benchmark itself")
    options = parser.parse_args()
    if options.child:
        name, file, folder = options.child
        child(name, Path(file), Path(folder))
        return
    rows, sizes = (50_000, []) if options.quick else (options.rows, options.sizes)
    report = Report("rebuild_scale", measures=MEASURES)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        if options.rounds:
            file = folder / "pairs.jsonl"
            write_pairs(file, rows)
            cost_of_the_log(file, rows, options, report)
            file.unlink()
        recovery(folder, sizes, report)
    report.finish(options)


if __name__ == "__main__":
    main()
