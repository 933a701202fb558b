"""`assay attack`: what fools a reward, and what becomes of what was found. Heavy imports happen inside the command."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_rm_training.run_settings import AttackConfig


def register(app: typer.Typer) -> None:
    app.command("attack")(attack)


@settings_options(AttackConfig)
def attack(
    config: AttackConfig,
    queue: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Queue the responses that fooled it, beside the good ones, for people."),
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Keep them as pairs with the good response chosen: a file .jsonl, or a snapshot of the workspace.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for evaluation.json and items.jsonl.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="ASSAY_API_KEY", help="Of a URL's server or endpoint.", show_default=False)
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find what fools a reward: master keys, text for the judge, flattery, padding, format, searched words.

    Every attack makes responses that carry nothing or less than the good response of a held-out pair. Its rate is the
    share of them that the model prefers to the good one, with the interval by prompt, beside the rate of the pair's
    worse response as it is. What could not be judged is counted. The rates go into the model's card and the run record.

    Example: `assay attack helpful --data gold-holdout --negatives fooled --queue look-at-these`

    Example: `assay attack http://localhost:8000 --data pairs.jsonl --attack master_keys --attack flattery --json`
    """
    from assay.data.snapshots import list_snapshots
    from assay.errors import BadInputError
    from assay.system.plurals import counted
    from assay.workspace import Workspace
    from assay_pipelines.annotation.attacked_pairs import (
        attacked_pairs,
        queue_of,
        snapshot_of,
        store_attacked,
        write_pairs,
    )
    from assay_rm_training.runs.attack import attack_model

    here = Workspace.find_optional(workspace)
    file = Path(negatives).expanduser() if negatives is not None and negatives.endswith(".jsonl") else None
    snapshot = negatives if file is None else None
    if here is None and (queue or snapshot):
        option = "queue" if queue else "negatives"
        raise BadInputError("needs a workspace: --workspace (a file is named FILE.jsonl)", field=option)
    if here is not None and snapshot is not None and snapshot in {one.name for one in list_snapshots(here)}:
        raise BadInputError(f"snapshot {snapshot!r} exists, and snapshots do not change", field="negatives")
    result = attack_model(here, config, out=out, api_key=api_key)
    pairs = attacked_pairs(result.pairs, result.report.false_positives)
    payload: dict[str, Any] = result.to_dict()
    lines = [f"{counted(len(result.report.false_positives), 'response')} fooled it"]
    if file is not None:
        write_pairs(file, pairs)
        lines.append(f"{counted(len(pairs), 'pair')} written to {file}")
    if pairs and here is not None and result.run_id is not None and (queue or snapshot):
        source = store_attacked(here, pairs, result.run_id, labelled=snapshot is not None)
        if snapshot is not None:
            stored = snapshot_of(here, snapshot, source, result.run_id)
            payload["snapshot"] = stored.id
            lines.append(f"snapshot {stored.name}: {counted(stored.items, 'pair')} of the source {source!r}")
        if queue is not None:
            created = queue_of(here, queue, pairs, result.run_id)
            payload["queue"] = created.name
            lines.append(f"{created.name}: {counted(created.items, 'item')}; vote with: assay annotate {created.name}")
    elif queue or snapshot:
        lines.append("nothing to keep or to queue")
    payload["pairs_kept"] = len(pairs)
    if as_json:
        emit(payload, "", as_json=True)
        return
    _show(result, lines)


def _show(result: Any, lines: list[str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    report = result.report
    head, rows = report.table()
    columns = [Column(name, no_wrap=number > 0, overflow="fold") for number, name in enumerate(head)]
    title = f"{report.model.name} on {report.pairs} pairs"
    table = Table(*columns, title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    lines = [*report.notes(), *lines, *(["the rates are in the model's card"] if result.card else [])]
    typer.echo("\n".join([*lines, *([f"items and figures in {result.folder}"] if result.folder else [])]))
