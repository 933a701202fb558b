"""`assay data benchmarks ...` and `assay data decontaminate`: the contamination ledger."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of
from assay_pipelines.hygiene.contamination.check import CheckConfig

SHOWN = 5


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group `data`."""
    benchmarks = typer.Typer(no_args_is_help=True, help="Benchmarks that training data must not contain.")
    benchmarks.command("add")(add)
    benchmarks.command("list")(list_)
    benchmarks.command("status")(status)
    group.add_typer(benchmarks, name="benchmarks")
    group.command("decontaminate")(decontaminate)


def add(
    name: Annotated[str, typer.Argument(help="Name of the benchmark.")],
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON, JSON Lines, CSV, Parquet, or .txt with a prompt per line.")
    ],
    field: Annotated[str | None, typer.Option(help="Field with the prompt. Default: found by name.")] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a benchmark's first-turn prompts. Training then requires data that is checked against it.

    Reads RewardBench, RM-Bench, JudgeBench, chat rows and HH text unchanged. The prompts of a name never change.

    Example: `assay data benchmarks add rm-bench total_dataset.json`
    """
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark

    here = Workspace.find(workspace)
    config = {"name": name, "path": str(path), "field": field}
    with start_run(here, "benchmark", config, inputs={str(path.expanduser().resolve()): "file"}) as run:
        benchmark = add_benchmark(here, name, path, run.id, field=field)
        run.metrics.update(asdict(benchmark))
    text = (
        f"{'registered' if benchmark.created else 'unchanged'} {benchmark.name}: {benchmark.prompts} prompts of "
        f"{benchmark.rows} rows; "
        f"{benchmark.content_hash}\nnow check the data: assay data decontaminate --benchmark {benchmark.name}"
    )
    emit({"run_id": run.id, **asdict(benchmark)}, text, as_json=as_json)


def list_(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the registered benchmarks.

    Example: `assay data benchmarks list`
    """
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.contamination.benchmarks import list_benchmarks

    benchmarks = list_benchmarks(Workspace.find(workspace))
    lines = [f"{b.name}: {b.prompts} prompts of {b.file}; {b.content_hash}" for b in benchmarks]
    payload = [{key: getattr(b, key) for key in ("name", "content_hash", "prompts", "file")} for b in benchmarks]
    emit({"benchmarks": payload}, "\n".join(lines) or "none: assay data benchmarks add NAME FILE", as_json=as_json)


def status(
    snapshot: Annotated[str, typer.Argument(help="Snapshot of the workspace.")],
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether a snapshot is checked against each registered benchmark, by which run, and how many items overlap.

    Example: `assay data benchmarks status train`
    """
    from assay.data.snapshots import get_snapshot
    from assay.runs.contamination_gate import contamination_of
    from assay.workspace import Workspace

    here = Workspace.find(workspace)
    stored = get_snapshot(here, snapshot)
    states = contamination_of(here, stored.id)
    text = "\n".join(map(str, states)) or "no benchmark is registered: assay data benchmarks add NAME FILE"
    emit({"snapshot": stored.id, "benchmarks": [s.to_dict() for s in states]}, text, as_json=as_json)


@settings_options(CheckConfig)
def decontaminate(
    config: CheckConfig,
    action: Annotated[str, typer.Option(help="discard the comparisons that overlap, or only report them.")] = "discard",
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every prompt of the store against benchmarks; discard what overlaps, with the text in common as evidence.

    Case, punctuation and white space are ignored. A turn that shares N consecutive words with a benchmark's first-turn
    prompt overlaps; so does one that equals a benchmark prompt of fewer than N words. --pool, --source
    and --category limit what is discarded, never what is checked. The check is recorded in the ledger that training
    reads; after an import, run it again.

    Example: `assay data decontaminate --benchmark rm-bench --ngram 13`
    """
    from assay.data.snapshots import POOLS, Selection
    from assay.errors import BadInputError
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.contamination.check import (
        check_benchmarks,
        count_prompts,
        discard_overlaps,
    )

    if action not in ("discard", "report"):
        raise BadInputError(f"unknown action {action!r}; one of discard, report", field="action")
    here = Workspace.find(workspace)
    chosen = selection_of(pool, source, category)
    selection = chosen if pool else Selection(POOLS, chosen.sources, chosen.categories)
    total = count_prompts(here)
    with start_run(here, "decontaminate", {**asdict(config), "action": action, "selection": asdict(selection)}) as run:
        with progress_bar("checking", total, unit="prompts") as advance:
            reports = check_benchmarks(here, config, run.id, advance=advance)
        gone = discard_overlaps(here, reports, config, selection, run.id) if action == "discard" else {}
        examples = _examples(here, [report.check_id for report in reports])
        payload = {
            "benchmarks": [{**asdict(r), "discarded": gone.get(r.benchmark, 0)} for r in reports],
            "examples": examples,
        }
        run.metrics.update(payload)
    lines = []
    for report in reports:
        done = f"discarded {gone[report.benchmark]}" if action == "discard" else "nothing discarded (--action report)"
        lines.append(
            f"{report.benchmark}: {report.hits} of {report.prompts} prompts overlap ({config.ngram} {config.unit}s), "
            f"in {report.comparisons} comparisons; {done}"
        )
    lines += [f'  {e["prompt_id"]} turn {e["turn"]}, {config.unit} {e["position"]}: "{e["overlap"]}"' for e in examples]
    lines.append(f"run {run.id}")
    emit({"run_id": run.id, **payload}, "\n".join(lines), as_json=as_json)


def _examples(workspace: object, checks: list[str]) -> list[dict[str, object]]:
    from assay.workspace import Workspace

    assert isinstance(workspace, Workspace)
    names = ("prompt_id", "turn", "position", "benchmark_prompt_id", "overlap", "ngrams")
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT {", ".join(f'"{n}"' for n in names)} FROM contamination_hits
                WHERE check_id IN (SELECT unnest($checks)) ORDER BY ngrams DESC, prompt_id LIMIT {SHOWN}""",
            {"checks": checks},
        ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]
