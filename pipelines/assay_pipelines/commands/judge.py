"""`assay judge ...`: run, attributes, verify, sample, report, prompts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.resume import is_given
from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import CommandResult, add_commands
from assay.errors import BadInputError
from assay.registry import absolute_name
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.commands.asking import (
    ENDPOINT_OPTIONS,
    EndpointOptions,
    Limit,
    PromptsFolder,
    asking_run,
    endpoint_options,
    exit_code_of,
    report_text,
    summed,
)
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of
from assay_pipelines.judging.kind import JUDGES
from assay_pipelines.llm.budget import Budget, Spending
from assay_rm_training.run_settings import JudgeEvalConfig
from assay_serving.generative.kind import JUDGE_PROFILES

if TYPE_CHECKING:
    from assay.data.snapshots import Selection
    from assay_pipelines.judging.judge import Judge
    from assay_pipelines.llm.sweep import SweepReport


_SAMPLING = ("name", "samples", "both_orders", "seed")
#: What each kind of judge takes of the options that describe a judge; `--judges FILE` takes none of them.
_TAKES: dict[str, tuple[str, ...]] = {
    "openai": (*ENDPOINT_OPTIONS, *_SAMPLING, "prompts", "judge_profile"),
    "local": ("model", "max_tokens", "temperature", *_SAMPLING, "prompts", "judge_profile"),
    "reward_model": ("model", "judge_profile"),
    "verifier": (),
    "recorded": ("name", "voters", "file", "seed"),
    "simulated": (*_SAMPLING, "truth", "accuracy"),
}
_SETTING = {
    "voters": "annotators",
    "judge_profile": "profile",
}  #: option -> setting of the judge, where the names differ


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Ask judges, describe pairs, check responses; how good judges are.")
    add_commands(group, run, attributes, verify, sample, report, prompts)
    app.add_typer(group, name="judge")


@endpoint_options()
def run(
    workspace: Workspace,
    context: typer.Context,
    options: EndpointOptions,
    budget: Budget,
    judge: Annotated[
        str, typer.Option(help=f"{JUDGES.help()} (judges of your own take settings by --judges).", show_default=False)
    ] = "",
    judges: Annotated[
        Path | None, typer.Option("--judges", help="YAML file of judges, instead of --judge.", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option(help="What to call the judge. Default: the model.", show_default=False)] = "",
    samples: Annotated[int, typer.Option(min=1, help="Votes per comparison and order.")] = 1,
    both_orders: Annotated[bool, typer.Option("--both-orders", help="Ask every sample both ways round.")] = False,
    prompts: PromptsFolder = None,
    judge_profile: Annotated[
        str | None, typer.Option(help=f"Ask and read as it was trained: {JUDGE_PROFILES.help()}, or a YAML file.")
    ] = None,
    truth: Annotated[str, typer.Option(help="Of a simulated judge: gold or source.")] = "gold",
    accuracy: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of a simulated judge.")] = 0.8,
    voters: Annotated[str, typer.Option(help="Of a recorded judge: people whose name is like this.")] = "%",
    file: Annotated[
        Path | None, typer.Option("--file", help="Of a recorded judge: its votes.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws orders and simulated answers.")] = 0,
    limit: Limit = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say about what it would take; ask nothing.")] = False,
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
) -> CommandResult:
    """Ask a judge about every comparison of the selection that it has not answered yet.

    Stopped at any point, it resumes when run again: no call that was answered is paid for twice.

    Example: `assay judge run --judge openai --base-url http://127.0.0.1:8001/v1 --model smollm2 --limit 100`
    """
    from contextlib import ExitStack

    from assay_pipelines.judging.asking import ask
    from assay_pipelines.judging.config import judge_of, load_judges
    from assay_pipelines.judging.judging_models import record_judges
    from assay_pipelines.judging.unread import unread_line
    from assay_pipelines.llm.questions import iter_questions

    if bool(judge) == (judges is not None):
        raise BadInputError("name either --judge or --judges FILE")
    judge = absolute_name(judge, Path()) if ":" in judge else judge.replace("-", "_")
    _refuse_unused(context, judge)
    if judges is not None:
        chosen_judges = load_judges(judges, workspace)
    else:
        for option in {"base_url", "model"}.intersection(_TAKES.get(judge, ())):
            options.required(option)
        options_of_it = [
            option for option in _TAKES.get(judge, ()) if judge_profile is None or is_given(context, option)
        ]
        passed = {_SETTING.get(option, option): context.params[option] for option in options_of_it}
        entry = {"kind": judge} | {name: setting for name, setting in passed.items() if setting not in (None, "")}
        chosen_judges = [judge_of(entry, workspace)]
    selection = selection_of(pool, source, category)
    if dry_run:
        return _estimate(workspace, chosen_judges, selection, limit)
    spending = Spending(budget)
    settings = {
        "selection": asdict(selection),
        "limit": limit,
        "judges": [dict(j.config) | {"name": j.name} for j in chosen_judges],
    }
    reports: list[SweepReport] = []
    unread: list[str] = []
    with (
        ExitStack() as stack,
        asking_run(workspace, "judge", settings, selection, limit, len(chosen_judges), "judging") as (run, advance),
    ):
        record_judges(run, chosen_judges)
        for one in chosen_judges:
            if hasattr(one, "close"):
                stack.callback(one.close)
            pages = iter_questions(workspace, selection, limit=limit)
            reports.append(
                summed(ask(workspace, one, page, run.id, budget=spending, advance=advance) for page in pages)
            )
            run.metrics[reports[-1].judge] = asdict(reports[-1])
            if (line := unread_line(workspace, one, run.id, reports[-1])) is not None:
                unread.append(line)
                run.metrics.setdefault("unreadable", []).append(line)
    return CommandResult(
        {"run": run.id, "judges": [asdict(r) for r in reports], "unreadable": unread},
        "\n".join([*(report_text(r, "comparisons") for r in reports), *unread]),
        BadInputError.exit_code if unread else exit_code_of(reports),
    )


def report(workspace: Workspace) -> CommandResult:
    """Show how good and how dear the judges are: agreement with gold, position bias, failures, tokens, cost.

    Example: `assay judge report`
    """
    from assay_pipelines.judging.reporting import judges_report

    quality = judges_report(workspace)
    lines: list[str] = []
    for one in quality.judges:
        lines += [f"{one.kind} {one.name}: {one.opinions} opinions, {one.ties} ties, {one.skips} skips"]
        if one.gold_with_ties.of:
            lines += [f"  agrees with gold     {one.gold.text} without ties, {one.gold_with_ties.text} with"]
        if one.first_shown.of:
            lines += [f"  first shown wins     {one.first_shown.text}; unbiased is 50 %"]
        if one.consistent.of:
            lines += [f"  same in both orders  {one.consistent.text}"]
        if one.calls:
            cost = "no prices given" if one.cost is None else f"cost {one.cost:.4f}"
            outcomes = ", ".join(f"{number} {outcome}" for outcome, number in one.outcomes.items())
            lines += [f"  calls                {one.calls}, {one.repeated} tried again: {outcomes}"]
            lines += [f"  unreadable           {one.unreadable.text}; refused {one.refused.text}"]
            lines += [f"  tokens               {one.tokens_in} in, {one.tokens_out} out; {cost}"]
    if quality.agreements:
        lines += ["", "judges among each other (A/B answers)"]
        for pair in quality.agreements:
            kappa = "" if pair.kappa is None else f", kappa {pair.kappa:.2f}"
            lines += [f"  {pair.first} and {pair.second}: {100 * pair.agreed / pair.both:.1f} % of {pair.both}{kappa}"]
    for task, figures in quality.other_tasks.items():
        rate = 100 * figures["unreadable"] / max(1, figures["attempts"])
        lines += [
            f"{task}: {figures['answered']} answers of {figures['calls']} calls, {figures['attempts']} attempts, "
            f"{rate:.1f} % unreadable, {figures['tokens_in']} tokens in, {figures['tokens_out']} out"
        ]
    return CommandResult(quality.to_dict(), "\n".join(lines) or "no judge has answered yet")


@settings_options(JudgeEvalConfig, exclude=("content_free",))
def sample(
    config: JudgeEvalConfig,
    out: Annotated[Path, typer.Option(help="File for the accepted judgments, rows of train generative-sft.")],
    trajectories: Annotated[
        Path | None, typer.Option(help="File for all judgments with whether they are right, rows of train steps.")
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="File for pairs of a better and a worse judgment, by --meta or else the label: train dpo."),
    ] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sample a judge's judgments of labelled rows and keep the right ones (rejective filtering, DeepSeek-GRM).

    Wrong judgments are rejected, and rows on which all are right; a row without a right one is asked once with a hint.
    The trajectories train a meta reward model, for eval-judge --meta.

    Example: `assay judge sample --judge judge --data gold --samples 3 --temperature 0.5 --out accepted.jsonl`
    """
    from assay_rm_training.generative.judging_run import sample_judge

    counts = sample_judge(Workspace.find_optional(workspace), config, out, trajectories, pairs, api_key=api_key)
    unscored = f" ({counts['without_meta_reward']} without a meta reward)" if counts["without_meta_reward"] else ""
    text = (
        f"{counts['asked']} of {counts['rows']} rows judged: {counts['accepted']} judgments accepted, "
        f"{counts['pairs']} pairs{unscored}; "
        f"{counts['too_easy']} rows too easy, {counts['never_right']} never right without the hint; "
        f"{counts['unread']} of {counts['replies']} replies could not be read"
    )
    emit({**counts, "out": str(out)}, text, as_json=as_json)
    if 2 * counts["unread"] > counts["replies"]:
        typer.echo("error: most replies could not be read; another format may (--format)", err=True)
        raise typer.Exit(BadInputError.exit_code)


def prompts(
    copy_to: Annotated[
        Path | None, typer.Option("--copy-to", help="Write them to this folder, for editing.", show_default=False)
    ] = None,
    folder: PromptsFolder = None,
    as_json: JsonOption = False,
) -> None:
    """Show the prompts that models are asked with, or copy them; `--prompts FOLDER` of the other commands uses yours.

    Example: `assay judge prompts --copy-to my-prompts`
    """
    from assay_pipelines.llm.prompts import Prompts

    shipped = Prompts(folder)
    if copy_to is not None:
        written = shipped.copy_to(copy_to)
        present = len(shipped.names) - len(written)
        text = f"{len(written)} prompts written to {copy_to}" + (f", {present} were there already" if present else "")
        emit({"written": [str(path) for path in written], "kept": present}, text, as_json=as_json)
        return
    texts = {name: {"hash": shipped.hash(name), "text": shipped.text(name)} for name in shipped.names}
    blocks = [f"--- {name} ({entry['hash']})\n{entry['text'].rstrip()}" for name, entry in texts.items()]
    emit({"prompts": texts}, "\n\n".join(blocks), as_json=as_json)


def _refuse_unused(context: typer.Context, judge: str) -> None:
    """Raises BadInputError for a given option that this judge would pass over. `judge`: "" for a file of judges."""
    supported = set(_TAKES.get(judge, ()))
    if context.params["file"] is not None:
        supported.discard("voters")  # who voted in a file is in the file
    unused = []
    for option in dict.fromkeys(name for names in _TAKES.values() for name in names):
        if option not in supported and is_given(context, option):
            unused.append(f"--{option.replace('_', '-')}")
    if unused:
        who = f"a judge of kind {judge}" if judge else "--judges FILE, which describes each of its judges itself,"
        raise BadInputError(f"{who} does not take {', '.join(unused)}")


def _estimate(workspace: Workspace, judges: list[Judge], selection: Selection, limit: int | None) -> CommandResult:
    from assay_pipelines.judging.estimating import estimate
    from assay_pipelines.llm.questions import iter_questions

    estimates = []
    for judge in judges:
        pages = [estimate(workspace, judge, page) for page in iter_questions(workspace, selection, limit=limit)]
        costs = [one.cost for one in pages if one.cost is not None]
        estimates.append(
            {
                "judge": pages[0].judge if pages else judge.name,
                "questions": sum(one.questions for one in pages),
                "calls": sum(one.calls for one in pages),
                "tokens": sum(one.tokens for one in pages),
                "cost": sum(costs) if costs else None,
            }
        )
    lines = [
        f"{one['judge']}: {one['questions']} comparisons to ask, {one['calls']} calls, about {one['tokens']} tokens"
        + (f", cost about {one['cost']:.4f}" if one["cost"] is not None else "")
        for one in estimates
    ]
    return CommandResult({"dry_run": True, "judges": estimates}, "\n".join(lines))


@endpoint_options(max_tokens=512)
def attributes(
    workspace: Workspace,
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
) -> CommandResult:
    """Describe pairs by the 5-tuple of attributes: category, objectivity, controversiality, desired, guideline.

    Example: `assay judge attributes --base-url http://127.0.0.1:8001/v1 --model smollm2 --limit 100`
    """
    from assay_pipelines.llm.questions import iter_questions

    selection = selection_of(pool, source, category)
    if sum((options.settings["base_url"] is not None, rules, file is not None)) != 1:
        raise BadInputError("name one of --base-url with --model, --rules, --file")
    if file is not None or rules:
        from assay_pipelines.attributes.rules import describe_by_rules, describe_from_file

        config = {"selection": asdict(selection), "limit": limit, "rules": rules, "file": str(file) if file else None}
        with start_run(workspace, "attributes", config) as run:
            if file is not None:
                new = describe_from_file(workspace, file, run.id, person=person)
            else:
                new = sum(
                    describe_by_rules(workspace, [q.comparison_id for q in page], run.id)
                    for page in iter_questions(workspace, selection, limit=limit)
                )
            run.metrics["described"] = new
        return CommandResult({"run": run.id, "described": new}, f"{new} comparisons described")

    from assay_pipelines.attributes.extraction import AttributeExtractor, extract_attributes

    extractor = AttributeExtractor(options.endpoint(), prompts=prompts)
    spending = Spending(budget)
    settings = {"selection": asdict(selection), "limit": limit, **extractor.annotator.config}
    with asking_run(workspace, "attributes", settings, selection, limit, 1, "describing") as (run, advance):
        report = summed(
            extract_attributes(workspace, extractor, page, run.id, budget=spending, advance=advance)
            for page in iter_questions(workspace, selection, limit=limit)
        )
        run.metrics.update(asdict(report))
    return CommandResult({"run": run.id, **asdict(report)}, report_text(report, "comparisons"), exit_code_of([report]))


@endpoint_options()
def verify(
    workspace: Workspace,
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
) -> CommandResult:
    """Have a model check each response of objective pairs separately, as a hint for annotators.

    Example: `assay judge verify --base-url http://127.0.0.1:8001/v1 --model smollm2 --limit 100`
    """
    from assay_pipelines.attributes.preverification import CorrectnessChecker, preverify
    from assay_pipelines.llm.questions import iter_questions

    selection = selection_of(pool, source, category)
    checker = CorrectnessChecker(options.endpoint(), prompts=prompts)
    spending = Spending(budget)
    settings = {"selection": asdict(selection), "limit": limit, "every_pair": every_pair, **checker.annotator.config}
    with asking_run(workspace, "preverify", settings, selection, limit, 2, "checking") as (run, advance):
        report = summed(
            preverify(workspace, checker, page, run.id, every_pair=every_pair, budget=spending, advance=advance)
            for page in iter_questions(workspace, selection, limit=limit)
        )
        run.metrics.update(asdict(report))
    text = report_text(report, "responses")
    if not (report.asked or report.known or report.failures):
        text = "no pair of the selection has attributes that say objective; see `assay judge attributes`"
    return CommandResult({"run": run.id, **asdict(report)}, text, exit_code_of([report]))
