"""`assay data benchmarks ...` and `assay data decontaminate`: the contamination ledger."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import CommandResult, add_commands
from assay.compute.executor import LOCAL, OnOption, open_executor
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of
from assay_pipelines.hygiene.contamination.check import CheckConfig

SHOWN = 5


def add_to(group: typer.Typer) -> None:
    benchmarks = typer.Typer(no_args_is_help=True, help="Benchmarks that training data must not contain.")
    add_commands(benchmarks, add, list_, status)
    group.add_typer(benchmarks, name="benchmarks")
    add_commands(group, decontaminate)


def add(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(help="Name of the benchmark.")],
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON, JSON Lines, CSV, Parquet, or .txt with a prompt per line.")
    ],
    field: Annotated[str | None, typer.Option(help="Field with the prompt. Default: found by name.")] = None,
) -> CommandResult:
    """Register a benchmark's first-turn prompts. Training then requires data that is checked against it.

    Reads RewardBench, RM-Bench, JudgeBench, chat rows and HH text unchanged. The prompts of a name never change.

    Example: `assay data benchmarks add rm-bench total_dataset.json`
    """
    from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark

    config = {"name": name, "path": str(path), "field": field}
    with start_run(workspace, "benchmark", config, inputs={str(path.expanduser().resolve()): "file"}) as run:
        benchmark = add_benchmark(workspace, name, path, run.id, field=field)
        run.metrics.update(asdict(benchmark))
    text = (
        f"{'registered' if benchmark.created else 'unchanged'} {benchmark.name}: {benchmark.prompts} prompts and "
        f"{benchmark.responses} responses of {benchmark.rows} rows; "
        f"{benchmark.content_hash}\nnow check the data: assay data decontaminate --benchmark {benchmark.name}"
    )
    return CommandResult({"run_id": run.id, **asdict(benchmark)}, text)


def list_(workspace: Workspace) -> CommandResult:
    """List the registered benchmarks.

    Example: `assay data benchmarks list`
    """
    from assay_pipelines.hygiene.contamination.benchmarks import list_benchmarks

    benchmarks = list_benchmarks(workspace)
    lines = [
        f"{b.name}: {b.prompts} prompts and {b.responses} responses of {b.file}; {b.content_hash}" for b in benchmarks
    ]
    names = ("name", "content_hash", "prompts", "responses", "file")
    payload = [{key: getattr(b, key) for key in names} for b in benchmarks]
    return CommandResult({"benchmarks": payload}, "\n".join(lines) or "none: assay data benchmarks add NAME FILE")


def status(
    workspace: Workspace,
    snapshot: Annotated[str, typer.Argument(help="Snapshot of the workspace.")],
) -> CommandResult:
    """Whether a snapshot is checked against each registered benchmark, by which run, and how many items overlap.

    Example: `assay data benchmarks status train`
    """
    from assay.data.snapshots import get_snapshot
    from assay.runs.contamination_gate import contamination_of

    stored = get_snapshot(workspace, snapshot)
    states = contamination_of(workspace, stored.id)
    text = "\n".join(map(str, states)) or "no benchmark is registered: assay data benchmarks add NAME FILE"
    return CommandResult({"snapshot": stored.id, "benchmarks": [s.to_dict() for s in states]}, text)


@settings_options(CheckConfig)
def decontaminate(
    workspace: Workspace,
    config: CheckConfig,
    action: Annotated[
        str,
        typer.Option(metavar="discard|report", help="discard the comparisons that overlap, or only report them."),
    ] = "discard",
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    on: OnOption = LOCAL,
) -> CommandResult:
    """Check every text of the store against benchmarks; discard what overlaps, with the text in common as evidence.

    Case, punctuation, white space, Markdown, zero-width and look-alike characters are ignored. A text that shares N
    consecutive words with a benchmark's first-turn prompt overlaps, or that holds most of a benchmark's prompt or
    response, unless the words are common in the store. --encoder also compares embeddings. --pool, --source and
    --category limit what is discarded, never what is checked. The check is recorded in the ledger that training reads;
    after an import, run it again.

    Example: `assay data decontaminate --benchmark rm-bench --encoder minilm`
    """
    from assay.data.snapshots import POOLS, Selection
    from assay_pipelines.hygiene.contamination.check import (
        check_benchmarks,
        count_texts,
        discard_overlaps,
    )

    if action not in ("discard", "report"):
        raise BadInputError(f"unknown action {action!r}; one of discard, report", field="action")
    chosen = selection_of(pool, source, category)
    selection = chosen if pool else Selection(POOLS, chosen.sources, chosen.categories)
    total = count_texts(workspace, responses=config.responses)
    executor = open_executor(on) if on != LOCAL else None
    with start_run(
        workspace, "decontaminate", {**asdict(config), "action": action, "selection": asdict(selection)}
    ) as run:
        with progress_bar("checking", total, unit="texts") as advance:
            reports = check_benchmarks(workspace, config, run.id, advance=advance, executor=executor)
        gone = discard_overlaps(workspace, reports, config, selection, run.id) if action == "discard" else {}
        examples = _examples(workspace, [report.check_id for report in reports])
        payload = {
            "benchmarks": [{**asdict(r), "discarded": gone.get(r.benchmark, 0)} for r in reports],
            "examples": examples,
        }
        run.metrics.update(payload)
    lines = []
    for report in reports:
        done = f"discarded {gone[report.benchmark]}" if action == "discard" else "nothing discarded (--action report)"
        lines.append(
            f"{report.benchmark}: {report.hits} of {report.prompts} prompts overlap ({config.ngram} {config.unit}s)"
            + (f" and {report.response_hits} of {report.responses} responses" if config.responses else "")
            + f", in {report.comparisons} comparisons; {done}"
        )
    for one in examples:
        place = f"turn {one['turn']}" if one["response_id"] is None else f"response {one['response_id']}"
        lines.append(
            f'  {one["prompt_id"]} {place}, {config.unit} {one["position"]} ({one["tier"]}): "{one["overlap"]}"'
        )
    lines.append(f"run {run.id}")
    return CommandResult({"run_id": run.id, **payload}, "\n".join(lines))


def _examples(workspace: Workspace, checks: list[str]) -> list[dict[str, object]]:
    names = ["prompt_id", "response_id", "turn", "position", "benchmark_prompt_id", "overlap", "ngrams"]
    names += ["tier", "score", "part"]
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""SELECT {", ".join(f'"{n}"' for n in names)} FROM contamination_hits
                WHERE check_id IN (SELECT unnest($checks)) ORDER BY ngrams DESC, prompt_id LIMIT {SHOWN}""",
            {"checks": checks},
        ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]
