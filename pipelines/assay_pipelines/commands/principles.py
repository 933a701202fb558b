"""`assay principles ...`: import-feedback, extract, filter, report, export."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import DeviceOption
from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import CommandResult, add_commands
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.commands.asking import EndpointOptions, PromptsFolder, endpoint_options
from assay_pipelines.embedding.encoder import ENCODERS
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.principles.filtering import FilterConfig
from assay_pipelines.principles.kind import PRINCIPLE_EXTRACTORS

if TYPE_CHECKING:
    from assay_pipelines.principles.report import PrincipleReport


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="Turn annotators' feedback into yes/no principles on which they agree (RLBFF)."
    )
    add_commands(group, import_feedback, extract, filter_, report, export)
    app.add_typer(group, name="principles")


def import_feedback(
    workspace: Workspace,
    path: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Normalised JSON Lines with reasons.")] = None,
    judgments: Annotated[
        bool, typer.Option("--judgments", help="Take the reasons of the judgments in the store instead of a file.")
    ] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="With --judgments: kinds of annotators; repeatable. Default: human, source.", show_default=False
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Read only this many rows.", min=1)] = None,
) -> CommandResult:
    """Import feedback from a file with reasons, critiques or binary tests, or from the reasons of stored judgments.

    HelpSteer3's own feedback files are imported by `assay data import`. A second import adds nothing.

    Example: `assay principles import-feedback ukpconvarg1_pairs.jsonl.gz`
    """
    from assay_pipelines.principles import feedback_files

    if judgments == (path is not None):
        raise BadInputError("name a file, or give --judgments")
    if path is None:
        kinds = tuple(kind or ("human", "source"))
        with start_run(workspace, "import-feedback", {"judgments": kinds}) as run:
            stored = feedback_files.feedback_from_judgments(workspace, run.id, kinds=kinds)
            run.metrics["new"] = stored
        return CommandResult({"run": run.id, "new": stored}, f"{stored} new feedback texts from judgments' reasons")
    file = path.expanduser().resolve()
    size = file.stat().st_size if file.is_file() else None
    with (
        start_run(workspace, "import-feedback", {"file": str(file), "limit": limit}, inputs={str(file): "file"}) as run,
        progress_bar(f"reading {file.name}", size, unit="bytes") as advance,
    ):
        report = feedback_files.import_feedback(workspace, file, run.id, limit=limit, advance=advance)
        run.metrics.update(asdict(report))
    new = report.new
    lines = [
        f"{report.rows} rows: {report.feedback} feedback texts ({new.feedback} new), {report.principle_judgments} "
        f"principle judgments ({new.principle_judgments} new); {report.without} rows have none",
        *(f"  left out {n}: {reason}" for reason, n in report.rejected.items()),
    ]
    return CommandResult({"run": run.id, **asdict(report)}, "\n".join(lines))


@endpoint_options()
def extract(
    workspace: Workspace,
    options: EndpointOptions,
    budget: Budget,
    extractor: Annotated[
        str,
        typer.Option(
            help=f"{PRINCIPLE_EXTRACTORS.help()}. openai is any chat endpoint, lexicon a baseline of rules without a "
            "model."
        ),
    ] = "openai",
    prompts: PromptsFolder = None,
    lexicon: Annotated[Path | None, typer.Option(help="A lexicon file for --extractor lexicon.")] = None,
    source: Annotated[str | None, typer.Option(help="Only annotators whose name begins with this.")] = None,
    limit: Annotated[int | None, typer.Option(help="Read at most this many.", min=1)] = None,
    again: Annotated[bool, typer.Option("--again", help="Retry final failures.")] = False,
) -> CommandResult:
    """Extract the principles that the feedback mentions, each with the quoted words.

    Feedback is read once: after an interruption or an exhausted budget, run it again.

    Example: `assay principles extract --extractor lexicon`
    """
    from assay_pipelines.principles.extraction import ExtractorOptions, count_waiting
    from assay_pipelines.principles.extraction import extract as read_feedback

    endpoint = options.endpoint() if options.settings["base_url"] and options.settings["model"] else None
    make = PRINCIPLE_EXTRACTORS.find(extractor, folder=Path(), field="extractor")
    settings = ExtractorOptions(workspace, endpoint, prompts, lexicon, Spending(budget))
    reader = PRINCIPLE_EXTRACTORS.accept(make(settings), extractor, field="extractor")
    waiting = count_waiting(workspace, reader.name, source=source, again=again)
    with (
        start_run(
            workspace, "principles-extract", {"extractor": reader.name, **reader.config, "source": source}
        ) as run,
        progress_bar("reading feedback", min(waiting, limit or waiting), unit="texts") as advance,
    ):
        report = read_feedback(workspace, reader, run.id, source=source, limit=limit, again=again, advance=advance)
        run.metrics.update(report.to_dict())
    failed = sum(report.failures.values())
    rate = f" ({100 * report.failure_rate:.1f} % of the answers)" if failed and report.failure_rate is not None else ""
    lines = [
        f"{reader.name}: {report.read} texts read, {report.items} items, {report.empty} without any; "
        f"{report.read_before} known",
        *([f"{failed} could not be read{rate}: {_listed(report.failures)}"] if failed else []),
        *([f"stopped: {report.stopped}"] if report.stopped else []),
    ]
    payload = {"run": run.id, **report.to_dict(), "failure_rate": report.failure_rate}
    return CommandResult(payload, "\n".join(lines))


@settings_options(FilterConfig, exclude=("extractor",))
def filter_(
    workspace: Workspace,
    config: FilterConfig,
    extractor: Annotated[
        str | None,
        typer.Option(
            help="Whose principles; `stated` = those that people judged directly. Default: the latest extractor's.",
            show_default=False,
        ),
    ] = None,
    encoder: Annotated[str, typer.Option(help=f"{ENCODERS.help()}; or a sentence-transformers model.")] = "minilm",
    device: DeviceOption = "auto",
) -> CommandResult:
    """Keep the principles whose quote is in the feedback and that every other annotator shares; record why others are
    dropped.

    Nothing is deleted: run it again with other thresholds; the latest run is used.

    Example: `assay principles filter --consensus-above 0.8`
    """
    from assay_pipelines.embedding.encoder_loader import open_encoder
    from assay_pipelines.principles.filtering import count_responses, filter_principles
    from assay_pipelines.principles.report import KIND, extractors, principle_report

    extractor_names = extractors(workspace)
    name = None if extractor == "stated" else extractor or next(iter(extractor_names), None)
    if name is not None and name not in extractor_names:
        matching = [full for full in extractor_names if full.startswith(name)]
        if len(matching) != 1:
            raise BadInputError(
                f"no single extractor {name!r}; there are: {', '.join([*extractor_names, 'stated'])}", field="extractor"
            )
        name = matching[0]
    config = replace(config, extractor=name)
    model = open_encoder(encoder, device)
    with (
        start_run(workspace, KIND, {**asdict(config), "encoder": model.name}) as run,
        progress_bar("filtering", count_responses(workspace, name), unit="responses") as advance,
    ):
        filtered = filter_principles(workspace, model, config, run.id, advance=advance)
        run.metrics.update(filtered.to_dict())
    funnel = principle_report(workspace, run.id)
    sizes = ", ".join(f"{n} of {size}" for size, n in filtered.groups.items())
    lines = [
        f"{filtered.items} items by {name or 'people themselves'}, on {filtered.responses} responses",
        *_funnel(funnel),
        f"items by number of annotators compared: {sizes}",
    ]
    return CommandResult({"run": run.id, "extractor": name, **filtered.to_dict()}, "\n".join(lines))


def report(
    workspace: Workspace,
    top: Annotated[int, typer.Option(help="How many principles to list.", min=0)] = 20,
) -> CommandResult:
    """Show what each extractor read and failed to read, what each stage dropped, and the share of yes per principle.

    Example: `assay principles report`
    """
    from assay_pipelines.principles.report import principle_report

    summary = principle_report(workspace, top=top)
    lines = [f"{summary.feedback} feedback texts; {summary.stated} principle judgments stated by people"]
    for reader in summary.readers:
        failed = sum(reader.failed.values())
        rate = f" ({100 * (reader.failure_rate or 0):.1f} %): {_listed(reader.failed)}" if failed else ""
        mean = f", {reader.items_mean:.2f} ± {reader.items_sd or 0:.2f} a text" if reader.items_mean is not None else ""
        lines.append(f"{reader.name}: {reader.read} read, {reader.items} items{mean}; {failed} failed{rate}")
    if summary.run is None:
        lines.append("nothing is filtered yet: assay principles filter")
    else:
        lines += ["", f"filter run {summary.run}: {summary.items} items", *_funnel(summary)]
        if summary.base_rates:
            lines += ["", f"{'responses':>9} {'yes':>6}  principle"]
            lines += [f"{b.responses:>9} {100 * b.yes / b.responses:>5.0f}%  {b.principle}" for b in summary.base_rates]
    return CommandResult(summary.to_dict(), "\n".join(lines))


def export(
    workspace: Workspace,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Ends in .jsonl or .parquet.")],
    holdout: Annotated[float, typer.Option(help="Share of prompts to hold out, into NAME.holdout.SUFFIX.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of that split.")] = 0,
) -> CommandResult:
    """Write what the latest filter run kept, in the fields of HelpSteer3-Principle.

    Example: `assay principles export principles.jsonl --holdout 0.1`
    """
    from assay_pipelines.principles.exporting import export_principles
    from assay_pipelines.principles.report import require_run

    filtered = require_run(workspace)
    with start_run(
        workspace, "principles-export", {"file": str(path), "holdout": holdout, "seed": seed}, inputs={filtered: "run"}
    ) as run:
        files = export_principles(workspace, filtered, path, holdout=holdout, seed=seed)
        for part in files:
            run.link("output", "file", str(part.path.resolve()))
        run.metrics["files"] = [asdict(part) for part in files]
    lines = [
        f"{part.path}: {part.rows} rows on {part.prompts} prompts"
        + (f", {100 * part.yes / part.rows:.1f} % Yes" if part.rows else "")
        for part in files
    ]
    return CommandResult({"run": run.id, "files": [asdict(part) for part in files]}, "\n".join(lines))


def _funnel(summary: PrincipleReport) -> list[str]:
    remaining = summary.items
    lines = []
    for stage, dropped in summary.stages.items():
        share = f"{100 * dropped / remaining:5.1f} % of {remaining}" if remaining else "    -"
        lines.append(f"  dropped at {stage:<12} {dropped:>8}  {share}")
        remaining -= dropped
    yes = f", {100 * summary.accepted_yes / summary.accepted:.1f} % yes" if summary.accepted else ""
    mean = f", {summary.per_feedback:.2f} a feedback text" if summary.per_feedback is not None else ""
    lines.append(
        f"  kept {summary.accepted} ({summary.principles} different){yes}{mean}; {summary.responses} responses have any"
    )
    return lines


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())
