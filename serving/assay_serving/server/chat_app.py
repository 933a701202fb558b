"""A chat application behind the reward server's gate: keys, limits of bodies, metrics.

Leaves out: the chat route (`assay_serving.chat.app`), chat with generative reward models (`dialects.openai_chat`).
"""

from __future__ import annotations

from fastapi import FastAPI

from assay_serving.chat.app import create_chat_app, refusal
from assay_serving.chat.generation import QueuedModel
from assay_serving.server.auth.middleware import RequestMiddleware
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.metrics.http_metrics import HttpMetrics


class ChatService:
    """What the gate and the process need of the application."""

    def __init__(self, model: QueuedModel, settings: ServerSettings) -> None:
        self.model, self.settings, self.metrics = model, settings, HttpMetrics()

    @property
    def ready(self) -> bool:
        return not self.model.draining

    def drain(self) -> None:
        self.model.drain()


def guarded_chat_app(model: QueuedModel, settings: ServerSettings) -> FastAPI:
    """Who may use it: see `ServerSettings`."""
    app = create_chat_app(model)
    app.state.service = ChatService(model, settings)
    app.add_middleware(RequestMiddleware, service=app.state.service, refuse=refusal)
    return app
