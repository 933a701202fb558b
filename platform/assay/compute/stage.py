"""A stage of bulk work: shards out of the store, results of a job, results into the store; exact resume after a kill.

    STAGE/manifest.json        what was exported for which job: written when all shards are there
    STAGE/shards/00000.parquet
    STAGE/results/00000-HASH.parquet    the hash of its shard, so that a late worker never writes over another's

A stage of the same name, job and question that was interrupted resumes where it stopped: shards are written once,
existing results are reused, and what was imported is in the store, in the same unit of work as the rows themselves
(`imported_shards`). Leaves out: what is exported and how results are imported, which the caller says.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay import __version__
from assay.compute.executor import Executor
from assay.compute.job import HASH, JobSpec, ShardJob, Unit, file_hash, hash_of, is_mapped, write_table
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.store.connection import Connection
from assay.system.atomic_files import replacing
from assay.system.name_lock import locked_name
from assay.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "stages"
MANIFEST = "manifest.json"
Export = Callable[[], Iterable["pa.Table"]]
Import = Callable[[Connection, "pa.Table", "pa.Table"], Mapping[str, int]]


@dataclass(frozen=True)
class Stage:
    """`id`: of this stage and no later one of the same question. `resumed`: an interrupted one's."""

    folder: Path
    id: str
    spec: JobSpec
    units: tuple[Unit, ...]
    resumed: bool = False

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)


@contextmanager
def open_stage(
    workspace: Workspace,
    name: str,
    spec: JobSpec,
    question: Mapping[str, Any],
    export: Callable[[], Iterable[pa.Table]],
) -> Iterator[Stage]:
    """The stage with its shards: those of an interrupted one of the same name, job and question, or new ones of the
    tables that `export` gives, one shard each. `question`: JSON; what the export depends on besides the store. The
    folder goes where the block ends well.

    Raises BadInputError for an interrupted stage that another version of Assay began, or that another process is at.
    """
    identity = json.dumps([spec.target, spec.arguments, spec.reads, question], sort_keys=True)
    folder = workspace.root / FOLDER / f"{name}-{hash_of(identity.encode())[:16]}"
    with locked_name(folder, hint="wait for it"):
        resumed = (folder / MANIFEST).is_file()
        if not resumed:
            _export(folder, name, spec, question, export)
        begun = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (begun["assay"], begun["hash"]) != (__version__, HASH):
            raise BadInputError(
                f"was started by Assay {begun['assay']} ({begun['hash']}), this is {__version__} ({HASH}): finish it "
                "with that, or remove the folder to start from the beginning",
                file=folder,
            )
        units = tuple(_unit(folder, **shard) for shard in begun["shards"])
        yield Stage(folder, begun["id"], spec, units, resumed)
        _remove(folder)


def abandoned_stages(workspace: Workspace) -> dict[Path, int]:
    """Folders of stages that were interrupted and that no process is at, and their bytes."""
    folders = [path for path in sorted((workspace.root / FOLDER).glob("*")) if path.is_dir()]
    return {
        folder: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for folder in folders
        if not _in_use(folder)
    }


def remove_stage(folder: Path) -> None:
    """Remove an abandoned stage: its command starts from the beginning. What it imported stays in the store.

    Raises BadInputError where a process is at it.
    """
    with locked_name(folder, hint="it is in use"):
        _remove(folder)


def _remove(folder: Path) -> None:
    """Under another name: a worker that was given up may still write a result by the old one."""
    renamed = folder.rename(folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part"))
    shutil.rmtree(renamed)


def _in_use(folder: Path) -> bool:
    try:
        with locked_name(folder):
            return False
    except BadInputError:
        return True


def _export(folder: Path, name: str, spec: JobSpec, question: Mapping[str, Any], export: Export) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # half an export
    for part in ("shards", "results"):
        (folder / part).mkdir(parents=True)
    shards = []
    for number, table in enumerate(export()):
        unit = _unit(folder, number, table.num_rows, "")
        write_table(table, Path(unit.shard), {})
        shards.append({"number": number, "rows": unit.rows, "content_hash": file_hash(Path(unit.shard))})
    manifest = {"assay": __version__, "hash": HASH, "id": f"{name}-{secrets.token_hex(8)}", "job": asdict(spec)}
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(
            json.dumps(manifest | {"question": question, "shards": shards}, indent=1), encoding="utf-8"
        )


def _unit(folder: Path, number: int, rows: int, content_hash: str) -> Unit:
    shard, result = folder / "shards" / f"{number:05}", folder / "results" / f"{number:05}-{content_hash[:16]}"
    return Unit(number, f"{shard}.parquet", f"{result}.parquet", rows, content_hash)


def map_stage(
    stage: Stage, executor: Executor, *, opened: ShardJob | None = None, advance: Advance = silent
) -> Iterator[Unit]:
    """Map what is not mapped yet. Gives every unit, those first whose results were there. `advance` counts rows."""
    digest = stage.spec.digest
    unmapped = []
    for unit in stage.units:
        if is_mapped(digest, unit):
            advance(unit.rows)
            yield unit
        else:
            unmapped.append(unit)
    for done in executor.run(stage.spec, unmapped, opened=opened):
        advance(done.unit.rows)
        yield done.unit


def in_order(units: Iterable[Unit]) -> Iterator[Unit]:
    """The units by number, each when those before it have come."""
    early, number = dict[int, Unit](), 0
    for unit in units:
        early[unit.number] = unit
        while number in early:
            yield early.pop(number)
            number += 1


def import_stage(
    workspace: Workspace, stage: Stage, units: Iterable[Unit], write: Import, run_id: str | None
) -> dict[str, int]:
    """Import each result once, with `write(db, shard, result)` in one unit of work a shard, and return the sums of the
    counts that it gives, those of shards that an interrupted run imported included."""
    import pyarrow.parquet as pq

    totals: Counter[str] = Counter()
    with workspace.store.unit() as db:
        rows = db.execute("SELECT shard, counts FROM imported_shards WHERE stage = ?", [stage.id]).fetchall()
    imported: dict[int, Mapping[str, int]] = {shard: json.loads(counts) for shard, counts in rows}
    for unit in units:
        if (counts := imported.get(unit.number)) is None:
            shard, result = pq.read_table(unit.shard), pq.read_table(unit.result)
            with workspace.store.unit() as db:
                counts = write(db, shard, result)
                db.execute(
                    "INSERT INTO imported_shards (stage, shard, counts, run_id) VALUES (?, ?, ?, ?)",
                    [stage.id, unit.number, json.dumps(dict(counts)), run_id],
                )
        totals.update(counts)
    return dict(totals)
