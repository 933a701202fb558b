"""Routes for administrators: load, unload and swap models, read their statistics, reload the configuration.

Covers: bodies and replies of `/v1/admin/`, the orders they become, who gave an order, in the log. Leaves out: executing
orders (`rollout.lifecycle`), permissions (`auth.middleware`: keys with the scope admin).
"""

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, fields
from typing import Any, get_type_hints

from fastapi import APIRouter, Request, Response
from pydantic import Field, create_model

from assay.errors import BackendError
from assay.http.problems import ProblemError
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.logs import FIELDS
from assay_serving.server.core.scoring_backend import Client
from assay_serving.server.http.json_route import described, examples, json_reply
from assay_serving.server.http.replies import REPLIES
from assay_serving.server.http.request_bodies import Body
from assay_serving.server.http.service import ScoringService
from assay_serving.server.rollout.swap_policy import SwapPolicy

logger = logging.getLogger("assay.serving")

_STATUSES = (401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)
_SEEING = (401, 403, 404, 422, 429, 503)


def _settings_body(name: str, settings: type, without: Collection[str] = ()) -> Any:
    """A body with the fields of a settings dataclass: their types, ranges, defaults and descriptions."""
    hints = get_type_hints(settings, include_extras=True)
    declared: dict[str, Any] = {
        each.name: (hints[each.name], _default_of(each)) for each in fields(settings) if each.name not in without
    }
    return create_model(name, __base__=Body, **declared)


def _default_of(declared: dataclasses.Field[Any]) -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        return Field(default_factory=declared.default_factory)
    return ... if declared.default is dataclasses.MISSING else declared.default


#: The name is beside the plan; templates and tools are who starts the server's.
_NOT_SENT = ("served_as", "policy_templates", "tools", "own_code")


class PlanBody(_settings_body("PlanSettings", ModelConfig, _NOT_SENT)):  # type: ignore[misc]
    """Which model to load, and how. `reference`: name of a model in the server's workspace, or what its model_folders
    allow: a folder, a hub id."""


class LoadBody(Body):
    model_config = examples({"name": "helpful", "plan": {"reference": "models/helpful"}})

    name: str | None = Field(None, description="Name to serve it under; else its own.")
    plan: PlanBody


class SwapBody(_settings_body("SwapSettings", SwapPolicy)):  # type: ignore[misc]
    """How one model replaces another; `shadow` and `canary` run until promoted or aborted. `promote_when`: at least:
    order_agreement (the low end of its interval), kendall_within, spearman_within; at most: drift_psi, drift_ks,
    failed, truncated. Empty: promoted manually only."""

    model_config = examples(
        {"plan": {"reference": "models/helpful-2"}, "mode": "now"},
        {
            "plan": {"reference": "models/helpful-2"},
            "mode": "shadow",
            "share": 0.2,
            "min_items": 1000,
            "promote_when": {"order_agreement": 0.9, "failed": 0.01},
        },
    )

    plan: PlanBody

    def order(self) -> dict[str, Any]:
        return {"plan": self.plan.model_dump(), "terms": self.model_dump(exclude={"plan"})}


def admin_routes(service: ScoringService) -> APIRouter:
    """Routes over one service's backend."""
    router = APIRouter(prefix="/v1/admin", tags=["administration"])

    async def execute(request: Request, order: dict[str, Any]) -> Response:
        changes = order["action"] not in ("status", "swap_status")
        outcome: dict[str, Any] | None = None
        try:
            outcome = await service.backend.manage({**order, "client": asdict(request.scope["state"]["client"])})
        except BackendError as error:  # an administrator gets the reason, unlike other clients
            raise ProblemError(500, str(error), code=error.code) from error
        finally:
            if changes:
                _log(request, order, "done" if outcome is not None else "failed")
        return json_reply({name: value for name, value in outcome.items() if name != "plans"})

    @router.get("/models", operation_id="admin_models", responses=described(REPLIES["admin_models"], *_SEEING))
    async def models(request: Request) -> Response:
        """All models with their statistics, and changes in progress."""
        return await execute(request, {"action": "status"})

    @router.post(
        "/models", operation_id="load_model", responses=described({"model": REPLIES["admin_model"]}, *_STATUSES)
    )
    async def load(body: LoadBody, request: Request) -> Response:
        """Load a model. Replies when requests to it are scored; other models are served meanwhile."""
        return await execute(request, {"action": "load", "name": body.name, "plan": body.plan.model_dump()})

    @router.post("/reload", operation_id="reload_configuration", responses=described(REPLIES["reloaded"], *_STATUSES))
    async def reload(request: Request) -> Response:
        """Read the configuration file again: keys, limits, models. Requests in flight are not touched. A file that
        cannot be used is refused, and everything stays as it was."""
        state = request.scope["state"]
        client: Client = state["client"]
        if client.models is not None:
            raise client.refusal("orders to reload the configuration")
        if service.reload is None:
            raise ProblemError(403, "this server was not started by a command that can read its configuration again")
        try:
            return json_reply(await service.reload(client.name, state["request_id"]))  # logged there
        except BackendError as error:
            raise ProblemError(500, str(error), code=error.code) from error

    # Before the routes of a name alone, because a name may hold slashes.
    @router.post(
        "/models/{name:path}/swap", operation_id="swap_model", responses=described(REPLIES["swap"], *_STATUSES)
    )
    async def swap(name: str, body: SwapBody, request: Request) -> Response:
        """Load a model that replaces the one of this name. Replies when it is loaded; with mode now when it is live."""
        return await execute(request, {"action": "swap", "name": name, **body.order()})

    def order_of(action: str) -> Callable[..., Awaitable[Response]]:
        async def order(name: str, request: Request) -> Response:
            return await execute(request, {"action": action, "name": name})

        return order

    for method, path, operation, action, reply, description in _ORDERS:
        router.add_api_route(
            f"/models/{{name:path}}{path}",
            order_of(action),
            methods=[method],
            name=operation,
            operation_id=operation,
            description=description,
            responses=described(reply, *(_SEEING if method == "GET" else _STATUSES)),
        )
    return router


#: Orders that need nothing but a name: method, end of the path, operation, action, reply, description.
_ORDERS = (
    (
        "GET",
        "/swap",
        "swap_status",
        "swap_status",
        REPLIES["swap"],
        "The swap in progress, or the last one: agreement of the two models, drift, failures, speed.",
    ),
    (
        "POST",
        "/promote",
        "promote_model",
        "promote",
        REPLIES["swap"],
        "The new model replaces the old one, which is unloaded after its requests in flight.",
    ),
    ("POST", "/abort", "abort_swap", "abort", REPLIES["swap"], "The old model stays; the new one is unloaded."),
    (
        "POST",
        "/reference",
        "set_reference",
        "reference",
        {"model": REPLIES["admin_model"]},
        "Measure drift against the present window from now on.",
    ),
    ("GET", "", "admin_model", "status", REPLIES["admin_models"], "One model with its statistics."),
    (
        "DELETE",
        "",
        "unload_model",
        "unload",
        REPLIES["unloaded"],
        "Unload a model. New requests are refused at once; replies when requests in flight are answered.",
    ),
)


def _log(request: Request, order: dict[str, Any], outcome: str) -> None:
    """A line for an order that changes what is served, with the name of the key that gave it; also of one that failed,
    or whose sender is gone."""
    state = request.scope["state"]
    logger.warning(
        "order",
        extra={
            FIELDS: {
                "event": "order",
                "action": order["action"],
                "model": order.get("name"),
                "reference": order.get("plan", {}).get("reference"),
                "client": state["client"].name,
                "request_id": state["request_id"],
                "outcome": outcome,
            }
        },
    )
