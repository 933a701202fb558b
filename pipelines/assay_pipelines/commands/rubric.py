"""`assay rubric ...`: check, draft, refine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, emit
from assay.cli.workspace_command import CommandResult, add_commands
from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.system.plurals import counted
from assay.workspace import Workspace
from assay_pipelines.commands.asking import EndpointOptions, PromptsFolder, endpoint_options
from assay_pipelines.llm.budget import Budget, Spending

if TYPE_CHECKING:
    from assay_pipelines.rubrics.exploits import Exploit
    from assay_pipelines.rubrics.writing import PromptRow

Rows = Annotated[Path, typer.Argument(metavar="PROMPTS.jsonl", help="Rows with `prompt`.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write the rows with their `rubric`.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Check, write and mend rubrics: what responses are judged by.")
    add_commands(group, check, draft, refine)
    app.add_typer(group, name="rubric")


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A rubric (.yaml), or rows with `rubric` (.jsonl).")],
    as_json: JsonOption = False,
) -> None:
    """Check the file of a rubric reward, or the rubrics of a file of prompts; no model is loaded.

    Example: `assay rubric check metals.yaml`
    """
    from assay_pipelines.rubrics.writing import read_prompt_rows
    from assay_serving.rubrics.description import RubricSpec
    from assay_serving.rubrics.rubric import RUBRIC

    if file.suffix in (".yaml", ".yml"):
        spec = RubricSpec.read(file)
        scorers = [f"{scorer.name:<12} {scorer.model or 'constraints'}" for scorer in spec.scorers]
        gates = [" (veto)" if item.veto else " (must have)" if item.must_have else "" for item in spec.items]
        items = [f"{i.signed_weight:>6g}  {i.text}{gate}" for i, gate in zip(spec.items, gates, strict=True)]
        payload = {"scorers": [s.name for s in spec.scorers], "items": [item.to_dict() for item in spec.items]}
        emit(payload, "\n".join([*scorers, *items, f"reward: {spec.aggregate.form}"]), as_json=as_json)
        return
    rows = read_prompt_rows(file)
    sizes = [len(row.fields[RUBRIC]) for row in rows if row.fields.get(RUBRIC)]
    text = f"{counted(len(rows), 'row')}: {len(sizes)} with a rubric, {sum(sizes)} items"
    emit({"rows": len(rows), "rubrics": len(sizes), "items": sum(sizes)}, text, as_json=as_json)


@endpoint_options(max_tokens=2048)
def draft(
    workspace: Workspace, options: EndpointOptions, budget: Budget, rows: Rows, out: Out, prompts: PromptsFolder = None
) -> CommandResult:
    """Write a rubric for each prompt from its `reference` and `feedback`; rows that have one keep it.

    A call that was answered is not repeated: after an interruption, run it again.

    Example: `assay rubric draft prompts.jsonl --out rubrics.jsonl --base-url URL --model M`
    """
    kind = "rubric-draft"
    return _written(
        workspace, options, budget, rows, out, prompts, {}, kind=kind, is_due=lambda row: not row.fields.get("rubric")
    )


@endpoint_options(max_tokens=2048)
def refine(
    workspace: Workspace,
    options: EndpointOptions,
    budget: Budget,
    rows: Rows,
    out: Out,
    rollouts: Annotated[
        Path | None, typer.Option(help="rollouts.jsonl of a policy run by these rubrics.", show_default=False)
    ] = None,
    part: Annotated[str, typer.Option(help="Part of the reward that the rubric gave.")] = "rubric",
    against: Annotated[
        str, typer.Option(help="What says which rollouts are good: `verified`, or another part of the reward.")
    ] = "verified",
    prompts: PromptsFolder = None,
) -> CommandResult:
    """Mend the rubrics that rollouts exploit; without rollouts, those of rows with `feedback`. The others stay.

    An item is exploited where bad rollouts satisfy it better than good ones.

    Example: `assay rubric refine rubrics.jsonl --rollouts rollouts.jsonl --out mended.jsonl --base-url URL --model M`
    """
    from assay_pipelines.rubrics.exploits import exploited_items

    exploits = exploited_items(rollouts, part=part, against=against) if rollouts is not None else {}

    def is_due(row: PromptRow) -> bool:
        return bool(row.feedback if rollouts is None else exploits.get(row.prompt_id))

    kind = "rubric-refine"
    return _written(workspace, options, budget, rows, out, prompts, exploits, kind=kind, is_due=is_due)


def _written(
    workspace: Workspace,
    options: EndpointOptions,
    budget: Budget,
    file: Path,
    out: Path,
    prompts: Path | None,
    exploits: Mapping[str, Sequence[Exploit]],
    *,
    kind: str,
    is_due: Callable[[PromptRow], bool],
) -> CommandResult:
    """Ask for the rubrics of the rows that are due; the other rows stay as they are."""
    from assay.system.atomic_files import replacing
    from assay_pipelines.rubrics.writing import RubricWriter, read_prompt_rows
    from assay_serving.rubrics.rubric import RUBRIC

    if out.resolve() == file.resolve():
        raise BadInputError("is the input; name another --out", file=out)
    rows = read_prompt_rows(file)
    due = [row for row in rows if is_due(row)]
    writer = RubricWriter(options.endpoint(), workspace, prompts=prompts, spending=Spending(budget))
    settings = {"file": str(file), "writer": writer.annotator.name, **writer.config}
    with start_run(workspace, kind, settings) as run:
        rubrics, stopped = writer.write(due, exploits, run.id) if due else ([], None)
        failures = [f"{row.prompt_id}: {r}" for row, r in zip(due, rubrics, strict=True) if isinstance(r, str)]
        by_row = {id(row): r for row, r in zip(due, rubrics, strict=True) if not isinstance(r, str)}
        with replacing(out) as temporary:
            lines = [dict(row.fields) | ({RUBRIC: by_row[id(row)]} if id(row) in by_row else {}) for row in rows]
            temporary.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
        counts = {"rows": len(rows), "written": len(by_row), "failed": len(failures), "exploited": len(exploits)}
        run.metrics.update(counts)
    exploited = [
        f"  {prompt}: {e.item} (good above bad {e.area:.2f}): {e.responses[0][:60]!r}"
        for prompt, listed in exploits.items()
        for e in listed
    ]
    text = [
        f"{counted(len(rows), 'row')}: {len(by_row)} rubrics written, {len(failures)} failed"
        + (f"; stopped: {stopped}" if stopped else ""),
        *(f"  {failure}" for failure in failures[:20]),
        *([f"{len(exploits)} prompts with exploited items", *exploited[:20]] if exploits else []),
    ]
    payload = {"run": run.id, **counts, "failures": failures, "stopped": stopped}
    return CommandResult(payload, "\n".join(text), exit_code=BadInputError.exit_code if failures else 0)
