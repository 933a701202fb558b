"""A chat application behind the reward server's gate: keys, limits of bodies, metrics.

Leaves out: the chat route (`assay_serving.chat.app`), chat with generative reward models (`dialects.openai_chat`).
"""

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from assay.http.problems import problem_of
from assay_serving.chat.app import create_chat_app, refusal
from assay_serving.chat.generation import QueuedModel
from assay_serving.server.auth.middleware import HEALTH, RequestMiddleware
from assay_serving.server.core.scoring_backend import Client
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


class OneModelLimit:
    """ASGI middleware behind the gate: a key that is limited to other models gets nothing but health probes."""

    def __init__(self, app: ASGIApp, model: str) -> None:
        self._app, self._model = app, model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            client: Client = scope["state"]["client"]
            if not client.may_use(self._model):
                raise problem_of(client.refusal("the model that is served here"))
        await self._app(scope, receive, send)


def guarded_chat_app(model: QueuedModel, settings: ServerSettings) -> FastAPI:
    """Who may use it: see `ServerSettings`."""
    app = create_chat_app(model)
    app.state.service = ChatService(model, settings)
    app.add_middleware(OneModelLimit, model=model.model.name)
    app.add_middleware(RequestMiddleware, service=app.state.service, refuse=refusal)
    return app
