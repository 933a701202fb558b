"""`assay serve`: reward models behind HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption
from assay_serving.commands.engine_options import (
    AllowFailedParityOption,
    CorrectOption,
    DtypeOption,
    KindOption,
    OpeningKeysOption,
    QuestionOption,
    TokenBudgetOption,
)

if TYPE_CHECKING:
    from assay_serving.scorer import ModelInfo, Scorer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="RM...", help="Folder, hub id, or name of an artifact in the workspace.")
    ],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Name to serve under; repeat in the order of the models.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8000,
    api_key: OpeningKeysOption = None,
    dtype: DtypeOption = "float32",
    device: DeviceOption = "auto",
    token_budget: TokenBudgetOption = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Cut conversations shorter than the model would.", show_default=False)
    ] = None,
    kind: KindOption = None,
    question: QuestionOption = None,
    allow_failed_parity: AllowFailedParityOption = False,
    correct: CorrectOption = None,
    max_queue: Annotated[int, typer.Option(min=1, help="Waiting items per model; past it 503.")] = 8192,
    request_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds until a request is answered 504.")] = 120.0,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="One line a request, without its text.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve reward models: POST conversations to /v1/score, get scores.

    Example: `assay serve models/my-rm --port 8000`
    """
    import logging

    from assay.errors import BadInputError
    from assay_serving.process import claim_port, serve_until_stopped, url_of
    from assay_serving.server.settings import ServerSettings

    if name and len(name) != len(models):
        raise BadInputError(f"{len(name)} names for {len(models)} models", field="--name")
    settings = ServerSettings(
        api_keys=tuple(api_key or ()),
        max_items=min(ServerSettings.max_items, max_queue),
        max_queue_items=max_queue,
        request_timeout_s=request_timeout,
    )
    listening = claim_port(host, port)  # before the models, which take minutes
    if host not in LOOPBACK and not settings.api_keys:
        typer.echo(f"assay: {host} is open to the network and no --api-key is set: anyone may score", err=True)
    logging.basicConfig(level=logging.INFO if log_requests else logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)

    from assay_serving.plan import ModelPlan
    from assay_serving.server import create_app

    plans: dict[str, ModelPlan] = {}
    for place, reference in enumerate(models):
        plan = ModelPlan(
            reference,
            name[place] if name else None,
            device=device,
            dtype=dtype,
            token_budget=token_budget,
            max_length=max_length,
            kind=kind,
            question=question,
            allow_failed_parity=allow_failed_parity,
            correct=correct,
        )
        served_as = plan.located(workspace)[1]
        if served_as in plans:
            raise BadInputError(f"two models would be served as {served_as!r}; name them with --name")
        plans[served_as] = plan
    scorers: dict[str, Scorer] = {}
    for served_as, plan in plans.items():
        typer.echo(f"loading {plan.reference} as {served_as}", err=True)
        scorers[served_as] = plan.open(workspace)
    url = url_of(listening)

    def announce() -> None:
        infos = [scorer.info for scorer in scorers.values()]
        if as_json:
            typer.echo(json.dumps({"url": url, "models": [info.to_dict() for info in infos]}))
            return
        typer.echo(f"serving {', '.join(scorers)} at {url}  (Ctrl-C stops)")
        typer.echo(_example(url, infos[0], named=len(infos) > 1, with_key=bool(settings.api_keys)))

    app = create_app(scorers, settings=settings)
    serve_until_stopped(app, listening, announce)


def _example(url: str, info: ModelInfo, *, named: bool, with_key: bool) -> str:
    body: dict[str, object] = {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]}
    if info.kind == "principle":
        body["principle"] = "correctness"
    key = ' -H "Authorization: Bearer $ASSAY_API_KEY"' if with_key else ""
    sent = json.dumps({"model": info.name, **body} if named else body)
    return f"try: curl {url}/v1/score{key} -H 'Content-Type: application/json' -d '{sent}'"
