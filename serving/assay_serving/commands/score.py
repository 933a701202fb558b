"""`assay score`: scores of responses in a file, or on the command line."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay_serving.commands.engine_options import MODEL_OPTIONS, model_options
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo

if TYPE_CHECKING:
    from assay.score import ScoreResult
    from assay.workspace import Workspace

MAX_COMPLAINTS = 20


@model_options([*(name for name in MODEL_OPTIONS if name != "max_length"), "tools"])
def score(
    loading: ModelConfig,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.jsonl]",
            help="Lines with `prompt` (text or messages), `response` or `responses` and, for models that take one, "
            "`principle`, for composed rewards `label` and `references`; .gz and .zst too.",
            show_default=False,
        ),
    ] = None,
    reward: Annotated[
        str | None, typer.Option("--reward", metavar="URL", help="Reward server to ask.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Model to load here; with --reward, which of the server's.", show_default=False),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Instead of a file.", show_default=False)] = None,
    response: Annotated[
        list[str] | None, typer.Option("--response", help="To the --prompt; repeatable.", show_default=False)
    ] = None,
    principle: Annotated[
        str | None,
        typer.Option("--principle", help="To judge by, for lines without one.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write. Default: standard output.", show_default=False)
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="ASSAY_API_KEY", help="Of the server.", show_default=False)
    ] = None,
    ca: Annotated[
        str | None, typer.Option("--ca", help="File of certificate authorities for https.", show_default=False)
    ] = None,
    wait: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the server to be ready.")] = 10.0,
    save: Annotated[bool, typer.Option("--save", help="Also store the scores in the workspace.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score responses with a reward server or a model.

    Every input line gives one output line: its `row` and `id` with `score`, `scores` or `error`, and `dtype`, the
    number format, where that is not float32. Exits with 2 when any line or response has no score; the others are still
    written. --save keeps scores in bfloat16 or float16 beside those in float32, as VERSION+FORMAT. An interrupted
    command that is given again resumes after the last line that it wrote (FILE.part beside --out; with --save also
    without --out).

    Example: `assay score --model models/my-rm responses.jsonl --out scores.jsonl`
    """
    from assay.compute.job import file_hash
    from assay.domain import Message
    from assay.errors import BadInputError, without_credentials
    from assay.runs.progress_bar import progress_bar
    from assay.store.scored_models import stored_version
    from assay.system.name_lock import locked_name
    from assay.system.plurals import counted
    from assay.workspace import Workspace
    from assay_serving.model_loader import open_scorer, server_config
    from assay_serving.model_reference import is_url
    from assay_serving.score_files import ScoreFile, ScoreRow, other_format, read_rows, score_rows
    from assay_serving.scorer import ScoreItem

    if (file is None) == (prompt is None):
        raise BadInputError("give either a FILE, or --prompt with --response")
    if prompt is not None and not response:
        raise BadInputError("--prompt needs at least one --response")
    if file is not None and out is not None and out.resolve() == file.resolve():
        raise BadInputError("is the input; name another --out", file=out)
    if file is not None and as_json and out is None:
        raise BadInputError("--json prints the summary on standard output; name --out for the scores")
    if (source := reward or model) is None:
        raise BadInputError("name what scores: --reward URL or --model RM")
    if reward is not None and not is_url(reward):
        raise BadInputError(
            f"is a server's URL, as http://127.0.0.1:8000; a model is named by --model {reward}", field="--reward"
        )
    if ca is not None and reward is None:
        raise BadInputError("--ca is for a server: --reward https://...")
    if file is not None and not file.is_file():
        raise BadInputError("no such file", file=file)
    if reward is not None:
        config = server_config(reward, model=model, api_key=api_key, ca=ca, correct=loading.correct, wait=wait)
    else:
        config = replace(loading, reference=source)
    scorer = open_scorer(config, workspace)

    complaints = 0

    def complain(text: str) -> None:
        nonlocal complaints
        complaints += 1
        if complaints <= MAX_COMPLAINTS:
            typer.echo(f"assay: {text}", err=True)

    results: list[ScoreResult] = []
    with ExitStack() as stack:
        if file is None:
            turn = (Message("user", str(prompt)),)
            rows = iter(
                [ScoreRow(1, tuple(ScoreItem(turn, answer, principle) for answer in response or ()), grouped=True)]
            )
        else:
            rows = read_rows(file, principle)
        here = Workspace.find(workspace) if save else None
        output, path, about = None, out, dict[str, object]()
        hidden = here is not None and file is not None and out is None
        if hidden or out is not None:
            about = {"input": file_hash(file) if file else [prompt, response], "principle": principle, "save": save}
            about |= {"source": without_credentials(source), **scorer.info.to_dict()}
        if here is not None and hidden:  # removed once standard output has all of its lines
            digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
            path = here.root / "evaluations" / f"scores-{digest}.jsonl"
            path.parent.mkdir(exist_ok=True)
        if path is not None:
            if path.parent.is_dir() and (path.is_file() or not path.exists()):  # or two would mix their lines
                hint = "wait for it or name another --out" if out is not None else "wait for it"
                stack.enter_context(locked_name(path, hint=hint))
            output = ScoreFile(path, about)
            stack.push(lambda kind, error, trace: output.close(complete=kind is None, keep=out is not None))
            if output.report.rows:
                typer.echo(f"assay: {output.report.rows} rows were scored before; going on after them", err=True)
                rows = (row for row in rows if row.number > output.last_row)
                if out is None:
                    for line in output.lines():
                        typer.echo(line)
        run = None
        if here is not None:
            from assay.runs.record import start_run

            settings = {"source": source, "file": str(file) if file else None, **scorer.info.to_dict()}
            inputs = _inputs(here, file, None if is_url(source) else source, scorer.info)
            run = stack.enter_context(start_run(here, "score", settings, inputs=inputs))
            if out is not None and (out.is_file() or not out.exists()):
                run.link("output", "file", str(out.resolve()))
        total = len(response or ())
        if file is not None:
            after = output.last_row if output is not None else 0
            total = sum(len(row.items) for row in read_rows(file, principle) if row.number > after)
        advance = stack.enter_context(progress_bar("scoring", total, unit="responses"))

        stored, before = 0, 0

        def write(line: str) -> None:
            if output is not None:
                output.write(line)
            if out is None and file is not None:
                typer.echo(line)

        def keep(items: Sequence[ScoreItem], new_results: "Sequence[ScoreResult]") -> None:
            nonlocal stored, before
            if file is None:
                results.extend(new_results)
            if run is not None:
                from assay_serving.score_records import save_scores
                from assay_serving.server.cache.score_cache import reads_labels

                new = save_scores(run, items, new_results, scorer.info, by_label=reads_labels(scorer))
                stored, before = stored + new, before + len(items) - new
            if output is not None:
                output.flush()

        report = score_rows(
            scorer,
            rows,
            report=output.report if output is not None else None,
            write=write,
            keep=keep,
            complain=complain,
            on_progress=advance,
        )
        if run is not None:
            run.metrics.update(report.to_dict())
    if complaints > MAX_COMPLAINTS:
        typer.echo(f"assay: and {complaints - MAX_COMPLAINTS} more", err=True)
    computed_in = scorer.info.dtype if scorer.info.dtype not in ("", "unknown") else None
    payload = report.to_dict() | {"dtype": computed_in}
    summary = f"{report.text()}{f', in {computed_in}' if computed_in else ''}"
    if run is not None:
        payload |= {"run": run.id, "stored": stored, "stored_before": before}
        version = stored_version(scorer.info.version, scorer.info.dtype)
        already = f"; {before} there already" if before else ""
        model_name = f"{scorer.info.name} ({version})"
        summary += f"\nstored {counted(stored, 'result')} of {model_name} in {run.workspace.root}{already}; {run.id}"
    if file is None:
        lines = [
            _readable(result, answer, other_format(scorer.info))
            for result, answer in zip(results, response or (), strict=True)
        ]
        if not as_json and (computed_in or run is not None):
            typer.echo(f"assay: {summary}", err=True)
        emit(payload | {"scores": [result.to_dict() for result in results]}, "\n".join(lines), as_json=as_json)
    elif as_json:
        emit(payload, "", as_json=True)
    else:
        typer.echo(summary, err=True)
    if report.failed:
        raise typer.Exit(BadInputError.exit_code)


def _inputs(here: "Workspace", file: Path | None, model: str | None, info: ModelInfo) -> dict[str, str]:
    """Of the run, for lineage. `model`: None where a server scored."""
    from assay.runs.record import locate_model, model_of_version

    inputs = {str(file.resolve()): "file"} if file is not None else {}
    if model is None:
        return inputs | model_of_version(here, info.version.partition("@")[0], info.name)
    source, artifact = locate_model(here, model)
    return inputs | {artifact or source: "artifact" if artifact else "model"}


def _readable(result: "ScoreResult", response: str, computed_in: str | None) -> str:
    from assay.score import Score

    start = " ".join(response.split())[:60]
    if not isinstance(result, Score):
        return f"{result.code:>10}  {start}  ({result.message})"
    probability = f"  p={result.probability:.3f}" if result.probability is not None else ""
    spread = f"  ±{result.uncertainty:.3f}" if result.uncertainty is not None else ""
    parts = ", ".join(f"{part.name} {f'{part.value:.4g}' if part.value is not None else '-'}" for part in result.parts)
    dtype = f"  {computed_in}" if computed_in else ""
    return f"{result.reward:>10.4f}{spread}{probability}{dtype}  {start}{f'  ({parts})' if parts else ''}"
