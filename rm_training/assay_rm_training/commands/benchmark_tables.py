"""A benchmark evaluation as tables on standard output: one model with its intervals, or several side by side.

Leaves out: pairs (`evaluation_tables.py`), JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Column, Table

from assay.models.contamination import BenchmarkUse
from assay.runs.coverage import LEAST_USED
from assay.system.plurals import counted

if TYPE_CHECKING:
    from assay_rm_training.benchmarks.report import BenchmarkReport
    from assay_rm_training.runs.benchmark import BenchmarkRun

SHOWN = 40
CURVE_POINTS = (1, 2, 4, 8, 16, 32, 64)


def print_benchmark(result: BenchmarkRun, *, workspace: bool) -> None:
    """Print aggregates, failures, the protocol's description, and the output folder."""
    console = Console()
    reports = result.reports
    title = f"{result.benchmark.title}: {counted(reports[0].counts['items'], 'item')}"
    if len(reports) == 1:
        _single(console, reports[0], f"{title}, {reports[0].model}")
    else:
        _several(console, result, title)
    for report in reports:
        for warning in report.warnings:
            typer.echo(f"WARNING: {report.model}: {warning}")
        if not report.coverage.ranked:
            typer.echo(
                f"{report.model} is not ranked: a result under {100 * LEAST_USED:.0f} % of the items is not compared"
            )
    for report in reports:
        _curves(console, report)
    protocol = reports[0].protocol
    typer.echo(f"tie: {protocol['tie']}; {protocol['aggregation']}")
    if reports[0].missing:
        typer.echo(f"not complete: no scored item of {', '.join(reports[0].missing)}; overall is over the others")
    for report, states in zip(reports, result.contamination, strict=True):
        if report.failures:
            failed = ", ".join(f"{n} ({code})" for code, n in report.failures.items())
            worse = report.failed_as_wrong.get("overall")
            typer.echo(
                f"{report.model}: {report.counts['failed']} of {report.counts['items']} items failed and are left out: "
                f"{failed}" + (f"; overall with those as wrong {worse:.4f}" if worse is not None else "")
            )
        if report.truncated_share:
            typer.echo(f"{report.model}: {100 * report.truncated_share:.1f} % of the scored items were truncated")
        if matched := report.details.get("recorded", {}).get("matched_in_order"):
            typer.echo(f"{report.model}: {matched} rows share their ids and were matched in order; add a field domain")
        for state, prompts in states:
            typer.echo(
                f"{report.model}: contamination, {counted(prompts, 'prompt')}; the training data against {state}"
            )
        for use in report.details.get("contamination_lineage", ()):
            typer.echo(f"{report.model}: contamination, carried by the model: {BenchmarkUse(**use)}")
    if workspace and not any(result.contamination):
        typer.echo("contamination: these prompts are of no registered benchmark (assay data benchmarks add NAME FILE)")
    if result.folder is not None:
        typer.echo(f"items and figures in {result.folder}")


def _single(console: Console, report: BenchmarkReport, title: str) -> None:
    table = Table(Column("aggregate", overflow="fold"), "value", "95 %", "", "items", title=title, title_justify="left")
    names = _columns(report.aggregates)
    for name in names[:SHOWN]:
        interval = report.intervals.get(name)
        between = f"{interval.low:.4f} to {interval.high:.4f}" if interval else ""
        size = report.sizes.get(name)
        table.add_row(
            name, _number(report.aggregates[name]), between, interval.method if interval else "", str(size or "")
        )
    console.print(table)
    if len(names) > SHOWN:
        typer.echo(f"{len(names) - SHOWN} more aggregates with --json")


def _several(console: Console, result: BenchmarkRun, title: str) -> None:
    from assay.statistics.intervals import interval_text

    reports = result.reports
    table = Table(
        Column("aggregate", overflow="fold"),
        *(report.model if report.coverage.ranked else f"{report.model} (not ranked)" for report in reports),
        title=title,
        title_justify="left",
    )
    names = _columns(dict.fromkeys(name for report in reports for name in report.aggregates))
    for name in names[:SHOWN]:
        cells = [_number(reports[0].aggregates.get(name))]
        for report, comparison in zip(reports[1:], result.comparisons, strict=True):
            cell = _number(report.aggregates.get(name))
            ranked = reports[0].coverage.ranked and report.coverage.ranked
            if (difference := comparison.differences.get(name)) is not None:
                mark = " *" if difference.settled and ranked else ""
                cell += f"\n{difference.value:+.4f} [{interval_text(difference.interval, '+.4f')}]{mark}"
            cells.append(cell)
        table.add_row(name, *cells)
    console.print(table)
    common = ", ".join(f"{one.items} with {one.model}" for one in result.comparisons)
    typer.echo(
        f"below each value: difference from {reports[0].model} on the items both have a score of ({common}), 95 % by "
        "prompts; * excludes 0"
    )
    if len(names) > SHOWN:
        typer.echo(f"{len(names) - SHOWN} more aggregates with --json")


def _curves(console: Console, report: BenchmarkReport) -> None:
    for name, points in report.curves.items():
        selected = [point for point in points if point.n in CURVE_POINTS or point is points[-1]]
        if len(selected) < 2:
            continue
        table = Table(
            "n",
            "gold of the best of n",
            "95 %",
            "KL (nats)",
            "lists",
            title=f"{report.model}, {name}",
            title_justify="left",
        )
        for point in selected:
            between = f"{point.interval.low:.4f} to {point.interval.high:.4f}" if point.interval else ""
            table.add_row(str(point.n), f"{point.gold:.4f}", between, f"{point.kl:.3f}", str(point.items))
        console.print(table)


def _columns(aggregates: Iterable[str]) -> list[str]:
    """The broadest first, without the cells of a matrix, which are for `--json`."""
    return sorted((name for name in aggregates if ">" not in name), key=lambda name: name.count("/"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
