"""Routes of webhooks, for administrators: making and deleting them, a test, what was sent and what became of it."""

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from assay.errors import BadInputError
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Admin
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService
from assay_web.webhooks.event import TYPES, Ping, emit
from assay_web.webhooks.sender import addresses_of, check_url, refusal_of
from assay_web.webhooks.webhook_file import FILE, LONGEST_URL, Delivery, Webhook, WebhookFile

router = APIRouter(tags=["access"], route_class=AuditedRoute)

WebhookId = Annotated[str, InPath(pattern=r"^hook-[0-9a-f]{8}$")]
#: As `assay_web.webhooks.event.TYPES`; a test compares them.
EventType = Literal["queue.progress", "queue.done", "decisions.made", "run.ended", "alert"]
MOST = 200


class WebhooksReply(BaseModel):
    """The newest first. `types`: what a webhook can ask for."""

    webhooks: list[Webhook]
    types: list[str]


class NewWebhook(RequestBody):
    """`events`: types that it asks for. `private`: whether it may be at a private address, where other services of
    this network are; plain http is for those alone."""

    url: Annotated[str, Field(max_length=LONGEST_URL)]
    events: Annotated[list[EventType], Field(min_length=1, max_length=20)]
    private: bool = False


class MadeWebhook(BaseModel):
    """`secret`: by which its receiver checks signatures, shown once. `addresses`: that its name leads to now."""

    secret: str
    webhook: Webhook
    addresses: list[str]


class DeliveriesReply(BaseModel):
    """The newest first. `older`: whether there are older ones."""

    deliveries: list[Delivery]
    older: bool


@router.get("/api/webhooks")
def get_webhooks(person: Admin, service: ServiceNow) -> WebhooksReply:
    """Every webhook, without its secret."""
    if not (service.workspace.root / FILE).is_file():
        return WebhooksReply(webhooks=[], types=list(TYPES))
    with _file(service) as file:
        return WebhooksReply(webhooks=file.webhooks(), types=list(TYPES))


@router.post("/api/webhooks", status_code=201)
def make_webhook(body: NewWebhook, person: Admin, service: ServiceNow, request: Request) -> MadeWebhook:
    """Tell these events from now on. Refused for a URL that leads where the webhook may not be."""
    check_url(body.url, private=body.private)
    addresses = addresses_of(body.url)
    for address in addresses:
        if (why := refusal_of(address, private=body.private)) is not None:
            raise BadInputError(why, field="url")
    with _file(service) as file:
        secret, webhook = file.add(body.url, sorted(set(body.events)), private=body.private, by=person.name)
    note_change(request, webhook.id, events=list(webhook.events), private=body.private, addresses=addresses)
    return MadeWebhook(secret=secret, webhook=webhook, addresses=addresses)


@router.delete("/api/webhooks/{webhook_id}", status_code=204)
def delete_webhook(webhook_id: WebhookId, person: Admin, service: ServiceNow) -> None:
    """Tell it nothing more; what waits for it is dropped."""
    with _file(service) as file:
        file.remove(webhook_id)


@router.post("/api/webhooks/{webhook_id}/test", status_code=204)
def try_webhook(webhook_id: WebhookId, person: Admin, service: ServiceNow) -> None:
    """Send it a ping; the deliveries say what became of it. One that had ended is in use again."""
    with _file(service) as file:
        file.webhook(webhook_id)
        file.end(webhook_id, None)
    emit(service.workspace, Ping(person.name), webhook=webhook_id)


@router.get("/api/webhooks/{webhook_id}/deliveries")
def get_deliveries(
    webhook_id: WebhookId,
    person: Admin,
    service: ServiceNow,
    before: Annotated[
        int | None, Query(ge=0, lt=2**53, description="Only older ones than the one with this id.")
    ] = None,
    most: Annotated[int, Query(ge=1, le=MOST)] = 30,
) -> DeliveriesReply:
    """What was sent to it, what waits, and why what failed did."""
    with _file(service) as file:
        file.webhook(webhook_id)
        deliveries = file.deliveries(webhook_id, before=before, most=most + 1)
    return DeliveriesReply(deliveries=deliveries[:most], older=len(deliveries) > most)


@router.post("/api/webhooks/deliveries/{delivery_id}/again", status_code=204)
def send_again(delivery_id: Annotated[int, InPath(ge=0, lt=2**53)], person: Admin, service: ServiceNow) -> None:
    """Send a delivery once more, now."""
    with _file(service) as file:
        file.again(delivery_id, now=time.time())


def _file(service: WebService) -> WebhookFile:
    return WebhookFile(service.workspace.root / FILE)
