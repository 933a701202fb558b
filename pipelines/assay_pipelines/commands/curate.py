"""`assay curate ...`: verify, factors, select, consistency, stage1, stage2, sources, relabel, status."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.resume import is_given
from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import CommandResult, add_commands
from assay.compute.executor import LOCAL, OnOption, open_executor
from assay.data.snapshots import HashSlice, Selection
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, progress_bar
from assay.runs.record import Run, locate_model, start_run
from assay.workspace import Workspace
from assay_pipelines.curation.consistency import ConsistencyConfig
from assay_pipelines.curation.loop.config import Stage2Config
from assay_pipelines.curation.loop.pass_config import RelabelConfig, SourcePassConfig
from assay_serving.model_config import ModelConfig

if TYPE_CHECKING:
    from assay_pipelines.curation.loop.held_out import Refit
    from assay_pipelines.curation.loop.reward_models import LoopModel
    from assay_pipelines.llm.questions import Demonstration


SourceOption = Annotated[
    list[str] | None, typer.Option("--source", help="Only comparisons of this source; repeatable.", show_default=False)
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option("--pool", help="Pools to look at; repeatable. Default: unverified.", show_default=False),
]


ForceOption = Annotated[
    bool, typer.Option("--force", help="Decide although gold says that the labels would get worse.")
]


@contextmanager
def _recorded(
    workspace: Workspace, kind: str, title: str, settings: dict[str, Any], selection: Selection | None = None
) -> Iterator[tuple[Run, Advance]]:
    """A run of a pass, and its progress over the selection."""
    from assay.browsing.candidates import count_candidates

    total = count_candidates(workspace, selection) if selection is not None else None
    with start_run(workspace, kind, settings) as run, progress_bar(title, total, unit="pairs") as advance:
        yield run, advance


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="Decide which labels to trust: people, judges, verifiers, reward models."
    )
    add_commands(group, verify, factors, select, consistency, stage1, stage2, sources, relabel, status)
    app.add_typer(group, name="curate")


def verify(
    workspace: Workspace,
    share: Annotated[float, typer.Option(help="Share of prompts to verify, drawn by hash.", min=0.0, max=1.0)] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of that draw.")] = 0,
    source: SourceOption = None,
    pool: PoolOption = None,
) -> CommandResult:
    """Let the constraint verifier decide, as gold, every pair whose prompt carries checkable constraints.

    Example: `assay curate verify --share 0.3`
    """
    from assay_pipelines.curation.verifier import verify_pool

    part = HashSlice(0.0, share, "prompt", seed) if share < 1 else None
    selection = Selection(tuple(pool or ("unverified",)), tuple(source or ()), slice=part)
    with _recorded(workspace, "curate-verify", "verifying", {"selection": asdict(selection)}, selection) as (
        run,
        advance,
    ):
        report = verify_pool(workspace, selection, run.id, on_progress=advance)
        run.metrics.update(asdict(report))
    judged = report.confirmed + report.corrected
    rate = f" ({100 * report.corrected / judged:.1f} % of its clear labels)" if judged else ""
    return CommandResult(
        {"run": run.id, **asdict(report), "gold": report.gold},
        f"{report.seen} pairs: {report.gold} gold, of which {report.confirmed} confirm the source, "
        f"{report.corrected} correct it{rate}, {report.undecided_source} settle what it left open, "
        f"{report.ties} ties; {report.unverifiable} have no checkable constraint{_overtaken(report.overtaken)}",
    )


def factors(
    workspace: Workspace,
    file: Annotated[Path, typer.Argument(metavar="HIERARCHY.yaml", help="Factors, the most important first.")],
) -> CommandResult:
    """Label pairs of rated or scored responses by a hierarchy of factors, as silver (HERON).

    All pairs of a prompt's responses: the first factor that differs by more than its margin decides; pairs that none
    decides are left out. Factors are ratings of the store, saved scores of reward models, words or characters.

    Example: `assay curate factors hierarchy.yaml`
    """
    from assay_pipelines.curation.factor_pairs import FactorHierarchy, label_by_factors

    hierarchy = FactorHierarchy.read(file)
    with _recorded(workspace, "curate-factors", "labelling", asdict(hierarchy)) as (run, advance):
        report = label_by_factors(workspace, hierarchy, run.id, advance=advance)
        run.metrics.update(asdict(report))
    lines = [f"{report.prompts} prompts: {report.decided} pairs labelled{_overtaken(report.overtaken)}"]
    for name, margin in report.margins.items():
        lines.append(f"  {name} (margin {margin:.4g}): decides {report.by_factor[name]}")
    lines.append(f"  left out: {report.undecided} that no factor decides, {report.missing} that lack a factor")
    return CommandResult({"run": run.id, **asdict(report)}, "\n".join(lines))


def select(
    workspace: Workspace,
    rules: Annotated[str, typer.Argument(metavar="RULES", help="A YAML file of rules, or skywork-80k.")],
) -> CommandResult:
    """Keep the best-scored share of sources by category, and pairs that a reward model agrees with; discard the others.

    skywork-80k is the selection of Skywork-Reward's 80K pairs; counts by source are printed beside the published ones.

    Example: `assay curate select skywork-80k`
    """
    from assay_pipelines.hygiene.top_scored import read_rules, select_by_score

    read, published = read_rules(rules)
    with _recorded(workspace, "curate-select", "selecting", {"rules": [asdict(rule) for rule in read]}) as (run, _):
        counts = select_by_score(workspace, read, run.id)
        run.metrics["sources"] = {source: {"before": b, "kept": k} for source, (b, k) in counts.items()}
    lines = [
        f"{source}: {kept} of {before} kept" + (f", published {published[source]}" if source in published else "")
        for source, (before, kept) in counts.items()
    ]
    return CommandResult({"run": run.id, "sources": run.metrics["sources"], "published": published}, "\n".join(lines))


@settings_options(ConsistencyConfig)
def consistency(
    workspace: Workspace,
    config: ConsistencyConfig,
    model: Annotated[list[str], typer.Option("--model", help="Reward model (folder, hub id, name); repeatable.")],
    source: SourceOption = None,
    pool: PoolOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be decided; write nothing.")] = False,
    device: DeviceOption = "auto",
    on: OnOption = LOCAL,
) -> CommandResult:
    """Keep the labels that reward models agree with, flip or discard the others; every decision keeps its reason.

    Example: `assay curate consistency --model gold-rm --keep-above 0.5 --flip-below 0.1 --dry-run`
    """
    from assay_pipelines.curation.consistency import check_pool
    from assay_pipelines.judging.reward_model import load_reward_model

    selection = Selection(tuple(pool or ("unverified",)), tuple(source or ()))
    executor, models = open_executor(on), [locate_model(workspace, name)[0] for name in model]
    judges = (
        [load_reward_model(path, device=device, workspace=workspace.root) for path in models] if on == LOCAL else []
    )
    settings = {"selection": asdict(selection), **asdict(config), "models": model, "dry_run": dry_run}
    with _recorded(workspace, "curate-consistency", "scoring", settings, selection) as (run, advance):
        report = check_pool(
            run,
            judges or models,
            config,
            selection,
            device=device,
            dry_run=dry_run,
            executor=executor,
            on_progress=advance,
        )
        run.metrics.update(asdict(report))
    return CommandResult(
        {"run": run.id, **asdict(report)},
        f"{'would decide' if dry_run else 'decided'} {report.seen} pairs: "
        f"{report.kept} kept, {report.flipped} flipped, "
        f"{report.discarded} discarded; {report.unlabelled} have no label, {report.unscored} could not be scored"
        f"{_overtaken(report.overtaken)}",
    )


def _overtaken(number: int) -> str:
    return f"; {number} were decided otherwise meanwhile" if number else ""


def status(workspace: Workspace) -> CommandResult:
    """Show the pools, the rules that filled them, errors found, each annotator's agreement with gold, and the loops.

    Example: `assay curate status`
    """
    from assay_pipelines.curation.status import curation_status

    curation = curation_status(workspace)
    lines = [f"{curation.comparisons} comparisons", "", "pool          pairs"]
    lines += [f"{name:<12} {number:>6}" for name, number in curation.pools.items()]
    if curation.rules:
        lines += ["", "decided by"] + [f"{p + ' / ' + r:<40} {n:>6}" for (p, r), n in curation.rules.items()]
    if curation.errors:
        lines += ["", "changed against the source's A/B label"]
        lines += [f"{e.pool + ' / ' + e.rule:<40} {e.against:>6} of {e.decided}" for e in curation.errors]
    if curation.reliability:
        lines += ["", "worth of their labels (P(right), estimated on gold)"]
        for r in curation.reliability:
            whose = f"  in {r.category}" if r.category else f"{r.kind} {r.name}"
            lines.append(
                f"{whose:<40} {100 * r.mean:>5.1f} % [{100 * r.interval.low:.1f}, {100 * r.interval.high:.1f}]  "
                f"{r.right} of {r.compared}  {r.worth}"
            )
    for loop in curation.loops:
        measured = f", model right on {loop.gold_accuracy:.1%} of {loop.gold_pairs} gold" if loop.gold_pairs else ""
        lines += ["", f"loop {loop.name}: iteration {loop.iteration}, last step {loop.step}{measured}"]
    return CommandResult(curation.to_dict(), "\n".join(lines))


def stage1(
    context: typer.Context,
    config: Annotated[Path | None, typer.Argument(metavar="FILE", help="The loop, in YAML: see --example.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented configuration and stop.")] = False,
    on: OnOption = LOCAL,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label a seed, then train, look at the errors on gold and label around them, iteration by iteration.

    Interrupted, killed, out of budget or waiting for people: run it again; no question is asked twice.
    --on: where the pool is embedded; default: the file's `run_on`.

    Example: `assay curate stage1 --example > loop.yaml && assay curate stage1 loop.yaml`
    """
    from assay_pipelines.curation.loop.config import Stage1Config

    if example:
        text = resources.files("assay_pipelines.curation.loop").joinpath("example.yaml").read_text(encoding="utf-8")
        typer.echo(text, nl=False)
        return
    if config is None:
        raise BadInputError("name the loop's file, or print one to begin with: assay curate stage1 --example")
    from assay_pipelines.curation.loop.building import build_parts
    from assay_pipelines.curation.loop.stage1 import run_stage1
    from assay_pipelines.curation.loop.state import RUN_KIND
    from assay_pipelines.judging.judging_models import record_judges

    settings = Stage1Config.read(config)
    here = Workspace.find(workspace)
    on = on if is_given(context, "on") else settings.run_on
    parts = build_parts(here, settings, open_executor(on) if on != LOCAL else None)
    with start_run(here, RUN_KIND, settings.to_dict()) as run:
        record_judges(run, [*parts.judges, *getattr(parts.people, "judges", ())])
        report = run_stage1(settings, parts, run)
        run.metrics.update(asdict(report))
    emit({"run": run.id, **asdict(report)}, "\n".join(_lines(asdict(report), str(config))), as_json=as_json)


@settings_options(Stage2Config)
def stage2(
    workspace: Workspace,
    config: Stage2Config,
    best: Annotated[str, typer.Option(help="The best reward model there is: of the workspace, a folder or a hub id.")],
    gold: Annotated[str, typer.Option(help="A reward model trained on human-verified pairs only.")],
    judges: Annotated[Path | None, typer.Option(help="File of judges, asked where only the gold model agrees.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Show judges the nearest gold pairs, by this encoder (minilm, ...).")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Of the judges; the pass stops there and can be resumed.")
    ] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Only this source; repeatable.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and asked; do nothing.")] = False,
    force: ForceOption = False,
    device: DeviceOption = "auto",
) -> CommandResult:
    """Keep what the gold model and either the best model or the judges agree with; discard or recycle the rest.

    Example: `assay curate stage2 --best first-loop --gold gold-rm --recycle-below 0.5 --dry-run`
    """
    from assay_pipelines.curation.loop.demonstrations import demonstrations
    from assay_pipelines.curation.loop.stage2 import Stage2Parts, run_stage2
    from assay_pipelines.embedding.encoder_loader import open_encoder
    from assay_pipelines.judging.config import load_judges
    from assay_pipelines.judging.judging_models import record_judges, record_models
    from assay_pipelines.llm.budget import Budget, Spending

    stage_judges = load_judges(judges, workspace) if judges is not None else []
    (best_model, refit_best), (gold_model, refit_gold) = (_model(workspace, name, device) for name in (best, gold))
    selection = Selection(("unverified",), tuple(source or ()))
    spending = Spending(Budget(cost=max_cost))
    opened = open_encoder(encoder, device) if encoder is not None and stage_judges else None
    settings = {
        **asdict(config),
        "best": best,
        "gold": gold,
        "judges": str(judges),
        "encoder": encoder,
        "dry_run": dry_run,
    }
    with _recorded(workspace, "curate-stage2", "stage 2", settings, selection) as (run, advance):
        record_models(run, [model.scorer.info for model in (best_model, gold_model)])
        record_judges(run, stage_judges)

        def demonstrate(ids: Sequence[str]) -> "Mapping[str, Sequence[Demonstration]]":
            if opened is None:
                return {}
            return demonstrations(workspace, opened, ids, Selection(("gold",), tuple(source or ())), run.id)

        report = run_stage2(
            config,
            Stage2Parts(workspace, best_model, gold_model, stage_judges, demonstrate, spending, refit_best, refit_gold),
            selection,
            run.id,
            dry_run=dry_run,
            force=force,
            advance=advance,
        )
        run.metrics.update(asdict(report))
    would = "would be " if dry_run else ""
    lines = [
        f"{report.seen} pairs: {report.kept} {would}kept, {report.recycled} {would}recycled with the label flipped, "
        f"{report.discarded} {would}discarded; {report.unlabelled} without an A/B label and {report.unscored} that a "
        "model cannot score are left alone",
        f"the best model agrees with the source on {report.sure}",
        report.quality_text,
    ]
    if stage_judges:
        lines.append(_judging(asdict(report), dry_run))
    if report.unanswered:
        lines.append(f"{report.unanswered} on which every judge failed are left alone; run it again to ask again")
    if report.stopped:
        lines.append(f"stopped: {report.stopped}; run it again to resume")
    return CommandResult({"run": run.id, **asdict(report)}, "\n".join(lines))


@settings_options(SourcePassConfig)
def sources(
    workspace: Workspace,
    config: SourcePassConfig,
    judges: Annotated[Path | None, typer.Option(help="File of judges; they are measured on gold, then asked.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A reward model: probes on its features, each trained without the pair, count beside sources."
        ),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="Of the judges; run it again to resume.")] = None,
    source: SourceOption = None,
    pool: PoolOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be decided; ask and write nothing.")
    ] = False,
    force: ForceOption = False,
    device: DeviceOption = "auto",
) -> CommandResult:
    """Label the pool by what sources, judges and a model are worth on gold; judges look where that leaves most open.

    Example: `assay curate sources --model gold-rm --judges judges.yaml --judged 400 --dry-run`
    """
    from assay_pipelines.curation.loop.cross_fitted import READING_L2
    from assay_pipelines.curation.loop.held_out import probe_refit
    from assay_pipelines.curation.loop.source_pass import run_source_pass
    from assay_pipelines.curation.reliability.estimates import LEAST
    from assay_pipelines.judging.config import load_judges
    from assay_pipelines.judging.judging_models import record_judges, record_models
    from assay_pipelines.llm.budget import Budget, Spending

    asked = load_judges(judges, workspace) if judges is not None else []
    path = locate_model(workspace, model)[0] if model is not None else None
    base = _model(workspace, path, device)[0].scorer.info if path is not None else None
    selection = Selection(tuple(pool or ("unverified",)), tuple(source or ()))
    settings = {**asdict(config), "judges": str(judges), "model": model, "dry_run": dry_run, "force": force}
    with _recorded(workspace, "curate-sources", "sources", settings, selection) as (run, advance):
        record_judges(run, asked)
        record_models(run, [base] if base is not None else [])
        report = run_source_pass(
            workspace,
            config,
            selection,
            run.id,
            judges=asked,
            refit=probe_refit(path, device, l2=(READING_L2,)) if path is not None else None,
            model_version=base.version if base is not None else None,
            spending=Spending(Budget(cost=max_cost)),
            force=force,
            dry_run=dry_run,
            advance=advance,
        )
        run.metrics.update(asdict(report))
    would = "would be " if dry_run else ""
    lines = [
        f"{report.seen} pairs: {report.kept} {would}kept as their sources say, {report.reversed} {would}turned round, "
        f"{report.discarded} {would}discarded, as their sources tell nothing; {report.unmeasured} of sources that have "
        f"met under {LEAST} gold pairs and {report.unlabelled} without an A/B answer are left alone"
        f"{_overtaken(report.overtaken)}",
        report.quality_text,
    ]
    if model is not None and not report.read_by_model:
        lines.append("probes on the model rank gold no better than chance: what it reads is not counted")
    if asked and not dry_run:
        lines.append(
            f"judges answered {report.measured_on} gold pairs and {report.judged} others, cost {report.cost:g}"
        )
    if report.stopped:
        lines.append(f"stopped: {report.stopped}; run it again to resume")
    return CommandResult({"run": run.id, **asdict(report)}, "\n".join(lines))


@settings_options(RelabelConfig)
def relabel(
    workspace: Workspace,
    config: RelabelConfig,
    model: Annotated[str, typer.Option(help="Trained on gold and the good sources: of the workspace, or a folder.")],
    source: SourceOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be relabelled; write nothing.")] = False,
    force: ForceOption = False,
    device: DeviceOption = "auto",
) -> CommandResult:
    """Give what `assay curate sources` discarded of sources at chance new labels, by a model of the good ones and gold.

    Example: `assay data snapshot good --pool gold --pool silver && assay train probe --data good --name good-rm &&
    assay curate relabel --model good-rm --dry-run`
    """
    from assay_pipelines.curation.loop.relabelling import run_relabelling
    from assay_pipelines.judging.judging_models import record_models

    labelling, refit = _model(workspace, model, device)
    settings = {**asdict(config), "model": model, "sources": source, "dry_run": dry_run, "force": force}
    with _recorded(workspace, "curate-relabel", "relabelling", settings) as (run, advance):
        record_models(run, [labelling.scorer.info])
        report = run_relabelling(
            workspace,
            config,
            labelling,
            run.id,
            sources=tuple(source or ()),
            refit=refit,
            force=force,
            dry_run=dry_run,
            advance=advance,
        )
        run.metrics.update(asdict(report))
    lines = [
        f"{report.seen} pairs: {report.relabelled} {'would be ' if dry_run else ''}relabelled, {report.against} of "
        f"them against their source; {report.unsure} too unsure and {report.unscored} that the model cannot score stay "
        "discarded",
        report.quality_text,
    ]
    if report.overtaken:
        lines.insert(1, f"{report.overtaken} were decided otherwise meanwhile, which stands")
    return CommandResult({"run": run.id, **asdict(report)}, "\n".join(lines))


def _model(workspace: Workspace, name: str, device: str) -> "tuple[LoopModel, Refit | None]":
    """A model, and how to train it again without a fold of gold where it was trained on gold."""
    from assay_pipelines.curation.loop.held_out import probe_refit, saw_gold
    from assay_pipelines.curation.loop.reward_models import UNCALIBRATED, LoopModel
    from assay_serving.engines.transformers import TransformersScorer

    path = locate_model(workspace, name)[0]
    scorer = TransformersScorer.load(ModelConfig(path, device=device))
    refit = probe_refit(path, device) if saw_gold(workspace, scorer.spec) else None
    return LoopModel(scorer, scorer.spec.calibration or UNCALIBRATED), refit


def _judging(report: dict[str, Any], dry_run: bool) -> str:
    failures = report["failures"]
    if dry_run:
        cost = "unknown, a judge has no prices" if report["cost"] is None else f"about {report['cost']:g}"
        return (
            f"{report['to_ask']} questions would be put to judges: {report['calls']} calls and about "
            f"{report['tokens']:,} tokens, retries and repairs not counted, cost {cost}; "
            "the counts above are those without their answers"
        )
    return (
        f"{report['to_ask']} questions were put to judges, {report['relabelled']} pairs answered, "
        f"cost {report['cost']:g}"
        + (f"; without an answer: {', '.join(f'{n} {code}' for code, n in failures.items())}" if failures else "")
    )


def _lines(report: dict[str, Any], file: str) -> list[str]:
    """A table of the iterations, then what comes next."""
    lines = []
    if report["iterations"]:
        lines.append("iteration  trained on  gold accuracy         to people  gold  against source  to judges  silver")
    for done in report["iterations"]:
        lines.append(
            f"{done['iteration']:>9}  {_fitted(done, '-'):>10}  {_accuracy(done.get('gold_accuracy')):<20}  "
            f"{done.get('people_asked', 0):>9}  {done.get('gold', 0):>4}  {done.get('gold_against_source', 0):>14}  "
            f"{done.get('judges_asked', 0):>9}  {done.get('silver', 0):>6}"
        )
    for model in report["models"]:
        lines.append(
            f"model of iteration {model['iteration']}, trained on {_fitted(model)} pairs: "
            f"{_accuracy(model['gold_accuracy'])} on the gold there is now"
        )
    if report["waiting"]:
        queue = report["waiting"].split("'")[1]
        lines.append(f"waiting for people: {report['waiting']} (assay annotate {queue} --as NAME)")
        lines.append(f"then: assay curate stage1 {file}")
    if report["stopped"]:
        lines.append(f"stopped: {report['stopped']}")
        lines.append(f"run it again to resume, with a larger budget if that was spent: assay curate stage1 {file}")
    if report["model"]:
        lines.append(f"the best of them is now model {report['model_name'] or report['loop']} ({report['model']})")
    return lines


def _fitted(done: Mapping[str, Any], none: str = "") -> str:
    """Pairs that a model was fitted on, of those it could have been."""
    fitted, left_out = done.get("trained_on"), done.get("left_out")
    if fitted is None:
        return none
    return f"{fitted} of {fitted + left_out}" if left_out else str(fitted)


def _accuracy(figures: dict[str, Any] | None) -> str:
    return f"{figures['value']:.3f} [{figures['low']:.3f}, {figures['high']:.3f}]" if figures else "no gold yet"
