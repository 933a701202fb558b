"""What commands that ask models share: the options of an endpoint (address, sampling, prices, what may be spent), the
run and its bar, one report at the end.

Leaves out: which comparisons (`selection`), judges that are no endpoint (`judge`), asking (`assay_pipelines.judging`,
`.attributes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.settings_options import Command, replace_parameter, settings_options
from assay.errors import BadInputError
from assay.settings import fields_of
from assay_pipelines.llm.budget import Budget
from assay_pipelines.llm.configuration import EndpointConfig

if TYPE_CHECKING:
    from assay.data.snapshots import Selection
    from assay.runs.progress_bar import Advance
    from assay.runs.record import Run
    from assay.workspace import Workspace
    from assay_pipelines.llm.sweep import SweepReport


PromptsFolder = Annotated[
    Path | None, typer.Option("--prompts", help="Folder of prompts of your own.", show_default=False)
]
ENDPOINT_OPTIONS = (
    *("base_url", "model", "api_key_env", "temperature", "max_tokens", "concurrency", "timeout"),
    *("price_in", "price_out"),
)
_OPTIONAL = ("base_url", "model", "temperature")


@dataclass(frozen=True)
class EndpointOptions:
    """`settings`: fields of `EndpointConfig`; None where an option without a default is not given."""

    settings: dict[str, Any]

    def required(self, option: str) -> str:
        """Raises BadInputError without the option."""
        if not (text := self.settings[option]):
            raise BadInputError(f"--{option.replace('_', '-')} is needed here")
        return str(text)

    def endpoint(self) -> EndpointConfig:
        """Raises BadInputError without an address or a model, and for what cannot be asked."""
        for option in ("base_url", "model"):
            self.required(option)
        return EndpointConfig(**{name: setting for name, setting in self.settings.items() if setting is not None})


def endpoint_options(max_tokens: int = 1024) -> Callable[[Command], Command]:
    """Replace the parameters of types `EndpointOptions` and `Budget` by their options."""
    defaults: dict[str, Any] = dict.fromkeys(_OPTIONAL) | {"max_tokens": max_tokens}
    fields = {field.name: field for field in fields_of(EndpointConfig)}
    declared = [replace(fields[name], default=defaults.get(name, fields[name].default)) for name in ENDPOINT_OPTIONS]
    endpoint = replace_parameter(EndpointOptions, declared, lambda **settings: EndpointOptions(settings))
    return lambda command: endpoint(settings_options(Budget, exclude=("questions",))(command))


Limit = Annotated[int | None, typer.Option(min=1, help="At most so many comparisons, by id.", show_default=False)]


@contextmanager
def asking_run(
    workspace: Workspace,
    kind: str,
    config: dict[str, Any],
    selection: Selection,
    limit: int | None,
    times: int,
    doing: str,
) -> Iterator[tuple[Run, Advance]]:
    """A run record and a progress bar around the work; httpx's line per request is left out."""
    import logging

    from assay.browsing.candidates import count_candidates
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import start_run

    logging.getLogger("httpx").setLevel(logging.WARNING)
    total = count_candidates(workspace, selection)
    total = total if limit is None else min(total, limit)
    try:
        with start_run(workspace, kind, config) as run, progress_bar(doing, times * total, unit="questions") as advance:
            yield run, advance
    except KeyboardInterrupt:
        typer.echo("assay: interrupted; answers are kept, and the same command resumes", err=True)
        raise


def summed(passes: Iterator[SweepReport]) -> SweepReport:
    """One report of the pages' reports, which are made one by one; one that stopped is the last."""
    from collections import Counter

    from assay_pipelines.llm.sweep import SweepReport

    reports: list[SweepReport] = []
    for report in passes:
        reports.append(report)
        if report.stopped:
            break
    if not reports:
        return SweepReport("nothing to ask")
    failures: Counter[str] = Counter()
    for one in reports:
        failures.update(one.failures)
    totals = ("asked", "answered", "known", "attempts", "tokens_in", "tokens_out", "cost")
    return SweepReport(
        reports[0].judge,
        failures=dict(sorted(failures.items())),
        stopped=reports[-1].stopped,
        **{name: sum(getattr(one, name) for one in reports) for name in totals},
    )


def exit_code_of(reports: list[SweepReport]) -> int:
    """0 also for a budget that is used up, as was asked for; not for an endpoint that was given up, or that never
    replied to the few questions there were."""
    from assay.errors import BackendError
    from assay_serving.chat.client import PASSING

    given_up = any(one.stopped and not one.stopped.startswith("budget") for one in reports)
    silent = any(not one.answered and not PASSING.isdisjoint(one.failures) for one in reports)
    return BackendError.exit_code if given_up or silent else 0


def report_text(report: SweepReport, unit: str) -> str:
    parts = [f"{report.judge}: {report.answered} of {report.asked} {unit} answered, {report.known} were known"]
    unasked = sum(report.failures.get(code, 0) for code in ("over_budget", "not_asked"))
    failed = {code: n for code, n in report.failures.items() if code not in ("over_budget", "not_asked")}
    if failed:
        parts.append("no answer: " + ", ".join(f"{number} {code}" for code, number in failed.items()))
    if report.attempts:
        cost = f", cost {report.cost:.4f}" if report.cost else ""
        parts.append(f"{report.attempts} calls, {report.tokens_in} tokens in, {report.tokens_out} out{cost}")
    if report.stopped:
        parts.append(f"stopped: {report.stopped}" + (f"; {unasked} {unit} left for the next run" if unasked else ""))
    return "; ".join(parts)
