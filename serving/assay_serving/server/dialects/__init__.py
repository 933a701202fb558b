"""The wire formats that trainers and servers already speak, answered by the models of this server.

A module a peer: its bodies, its replies, its routes. What they share is in `shapes` (errors in the peer's own form) and
`scored` (items in, scores out, a failure is an error). docs/serving/dialects.md says what each one does not do.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from assay_serving.server.dialects.classify import classify_routes
from assay_serving.server.dialects.llama_factory import llama_factory_routes
from assay_serving.server.dialects.nemo_gym import nemo_gym_routes
from assay_serving.server.dialects.openai_chat import openai_chat_routes
from assay_serving.server.dialects.openrlhf import openrlhf_routes
from assay_serving.server.dialects.sglang import sglang_routes
from assay_serving.server.dialects.slime import slime_routes
from assay_serving.server.dialects.vllm import vllm_routes
from assay_serving.server.http.state import Service

__all__ = ["dialect_routes"]


def dialect_routes(service: Service) -> APIRouter:
    """All dialects over one service."""
    router = APIRouter()
    for routes in (
        classify_routes,
        vllm_routes,
        sglang_routes,
        openrlhf_routes,
        slime_routes,
        llama_factory_routes,
        nemo_gym_routes,
        openai_chat_routes,
    ):
        for route in routes(service).routes:  # not included, see `json_route.mount`
            assert isinstance(route, APIRoute)
            route.tags.insert(0, "dialects")
            router.routes.append(route)
    return router
