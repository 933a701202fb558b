"""Routes for administrators: load, unload and swap models, see how they score.

Covers: bodies and replies of `/v1/admin/`, orders made of them. Leaves out: carrying them out (`lifecycle`), who may
give them (`gate`: keys with the scope admin).
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from assay.errors import BackendError
from assay.http.problems import ProblemError, responses
from assay_serving.server.http.replies import json_reply
from assay_serving.server.http.request_bodies import Body
from assay_serving.server.http.state import Service

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
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "helpful", "plan": {"reference": "models/helpful"}}]},
    )

    name: str | None = Field(None, description="Name to serve it under; else its own.")
    plan: PlanBody


class SwapBody(Body):
    """`now`: new requests get the new model once it is loaded. `shadow`: it scores a share of the prompts unseen.
    `canary`: that share gets its scores. The last two go on until promoted or aborted."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"plan": {"reference": "models/helpful-2"}, "mode": "now"},
                {
                    "plan": {"reference": "models/helpful-2"},
                    "mode": "shadow",
                    "share": 0.2,
                    "min_items": 1000,
                    "promote_when": {"order_agreement": 0.9, "failed": 0.01},
                },
            ]
        },
    )

    plan: PlanBody
    mode: Literal["now", "shadow", "canary"] = "shadow"
    share: float = Field(0.1, gt=0, le=1, description="Of all prompts.")
    min_items: int = Field(500, ge=1, description="Scored by both before it may be promoted by itself.")
    promote_when: dict[str, float] = Field(
        {},
        description="At least: order_agreement (the low end of its interval), kendall_within, spearman_within; at "
        "most: drift_psi, drift_ks, failed, truncated. Empty: promoted by hand only.",
    )
    max_failure_rate: float = Field(
        0.05, ge=0, le=1, description="Aborted when its share of failures is above the old model's by more than this."
    )

    def order(self) -> dict[str, Any]:
        return {"plan": self.plan.model_dump(), "terms": self.model_dump(exclude={"plan"})}


class _Reply(BaseModel):
    """More fields than these may come."""

    model_config = ConfigDict(extra="allow")


class AdminModelBody(_Reply):
    """One model: what it is, how it was loaded, what it has to do, what its scores look like."""

    name: str
    info: dict[str, Any]
    plan: dict[str, Any] | None = Field(description="None: it was not loaded by the server.")
    in_flight: int = Field(description="Requests without an answer yet.")
    waiting_items: int
    retiring: int = Field(description="Replaced models that still owe answers.")
    swap: Literal["shadow", "canary"] | None = Field(description="The mode of the swap that goes on.")
    scores: dict[str, Any] = Field(description="Window, truncated and failed shares, drift, time to answer.")


class AbsentBody(_Reply):
    """A model that could not be loaded again when the engine process was restarted. Load its name to try once more."""

    name: str
    reason: str
    plan: dict[str, Any]


class AdminModelsReply(_Reply):
    models: list[AdminModelBody]
    not_ready: list[AbsentBody] = Field(description="Those that should be served and cannot be loaded any more.")
    changing: dict[str, str] = Field(description="Names that are being changed, and what is being done.")


class ModelReply(_Reply):
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


def admin_routes(service: Service) -> APIRouter:
    """Routes over one service's host."""
    router = APIRouter(prefix="/v1/admin/models", tags=["administration"])

    async def outcome(order: dict[str, Any]) -> Response:
        try:
            found = await service.host.manage(order)
        except BackendError as error:  # unlike a caller, an administrator is told why
            raise ProblemError(500, str(error), code=error.code) from error
        return json_reply({name: value for name, value in found.items() if name != "plans"})

    @router.get(
        "",
        operation_id="admin_models",
        response_model=None,
        responses={200: {"model": AdminModelsReply}, **responses(*_SEEING)},
    )
    async def models() -> Response:
        """All models with their statistics, and the changes that are going on."""
        return await outcome({"action": "status"})

    @router.post(
        "",
        operation_id="load_model",
        response_model=None,
        responses={200: {"model": ModelReply}, **responses(*_STATUSES)},
    )
    async def load(body: LoadBody) -> Response:
        """Load a model. Answers when requests to it are scored; the other models answer meanwhile."""
        return await outcome({"action": "load", "name": body.name, "plan": body.plan.model_dump()})

    # Before the routes of a name alone, because a name may hold slashes.
    @router.post(
        "/{name:path}/swap",
        operation_id="swap_model",
        response_model=None,
        responses={200: {"model": SwapReply}, **responses(*_STATUSES)},
    )
    async def swap(name: str, body: SwapBody) -> Response:
        """Load a model that takes over the name. Answers when it is loaded, with mode now when it has taken over."""
        return await outcome({"action": "swap", "name": name, **body.order()})

    @router.get(
        "/{name:path}/swap",
        operation_id="swap_status",
        response_model=None,
        responses={200: {"model": SwapReply}, **responses(*_SEEING)},
    )
    async def swap_status(name: str) -> Response:
        """The swap that goes on, or the last one: how the two models agree, drift, failures, speed."""
        return await outcome({"action": "swap_status", "name": name})

    @router.post(
        "/{name:path}/promote",
        operation_id="promote_model",
        response_model=None,
        responses={200: {"model": SwapReply}, **responses(*_STATUSES)},
    )
    async def promote(name: str) -> Response:
        """The new model takes over; the old one answers what it has and is unloaded."""
        return await outcome({"action": "promote", "name": name})

    @router.post(
        "/{name:path}/abort",
        operation_id="abort_swap",
        response_model=None,
        responses={200: {"model": SwapReply}, **responses(*_STATUSES)},
    )
    async def abort(name: str) -> Response:
        """The old model stays; the new one is unloaded."""
        return await outcome({"action": "abort", "name": name})

    @router.post(
        "/{name:path}/reference",
        operation_id="set_reference",
        response_model=None,
        responses={200: {"model": ModelReply}, **responses(*_STATUSES)},
    )
    async def reference(name: str) -> Response:
        """Measure drift against the present window from now on."""
        return await outcome({"action": "reference", "name": name})

    @router.get(
        "/{name:path}",
        operation_id="admin_model",
        response_model=None,
        responses={200: {"model": AdminModelsReply}, **responses(*_SEEING)},
    )
    async def model(name: str) -> Response:
        """One model with its statistics."""
        return await outcome({"action": "status", "name": name})

    @router.delete(
        "/{name:path}",
        operation_id="unload_model",
        response_model=None,
        responses={200: {"model": UnloadedReply}, **responses(*_STATUSES)},
    )
    async def unload(name: str) -> Response:
        """Unload a model. New requests to it are refused at once; answers when those it had are answered."""
        return await outcome({"action": "unload", "name": name})

    return router
