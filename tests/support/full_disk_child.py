"""Commands and libraries on a file system that is full. Run in a mount namespace of its own: it mounts one. A command
is a fork of this process, which has imported torch for all of them and does nothing with it.

Arguments: an empty folder to mount it on. Prints one JSON object: name -> [exit status, standard output, standard
error], and under "libraries" what each library's own error of a full disk is taken for.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers.core_model_loading  # noqa: F401

import assay_policy_training.training.loop  # noqa: F401
import assay_rm_training.runs.train  # noqa: F401
from assay.cli.main import main
from assay.system.full_disk import full_disk_line
from assay.workspace import Workspace

SIZE = 24 * 2**20
FILL = Path("fill")


def assay(*arguments: str) -> list[object]:
    streams = [os.memfd_create(name) for name in ("out", "err")]
    if (pid := os.fork()) == 0:
        code = 1
        try:
            os.environ |= {"TMPDIR": str(Path("tmp").resolve())}
            tempfile.tempdir = None
            for descriptor, stream in zip((0, 1, 2), (os.open(os.devnull, os.O_RDONLY), *streams), strict=True):
                os.dup2(stream, descriptor)
            code = _status(arguments)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [code, *(os.pread(stream, 10**7, 0).decode() for stream in streams)]


def _status(arguments: tuple[str, ...]) -> int:
    try:
        main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def fill(*, free: int = 0) -> None:
    """Write until nothing goes on, then give back `free` bytes."""
    with FILL.open("ab", buffering=0) as stream:
        for piece in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    stream.write(b"0" * piece)
            except OSError:
                continue
        stream.truncate(stream.tell() - free)


def write_pairs(path: Path, first: int, count: int) -> None:
    rows = (
        {"prompt": f"question {n}", "chosen": f"good {n} " + os.urandom(150).hex(), "rejected": f"bad {n}"}
        for n in range(first, first + count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def libraries() -> dict[str, str | None]:
    """The line for each library's error; None where it is not taken for a full disk, "" where there is no error."""
    import duckdb
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    numbers = np.random.default_rng(0).integers(0, 2**60, 200_000)

    def sqlite() -> None:
        with sqlite3.connect("x.sqlite") as db:
            db.execute("CREATE TABLE t (x BLOB)")
            db.execute("INSERT INTO t VALUES (?)", [numbers.tobytes()])

    def duckdb_file() -> None:
        with duckdb.connect("x.duckdb") as db:
            db.execute("CREATE TABLE t AS SELECT random() AS x FROM range(1000000)")

    def duckdb_spill() -> None:
        with duckdb.connect(config={"memory_limit": "30MB", "temp_directory": "spill"}) as db:
            db.execute("SELECT * FROM (SELECT random() AS x FROM range(5000000)) ORDER BY x").fetchone()

    attempts: dict[str, Callable[[], object]] = {
        "python": lambda: Path("x.txt").write_bytes(numbers.tobytes()),
        "sqlite": sqlite,
        "duckdb": duckdb_file,
        "duckdb spill": duckdb_spill,
        "polars": lambda: pl.DataFrame({"x": numbers}).write_parquet("x.parquet"),
        "arrow": lambda: pq.write_table(pa.table({"x": numbers}), "y.parquet"),
        "torch": lambda: torch.save({"x": torch.from_numpy(numbers)}, "x.pt"),
        "safetensors": lambda: save_file({"x": numbers}, "x.safetensors"),
    }
    lines: dict[str, str | None] = {}
    for name, attempt in attempts.items():
        fill(free=8192)
        try:
            attempt()
            lines[name] = ""
        except Exception as error:
            line = full_disk_line(error)
            lines[name] = line
            if line is None:
                print(name, type(error), error, file=sys.stderr)
    return lines


def every_case() -> None:
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    os.chdir(folder)
    Path("tmp").mkdir()
    write_pairs(Path("few.jsonl"), 0, 20)
    write_pairs(Path("many.jsonl"), 20, 3000)
    report: dict[str, object] = {"init": assay("init", "w"), "first": assay("data", "import", "few.jsonl", "-w", "w")}
    report["snapshot"] = assay("data", "snapshot", "s", "-w", "w")
    commands = {
        "import": (300_000, ["data", "import", "many.jsonl"]),
        "stats": (0, ["data", "stats"]),
        "export": (100_000, ["data", "export", "out.jsonl"]),
        "backup": (0, ["backup", "--to", "copies"]),
        "train": (300_000, ["train", "bt", "--data", "s", "--base", "tiny"]),
        "rl": (0, ["rl", "--recipe", "grpo", "--policy", "tiny", "--prompts", "constrained:8", "--reward", "verifier"]),
        "train-json": (0, ["train", "bt", "--data", "s", "--base", "tiny", "--json"]),
    }
    for name, (free, command) in commands.items():
        fill(free=free)
        report[name] = assay(*command, "-w", "w")
    fill()
    report["init elsewhere"] = assay("init", "other")
    FILL.unlink()
    report["again"] = assay("data", "import", "many.jsonl", "-w", "w", "--json")
    with Workspace.open("w").store.unit() as db:
        report["comparisons"] = db.execute("SELECT count(*) FROM comparisons").fetchall()[0][0]
    report["libraries"] = libraries()  # last: they have threads, without which a fork may wait for ever
    print(json.dumps(report))


if __name__ == "__main__":
    every_case()
