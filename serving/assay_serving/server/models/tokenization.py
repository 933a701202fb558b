"""Texts and conversations to a served model's token ids, and back.

Covers: the tokenizer and chat template that the model's scores are computed with. Leaves out: HTTP
(`dialects.tokenize`); what scoring reads of a text that another template rendered (`assay.models.chat.rendered_text`).
"""

from typing import Any

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay_serving.scorer import UNLIMITED, Scorer
from assay_serving.server.core.scoring_backend import TokenRequest, TokenResponse


def tokenized(name: str, scorer: Scorer, request: TokenRequest) -> TokenResponse:
    """The reply of the model that is served as `name`. Nothing is cut, whatever the model's length.

    Raises BadInputError for a model whose tokenizer is not here, for ids that it does not have, and for a conversation
    that its template refuses.
    """
    renderer = _renderer_of(scorer)
    if renderer is None:
        raise BadInputError(f"{name} has no tokenizer here")
    tokenizer: Any = renderer.tokenizer
    length = scorer.info.max_length
    if request.ids is not None:
        for ids in request.ids:
            _check_ids(ids, len(tokenizer))
        options = {"skip_special_tokens": request.skip_special_tokens, "clean_up_tokenization_spaces": False}
        return TokenResponse(name, length, texts=tuple(tokenizer.decode(list(ids), **options) for ids in request.ids))
    if request.messages is not None:
        turns, whole = request.messages, Renderer(tokenizer, max_length=UNLIMITED)
        if request.add_generation_prompt:
            rows = [whole.encode(turns).ids]
        elif len(turns) < 2 or turns[-1].role != "assistant":
            raise BadInputError("must end with the assistant's message, or want a generation prompt", field="messages")
        else:
            rows = [whole.encode(turns[:-1], tuple(turns[-1:])).ids]
    else:
        special = request.add_special_tokens
        rows = [
            tuple(tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])
            for text in request.texts or ()
        ]
    pieces = tuple(tuple(tokenizer.convert_ids_to_tokens(list(ids))) for ids in rows)
    return TokenResponse(name, length, ids=tuple(rows), pieces=pieces)


def _renderer_of(scorer: object) -> Renderer | None:
    """The renderer of a local model: its own, its writer's, or that of the model under a length correction."""
    for part in (scorer, getattr(scorer, "writer", None), getattr(scorer, "scorer", None)):
        renderer = getattr(part, "renderer", None)
        if isinstance(renderer, Renderer):
            return renderer
    return None


def _check_ids(ids: tuple[int, ...], size: int) -> None:
    if (wrong := next((each for each in ids if not 0 <= each < size), None)) is not None:
        raise BadInputError(f"{wrong} is no token of a vocabulary of {size}", field="tokens")
