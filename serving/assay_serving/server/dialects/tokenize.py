"""`POST /tokenize` and `/detokenize` of vLLM and of SGLang, by the tokenizer and the chat template of the reward model.

vLLM's and SGLang's bodies differ little: SGLang takes lists of texts, and names the text of `/detokenize` `text` where
vLLM says `prompt`: the reply has both.
"""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field, StrictInt, model_validator

from assay.http.body_lists import ListOf
from assay_serving.chat.message_bodies import TOOLS, Tools, messages_of, with_tools
from assay_serving.server.core.scoring_backend import TokenRequest
from assay_serving.server.dialects.sglang import model_of
from assay_serving.server.dialects.shapes import EnvelopedError, VllmRoute, shaped_errors
from assay_serving.server.dialects.texts import ChatTurn, OpenBody
from assay_serving.server.http.json_route import described, examples, json_reply
from assay_serving.server.http.service import ScoringService

_PROMPT = [{"role": "user", "content": "Name a metal."}, {"role": "assistant", "content": "Gold."}]


class TokenizeBody(OpenBody):
    """A text, several of them, or a conversation."""

    model_config = examples({"prompt": "Name a metal."}, {"messages": _PROMPT, "add_generation_prompt": False})

    model: str | None = None
    prompt: str | ListOf[str] | None = None
    messages: ListOf[ChatTurn] | None = None
    add_special_tokens: bool | None = Field(None, description="Of a text: by default true. The template has its own.")
    add_generation_prompt: bool = Field(True, description="False: the last message is the response to be scored.")
    return_token_strs: bool | None = None
    continue_final_message: bool = Field(False, description="Not offered.")
    chat_template: None = Field(None, description="Only the model's own is used.")
    chat_template_kwargs: None = None
    tools: Tools | None = Field(None, description=TOOLS)

    @model_validator(mode="after")
    def check(self) -> "TokenizeBody":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        if self.continue_final_message:
            raise ValueError("continue_final_message is not offered")
        return self

    def request(self) -> TokenRequest:
        if self.messages is not None:
            turns = with_tools(messages_of(self.messages), self.tools)
            return TokenRequest(
                model_of(self.model),
                messages=turns,
                add_generation_prompt=self.add_generation_prompt,
                any_name=True,
            )
        texts = (self.prompt,) if isinstance(self.prompt, str) else tuple(self.prompt or ())
        special = self.add_special_tokens is not False
        return TokenRequest(model_of(self.model), texts=texts, add_special_tokens=special, any_name=True)


#: Lists of lists for a list of texts; `max_model_len`: tokens of a conversation that the model reads.
_TOKENIZED = {"count": (2, [2]), "max_model_len": 2048, "tokens": ([40, 41], [[40, 41]]), "token_strs": None}


class DetokenizeBody(OpenBody):
    """Token ids of one text, or of several."""

    model_config = examples({"tokens": [40, 41]})

    model: str | None = None
    tokens: ListOf[StrictInt] | ListOf[ListOf[StrictInt]]
    skip_special_tokens: bool = False

    @property
    def single(self) -> bool:
        return not (self.tokens and isinstance(self.tokens[0], list))

    def request(self) -> TokenRequest:
        rows: Any = [self.tokens] if self.single else self.tokens
        ids = tuple(map(tuple, rows))
        return TokenRequest(model_of(self.model), ids=ids, skip_special_tokens=self.skip_special_tokens, any_name=True)


#: vLLM reads `prompt`, SGLang `text`; they are the same.
_DETOKENIZED = {"prompt": ("Gold", ["Gold"]), "text": ("Gold", ["Gold"])}


def tokenize_routes(service: ScoringService) -> APIRouter:
    router = APIRouter(route_class=VllmRoute)
    errors = shaped_errors(EnvelopedError)

    @router.post("/tokenize", responses=described(_TOKENIZED) | errors)
    async def tokenize(body: TokenizeBody, request: Request) -> Response:
        """vLLM's and SGLang's `/tokenize`: the token ids that the reward model reads."""
        response = await service.tokenize(request, body.request())
        single = not isinstance(body.prompt, list)
        counts = [len(ids) for ids in response.ids]
        return json_reply(
            {
                "count": counts[0] if single else counts,
                "max_model_len": response.max_length,
                "tokens": response.ids[0] if single else response.ids,
                "token_strs": None if not body.return_token_strs else response.pieces[0] if single else response.pieces,
            }
        )

    @router.post("/detokenize", responses=described(_DETOKENIZED) | errors)
    async def detokenize(body: DetokenizeBody, request: Request) -> Response:
        """vLLM's and SGLang's `/detokenize`: the text of token ids, special tokens included."""
        response = await service.tokenize(request, body.request())
        text = response.texts[0] if body.single else response.texts
        return json_reply({"prompt": text, "text": text})

    return router
