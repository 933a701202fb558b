"""What the chat route answers, in OpenAI's form: the same for a chat server and for a generative reward model."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import BaseModel


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str


class Choice(BaseModel):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length"]
    logprobs: None


class ChatUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletionResponse(BaseModel):
    """`system_fingerprint`: version of the checkpoint."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: ChatUsage


def chat_reply(
    name: str, *, model: str, version: str, text: str, finish: str, tokens_in: int, tokens_out: int
) -> dict[str, Any]:
    """The JSON of `ChatCompletionResponse`; `name` makes its id."""
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": version,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": finish,
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }
