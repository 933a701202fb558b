"""`POST /classify` of vLLM and of SGLang: the body's fields tell which of the two, and the reply has that format."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Discriminator, RootModel, Tag

from assay_serving.server.dialects.scoring import score_all
from assay_serving.server.dialects.sglang import NATIVE_REPLY, SglangNative, model_of, native_reply
from assay_serving.server.dialects.shapes import EnvelopedError, VllmRoute, shaped_errors
from assay_serving.server.dialects.texts import EXAMPLE
from assay_serving.server.dialects.vllm import (
    CHAT,
    CLASSIFY_REPLY,
    INPUT,
    SGLANG,
    VllmChat,
    VllmInput,
    classify_reply,
    form_of,
)
from assay_serving.server.http.json_route import described, examples
from assay_serving.server.http.service import ScoringService

_Forms = Annotated[VllmInput, Tag(INPUT)] | Annotated[VllmChat, Tag(CHAT)] | Annotated[SglangNative, Tag(SGLANG)]


class ClassifyBody(RootModel[Annotated[_Forms, Discriminator(form_of)]]):
    """vLLM: `input`, or `messages`. SGLang: `text`, or `input_ids`."""

    model_config = examples(
        {"model": "helpful", "input": EXAMPLE, "use_activation": False},
        {
            "messages": [
                {"role": "user", "content": "Name a metal."},
                {"role": "assistant", "content": "Gold."},
            ]
        },
        {"text": [EXAMPLE]},
    )


def classify_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=VllmRoute)

    @router.post(
        "/classify",
        responses=described((CLASSIFY_REPLY, NATIVE_REPLY, [NATIVE_REPLY])) | shaped_errors(EnvelopedError),
    )
    async def classify(body: ClassifyBody, request: Request) -> Response:
        """The raw reward of each rendered conversation, as vLLM (`input`) or SGLang (`text`) answers it."""
        form = body.root
        if isinstance(form, SglangNative):
            scores = await score_all(service, request, form.items(), model=model_of(form.model))
            return native_reply(scores, request, single=form.single)
        scores = await score_all(service, request, form.items(), model=form.model, uncut=form.uncut)
        return classify_reply(scores, request)

    return router
