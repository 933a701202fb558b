"""`assay serve-admin`: load, unload and swap the models of a running reward server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, emit
from assay_serving.commands.engine_options import (
    MODEL_OPTIONS,
    AllowFailedParityOption,
    CaOption,
    CorrectOption,
    DtypeOption,
    EngineOption,
    EngineSettingsOption,
    KindOption,
    LengthOption,
    QuestionOption,
    TokenBudgetOption,
    engine_settings,
)

if TYPE_CHECKING:
    from assay_serving.client.administration import AdminClient

ServerOption = Annotated[str, typer.Option("--server", metavar="URL", envvar="ASSAY_SERVER", help="The reward server.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", envvar="ASSAY_API_KEY", help="One with the scope admin.", show_default=False),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name the model is served under.")]
ReferenceArgument = Annotated[
    str, typer.Argument(metavar="RM", help="Folder, hub id or artifact, as the server finds it.")
]
ModelDeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, of the server.")]
DEFAULT_SERVER = "http://127.0.0.1:8000"


def register(app: typer.Typer) -> None:
    """Add the group to the application."""
    group = typer.Typer(no_args_is_help=True, help="Load, unload and swap the models of a running reward server.")
    for command in (status, load, unload, swap, promote, abort, reference):
        group.command(command.__name__)(command)
    app.add_typer(group, name="serve-admin")


def status(
    name: Annotated[str | None, typer.Argument(help="Default: all models, in short.", show_default=False)] = None,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the models: version, queue, rewards, drift, failures; of one model also its swap.

    Example: `assay serve-admin status my-rm`
    """
    from assay.errors import NotFoundError

    with _client(server, api_key, ca) as client:
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


def load(
    context: typer.Context,
    reference: ReferenceArgument,
    name: Annotated[str | None, typer.Option("--name", help="Name to serve it under.", show_default=False)] = None,
    device: ModelDeviceOption = "auto",
    dtype: DtypeOption = "float32",
    token_budget: TokenBudgetOption = None,
    max_length: LengthOption = None,
    kind: KindOption = None,
    question: QuestionOption = None,
    correct: CorrectOption = None,
    allow_failed_parity: AllowFailedParityOption = False,
    engine: EngineOption = "transformers",
    engine_options: EngineSettingsOption = None,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load one more model while the others are served. Returns when it is served.

    Example: `assay serve-admin load models/other-rm --name other`
    """
    plan = _plan(context, reference)
    with _client(server, api_key, ca) as client:
        model = client.load(plan, name=name)
    emit({"model": model}, f"loaded {model['name']}, version {model['info']['version']}", as_json=as_json)


def unload(
    name: NameArgument,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unload a model. New requests to it are refused at once; queued ones are answered first.

    Example: `assay serve-admin unload other`
    """
    with _client(server, api_key, ca) as client:
        client.unload(name)
    emit({"unloaded": name}, f"unloaded {name}", as_json=as_json)


def swap(
    context: typer.Context,
    name: NameArgument,
    reference: ReferenceArgument,
    mode: Annotated[
        str,
        typer.Option(
            help="now: it is live once loaded; shadow: it scores a share of the prompts in the background; canary: "
            "that share gets its scores."
        ),
    ] = "shadow",
    share: Annotated[float, typer.Option(help="Of all prompts, above 0 to 1.")] = 0.1,
    min_items: Annotated[int, typer.Option(min=1, help="Scored by both before it is promoted automatically.")] = 500,
    promote_when: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=BOUND",
            help="At least: order_agreement, kendall_within, spearman_within; at most: drift_psi, drift_ks, failed, "
            "truncated. Repeatable; none: promoted by hand.",
            show_default=False,
        ),
    ] = None,
    max_failure_rate: Annotated[
        float, typer.Option(help="Aborted when it fails on more than this share of items beyond the old one.")
    ] = 0.05,
    device: ModelDeviceOption = "auto",
    dtype: DtypeOption = "float32",
    token_budget: TokenBudgetOption = None,
    max_length: LengthOption = None,
    kind: KindOption = None,
    question: QuestionOption = None,
    correct: CorrectOption = None,
    allow_failed_parity: AllowFailedParityOption = False,
    engine: EngineOption = "transformers",
    engine_options: EngineSettingsOption = None,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a model by another without dropping a request. Returns when the new one is loaded.

    Example: `assay serve-admin swap my-rm models/my-rm-2 --mode shadow --share 0.2 --promote-when order_agreement=0.9`
    """
    plan = _plan(context, reference)
    terms = {
        "mode": mode,
        "share": share,
        "min_items": min_items,
        "promote_when": _bounds(promote_when or []),
        "max_failure_rate": max_failure_rate,
    }
    with _client(server, api_key, ca) as client:
        report = client.swap(name, plan, **terms)
    emit({"swap": report}, "\n".join(_swap_lines(report)), as_json=as_json)


def promote(
    name: NameArgument,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the new model of a swap live; the old one is unloaded after its requests in flight.

    Example: `assay serve-admin promote my-rm`
    """
    with _client(server, api_key, ca) as client:
        report = client.promote(name)
    emit({"swap": report}, "\n".join(_swap_lines(report)), as_json=as_json)


def abort(
    name: NameArgument,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the old model of a swap and unload the new one.

    Example: `assay serve-admin abort my-rm`
    """
    with _client(server, api_key, ca) as client:
        report = client.abort(name)
    emit({"swap": report}, "\n".join(_swap_lines(report)), as_json=as_json)


def reference(
    name: NameArgument,
    server: ServerOption = DEFAULT_SERVER,
    api_key: KeyOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the reference of a model's drift to its present scores.

    Example: `assay serve-admin reference my-rm`
    """
    with _client(server, api_key, ca) as client:
        model = client.set_reference(name)
    counts = model["scores"]["reference"]
    text = f"{name}: the reference has {counts['scores']} of {counts['wanted']} scores"
    emit({"model": model}, text, as_json=as_json)


def _client(server: str, api_key: str | None, ca: str | None) -> AdminClient:
    from assay_serving.client.administration import AdminClient

    return AdminClient(server, api_key=api_key, ca=ca)


def _plan(context: typer.Context, reference: str) -> dict[str, Any]:
    """A `ModelConfig` of the command's own options, as the server takes it."""
    options = {option: context.params[option] for option in MODEL_OPTIONS}
    return {"reference": reference, **options, "engine_options": engine_settings(options["engine_options"])}


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
        lines.append(
            f"  same order in {order['agreement']:.1%} [{interval['low']:.1%}, {interval['high']:.1%}] of "
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
