"""Replies of a model behind an OpenAI-compatible endpoint, for environments that other models play a part in.

Leaves out: HTTP, retries, failures (`assay_serving.chat.client`); how many are awaited at once (`episodes.at_once`).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BackendError
from assay_serving.chat.client import ANSWERED, ChatClient, ChatEndpoint


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """`tokens`: of the completion, as the endpoint counts them; None where it does not."""

    text: str
    tokens: int | None


def chat_endpoint(url: str, model: str, *, seconds: float) -> ChatEndpoint:
    """The key is OPENAI_API_KEY. Raises BadInputError for what is no address."""
    return ChatEndpoint(url, model, os.environ.get("OPENAI_API_KEY"), timeout=seconds, retries=2)


async def chat_reply(
    endpoint: ChatEndpoint, messages: Sequence[Mapping[str, str]], *, max_tokens: int, temperature: float, seed: int
) -> WrittenReply:
    """Raises BackendError, naming the model, where it does not answer or answers no text."""
    body: dict[str, Any] = {"model": endpoint.model, "messages": list(messages), "max_tokens": max_tokens}
    body |= {"temperature": temperature, "seed": seed % (1 << 31)}
    async with ChatClient(endpoint) as client:
        result = await client.send(lambda post: post(body))
    if result.outcome != ANSWERED:
        raise BackendError(f"{endpoint.model} at {endpoint.base_url}: {result.outcome}: {result.error}"[:500])
    try:
        text = result.payload["choices"][0]["message"]["content"]
        counted = (result.payload.get("usage") or {}).get("completion_tokens")
        tokens = None if counted is None else int(counted)
        if not isinstance(text, str) or not text.strip():
            raise ValueError("an empty message")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        why = f"{endpoint.model} at {endpoint.base_url}: no chat completion: {type(error).__name__} {error}"
        raise BackendError(why[:500]) from error
    return WrittenReply(text, tokens)
