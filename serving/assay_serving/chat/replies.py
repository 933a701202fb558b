"""Replies and errors of the chat route in OpenAI's form, for chat servers and for generative reward models."""

import time
from typing import Any

from assay.http.problems import ProblemError
from assay_serving.chat.completion import Completion


def openai_error(status: int, problem: ProblemError) -> dict[str, Any]:
    """The body of an error, which is sent with this status."""
    fields = problem.more.get("errors") or []
    param = (fields[0]["field"] or None) if fields else None
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": problem.detail, "type": kind, "param": param, "code": problem.code}}


def chat_reply(request_id: str, model: str, version: str, completion: Completion) -> dict[str, Any]:
    """A chat completion; `system_fingerprint`: version of the checkpoint."""
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": version,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": completion.text},
                "finish_reason": completion.finish,
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": completion.tokens_in,
            "completion_tokens": completion.tokens_out,
            "total_tokens": completion.tokens_in + completion.tokens_out,
        },
    }
