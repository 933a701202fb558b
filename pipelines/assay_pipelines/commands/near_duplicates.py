"""`assay data near-dup`: comparisons or prompts that are nearly the same."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig

if TYPE_CHECKING:
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateReport

_CUT = 70


def add_to(group: typer.Typer) -> None:
    """Add the command to the group `data`."""
    group.command("near-dup")(near_dup)


@settings_options(NearDuplicateConfig)
def near_dup(
    config: NearDuplicateConfig,
    action: Annotated[str, typer.Option(help="report the clusters, or discard all but the kept of each.")] = "report",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find comparisons that share most of their word shingles: MinHash sketches, verified by exact Jaccard similarity.

    Case, punctuation and white space are ignored. Two comparisons are as similar as their least similar part, so a
    long prompt in common is not enough. Kept of a cluster: gold first, then silver, then the first imported.

    Example: `assay data near-dup --threshold 0.85 --action discard`
    """
    from assay.errors import BadInputError
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.hygiene.near_duplicates.search import discard_near_duplicates, find_near_duplicates

    if action not in ("discard", "report"):
        raise BadInputError(f"unknown action {action!r}; one of discard, report", field="action")
    here = Workspace.find(workspace)
    with start_run(here, "near-dup", {**asdict(config), "action": action}) as run:
        report = find_near_duplicates(here, config, run.id, counting=progress_bar)
        discarded = discard_near_duplicates(here, config, run.id) if action == "discard" else 0
        run.metrics.update(report.to_dict() | {"discarded": discarded})
    done = f"discarded {discarded} comparisons" if action == "discard" else "nothing discarded (--action discard does)"
    lines = [
        f"{report.clusters} clusters of {report.members} {config.over}s among {report.items}; "
        f"{report.extra} beside those kept; {done}"
    ]
    if report.opposite:
        lines.append(f"{report.opposite} of them have the label opposite to the kept one's")
    if report.large_groups:
        lines.append(f"{report.large_groups} groups of equal sketches were too large to compare every pair")
    lines += _examples(here, report, config.over) if not as_json else []
    lines.append(f"run {run.id}")
    emit({"run_id": run.id, **report.to_dict(), "discarded": discarded}, "\n".join(lines), as_json=as_json)


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
                lines.append(f"         {text[:_CUT]}{'...' if len(text) > _CUT else ''}")
    return lines
