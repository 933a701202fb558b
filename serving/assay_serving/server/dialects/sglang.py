"""SGLang's `/v1/embeddings`, which verl uses for rewards, `/model_info`, and the bodies and replies of its native
`/classify`.

The one number of an embedding is the raw reward. `/v1/classify` (soft-maxed: always 1.0 for one label) and `/v1/score`
(label probabilities; the path is this server's own) are not offered.
"""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import StrictInt, model_validator

from assay.http.body_lists import ListOf
from assay.http.problems import ProblemError, request_id_of
from assay_serving.scorer import Rendered, ScoreItem
from assay_serving.server.dialects.scoring import DialectScores, score_all
from assay_serving.server.dialects.shapes import FlatError, SglangRoute, shaped_errors
from assay_serving.server.dialects.texts import EXAMPLE, OpenBody, Texts, rendered_items
from assay_serving.server.dialects.vllm import encoded
from assay_serving.server.http.json_route import described, examples, json_reply
from assay_serving.server.http.service import ScoringService

_NO_MODEL = "default"  #: the model name of SGLang's clients by default


class SglangNative(OpenBody):
    """Rendered conversations as `text` or `input_ids`; a list gets a list, a single one an object."""

    model_config = examples({"text": [EXAMPLE]})

    model: str | None = None
    text: str | ListOf[str] | None = None
    input_ids: ListOf[StrictInt] | ListOf[ListOf[StrictInt]] | None = None
    image_data: None = None
    video_data: None = None
    audio_data: None = None
    lora_path: None = None
    dimensions: None = None

    @model_validator(mode="after")
    def check(self) -> "SglangNative":
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("give either text or input_ids")
        return self

    @property
    def single(self) -> bool:
        """Whether one conversation was sent and not a list of them."""
        return isinstance(self.text, str) or bool(self.input_ids and isinstance(self.input_ids[0], int))

    def items(self) -> list[ScoreItem]:
        texts = self.text if self.text is not None else self.input_ids
        return rendered_items(texts, Rendered(add_special_tokens=True)) if texts else []


class EmbeddingsBody(OpenBody):
    """OpenAI's request; the texts are rendered conversations."""

    model_config = examples({"model": "helpful", "input": EXAMPLE})

    model: str | None = None
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None


#: The one number of an embedding is the reward; the weights' version is the checkpoint's.
NATIVE_REPLY = {
    "embedding": [1.25],
    "meta_info": {"id": "b1946ac92492d234-0", "finish_reason": None, "prompt_tokens": 31, "weight_version": "4c1f0a9b"},
}
_EMBEDDINGS_REPLY = {
    "object": "list",
    "model": "helpful",
    "data": [{"object": "embedding", "index": 0, "embedding": ([1.25], "AACgPw==")}],
    "usage": {"prompt_tokens": 31, "total_tokens": 31},
}
#: The paths are the model's name: where it lies is nothing a client needs.
_MODEL_INFO = {
    "model_path": "helpful",
    "served_model_name": "helpful",
    "tokenizer_path": "helpful",
    "is_generation": False,
    "preferred_sampling_params": None,
    "weight_version": "4c1f0a9be2d47a55",
    "has_image_understanding": False,
    "has_audio_understanding": False,
    "context_length": 2048,
}


def sglang_routes(service: ScoringService) -> APIRouter:
    """All but `/classify`, which vLLM has too."""
    router = APIRouter(route_class=SglangRoute)

    @router.post("/v1/embeddings", responses=described(_EMBEDDINGS_REPLY) | shaped_errors(FlatError))
    async def embeddings(body: EmbeddingsBody, request: Request) -> Response:
        """SGLang's `/v1/embeddings` of a reward model: the raw reward as an embedding of one number."""
        items = rendered_items(body.input, Rendered(add_special_tokens=True))
        scores = await score_all(service, request, items, model=model_of(body.model))
        data = [
            {"object": "embedding", "index": index, "embedding": encoded([reward], body.encoding_format)}
            for index, reward in enumerate(scores.rewards)
        ]
        usage = {"prompt_tokens": scores.tokens, "total_tokens": scores.tokens}
        return scores.reply({"object": "list", "model": scores.model, "data": data, "usage": usage})

    async def model_info(request: Request, model: str | None = None) -> Response:
        """SGLang's `/model_info` and its older name. `?model=NAME` names one of several models."""
        infos = await service.models(request, model)
        if not infos:
            raise ProblemError(404, "no such model", code="not_found")
        if len(infos) > 1:
            raise ProblemError(422, f"several models are served; name one of {', '.join(info.name for info in infos)}")
        info = infos[0]
        names = dict.fromkeys(("model_path", "served_model_name", "tokenizer_path"), info.name)
        return json_reply(_MODEL_INFO | names | {"weight_version": info.version, "context_length": info.max_length})

    for path in ("/model_info", "/get_model_info"):
        router.add_api_route(
            path,
            model_info,
            methods=["GET"],
            operation_id=f"sglang{path.replace('/', '_')}",
            responses=described(_MODEL_INFO) | shaped_errors(FlatError),
        )
    return router


def native_reply(scores: DialectScores, request: Request, *, single: bool) -> Response:
    """One object, or a bare list of them."""
    entries: list[dict[str, Any]] = [
        {
            "embedding": [score.reward],
            "meta_info": {
                "id": f"{request_id_of(request)}-{number}",
                "finish_reason": None,
                "prompt_tokens": score.tokens,
                "weight_version": scores.version,
            },
        }
        for number, score in enumerate(scores.scores)
    ]
    return scores.reply(entries[0] if single else entries)


def model_of(name: str | None) -> str | None:
    return None if name == _NO_MODEL else name
