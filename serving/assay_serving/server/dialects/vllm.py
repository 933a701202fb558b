"""vLLM's pooling routes: `/pooling`, `/score`, `/rerank`, and the bodies and replies of `/classify`.

Rewards are raw whatever `use_activation` is: checkpoints have `"problem_type": "regression"`, for which
vLLM's own activation is the identity. `/score` and `/rerank` score (query, document) as (prompt, response) in the
chat template, where vLLM would concatenate the texts: preference models are trained on conversations.
"""

import base64
import struct
import time
from typing import Annotated, Any, Literal

from annotated_types import Len
from fastapi import APIRouter, Request, Response
from pydantic import Discriminator, Field, RootModel, StrictInt, Tag

from assay import __version__
from assay.domain import Message
from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay.http.problems import request_id_of
from assay_serving.chat.message_bodies import TOOLS, Tools, messages_of
from assay_serving.scorer import Rendered, ScoreItem
from assay_serving.server.dialects.scoring import DialectScores, score_all
from assay_serving.server.dialects.shapes import EnvelopedError, VllmRoute, shaped_errors
from assay_serving.server.dialects.texts import EXAMPLE, ChatTurn, OpenBody, Texts, conversation_item, rendered_items
from assay_serving.server.http.json_route import described, examples, json_reply
from assay_serving.server.http.service import ScoringService

_PAIR: dict[str, Any] = {"queries": "Name a metal.", "documents": ["Gold.", "Glass."]}
#: Forms of a body, with a space, so that `shapes` can distinguish them from fields.
INPUT, CHAT, SGLANG = "vLLM input", "vLLM messages", "SGLang text"
_ACTIVATION = "Changes nothing: rewards are raw."


class VllmInput(OpenBody):
    """Rendered conversations: texts, or token ids."""

    model_config = examples({"model": "helpful", "input": EXAMPLE, "use_activation": False})

    model: str | None = None
    input: Texts
    add_special_tokens: bool = Field(True, description="Add BOS to a text without it, if the tokenizer does.")
    use_activation: bool | None = Field(None, description=_ACTIVATION)
    truncate_prompt_tokens: int | None = Field(None, ge=-1, description="Tokens to read; -1: the model's length.")
    truncation_side: Literal["left", "right"] | None = Field(None, description="The side that is cut; default: left.")

    def items(self) -> list[ScoreItem]:
        form = Rendered(
            add_special_tokens=self.add_special_tokens,
            keep=self.truncate_prompt_tokens,
            keep_end=self.truncation_side != "right",
        )
        return rendered_items(self.input, form)

    @property
    def uncut(self) -> bool:
        return self.truncate_prompt_tokens is None


class VllmChat(OpenBody):
    """One conversation as messages, the last one the assistant's."""

    model: str | None = None
    messages: ListOf[ChatTurn]
    tools: Tools | None = Field(None, description=TOOLS)
    use_activation: bool | None = Field(None, description=_ACTIVATION)
    truncate_prompt_tokens: int | None = Field(None, ge=-1, le=-1, description="-1: drop the oldest turns if need be.")
    add_generation_prompt: Literal[False] = False
    continue_final_message: Literal[False] = False
    add_special_tokens: Literal[False] = False
    chat_template: None = Field(None, description="Only the model's own is used.")
    chat_template_kwargs: None = None

    def items(self) -> list[ScoreItem]:
        return [conversation_item(messages_of(self.messages), self.tools)]

    @property
    def uncut(self) -> bool:
        return self.truncate_prompt_tokens is None


def form_of(body: object) -> str:
    """The form of a body, by its fields: SGLang's native one, messages, or texts."""
    fields = body if isinstance(body, dict) else {}
    if "text" in fields or "input_ids" in fields:
        return SGLANG
    return CHAT if "messages" in fields and "input" not in fields else INPUT


class PoolingFields(OpenBody):
    task: Literal["classify"] | None = Field(None, description="token_classify (steps) and embed are not offered.")
    encoding_format: Literal["float", "base64"] = "float"
    embed_dtype: Literal["float32"] = "float32"
    dimensions: None = None


class PoolingInput(VllmInput, PoolingFields):
    """As `/classify`, with the encoding of the reply."""


class PoolingChat(VllmChat, PoolingFields):
    """As `/classify`, with the encoding of the reply."""


class PoolingBody(
    RootModel[
        Annotated[
            Annotated[PoolingInput, Tag(INPUT)] | Annotated[PoolingChat, Tag(CHAT)],
            Discriminator(lambda body: form_of(body).replace(SGLANG, INPUT)),
        ]
    ]
):
    """Texts or token ids as `input`, or `messages`."""

    model_config = examples({"input": EXAMPLE, "task": "classify"})


class QuestionFields(OpenBody):
    """What bodies of queries and documents have in common."""

    model: str | None = None
    use_activation: bool | None = Field(None, description=_ACTIVATION)
    instruction: None = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1, le=-1, description="-1: drop the oldest turns if need be.")
    max_tokens_per_query: StrictInt = Field(0, ge=0, le=0)
    max_tokens_per_doc: StrictInt = Field(0, ge=0, le=0)

    @property
    def uncut(self) -> bool:
        return self.truncate_prompt_tokens is None


class ScorePairs(QuestionFields):
    """Queries and documents: one query for all, or one per document. The pairs of field names are synonyms."""

    model_config = examples(_PAIR)

    queries: str | ListOf[str] | None = None
    documents: str | ListOf[str] | None = None
    items: str | ListOf[str] | None = None
    text_1: str | ListOf[str] | None = None
    text_2: str | ListOf[str] | None = None
    data_1: str | ListOf[str] | None = None
    data_2: str | ListOf[str] | None = None

    def pairs(self) -> list[ScoreItem]:
        """Raises BadInputError where the two sides are missing or of different lengths."""
        sides = (
            (self.queries, self.documents),
            (self.queries, self.items),
            (self.text_1, self.text_2),
            (self.data_1, self.data_2),
        )
        pair = next(((_listed(a), _listed(b)) for a, b in sides if a is not None and b is not None), None)
        if pair is None:
            raise BadInputError("give queries and documents")
        queries, documents = pair
        if len(queries) == 1:
            queries = queries * len(documents)
        if not documents:
            raise BadInputError("is empty", field="documents")
        if len(queries) != len(documents):
            raise BadInputError(f"{len(queries)} queries and {len(documents)} documents do not pair up")
        return [question_item(query, document) for query, document in zip(queries, documents, strict=True)]


class RerankBody(QuestionFields):
    """One query and its documents."""

    model_config = examples({"query": "Name a metal.", "documents": ["Gold.", "Glass."], "top_n": 1})

    query: str
    documents: str | Annotated[ListOf[str], Len(1)]
    top_n: int = Field(0, ge=0, description="0: all of them.")


_LIST: dict[str, Any] = {
    "id": "classify-b1946ac92492d234",
    "object": "list",
    "created": 1767225600,
    "model": "helpful",
    "usage": {
        "prompt_tokens": 31,
        "total_tokens": 31,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    },
}
#: The one number of an entry is the reward.
CLASSIFY_REPLY = {**_LIST, "data": [{"index": 0, "label": "LABEL_0", "probs": [1.25], "num_classes": 1}]}
_POOLING_REPLY = {**_LIST, "data": [{"index": 0, "object": "pooling", "data": ([1.25], "AACgPw==")}]}
_SCORES_REPLY = {**_LIST, "data": [{"index": 0, "object": "score", "score": 1.25}]}
_RERANK_REPLY = {
    "id": "score-b1946ac92492d234",
    "model": "helpful",
    "usage": {"prompt_tokens": 31, "total_tokens": 31},
    "results": [{"index": 0, "document": {"text": "Gold.", "multi_modal": None}, "relevance_score": 1.25}],
}


def vllm_routes(service: ScoringService) -> APIRouter:
    """All but `/classify`, which SGLang has too."""
    router = APIRouter(route_class=VllmRoute)
    errors = shaped_errors(EnvelopedError)

    @router.post("/pooling", responses=described(_POOLING_REPLY) | errors)
    async def pooling(body: PoolingBody, request: Request) -> Response:
        """vLLM's `/pooling` with task classify: the raw reward of each text."""
        form = body.root
        scores = await score_all(service, request, form.items(), model=form.model, uncut=form.uncut)
        data = [
            {"index": index, "object": "pooling", "data": encoded([reward], form.encoding_format)}
            for index, reward in enumerate(scores.rewards)
        ]
        return scores.reply(listed(scores, request, "pooling", data))

    async def score(body: ScorePairs, request: Request) -> Response:
        """vLLM's `/score`: the raw reward of each document as the response to its query."""
        scores = await score_all(service, request, body.pairs(), model=body.model, uncut=body.uncut)
        data = [{"index": index, "object": "score", "score": reward} for index, reward in enumerate(scores.rewards)]
        return scores.reply(listed(scores, request, "score", data))

    for path in ("/score", "/v1/score"):  # the second one is of this server too, whose bodies have other fields
        router.add_api_route(
            path,
            score,
            methods=["POST"],
            operation_id="vllm_" + path.strip("/").replace("/", "_"),
            responses=described(_SCORES_REPLY) | errors,
        )

    async def rerank(body: RerankBody, request: Request) -> Response:
        """vLLM's `/rerank`: the documents as responses to the query, best first."""
        documents = _listed(body.documents)
        items = [question_item(body.query, document) for document in documents]
        scores = await score_all(service, request, items, model=body.model, uncut=body.uncut)
        order = sorted(range(len(documents)), key=lambda index: -scores.rewards[index])
        results = [
            {
                "index": index,
                "document": {"text": documents[index], "multi_modal": None},
                "relevance_score": scores.rewards[index],
            }
            for index in order[: body.top_n or None]
        ]
        usage = {"prompt_tokens": scores.tokens, "total_tokens": scores.tokens}
        return scores.reply({"id": _id("score", request), "model": scores.model, "usage": usage, "results": results})

    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        router.add_api_route(
            path,
            rerank,
            methods=["POST"],
            operation_id=path.strip("/").replace("/", "_"),
            responses=described(_RERANK_REPLY) | errors,
        )

    async def health() -> Response:
        """vLLM's and SGLang's `/health` and SageMaker's `/ping`: 200 and an empty body when requests would be scored
        now, else 503."""
        return Response(status_code=200 if service.ready else 503)

    for path, methods in (("/health", ["GET"]), ("/ping", ["GET", "POST"])):
        for method in methods:
            router.add_api_route(
                path,
                health,
                methods=[method],
                operation_id=f"vllm_{path[1:]}_{method.lower()}",
                response_class=Response,
                responses={200: {"description": "Ready; no body."}, 503: {"description": "Not ready; no body."}},
            )

    @router.get("/version", responses=described({"version": __version__}))
    async def version() -> Response:
        """vLLM's `/version`, with the version of this server."""
        return json_reply({"version": __version__})

    return router


def classify_reply(scores: DialectScores, request: Request) -> Response:
    data = [
        {"index": index, "label": "LABEL_0", "probs": [reward], "num_classes": 1}
        for index, reward in enumerate(scores.rewards)
    ]
    return scores.reply(listed(scores, request, "classify", data))


def listed(scores: DialectScores, request: Request, kind: str, data: list[dict[str, Any]]) -> dict[str, Any]:
    """A reply that is a list, as `_LIST`."""
    usage = _LIST["usage"] | {"prompt_tokens": scores.tokens, "total_tokens": scores.tokens}
    own = {"id": _id(kind, request), "created": int(time.time()), "model": scores.model}
    return _LIST | own | {"data": data, "usage": usage}


def encoded(numbers: list[float], encoding: Literal["float", "base64"]) -> list[float] | str:
    """Unchanged, or as little-endian float32 in base64, which OpenAI's client requests."""
    if encoding == "float":
        return numbers
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def question_item(query: str, document: str) -> ScoreItem:
    return ScoreItem((Message("user", query),), document)


def _listed(side: str | list[str]) -> list[str]:
    return [side] if isinstance(side, str) else side


def _id(kind: str, request: Request) -> str:
    return f"{kind}-{request_id_of(request)}"
