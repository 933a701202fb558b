"""`assay demo` and `assay report`: pages as files."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.errors import BadInputError


def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute, on a tiny random model; its figures mean nothing.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Workspace to make, new or empty. Default: assay-demo-TIME here."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 7,
    policy: Annotated[
        bool, typer.Option(help="Train a policy against the curated reward model, or stop before that.")
    ] = True,
    data: Annotated[
        Path | None, typer.Option("--data", help="Write only the raw labels into this file, for an import, and stop.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every part at work: labels of good and bad sources in, curation, reward models, a served reward, a policy.

    Runs on the embedded SmolLM2-135M-Instruct without a network, in under 12 minutes on two CPU cores, and writes an
    HTML report.

    Example: `assay demo --quick`
    """
    import time

    from assay_web.demo.config import DemoConfig
    from assay_web.demo.pipeline import write_raw_data
    from assay_web.demo.run import run_demo

    if data is not None:
        if data.exists():
            raise BadInputError("exists already", file=data)
        truth = write_raw_data(data, DemoConfig.quick(seed) if quick else DemoConfig.full(seed))
        counts = {"file": str(data), "pairs": truth.pairs, "wrong": len(truth.wrong)}
        emit(counts, f"{truth.pairs} pairs in {data}; {len(truth.wrong)} labels are wrong", as_json=as_json)
        return
    target = folder or Path(f"assay-demo-{time.strftime('%Y%m%d-%H%M%S')}")
    outcome = run_demo(target, quick=quick, seed=seed, policy=policy, say=lambda line: typer.echo(line, err=True))
    emit(outcome.to_dict(), f"\nreport: {outcome.report}", as_json=as_json)


def report(
    run: Annotated[str, typer.Argument(help="Id of a run of assay train, rl or calibrate.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option("--out", help="HTML file. Default: in the workspace's reports.")] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the page of a training run, finished or going on: its curves, figures and settings, as one HTML file.

    Of a calibration: reliability before and after, on pairs left out of the fit.

    Example: `assay report run-20261121-130202-cf034f`
    """
    from assay.workspace import Workspace
    from assay_web.report.pages.runs import write_run_page

    page = write_run_page(Workspace.find(workspace), run, out)
    emit({"report": str(page)}, f"report: {page}", as_json=as_json)
