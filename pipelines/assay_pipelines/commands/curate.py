"""`assay curate ...`: verify, consistency, status; the stages are in `loops`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_pipelines.commands import loops
from assay_pipelines.curation.consistency import ConsistencyConfig

SourceOption = Annotated[
    list[str] | None, typer.Option("--source", help="Only comparisons of this source; repeatable.", show_default=False)
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", help="Pools to look at; repeatable. Default: unverified.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the group `curate`."""
    group = typer.Typer(
        no_args_is_help=True, help="Decide which labels to trust: people, judges, verifiers, reward models."
    )
    group.command("verify")(verify)
    group.command("consistency")(consistency)
    loops.register(group)
    group.command("status")(status)
    app.add_typer(group, name="curate")


def verify(
    share: Annotated[float, typer.Option(help="Share of prompts to verify, drawn by hash.", min=0.0, max=1.0)] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of that draw.")] = 0,
    source: SourceOption = None,
    pool: PoolOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the constraint verifier decide, as gold, every pair whose prompt carries checkable constraints.

    Example: `assay curate verify --share 0.3`
    """
    from assay.browsing.candidates import count_candidates
    from assay.data.snapshots import HashSlice, Selection
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.curation.verifier import verify_pool

    ws = Workspace.find(workspace)
    part = HashSlice(0.0, share, "prompt", seed) if share < 1 else None
    selection = Selection(tuple(pool or ("unverified",)), tuple(source or ()), slice=part)
    with (
        start_run(ws, "curate-verify", {"selection": asdict(selection)}) as run,
        progress_bar("verifying", count_candidates(ws, selection), unit="pairs") as advance,
    ):
        report = verify_pool(ws, selection, run.id, on_progress=advance)
        run.metrics.update(asdict(report))
    judged = report.confirmed + report.corrected
    rate = f" ({100 * report.corrected / judged:.1f} % of its clear labels)" if judged else ""
    emit(
        {"run": run.id, **asdict(report), "gold": report.gold},
        f"{report.seen} pairs: {report.gold} gold, of which {report.confirmed} confirm the source, "
        f"{report.corrected} correct it{rate}, {report.undecided_source} settle what it left open, "
        f"{report.ties} ties; {report.unverifiable} have no checkable constraint{_overtaken(report.overtaken)}",
        as_json=as_json,
    )


@settings_options(ConsistencyConfig)
def consistency(
    config: ConsistencyConfig,
    model: Annotated[list[str], typer.Option("--model", help="Reward model (folder, hub id, name); repeatable.")],
    source: SourceOption = None,
    pool: PoolOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be decided; write nothing.")] = False,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the labels that reward models agree with, flip or discard the others; every decision keeps its reason.

    Example: `assay curate consistency --model gold-rm --keep-above 0.5 --flip-below 0.1 --dry-run`
    """
    from assay.browsing.candidates import count_candidates
    from assay.data.snapshots import Selection
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import locate_model, start_run
    from assay.workspace import Workspace
    from assay_pipelines.curation.consistency import check_pool, load_judge

    ws = Workspace.find(workspace)
    selection = Selection(tuple(pool or ("unverified",)), tuple(source or ()))
    judges = [load_judge(locate_model(ws, name)[0], device=device) for name in model]
    settings = {"selection": asdict(selection), **asdict(config), "models": model, "dry_run": dry_run}
    with (
        start_run(ws, "curate-consistency", settings) as run,
        progress_bar("scoring", count_candidates(ws, selection), unit="pairs") as advance,
    ):
        for judge in judges:
            run.link("input", "model_version", judge.scorer.info.version)
        report = check_pool(ws, judges, config, selection, run.id, dry_run=dry_run, on_progress=advance)
        run.metrics.update(asdict(report))
    emit(
        {"run": run.id, **asdict(report)},
        f"{'would decide' if dry_run else 'decided'} {report.seen} pairs: "
        f"{report.kept} kept, {report.flipped} flipped, "
        f"{report.discarded} discarded; {report.unlabelled} have no label, {report.unscored} could not be scored"
        f"{_overtaken(report.overtaken)}",
        as_json=as_json,
    )


def _overtaken(number: int) -> str:
    return f"; {number} were decided otherwise meanwhile" if number else ""


def status(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show the pools, the rules that filled them, errors found, each annotator's agreement with gold, and the loops.

    Example: `assay curate status`
    """
    from assay.statistics.intervals import wilson
    from assay.workspace import Workspace
    from assay_pipelines.curation.status import curation_status

    curation = curation_status(Workspace.find(workspace))
    lines = [f"{curation.comparisons} comparisons", "", "pool          pairs"]
    lines += [f"{name:<12} {number:>6}" for name, number in curation.pools.items()]
    if curation.rules:
        lines += ["", "decided by"] + [f"{p + ' / ' + r:<40} {n:>6}" for (p, r), n in curation.rules.items()]
    if curation.errors:
        lines += ["", "changed against the source's A/B label"]
        lines += [f"{e.pool + ' / ' + e.rule:<40} {e.against:>6} of {e.decided}" for e in curation.errors]
    if curation.annotators:
        lines += ["", "agreement with gold (A/B answers)"]
        for a in curation.annotators:
            interval = wilson(a.agreed, a.compared)
            lines.append(
                f"{a.kind + ' ' + a.name:<40} {a.agreed:>6} of {a.compared} "
                f"({100 * a.rate:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}])"
            )
    for loop in curation.loops:
        measured = f", model right on {loop.gold_accuracy:.1%} of {loop.gold_pairs} gold" if loop.gold_pairs else ""
        lines += ["", f"loop {loop.name}: iteration {loop.iteration}, last step {loop.step}{measured}"]
    emit(curation.to_dict(), "\n".join(lines), as_json=as_json)
