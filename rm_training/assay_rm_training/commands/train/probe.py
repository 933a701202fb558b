"""`assay train probe`: a linear probe on a frozen backbone."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.system.plurals import counted
from assay_rm_training.commands.train.options import ForceOption, WaiveOption

if TYPE_CHECKING:
    from assay_rm_training.runs.probe import TrainedRatingProbe


def probe(
    data: Annotated[str, typer.Option(help="Snapshot of the workspace, or a file of pairs.")],
    base: Annotated[str, typer.Option(help="smollm2, tiny, a folder or a hub id; its weights are frozen.")] = "smollm2",
    gold: Annotated[
        str | None, typer.Option(help="Human-verified pairs that choose the penalty. Default: cross-validation.")
    ] = None,
    eval_data: Annotated[str | None, typer.Option(help="Held-out pairs: snapshot or file.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new model. Default: BASE-DATA-probe.")] = None,
    force: ForceOption = False,
    l2: Annotated[
        list[float] | None, typer.Option("--l2", help="Penalty to try; repeatable. Default: seven from 10 to 0.01.")
    ] = None,
    label_smoothing: Annotated[float, typer.Option(help="Believed share of flipped labels, 0 to 0.5.")] = 0.0,
    members: Annotated[
        int | None, typer.Option(help="Fit so many heads instead of one: a model whose scores have an uncertainty.")
    ] = None,
    uncertainty: Annotated[
        str | None, typer.Option(help="How heads come to differ: bootstrap, laplace or prior. Default: laplace.")
    ] = None,
    combine: Annotated[
        str | None, typer.Option(help="Reward of the heads: mean (default), min, uwo, lower_bound or kl_robust.")
    ] = None,
    weight: Annotated[float, typer.Option(help="Of the variance in uwo, of the deviation in lower_bound.")] = 0.5,
    ratings: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Of rows as of train ratings: heads of these ratings, each with an uncertainty."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the heads' draws.")] = 0,
    max_length: Annotated[
        int | None,
        typer.Option(help="Tokens of a conversation; older turns are dropped. Default: the base's own length."),
    ] = None,
    waive: WaiveOption = None,
    device: DeviceOption = "auto",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a Bradley-Terry head on a frozen model, to the exact optimum, or heads of ratings. Features are cached.

    With --members its uncertainty is scaled on the --eval-data, and whether it orders these pairs is printed.

    Example: `assay train probe --data gold --base smollm2 --name gold-rm`
    """
    from assay.data.pairs import load_pairs_or_file
    from assay.errors import BadInputError
    from assay.runs.record import locate_model
    from assay.workspace import Workspace
    from assay_rm_training.commands.evaluation_tables import print_evaluation
    from assay_rm_training.commands.train.options import waivers_of
    from assay_rm_training.data.response_labels import load_ratings
    from assay_rm_training.methods.heads_config import HeadsConfig
    from assay_rm_training.methods.multi_objective import MultiObjective
    from assay_rm_training.methods.probe import ProbeConfig
    from assay_rm_training.runs.probe import ProbePlan, train_probe_model, train_rating_probe
    from assay_rm_training.runs.train import default_name
    from assay_serving.engines.aggregation import MemberAggregation
    from assay_serving.engines.head_ensemble import HeadEnsembleSpec

    here = Workspace.find(workspace)
    names = tuple(name.strip() for name in (ratings or "").split(",") if name.strip())
    if ratings is not None:
        MultiObjective(names)  # checks the names
    if names and (gold or label_smoothing or uncertainty not in (None, "bootstrap")):
        raise BadInputError("ratings have no pairs, and a bootstrap", field="--gold, --label-smoothing, --uncertainty")
    if names:
        members, uncertainty = HeadsConfig.members if members is None else members, "bootstrap"
    if members is None and (uncertainty or combine):
        raise BadInputError("is for an ensemble of heads: add --members 8", field="--uncertainty, --combine")
    heads = HeadsConfig(uncertainty or HeadsConfig.method, members, seed=seed) if members is not None else None  # type: ignore[arg-type]
    config = ProbeConfig(l2=tuple(l2) if l2 else ProbeConfig.l2, label_smoothing=label_smoothing)
    plan = ProbePlan(
        config,
        locate_model(here, base)[0],
        data,
        name or f"{default_name(base, data)}-probe",
        gold,
        eval_data,
        max_length,
        device,
        force,
        heads,
        MemberAggregation(combine or "mean", weight),  # type: ignore[arg-type]  # checked by the class
        names,
    )
    if heads is not None and names:
        held_out = load_ratings(eval_data) if eval_data is not None else None
        plan = replace(plan, heads=replace(heads, l2=l2[0] if l2 and len(l2) == 1 else None))
        rated = train_rating_probe(here, plan, load_ratings(data), held_out, waivers=waivers_of(waive or []))
        _show_ratings(rated, names, as_json=as_json)
        return
    trained = train_probe_model(
        here,
        plan,
        load_pairs_or_file(here, data),
        load_pairs_or_file(here, gold) if gold is not None else (),
        load_pairs_or_file(here, eval_data) if eval_data is not None else None,
        waivers=waivers_of(waive or []),
    )
    fitted = trained.probe
    payload = {
        "model": trained.path.name,
        "path": str(trained.path),
        "artifact_id": trained.artifact_id,
        "run_id": trained.run_id,
        "pairs": fitted.pairs,
        "left_out": fitted.left_out,
        "warnings": list(trained.warnings),
        "l2": fitted.l2,
        "members": members,
        "uncertainty": trained.spec.uncertainty if isinstance(trained.spec, HeadEnsembleSpec) else None,
        "chosen_on": fitted.chosen_on,
        "candidates": [
            {"l2": penalty, "accuracy": accuracy, "nll": nll} for penalty, (accuracy, nll) in fitted.candidates.items()
        ],
        "evaluation": trained.evaluation.to_dict() if trained.evaluation is not None else None,
    }
    if as_json:
        emit(payload, "", as_json=True)
        return
    left_out = f", {fitted.left_out} left out as too long or empty" if fitted.left_out else ""
    typer.echo(
        f"{trained.path.name}: {counted(fitted.pairs, 'pair')}{left_out}; penalty {fitted.l2:g} by {fitted.chosen_on}"
    )
    for warning in trained.warnings:
        typer.echo(f"WARNING: {warning}")
    for penalty, (accuracy, nll) in sorted(fitted.candidates.items()):
        typer.echo(f"  {penalty:>6g}  accuracy {accuracy:.3f}  NLL {nll:.4f}{'  <' if penalty == fitted.l2 else ''}")
    if trained.evaluation is not None:
        print_evaluation(trained.evaluation)
    if isinstance(trained.spec, HeadEnsembleSpec):
        scaled = f"deviations times {trained.spec.spread:.3g}, fitted on {trained.spec.spread_on}"
        typer.echo(
            f"{members} heads ({trained.spec.method}); "
            + (scaled if trained.spec.spread_on else "WARNING: nothing tells what their uncertainty is worth")
        )
    typer.echo(f"model {_short(trained.path)} ({trained.artifact_id}), run {trained.run_id}")


def _show_ratings(trained: "TrainedRatingProbe", names: tuple[str, ...], *, as_json: bool) -> None:
    from assay_rm_training.commands.evaluation_tables import print_report

    heads, evaluation = trained.heads, trained.evaluation
    if as_json:
        payload: dict[str, Any] = {
            "model": trained.path.name,
            "path": str(trained.path),
            "artifact_id": trained.artifact_id,
        }
        payload |= {"run_id": trained.run_id, "ratings": list(names), "members": trained.spec.members}
        payload |= {"responses": heads.pairs, "left_out": heads.left_out, "l2": heads.l2}
        emit({**payload, "evaluation": evaluation.to_dict() if evaluation else None}, "", as_json=True)
        return
    left_out = f", {heads.left_out} left out as too long or empty" if heads.left_out else ""
    typer.echo(f"{trained.path.name}: {counted(heads.pairs, 'rated response')}{left_out}; penalty {heads.l2:g}")
    if evaluation is not None:
        print_report(evaluation)
    typer.echo(f"model {_short(trained.path)} ({trained.artifact_id}), run {trained.run_id}")


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
