"""`assay data clean`, `dedup`, `contradictions`, `stats` and `near-dup`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import CommandResult, add_commands
from assay.compute.executor import LOCAL, OnOption, open_executor
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.hygiene.cleaning import CleanConfig
from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig

if TYPE_CHECKING:
    from assay_pipelines.hygiene.deduplication import LabelContradiction
    from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateReport


_CUT = 400


def add_to(group: typer.Typer) -> None:
    add_commands(group, clean, dedup, contradictions, stats, near_dup)


@settings_options(CleanConfig)
def clean(workspace: Workspace, config: CleanConfig) -> CommandResult:
    """Discard comparisons that break structural rules, each with its rule and reason. Nothing is deleted.

    Example: `assay data clean --max-characters 20000`
    """
    from assay.browsing.pair_pages import count_pairs
    from assay_pipelines.hygiene.cleaning import clean as apply_rules

    with (
        start_run(workspace, "clean", asdict(config)) as run,
        progress_bar("cleaning", count_pairs(workspace, but_gold=True), unit="comparisons") as step,
    ):
        discarded = apply_rules(workspace, config, run.id, advance=step)
        run.metrics["discarded"] = discarded
    text = "\n".join(
        [f"discarded {sum(discarded.values())} comparisons", *(f"  {n}: {rule}" for rule, n in discarded.items() if n)]
    )
    return CommandResult({"run_id": run.id, "discarded": discarded}, text)


def dedup(workspace: Workspace) -> CommandResult:
    """Keep one of each pair that differs only in case or white space; discard pairs with contradicting source labels.

    Example: `assay data dedup`
    """
    from assay.browsing.pair_pages import count_pairs
    from assay_pipelines.hygiene.deduplication import dedup as find_duplicates

    with (
        start_run(workspace, "dedup", {}) as run,
        progress_bar("deduplicating", count_pairs(workspace), unit="comparisons") as step,
    ):
        counts = find_duplicates(workspace, run.id, advance=step)
        run.metrics.update(asdict(counts))
    lines = [
        f"{counts.exact_repeats} exact repeats were merged by the imports",
        f"discarded {counts.duplicates} duplicates and {counts.contradictions} with contradicting labels",
    ]
    if counts.contradictions:
        lines.append("list them: assay data contradictions")
    return CommandResult({"run_id": run.id, **asdict(counts)}, "\n".join(lines))


def contradictions(
    workspace: Workspace,
    limit: Annotated[int, typer.Option(help="Show at most this many; 0 = all.")] = 10,
) -> CommandResult:
    """Show pairs that sources label oppositely, also where they differ in case or white space: texts, sources, votes.

    Discards nothing (`assay data dedup` discards them, except gold and silver); shows discarded ones as well.

    Example: `assay data contradictions --limit 3`
    """
    from assay_pipelines.hygiene.deduplication import find_contradictions

    if limit < 0:
        raise BadInputError("must not be negative", field="limit")
    with progress_bar("finding contradictions", unit="comparisons") as step:
        total, examples = find_contradictions(workspace, limit=limit or None, advance=step)
    text = "\n\n".join([f"{total} pairs with opposite labels", *map(_contradiction, examples)])
    if total > len(examples):
        text += f"\n\n{total - len(examples)} more: --limit 0"
    return CommandResult({"total": total, "contradictions": [asdict(c) for c in examples]}, text)


def stats(
    workspace: Workspace,
    languages: Annotated[int, typer.Option(help="Prompts whose language is detected; 0 = all.")] = 5000,
) -> CommandResult:
    """Counts, label balance, lengths, the longer-is-chosen rate, languages, judgments, decisions, rejects by reason.

    Example: `assay data stats --json | jq .pools`
    """
    from assay_pipelines.hygiene.dataset_statistics import statistics
    from assay_pipelines.hygiene.text_statistics import text_statistics

    if languages < 0:
        raise BadInputError("must not be negative", field="languages")
    with progress_bar("measuring", unit="responses") as step:
        texts = text_statistics(workspace, sample=languages, advance=step)
    with workspace.store.unit() as db:
        counts = statistics(db)
    payload = {"workspace": str(workspace.root), **counts, **texts}
    text = "\n".join([_table(counts), _lengths(texts), _balance(texts), _languages(texts["languages"])])
    return CommandResult(payload, text)


def _contradiction(contradiction: LabelContradiction) -> str:
    heading = (
        "one pair"
        if contradiction.exact
        else f"{len(contradiction.comparisons)} pairs that differ in case or white space"
    )
    lines = [
        f"{heading}: " + ", ".join(f"{comparison} ({pool})" for comparison, pool in contradiction.comparisons.items())
    ]
    lines += [f"  {role}: {_short(content)}" for role, content in contradiction.prompt]
    lines += [f"  response 1: {_short(contradiction.response_1)}", f"  response 2: {_short(contradiction.response_2)}"]
    for statement in contradiction.statements:
        opinion = f"prefers {statement.prefers}" if statement.prefers else f"says {statement.answer}"
        lines.append(f"    {statement.kind} {statement.annotator} {opinion} ({statement.comparison_id})")
    return "\n".join(lines)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"{line[:_CUT]}..." if len(line) > _CUT else line


def _table(counts: dict[str, Any]) -> str:
    lines = []
    for title, value in counts.items():
        lines.append(f"{title.replace('_', ' ')}:")
        lines += [f"  {n:>12}  {key}" for key, n in value.items()] or ["  (none)"]
    return "\n".join(lines)


def _lengths(texts: dict[str, Any]) -> str:
    names = ("mean", "p5", "p25", "median", "p75", "p95", "longest")
    lines = ["lengths:", "  " + "".join(f"{name:>9}" for name in names)]
    for title, key in (
        ("characters of a response", "lengths"),
        ("  of the chosen one", "chosen_lengths"),
        ("  of the rejected one", "rejected_lengths"),
        ("tokens of a response, about", "tokens"),
    ):
        lines.append("  " + "".join(f"{_figure(texts[key][name]):>9}" for name in names) + f"  {title}")
    return "\n".join(lines)


def _balance(texts: dict[str, Any]) -> str:
    overall = texts["length_balance"]
    lines = [f"the longer response is the chosen one: {_share(overall)} of {overall['pairs']} decided pairs"]
    lines += [
        f"  {_share(row):>8}  {source} ({row['pairs']} pairs, {row['equal_length']} of equal length)"
        for source, row in texts["longer_is_chosen_by_source"].items()
    ]
    return "\n".join(lines)


def _languages(languages: dict[str, Any]) -> str:
    lines = [f"languages of {languages['prompts']} prompts:"]
    lines += [f"  {count:>12}  {language}" for language, count in list(languages["counts"].items())[:12]] or [
        "  (none)"
    ]
    return "\n".join(lines)


def _share(balance: dict[str, Any]) -> str:
    rate = balance["longer_is_chosen"]
    return "-" if rate is None else f"{100 * rate:.1f} %"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


_EXAMPLE_LENGTH = 70


@settings_options(NearDuplicateConfig)
def near_dup(
    workspace: Workspace,
    config: NearDuplicateConfig,
    action: Annotated[
        str,
        typer.Option(metavar="report|discard", help="report the clusters, or discard all but the kept of each."),
    ] = "report",
    on: OnOption = LOCAL,
) -> CommandResult:
    """Find comparisons that share most of their word shingles: MinHash sketches, verified by exact Jaccard similarity.

    Case, punctuation and white space are ignored. Two comparisons are as similar as their least similar part, so a
    long prompt in common is not enough. Kept of a cluster: gold first, then silver, then the first imported.

    Example: `assay data near-dup --threshold 0.85 --action discard`
    """
    from assay_pipelines.hygiene.near_duplicates.search import discard_near_duplicates, find_near_duplicates

    if action not in ("discard", "report"):
        raise BadInputError(f"unknown action {action!r}; one of discard, report", field="action")
    executor = open_executor(on)
    with start_run(workspace, "near-dup", {**asdict(config), "action": action}) as run:
        report = find_near_duplicates(workspace, config, run.id, executor=executor, counting=progress_bar)
        discarded = discard_near_duplicates(workspace, config, run.id) if action == "discard" else 0
        run.metrics.update(asdict(report) | {"discarded": discarded})
    done = f"discarded {discarded} comparisons" if action == "discard" else "nothing discarded (--action discard does)"
    lines = [
        f"{report.clusters} clusters of {report.members} {config.over}s among {report.items}; "
        f"{report.extra} beside those kept; {done}"
    ]
    if report.opposite:
        lines.append(f"{report.opposite} of them have the label opposite to the kept one's")
    if report.large_groups:
        lines.append(f"{report.large_groups} groups of equal sketches were too large to compare every pair")
    lines += _examples(workspace, report, config.over)
    lines.append(f"run {run.id}")
    return CommandResult({"run_id": run.id, **asdict(report), "discarded": discarded}, "\n".join(lines))


def _examples(workspace: Workspace, report: NearDuplicateReport, over: str) -> list[str]:
    """The least similar, with the beginnings of their prompts."""
    column = "c.comparison_id" if over == "pair" else "c.prompt_id"
    lines = []
    with workspace.store.unit() as db:
        for example in report.examples:
            lines.append(f"  {example['similarity']:.3f}  {example['item_id']} ~ {example['kept_id']}")
            for item in (example["item_id"], example["kept_id"]):
                row = db.execute(
                    f"""SELECT p.messages[1].content FROM comparisons c JOIN prompts p USING (prompt_id)
                        WHERE {column} = ? LIMIT 1""",
                    [item],
                ).fetchone()
                text = " ".join(row[0].split()) if row else ""
                lines.append(f"         {text[:_EXAMPLE_LENGTH]}{'...' if len(text) > _EXAMPLE_LENGTH else ''}")
    return lines
