"""Routes for administrators: load, unload and swap models, read their statistics.

Covers: bodies and replies of `/v1/admin/`, the orders they become, who gave an order, in the log. Leaves out: executing
orders (`rollout.lifecycle`), permissions (`auth.middleware`: keys with the scope admin).
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from assay.errors import BackendError
from assay.http.problems import ProblemError
from assay_serving.server.core.logs import FIELDS
from assay_serving.server.http.json_route import described, examples, json_reply
from assay_serving.server.http.request_bodies import Body
from assay_serving.server.http.service import ScoringService

logger = logging.getLogger("assay.serving")

_STATUSES = (401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)
_SEEING = (401, 403, 404, 422, 429, 503)


class PlanBody(Body):
    """Which model to load, and how; see `assay serve --help` for the meaning of each."""

    reference: str = Field(
        description="Name of a model in the server's workspace, or what its model_folders allow: a folder, a hub id."
    )
    device: str = "auto"
    dtype: str = "float32"
    token_budget: int | None = Field(None, ge=1)
    max_length: int | None = Field(None, ge=1)
    kind: str | None = None
    question: str | None = None
    allow_failed_parity: bool = False
    correct: str | None = None
    engine: str = "transformers"
    engine_options: dict[str, Any] = Field({})
    aliases: list[str] = Field([], description="Other names that requests may use for it.")


class LoadBody(Body):
    model_config = examples({"name": "helpful", "plan": {"reference": "models/helpful"}})

    name: str | None = Field(None, description="Name to serve it under; else its own.")
    plan: PlanBody


class SwapBody(Body):
    """`now`: new requests get the new model once it is loaded. `shadow`: it scores a share of the prompts in the
    background. `canary`: that share gets its scores. The last two run until promoted or aborted."""

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
    mode: Literal["now", "shadow", "canary"] = "shadow"
    share: float = Field(0.1, gt=0, le=1, description="Of all prompts.")
    min_items: int = Field(500, ge=1, description="Scored by both before it may be promoted automatically.")
    promote_when: dict[str, float] = Field(
        {},
        description="At least: order_agreement (the low end of its interval), kendall_within, spearman_within; at "
        "most: drift_psi, drift_ks, failed, truncated. Empty: promoted manually only.",
    )
    max_failure_rate: float = Field(
        0.05, ge=0, le=1, description="Aborted when its share of failures is above the old model's by more than this."
    )

    def order(self) -> dict[str, Any]:
        return {"plan": self.plan.model_dump(), "terms": self.model_dump(exclude={"plan"})}


class _Reply(BaseModel):
    """More fields may be added."""

    model_config = ConfigDict(extra="allow")


class AdminModelBody(_Reply):
    """One model: its properties, how it was loaded, its load, statistics of its scores."""

    name: str
    info: dict[str, Any]
    plan: dict[str, Any] | None = Field(description="None: it was not loaded by the server.")
    in_flight: int = Field(description="Requests without a response yet.")
    waiting_items: int
    retiring: int = Field(description="Replaced models with requests in flight.")
    swap: Literal["shadow", "canary"] | None = Field(description="The mode of the swap in progress.")
    scores: dict[str, Any] = Field(description="Window, truncated and failed shares, drift, latency.")


class AbsentBody(_Reply):
    """A model that could not be loaded again when the engine process was restarted. Load its name to retry."""

    name: str
    reason: str
    plan: dict[str, Any]


class AdminModelsReply(_Reply):
    models: list[AdminModelBody]
    not_ready: list[AbsentBody] = Field(description="Models that should be served and could not be loaded again.")
    changing: dict[str, str] = Field(description="Names with a change in progress, and the change.")


class AdminModelReply(_Reply):
    model: AdminModelBody


class UnloadedReply(_Reply):
    unloaded: str


class SwapState(_Reply):
    """See docs/serving/operations.md for every figure."""

    name: str
    mode: Literal["now", "shadow", "canary"]
    state: Literal["going on", "promoted", "aborted"]
    why: str | None = None


class SwapReply(_Reply):
    swap: SwapState


def admin_routes(service: ScoringService) -> APIRouter:
    """Routes over one service's backend."""
    router = APIRouter(prefix="/v1/admin/models", tags=["administration"])

    async def execute(request: Request, order: dict[str, Any]) -> Response:
        changes = order["action"] not in ("status", "swap_status")
        outcome: dict[str, Any] | None = None
        try:
            outcome = await service.backend.manage(order)
        except BackendError as error:  # an administrator gets the reason, unlike other clients
            raise ProblemError(500, str(error), code=error.code) from error
        finally:
            if changes:
                _log(request, order, "done" if outcome is not None else "failed")
        return json_reply({name: value for name, value in outcome.items() if name != "plans"})

    @router.get("", operation_id="admin_models", responses=described(AdminModelsReply, *_SEEING))
    async def models(request: Request) -> Response:
        """All models with their statistics, and changes in progress."""
        return await execute(request, {"action": "status"})

    @router.post("", operation_id="load_model", responses=described(AdminModelReply, *_STATUSES))
    async def load(body: LoadBody, request: Request) -> Response:
        """Load a model. Replies when requests to it are scored; other models are served meanwhile."""
        return await execute(request, {"action": "load", "name": body.name, "plan": body.plan.model_dump()})

    # Before the routes of a name alone, because a name may hold slashes.
    @router.post("/{name:path}/swap", operation_id="swap_model", responses=described(SwapReply, *_STATUSES))
    async def swap(name: str, body: SwapBody, request: Request) -> Response:
        """Load a model that replaces the one of this name. Replies when it is loaded; with mode now when it is live."""
        return await execute(request, {"action": "swap", "name": name, **body.order()})

    @router.get("/{name:path}/swap", operation_id="swap_status", responses=described(SwapReply, *_SEEING))
    async def swap_status(name: str, request: Request) -> Response:
        """The swap in progress, or the last one: agreement of the two models, drift, failures, speed."""
        return await execute(request, {"action": "swap_status", "name": name})

    @router.post("/{name:path}/promote", operation_id="promote_model", responses=described(SwapReply, *_STATUSES))
    async def promote(name: str, request: Request) -> Response:
        """The new model replaces the old one, which is unloaded after its requests in flight."""
        return await execute(request, {"action": "promote", "name": name})

    @router.post("/{name:path}/abort", operation_id="abort_swap", responses=described(SwapReply, *_STATUSES))
    async def abort(name: str, request: Request) -> Response:
        """The old model stays; the new one is unloaded."""
        return await execute(request, {"action": "abort", "name": name})

    @router.post(
        "/{name:path}/reference", operation_id="set_reference", responses=described(AdminModelReply, *_STATUSES)
    )
    async def reference(name: str, request: Request) -> Response:
        """Measure drift against the present window from now on."""
        return await execute(request, {"action": "reference", "name": name})

    @router.get("/{name:path}", operation_id="admin_model", responses=described(AdminModelsReply, *_SEEING))
    async def model(name: str, request: Request) -> Response:
        """One model with its statistics."""
        return await execute(request, {"action": "status", "name": name})

    @router.delete("/{name:path}", operation_id="unload_model", responses=described(UnloadedReply, *_STATUSES))
    async def unload(name: str, request: Request) -> Response:
        """Unload a model. New requests are refused at once; replies when requests in flight are answered."""
        return await execute(request, {"action": "unload", "name": name})

    return router


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
