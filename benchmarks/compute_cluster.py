"""What a cluster costs over processes of one machine, and what its driver holds in memory.

CPU: near-duplicates' sketches of the same shards by `local:2` and by a Ray cluster of two nodes of this machine with a
slot each, in turns; user and system seconds of the driver and its workers, with Ray the nodes' own processes too.
Memory: the highest of a driver that exports keys, has them mapped by the cluster and reads every result in the unit of
work of its import; what an import stores is left out, for there it depends on the tables.

    python benchmarks/compute_cluster.py [--quick] [--rows 600000] [--rounds 3] [--memory 1000000 10000000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Cost, Report, arguments, compare, cpu_seconds, peak_rss_mb, run_child

MEASURES = (
    "platform/assay/compute",
    "pipelines/assay_pipelines/hygiene/near_duplicates",
)

if TYPE_CHECKING:
    import pyarrow as pa

    from assay.compute.job import JobSpec, Unit

SHARD, PHRASES, PARTS = 10_000, 15, 3  #: rows of a shard; of a text, four words each; texts of a row
KEYS = 50_000  #: of a shard, for memory
TICKS = os.sysconf("SC_CLK_TCK")


class Counting:
    """Job: each key and its successor."""

    def open(self) -> None:
        pass

    def map(self, shard: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        return shard.append_column("next", pc.add(shard.column("key"), 1))


def sketching() -> JobSpec:
    from assay.compute.job import JobSpec
    from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig
    from assay_pipelines.hygiene.near_duplicates.sketches import banding

    config = NearDuplicateConfig()
    bands, rows = banding(config.threshold)
    settings = {"parts": PARTS, "shingle": config.shingle, "bands": bands, "rows": rows, "seed": config.seed}
    return JobSpec("assay_pipelines.hygiene.near_duplicates.jobs:Sketching", settings)


def write_shards(folder: Path, rows: int) -> list[Unit]:
    import numpy as np
    import pyarrow as pa

    from assay.compute.job import Unit, file_hash, write_table
    from hygiene_scale import Source

    source, units = Source(), []
    for number, low in enumerate(range(0, rows, SHARD)):
        items = np.arange(low, min(low + SHARD, rows))
        texts = source._text(source._draw(items, PHRASES).reshape(-1, PHRASES // PARTS))
        ends = pa.array(np.arange(0, len(texts) + 1, PARTS))
        shard = folder / f"{number:05}.parquet"
        write_table(pa.table({"item": items, "texts": pa.LargeListArray.from_arrays(ends, texts)}), shard, {})
        units.append(Unit(number, str(shard), "", len(items), file_hash(shard)))
    return units


def sketched(on: str, folder: Path) -> None:
    """Child: map the shards of the folder; say so and wait while all workers are alive."""
    from dataclasses import replace

    import pyarrow.parquet as pq

    from assay.compute.executor import open_executor
    from assay.compute.job import Unit, file_hash, hash_of

    results = folder / f"results-{secrets.token_hex(4)}"
    results.mkdir()
    units = [Unit(**unit) for unit in json.loads((folder / "units.json").read_text())]
    units = [replace(unit, result=str(results / f"{unit.number:05}.parquet")) for unit in units]
    started, rows, left = time.perf_counter(), 0, len(units)
    for done in open_executor(on).run(sketching(), units):
        rows, left = rows + pq.read_table(done.unit.result).num_rows, left - 1
        if not left:
            seconds = time.perf_counter() - started
            print("mapped", flush=True)
            sys.stdin.readline()
    content = hash_of("".join(file_hash(Path(unit.result)) for unit in units).encode())
    shutil.rmtree(results)
    print(json.dumps({"rows": rows, "seconds": seconds, "content": content}))


def driven(on: str, folder: Path, rows: int) -> None:
    """Child: a stage of so many keys, from their export to the import of the results."""
    import numpy as np
    import pyarrow as pa

    from assay.compute.executor import open_executor
    from assay.compute.job import JobSpec
    from assay.compute.stage import import_stage, map_stage, open_stage
    from assay.workspace import Workspace

    workspace, spec = Workspace.create(folder / f"workspace-{rows}"), JobSpec("compute_cluster:Counting")

    def export() -> Iterator[pa.Table]:
        for low in range(0, rows, KEYS):
            yield pa.table({"key": np.arange(low, min(low + KEYS, rows))})

    def write(_: Any, shard: pa.Table, result: pa.Table) -> dict[str, int]:
        import pyarrow.compute as pc

        return {"rows": shard.num_rows, "sum": pc.sum(result.column("next")).as_py()}

    with open_stage(workspace, "keys", spec, {"rows": rows}, export) as stage:
        exported = peak_rss_mb()
        totals = import_stage(workspace, stage, map_stage(stage, open_executor(on)), write, None)
    if totals != {"rows": rows, "sum": rows * (rows + 1) // 2}:
        raise RuntimeError(f"{totals} of {rows} rows")
    print(json.dumps({"shards": len(stage.units), "exported_mb": exported, "peak_mb": peak_rss_mb()}))


def contender(on: str, folder: Path, nodes: set[int]) -> dict[str, Any]:
    """One run in a process of its own: what it printed, and CPU seconds of it and of `nodes` from start to end."""
    before = sum(map(cpu_seconds, nodes))
    command = [sys.executable, __file__, "--child", on, "--folder", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        said = child.stdout.readline()
        cpu = sum(map(cpu_seconds, (child.pid, *nodes))) - before
        child.stdin.write("\n")
        child.stdin.close()
        output = child.stdout.read()
    if said.strip() != "mapped" or child.returncode:
        raise RuntimeError(f"{on}: {said} {output}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result | {"cpu_s": cpu}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=600_000, help="of the comparison of CPU seconds; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, nargs="*", default=[1_000_000, 10_000_000], help="rows of a driver")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child and options.rows:
        sketched(options.child, options.folder)
        return
    if options.child:
        driven(options.child, options.folder, *options.memory)
        return
    if options.quick:
        options.rows, options.memory = 50_000, [100_000, 1_000_000]
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    os.environ |= {"RAY_memory_monitor_refresh_ms": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1, include_dashboard=False)
    report = Report("compute_cluster", measures=MEASURES, peers=("ray",))
    try:
        with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
            compared(report, Path(folder), options, f"ray:{cluster.address}", children())
            for rows in options.memory:
                command = [sys.executable, __file__, "--child", f"ray:{cluster.address}", "--folder", folder]
                command += ["--rows", "0", "--memory", str(rows)]
                figures = run_child(command, timeout=3_600).last_object()
                report.figures[f"driver_at_{rows}"] = figures
                print(f"driver of {rows} rows: {figures}", flush=True)
    finally:
        cluster.shutdown()
    if len(options.memory) > 1:
        small, *_, large = (report.figures[f"driver_at_{rows}"]["peak_mb"] for rows in options.memory)
        report.figures[f"driver_peak_memory_at_{options.memory[-1]}_over_{options.memory[0]}"] = large / small
    report.finish(options)


def children() -> set[int]:
    """Processes that this one started."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def compared(report: Report, folder: Path, options: argparse.Namespace, ray: str, nodes: set[int]) -> None:
    if not options.rows:
        return
    (folder / "units.json").write_text(json.dumps([asdict(unit) for unit in write_shards(folder, options.rows)]))
    runs: dict[str, list[dict[str, Any]]] = {"local:2": [], ray: []}

    def turn(on: str) -> Cost:
        runs[on].append(contender(on, folder, nodes if on == ray else set()))
        print(f"{on}: {runs[on][-1]}", flush=True)
        return Cost(runs[on][-1]["seconds"], runs[on][-1]["cpu_s"], options.rows)

    turns = compare({"local:2": lambda: turn("local:2"), "ray": lambda: turn(ray)}, options, rounds=options.rounds)
    if len({run["content"] for both in runs.values() for run in both}) != 1:
        raise RuntimeError("the results differ")
    report.ratios[f"sketches of {options.rows} rows, Ray / two processes"] = turns.ratio("ray", "local:2")
    report.figures["rows_per_cpu_second"] = {name: str(turns.per_cpu_second(name)) for name in turns.costs}


if __name__ == "__main__":
    main()
