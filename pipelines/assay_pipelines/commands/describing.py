"""`assay judge attributes` and `verify`: attributes of pairs and correctness checks of responses."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay_pipelines.commands.asking import Limit, asking_run, fail_if_given_up, question_pages, report_text, summed
from assay_pipelines.commands.endpoint_options import EndpointOptions, PromptsFolder, endpoint_options
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of
from assay_pipelines.llm.budget import Budget, Spending


@endpoint_options(max_tokens=512)
def attributes(
    options: EndpointOptions,
    budget: Budget,
    rules: Annotated[bool, typer.Option("--rules", help="By rules from the category, without a model.")] = False,
    file: Annotated[Path | None, typer.Option("--file", help="From a JSON Lines file.", show_default=False)] = None,
    person: Annotated[str, typer.Option(help="The annotator of the --file.")] = "attributes-file",
    prompts: PromptsFolder = None,
    limit: Limit = None,
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe pairs by the 5-tuple of attributes: category, objectivity, controversiality, desired, guideline.

    Example: `assay judge attributes --base-url http://127.0.0.1:8001/v1 --model smollm2 --limit 100`
    """
    from assay.errors import BadInputError
    from assay.runs.record import start_run
    from assay.workspace import Workspace

    ws = Workspace.find(workspace)
    selection = selection_of(pool, source, category)
    if sum((options.settings["base_url"] is not None, rules, file is not None)) != 1:
        raise BadInputError("name one of --base-url with --model, --rules, --file")
    if file is not None or rules:
        from assay_pipelines.attributes.rules import describe_by_rules, describe_from_file

        config = {"selection": asdict(selection), "limit": limit, "rules": rules, "file": str(file) if file else None}
        with start_run(ws, "attributes", config) as run:
            if file is not None:
                new = describe_from_file(ws, file, run.id, person=person)
            else:
                new = sum(
                    describe_by_rules(ws, [q.comparison_id for q in page], run.id)
                    for page in question_pages(ws, selection, limit)
                )
            run.metrics["described"] = new
        emit({"run": run.id, "described": new}, f"{new} comparisons described", as_json=as_json)
        return

    from assay_pipelines.attributes.extraction import AttributeExtractor, AttributesConfig, extract_attributes

    extractor = AttributeExtractor(AttributesConfig(options.endpoint(), prompts=prompts))
    spending = Spending(budget)
    settings = {"selection": asdict(selection), "limit": limit, **extractor.annotator.config}
    with asking_run(ws, "attributes", settings, selection, limit, 1, "describing") as (run, advance):
        report = summed(
            extract_attributes(ws, extractor, page, run.id, budget=spending, advance=advance)
            for page in question_pages(ws, selection, limit)
        )
        run.metrics.update(asdict(report))
    emit({"run": run.id, **asdict(report)}, report_text(report, "comparisons"), as_json=as_json)
    fail_if_given_up([report])


@endpoint_options()
def verify(
    options: EndpointOptions,
    budget: Budget,
    every_pair: Annotated[
        bool, typer.Option("--every-pair", help="Not only those whose attributes say objective.")
    ] = False,
    prompts: PromptsFolder = None,
    limit: Limit = None,
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a model check each response of objective pairs separately, as a hint for annotators.

    Example: `assay judge verify --base-url http://127.0.0.1:8001/v1 --model smollm2 --limit 100`
    """
    from assay.workspace import Workspace
    from assay_pipelines.attributes.preverification import CheckerConfig, CorrectnessChecker, preverify

    ws = Workspace.find(workspace)
    selection = selection_of(pool, source, category)
    checker = CorrectnessChecker(CheckerConfig(options.endpoint(), prompts=prompts))
    spending = Spending(budget)
    settings = {"selection": asdict(selection), "limit": limit, "every_pair": every_pair, **checker.annotator.config}
    with asking_run(ws, "preverify", settings, selection, limit, 2, "checking") as (run, advance):
        report = summed(
            preverify(ws, checker, page, run.id, every_pair=every_pair, budget=spending, advance=advance)
            for page in question_pages(ws, selection, limit)
        )
        run.metrics.update(asdict(report))
    text = report_text(report, "responses")
    if not (report.asked or report.known or report.failures):
        text = "no pair of the selection has attributes that say objective; see `assay judge attributes`"
    emit({"run": run.id, **asdict(report)}, text, as_json=as_json)
    fail_if_given_up([report])
