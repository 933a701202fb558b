"""A route class that writes one audit entry for each change that succeeded, before the reply is sent.

A route may add to its entry with `note_change`.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from assay_web.accounts.audit_log import record
from assay_web.server.gate import SAFE_METHODS


def note_change(request: Request, subject: str | None = None, **detail: Any) -> None:
    """Add a subject and details to the audit entry of this request."""
    request.state.audit = (subject, detail)


async def unaudited(request: Request) -> None:
    """A dependency that marks a route whose changes are no line: that an item was taken, held or given back tells
    nothing that its vote does not."""
    request.state.unaudited = True


Unaudited = Annotated[None, Depends(unaudited)]


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


class AuditedRoute(APIRoute):
    """Logs each change that succeeded: the route's name, with the path parameters as the subject."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            response = await handle(request)
            audited = request.method not in SAFE_METHODS and not getattr(request.state, "unaudited", False)
            if audited and response.status_code < 400:
                subject, detail = getattr(request.state, "audit", (None, {}))
                person = getattr(request.state, "person", None)
                if person is not None and person.token is not None:
                    detail = {**detail, "token": person.token}
                await run_in_threadpool(
                    record,
                    request.app.state.service.access,
                    person.name if person is not None else "",
                    self.name,
                    subject if subject is not None else "/".join(str(v) for v in request.path_params.values()),
                    detail=detail,
                    address=address_of(request),
                )
            return response

        return handled
