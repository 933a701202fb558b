"""`assay curate stage1` and `stage2`: the iterated curation with people and judges, and the pass without people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_pipelines.curation.loop.config import Stage2Config
from assay_serving.model_config import ModelConfig

if TYPE_CHECKING:
    from assay_pipelines.llm.questions import Demonstration


def register(group: typer.Typer) -> None:
    """Add the commands to the group `curate`."""
    group.command("stage1")(stage1)
    group.command("stage2")(stage2)


def stage1(
    config: Annotated[Path | None, typer.Argument(metavar="FILE", help="The loop, in YAML: see --example.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a commented configuration and stop.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label a seed, then train, look at the errors on gold and label around them, iteration by iteration.

    Interrupted, killed, out of budget or waiting for people: run it again; no question is asked twice.

    Example: `assay curate stage1 --example > loop.yaml && assay curate stage1 loop.yaml`
    """
    from assay.errors import BadInputError
    from assay.runs.record import start_run
    from assay.workspace import Workspace
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

    settings = Stage1Config.read(config)
    here = Workspace.find(workspace)
    parts = build_parts(here, settings)
    with start_run(here, RUN_KIND, settings.to_dict()) as run:
        report = run_stage1(settings, parts, run)
        run.metrics.update(report.to_dict())
    emit({"run": run.id, **report.to_dict()}, "\n".join(_lines(report.to_dict(), str(config))), as_json=as_json)


@settings_options(Stage2Config)
def stage2(
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
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep what the gold model and either the best model or the judges agree with; discard or recycle the rest.

    Example: `assay curate stage2 --best first-loop --gold gold-rm --recycle-below 0.5 --dry-run`
    """
    from assay.browsing.candidates import count_candidates
    from assay.data.snapshots import Selection
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import locate_model, start_run
    from assay.workspace import Workspace
    from assay_pipelines.curation.loop.demonstrations import demonstrations
    from assay_pipelines.curation.loop.reward_models import UNCALIBRATED, LoopModel
    from assay_pipelines.curation.loop.stage2 import Stage2Parts, run_stage2
    from assay_pipelines.embedding.encoder_loader import open_encoder
    from assay_pipelines.judging.config import load_judges
    from assay_pipelines.llm.budget import Budget, Spending
    from assay_serving.engines.transformers import TransformersScorer

    here = Workspace.find(workspace)
    stage_judges = load_judges(judges, here) if judges is not None else []
    models = []
    for name in (best, gold):
        scorer = TransformersScorer.load(ModelConfig(locate_model(here, name)[0], device=device))
        models.append(LoopModel(scorer, scorer.spec.calibration or UNCALIBRATED))
    selection = Selection(("unverified",), tuple(source or ()))
    opened = open_encoder(encoder, device) if encoder is not None and stage_judges else None
    settings = {
        **asdict(config),
        "best": best,
        "gold": gold,
        "judges": str(judges),
        "encoder": encoder,
        "dry_run": dry_run,
    }
    with (
        start_run(here, "curate-stage2", settings) as run,
        progress_bar("stage 2", count_candidates(here, selection), unit="pairs") as advance,
    ):
        for model in models:
            run.link("input", "model_version", model.scorer.info.version)

        def demonstrate(ids: Sequence[str]) -> Mapping[str, Sequence[Demonstration]]:
            if opened is None:
                return {}
            return demonstrations(here, opened, ids, Selection(("gold",), tuple(source or ())), run.id)

        report = run_stage2(
            config,
            Stage2Parts(here, models[0], models[1], stage_judges, demonstrate, Spending(Budget(cost=max_cost))),
            selection,
            run.id,
            dry_run=dry_run,
            advance=advance,
        )
        run.metrics.update(report.to_dict())
    would = "would be " if dry_run else ""
    lines = [
        f"{report.seen} pairs: {report.kept} {would}kept, {report.recycled} {would}recycled with the label flipped, "
        f"{report.discarded} {would}discarded; {report.unlabelled} without an A/B label and {report.unscored} that a "
        "model cannot score are left alone",
        f"the best model agrees with the source on {report.sure}",
    ]
    if stage_judges:
        lines.append(_judging(report.to_dict(), dry_run))
    if report.unanswered:
        lines.append(f"{report.unanswered} on which every judge failed are left alone; run it again to ask again")
    if report.stopped:
        lines.append(f"stopped: {report.stopped}; run it again to go on")
    emit({"run": run.id, **report.to_dict()}, "\n".join(lines), as_json=as_json)


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
            f"{done['iteration']:>9}  {done.get('trained_on', '-'):>10}  {_accuracy(done.get('gold_accuracy')):<20}  "
            f"{done.get('people_asked', 0):>9}  {done.get('gold', 0):>4}  {done.get('gold_against_source', 0):>14}  "
            f"{done.get('judges_asked', 0):>9}  {done.get('silver', 0):>6}"
        )
    for model in report["models"]:
        lines.append(
            f"model of iteration {model['iteration']}, trained on {model['trained_on']} pairs: "
            f"{_accuracy(model['gold_accuracy'])} on the gold there is now"
        )
    if report["waiting"]:
        queue = report["waiting"].split("'")[1]
        lines.append(f"waiting for people: {report['waiting']} (assay annotate {queue} --as NAME)")
        lines.append(f"then: assay curate stage1 {file}")
    if report["stopped"]:
        lines.append(f"stopped: {report['stopped']}")
        lines.append(f"run it again to go on, with a larger budget if that was spent: assay curate stage1 {file}")
    if report["model"]:
        lines.append(f"the best of them is now model {report['model_name'] or report['loop']} ({report['model']})")
    return lines


def _accuracy(figures: dict[str, Any] | None) -> str:
    return f"{figures['value']:.3f} [{figures['low']:.3f}, {figures['high']:.3f}]" if figures else "no gold yet"
