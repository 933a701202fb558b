"""`assay serve-admin`: load, unload and swap the models of a running reward server."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, emit
from assay.cli.settings_options import settings_options
from assay.settings import Help
from assay_serving.commands.engine_options import MODEL_OPTIONS, model_options
from assay_serving.model_config import ModelConfig
from assay_serving.server.rollout.swap_policy import SwapPolicy

if TYPE_CHECKING:
    from assay_serving.client.administration import AdminClient

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name the model is served under.")]
ReferenceArgument = Annotated[
    str, typer.Argument(metavar="RM", help="Folder, hub id or artifact, as the server finds it.")
]


@dataclass(frozen=True)
class AdminServer:
    server: Annotated[str, Help("The reward server.", metavar="URL", envvar="ASSAY_SERVER")] = "http://127.0.0.1:8000"
    api_key: Annotated[str | None, Help("One with the scope admin.", envvar="ASSAY_API_KEY")] = None
    ca: Annotated[str | None, Help("File of certificate authorities for https.")] = None

    def client(self) -> "AdminClient":
        from assay_serving.client.administration import AdminClient

        return AdminClient(self.server, api_key=self.api_key, ca=self.ca)


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Load, unload and swap the models of a running reward server.")
    for command in (status, load, unload, swap, promote, abort, reference, reload):
        group.command(command.__name__)(settings_options(AdminServer)(command))
    app.add_typer(group, name="serve-admin")


def status(
    server: AdminServer,
    name: Annotated[str | None, typer.Argument(help="Default: all models, in short.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the models: version, queue, rewards, drift, failures; of one model also its swap.

    Example: `assay serve-admin status my-rm`
    """
    from assay.errors import NotFoundError

    with server.client() as client:
        if name is None:
            statuses = client.models()
            lines = [_line(model) for model in statuses["models"]] or ["no model is loaded"]
            lines += [f"{absent['name']}: not ready: {absent['reason']}" for absent in statuses.get("not_ready", ())]
            lines += [f"{changed}: {what}" for changed, what in statuses["changing"].items()]
            emit(statuses, "\n".join(lines), as_json=as_json)
            return
        model = client.model(name)
        try:
            swapped = client.swap_status(name)
        except NotFoundError:
            swapped = None
    text = "\n".join([*_model_lines(model), *(_swap_lines(swapped) if swapped is not None else [])])
    emit({"model": model, "swap": swapped}, text, as_json=as_json)


@model_options()
def load(
    server: AdminServer,
    model: ModelConfig,
    reference: ReferenceArgument,
    name: Annotated[str | None, typer.Option("--name", help="Name to serve it under.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Load one more model while the others are served. Returns when it is served.

    Example: `assay serve-admin load models/other-rm --name other`
    """
    with server.client() as client:
        loaded = client.load(_plan(model, reference), name=name)
    emit({"model": loaded}, f"loaded {loaded['name']}, version {loaded['info']['version']}", as_json=as_json)


def unload(server: AdminServer, name: NameArgument, as_json: JsonOption = False) -> None:
    """Unload a model. New requests to it are refused at once; queued ones are answered first.

    Example: `assay serve-admin unload other`
    """
    with server.client() as client:
        client.unload(name)
    emit({"unloaded": name}, f"unloaded {name}", as_json=as_json)


@settings_options(SwapPolicy, exclude=("promote_when",))
@model_options()
def swap(
    server: AdminServer,
    model: ModelConfig,
    policy: SwapPolicy,
    name: NameArgument,
    reference: ReferenceArgument,
    promote_when: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=BOUND",
            help="At least: order_agreement, kendall_within, spearman_within; at most: drift_psi, drift_ks, failed, "
            "truncated. Repeatable; none: promoted by hand.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a model by another without dropping a request. Returns when the new one is loaded.

    Example: `assay serve-admin swap my-rm models/my-rm-2 --mode shadow --share 0.2 --promote-when order_agreement=0.9`
    """
    terms = replace(policy, promote_when=_bounds(promote_when or [])).to_dict()
    with server.client() as client:
        _emit_swap(client.swap(name, _plan(model, reference), **terms), as_json=as_json)


def promote(server: AdminServer, name: NameArgument, as_json: JsonOption = False) -> None:
    """Make the new model of a swap live; the old one is unloaded after its requests in flight.

    Example: `assay serve-admin promote my-rm`
    """
    with server.client() as client:
        _emit_swap(client.promote(name), as_json=as_json)


def abort(server: AdminServer, name: NameArgument, as_json: JsonOption = False) -> None:
    """Keep the old model of a swap and unload the new one.

    Example: `assay serve-admin abort my-rm`
    """
    with server.client() as client:
        _emit_swap(client.abort(name), as_json=as_json)


def reference(server: AdminServer, name: NameArgument, as_json: JsonOption = False) -> None:
    """Set the reference of a model's drift to its present scores.

    Example: `assay serve-admin reference my-rm`
    """
    with server.client() as client:
        model = client.set_reference(name)
    counts = model["scores"]["reference"]
    text = f"{name}: the reference has {counts['scores']} of {counts['wanted']} scores"
    emit({"model": model}, text, as_json=as_json)


def reload(server: AdminServer, as_json: JsonOption = False) -> None:
    """Have the server read its configuration file again: keys, limits, models. As SIGHUP to `assay serve`.

    Example: `assay serve-admin reload`
    """
    with server.client() as client:
        outcome = client.reload()
    lines = [f"{what.replace('_', ' ')}: {', '.join(names)}" for what, names in outcome.items() if names]
    emit(outcome, "\n".join(lines) or "nothing has changed", as_json=as_json)


def _plan(model: ModelConfig, reference: str) -> dict[str, Any]:
    """The fields of the model that the server takes."""
    return {"reference": reference, **{name: getattr(model, name) for name in MODEL_OPTIONS}}


def _emit_swap(report: dict[str, Any], *, as_json: bool) -> None:
    emit({"swap": report}, "\n".join(_swap_lines(report)), as_json=as_json)


def _bounds(texts: list[str]) -> dict[str, float]:
    """From "NAME=BOUND" texts; the server checks the names."""
    from assay.errors import BadInputError

    bounds: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            bounds[name] = float(value)
        except ValueError:
            raise BadInputError(
                f"expects NAME=BOUND, e.g. order_agreement=0.9, not {text!r}", field="--promote-when"
            ) from None
    return bounds


def _line(model: dict[str, Any]) -> str:
    window = model["scores"]["window"]
    rewards = f"rewards {window['mean']:.3f} ± {window['std']:.3f}" if window["mean"] is not None else "nothing scored"
    swapping = f", {model['swap']} in progress" if model["swap"] else ""
    return f"{model['name']}  {model['info']['version']}  {model['waiting_items']} items waiting  {rewards}{swapping}"


def _model_lines(model: dict[str, Any]) -> list[str]:
    scores, info = model["scores"], model["info"]
    window, moved = scores["window"], scores["drift"]
    lines = [
        f"{model['name']}: version {info['version']}, {info['kind']}, {info['dtype']} on {info['device']}",
        f"  {model['in_flight']} requests in flight, {model['waiting_items']} items waiting, "
        f"{model['retiring']} replaced models still answering",
        f"  {scores['items']} items since it was loaded, {scores['failed']} without a score",
    ]
    if window["mean"] is not None:
        failed = ", ".join(f"{code} {share:.1%}" for code, share in window["failed"].items()) or "none"
        lines.append(
            f"  last {window['items']}: rewards {window['mean']:.3f} ± {window['std']:.3f}, "
            f"truncated {window['truncated']:.1%}, failed {failed}"
        )
    counts = scores["reference"]
    lines.append(
        f"  drift: {_drift(moved)}"
        if moved is not None
        else f"  drift: not known yet, the reference has {counts['scores']} of {counts['wanted']} scores"
    )
    return lines


def _swap_lines(swap: dict[str, Any]) -> list[str]:
    why = f" ({swap['why']})" if swap.get("why") else ""
    lines = [f"swap of {swap['name']}: {swap['mode']}, {swap['state']}{why}"]
    if "compared" not in swap:
        return lines
    lines.append(
        f"  {swap['compared']} items of {swap['share']:.0%} of the prompts scored by both, {swap['waiting']} waiting, "
        f"{swap['dropped']} dropped"
    )
    for which in ("old", "new"):
        model = swap[which]
        seconds = model["engine_seconds_per_item"]
        speed = f", {1000 * seconds:.1f} ms an item in the engine" if seconds is not None else ""
        truncated = model["scores"]["window"]["truncated"]
        lines.append(
            f"  {which} {model['version']}: {model['items']} items, {model['failed']} failed, "
            f"{truncated:.1%} truncated{speed}"
        )
    if (agreement := swap["agreement"]) is not None:
        lines += _agreement_lines(agreement)
    for condition in swap["conditions"]:
        value = "unknown" if condition["found"] is None else f"{condition['found']:.4g}"
        met = "holds" if condition["met"] else "does not hold"
        lines.append(f"  {condition['name']} {condition['must_be']} {condition['bound']:g}: {value}, {met}")
    return lines


def _agreement_lines(agreement: dict[str, Any]) -> list[str]:
    lines = [
        f"  rewards of both on the same items: old {agreement['old_mean']:.3f} ± {agreement['old_std']:.3f}, "
        f"new {agreement['new_mean']:.3f} ± {agreement['new_std']:.3f}"
    ]
    if (order := agreement["order"]) is not None:
        interval = order["interval"]
        between = f"{interval['low']:.1%}, {interval['high']:.1%}" if interval is not None else "undetermined"
        lines.append(
            f"  same order in {order['agreement']:.1%} [{between}] of "
            f"{order['pairs']} pairs within {order['prompts']} prompts"
        )
    if agreement["kendall_within"] is not None:
        lines.append(
            f"  within prompts: Kendall {agreement['kendall_within']:.3f}, "
            f"Spearman {agreement['spearman_within']:.3f}; "
            f"over all: Kendall {agreement['kendall']:.3f}, Spearman {agreement['spearman']:.3f}"
        )
    if agreement["difference"] is not None:
        lines.append(
            f"  aligned scales: mean difference {agreement['difference']:.3f}, {_drift(agreement['drift_aligned'])}"
        )
    return lines


def _drift(moved: dict[str, Any]) -> str:
    return (
        f"PSI {moved['psi']:.3f} (by chance {moved['psi_by_chance']:.3f}), "
        f"KS {moved['ks']:.3f} (by chance {moved['ks_by_chance']:.3f})"
    )
