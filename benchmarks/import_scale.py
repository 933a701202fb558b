"""How fast `assay data import` reads JSON Lines, in what memory, and how its cost grows with the number of rows.

Peers, measured in the same run, each in a process of its own: DuckDB's bare `CREATE TABLE AS SELECT * FROM
read_json(...)` into a file, and `datasets`: load_dataset("json") and a map to the same
columns (messages, ids, label), row by row as its documentation has it, in batches, and in batches by a process a core.

    python benchmarks/import_scale.py --quick
    python benchmarks/import_scale.py --sizes 100000 1000000 5000000      # 5M: 4 GB of text, 8 GB of disk
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
    "pipelines/assay_pipelines/importers",
    "platform/assay/store",
)

TIMEOUT = 3600.0
#: What each loads before its clock starts.
OURS = ("duckdb", "pyarrow.parquet", "assay_pipelines.importers.run")
LIBRARIES: dict[str, tuple[str, ...]] = dict.fromkeys(("assay", "stats", "split"), OURS)
LIBRARIES |= {"duckdb": ("duckdb",), "datasets": ("datasets", "pyarrow.parquet", "assay.ids")}
LIMITS = {"import / duckdb read_json into a file": 0.3, "import / datasets load + map": 5.0}
PEERS = {
    "duckdb_file": "duckdb read_json into a file",
    "datasets_rows": "datasets load + map",
    "datasets_batches": "datasets load + batched map",
    "datasets_processes": "datasets load + batched map, a process a core",
}


def assay_import(file: Path, folder: Path) -> int:
    from assay.workspace import Workspace
    from assay_pipelines.importers.run import open_import, run_import
    from assay_pipelines.importers.source import ImportConfig

    workspace = Workspace.open(folder / "workspace")
    return run_import(workspace, open_import(workspace, ImportConfig(str(file)))).new.comparisons


def duckdb_file(file: Path, folder: Path) -> int:
    import duckdb

    with duckdb.connect(str(folder / "bare.duckdb")) as db:
        db.execute(f"CREATE TABLE bare AS SELECT * FROM read_json('{file}')")
        row = db.execute("SELECT count(*) FROM bare").fetchone()
    return int(row[0]) if row else 0


def datasets_rows(file: Path, folder: Path) -> int:
    from assay import ids
    from assay.domain import Message

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        message = Message("user", row["prompt"])
        prompt = ids.prompt_id([message])
        chosen, rejected = (ids.response_id(prompt, row[side]) for side in ("chosen", "rejected"))
        comparison = ids.comparison_id(prompt, chosen, rejected)
        answer = "A" if chosen < rejected else "B"
        judgment = ids.judgment_id(comparison, "a-0", answer, None, "")
        return {
            "prompt_id": prompt,
            "messages": [message.to_dict()],
            "chosen_id": chosen,
            "rejected_id": rejected,
            "comparison_id": comparison,
            "judgment_id": judgment,
            "answer": answer,
        }

    return len(_loaded(file, folder).map(convert))


def datasets_batches(file: Path, folder: Path, processes: int | None = None) -> int:
    from assay import ids
    from assay.domain import Message

    def convert(batch: dict[str, list[str]]) -> dict[str, list[Any]]:
        messages = [Message("user", text) for text in batch["prompt"]]
        prompts = [ids.prompt_id([message]) for message in messages]
        chosen = [ids.response_id(p, text) for p, text in zip(prompts, batch["chosen"], strict=True)]
        rejected = [ids.response_id(p, text) for p, text in zip(prompts, batch["rejected"], strict=True)]
        sides = list(zip(prompts, chosen, rejected, strict=True))
        comparisons = [ids.comparison_id(*three) for three in sides]
        answers = ["A" if first < second else "B" for _, first, second in sides]
        labelled = zip(comparisons, answers, strict=True)
        return {
            "prompt_id": prompts,
            "messages": [[message.to_dict()] for message in messages],
            "chosen_id": chosen,
            "rejected_id": rejected,
            "comparison_id": comparisons,
            "judgment_id": [ids.judgment_id(comparison, "a-0", answer, None, "") for comparison, answer in labelled],
            "answer": answers,
        }

    return len(_loaded(file, folder).map(convert, batched=True, num_proc=processes))


def datasets_processes(file: Path, folder: Path) -> int:
    """`datasets_batches` by a process a core."""
    return datasets_batches(file, folder, len(os.sched_getaffinity(0)))


def _loaded(file: Path, folder: Path) -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(folder / "cache"))


def stats(file: Path, folder: Path) -> int:
    """`assay data stats` over the workspace that `assay_import` left in `folder`."""
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.dataset_statistics import statistics

    with Workspace.open(folder / "workspace").store.unit() as db:
        return int(statistics(db)["tables"]["comparisons"])


def split(file: Path, folder: Path) -> int:
    """`assay data snapshot NAME --holdout 0.1` over the same workspace."""
    from assay.data.snapshots import Selection, create_split
    from assay.workspace import Workspace

    workspace = Workspace.open(folder / "workspace")
    train, held = create_split(workspace, "all", Selection(), holdout=0.1, by="prompt", seed=0, run_id=None)
    return train.items + held.items


CONTENDERS: dict[str, Callable[[Path, Path], int]] = {
    work.__name__: work
    for work in (
        assay_import,
        duckdb_file,
        datasets_rows,
        datasets_batches,
        datasets_processes,
        stats,
        split,
    )
}


def child(name: str, file: Path, folder: Path) -> None:
    """One contender in this process: its rows, wall and CPU seconds as JSON. The clock starts when the libraries are
    loaded and an empty workspace is there; it stops when the file is closed, so that all has been written."""
    for module in LIBRARIES[name.partition("_")[0]]:
        import_module(module)
    if name == assay_import.__name__:
        from assay.workspace import Workspace

        Workspace.create(folder / "workspace")
    rows: list[int] = []
    cost = spent(lambda: rows.append(CONTENDERS[name](file, folder)))
    print(json.dumps({"rows": rows[0], **asdict(cost)}))


def run(name: str, file: Path, rows: int, *, keep: Path | None = None) -> tuple[Cost, ChildResult]:
    """What one contender costs, in an empty folder that is removed (or in `keep`). Raises if rows are lost."""
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        folder = keep or Path(scratch)
        result = run_child([sys.executable, __file__, "--child", name, file, folder], timeout=TIMEOUT)
    figures = result.last_object()
    if figures["rows"] != rows:
        raise RuntimeError(f"{name} took {figures['rows']} of {rows} rows")
    return Cost(figures["wall_s"], figures["cpu_s"], rows), result


def against_peers(file: Path, small: Path, sizes: tuple[int, int], options: argparse.Namespace, report: Report) -> None:
    """Interleaved rounds. `datasets` reads `small` (its rate is taken per row), as does Assay in its company."""
    rows, few = sizes
    peaks: dict[str, float] = {}

    def contender(name: str, path: Path, number: int) -> Callable[[], Cost]:
        def measured() -> Cost:
            cost, result = run(name, path, number)
            key = f"{name}@{number}"
            peaks[key] = max(peaks.get(key, 0.0), result.peak_mb)
            return cost

        return measured

    parts = {
        ("duckdb_file",): (file, rows),
        ("datasets_rows", "datasets_batches", "datasets_processes"): (small, few),
    }
    for number, (peers, (path, count)) in enumerate(parts.items()):
        contenders = {name: contender(name, path, count) for name in ("assay_import", *peers)}
        compared = compare(contenders, options, rounds=options.rounds, parts_left=len(parts) - number)
        for peer in peers:
            report.ratios[f"import / {PEERS[peer]}"] = compared.ratio("assay_import", peer)
        for name in contenders:
            report.figures.setdefault("rows_per_second", {})[f"{name}@{count}"] = str(compared.per_second(name))
    report.figures["peak_mb"] = {key: round(peak) for key, peak in peaks.items()}


def growth(folder: Path, sizes: list[int], report: Report) -> None:
    """One import of every size into a new workspace, then statistics and a split of it; prints the table."""
    table = []
    print(f"{'rows':>10} {'rows/s':>8} {'s per M':>8} {'peak MB':>8} {'store MB':>9} {'stats s':>8} {'split s':>8}")
    for rows in sizes:
        file, home = folder / f"pairs-{rows}.jsonl", folder / f"grown-{rows}"
        write_pairs(file, rows)
        home.mkdir()
        cost, imported = run("assay_import", file, rows, keep=home)
        after = {}
        for name in ("stats", "split"):
            took, result = run(name, file, rows, keep=home)
            after[name] = (took.wall_s, result.peak_mb)
        entry = {
            "rows": rows,
            "file_mb": round(file.stat().st_size / 1e6),
            "rows_per_second": round(rows / cost.wall_s),
            "rows_per_cpu_second": round(rows / cost.cpu_s),
            "seconds_per_million": round(1e6 * cost.wall_s / rows, 1),
            "peak_mb": round(imported.peak_mb),
            "store_mb": round((home / "workspace" / "assay.duckdb").stat().st_size / 1e6),
            **{f"{name}_s": round(seconds, 1) for name, (seconds, _) in after.items()},
            **{f"{name}_peak_mb": round(peak) for name, (_, peak) in after.items()},
        }
        table.append(entry)
        columns = ("rows", "rows_per_second", "seconds_per_million", "peak_mb", "store_mb", "stats_s", "split_s")
        widths = (10, 8, 8, 8, 9, 8, 8)
        print(" ".join(f"{entry[key]:>{width}}" for key, width in zip(columns, widths, strict=True)), flush=True)
        shutil.rmtree(home)
        file.unlink()
    report.figures["growth"] = table


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=300_000, help="of the comparison with DuckDB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[100_000, 300_000, 1_000_000], help="of the growth table"
    )
    parser.add_argument("--folder", type=Path, help="where the scratch files go; default: the system's")
    parser.add_argument("--child", nargs=3, metavar=("NAME", "FILE", "FOLDER"), help="used by the benchmark itself")
    options = parser.parse_args()
    if options.child:
        name, file, folder = options.child
        child(name, Path(file), Path(folder))
        return
    rows, sizes = (60_000, []) if options.quick else (options.rows, options.sizes)
    report = Report("import_scale", measures=MEASURES, peers=("datasets",), limits=LIMITS)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        file, small = folder / "pairs.jsonl", folder / "few.jsonl"
        write_pairs(file, rows)
        few = rows // (5 if options.quick else 3)
        write_pairs(small, few)
        if options.rounds:
            against_peers(file, small, (rows, few), options, report)
        growth(folder, sizes, report)
    report.finish(options)


if __name__ == "__main__":
    main()
