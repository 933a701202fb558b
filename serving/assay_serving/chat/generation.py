"""Text from a causal language model by transformers, one conversation at a time.

Covers: rendering by the common renderer, sampling from a seed, end tokens, stop strings, token counts, the queue of a
chat server. Leaves out: batching across callers and constrained decoding (vLLM does both: for more than a few thousand
answers use its server).
"""

import asyncio
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Request

from assay.domain import Message
from assay.errors import BackendError
from assay.http.problems import ProblemError
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_causal_lm, load_tokenizer, resolve_model
from assay.models.spec import weights_digest
from assay_serving.chat.bodies import ChatCompletionRequest
from assay_serving.chat.completion import Completion, TooLongError, cut_at
from assay_serving.chat.message_bodies import messages_of
from assay_serving.chat.replies import chat_reply
from assay_serving.scorer import UNLIMITED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_WAITING = 64
REQUEST_S = 300.0


class ChatModel:
    """A loaded model. Safe to call from several threads: they take turns."""

    def __init__(self, model: "PreTrainedModel", renderer: Renderer, *, name: str, version: str) -> None:
        self.name, self.version = name, version
        self._model, self._renderer = model, renderer
        self.context = int(getattr(model.config, "max_position_embeddings", 0) or UNLIMITED)
        self._lock = threading.Lock()
        published = getattr(model.generation_config, "eos_token_id", None)
        ends = published if isinstance(published, list) else [published]
        self._ends = sorted({int(e) for e in [*ends, renderer.tokenizer.eos_token_id] if e is not None})

    @classmethod
    def load(cls, name: str, *, device: str = "auto", dtype: str = "auto", served_as: str | None = None) -> "ChatModel":
        """A folder, a hub id, `smollm2` or `tiny`. Raises NotFoundError, BadInputError for a reward model."""
        chosen = pick_device(device)
        tokenizer = load_tokenizer(name)
        model = load_causal_lm(name, tokenizer, dtype=pick_dtype(chosen, dtype), device=chosen)
        source = Path(resolve_model(name))
        version = weights_digest(source) if source.is_dir() else str(getattr(model.config, "_commit_hash", "unknown"))
        called = served_as or (Path(name).expanduser().resolve().name if Path(name).expanduser().is_dir() else name)
        return cls(model, Renderer(tokenizer, max_length=UNLIMITED), name=called, version=version)

    @property
    def card(self) -> dict[str, Any]:
        """Its entry of `/v1/models`."""
        entry = {"id": self.name, "object": "model", "owned_by": "assay", "version": self.version}
        return entry | {"max_model_len": self.context}

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        max_seconds: float | None = None,
    ) -> Completion:
        """The assistant's next turn. `temperature` 0 = the most likely token each time. `max_seconds`: generation ends
        there, with `finish` length. Raises TooLongError, BadInputError (the template refuses the conversation),
        BackendError (memory)."""
        import torch

        encoded = self._renderer.encode(tuple(messages))
        if len(encoded) + max_tokens > self.context:
            raise TooLongError(
                f"{len(encoded)} tokens and max_tokens {max_tokens} exceed the model's context length of {self.context}"
            )
        options: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if temperature > 0:
            options = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
        if stop:
            options |= {"stop_strings": list(stop), "tokenizer": self._renderer.tokenizer}
        if max_seconds is not None:
            options["max_time"] = max_seconds
        device = self._model.device
        ids = torch.tensor([encoded.ids], device=device)
        devices = [device] if device.type == "cuda" else []
        with self._lock, torch.random.fork_rng(devices=devices), torch.inference_mode():
            if seed is not None:
                torch.manual_seed(seed)
            try:
                generated = self._model.generate(  # type: ignore[operator]
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=max_tokens,
                    eos_token_id=self._ends,
                    pad_token_id=self._renderer.tokenizer.pad_token_id,
                    **options,
                )
            except torch.OutOfMemoryError as error:
                raise BackendError(f"out of memory on a conversation of {len(encoded)} tokens") from error
        new = generated[0, ids.shape[1] :].tolist()
        text = str(self._renderer.tokenizer.decode(new, skip_special_tokens=True))
        ended = bool(new) and new[-1] in self._ends
        text, ended = cut_at(text, stop, ended)
        return Completion(text, "stop" if ended else "length", len(encoded), len(new))


class QueuedModel:
    """A `ModelCompleter` over one local model: a bounded queue (429 with Retry-After); nothing new while draining."""

    supports: frozenset[str] = frozenset()

    def __init__(self, model: ChatModel, max_waiting: int = MAX_WAITING) -> None:
        self.model, self.max_waiting = model, max_waiting
        self.waiting = 0
        self.draining = False

    def cards(self) -> list[dict[str, Any]]:
        return [self.model.card]

    def drain(self) -> None:
        self.draining = True

    async def complete(self, body: ChatCompletionRequest, request: Request) -> dict[str, Any]:
        model = self.model
        if body.model != model.name:
            raise ProblemError(404, f"no model {body.model!r} here; there is {model.name!r}", code="model_not_found")
        if self.draining:
            raise ProblemError(503, "the server is stopping", code="draining", headers={"Retry-After": "5"})
        if self.waiting >= self.max_waiting:
            raise ProblemError(
                429, f"{self.waiting} requests are waiting", code="queue_full", headers={"Retry-After": "1"}
            )
        self.waiting += 1
        try:
            completion = await asyncio.to_thread(
                model.complete,
                messages_of(body.messages),
                max_tokens=body.limit,
                temperature=body.temperature,
                top_p=body.top_p,
                seed=body.seed,
                stop=body.stops,
                max_seconds=REQUEST_S,
            )
        finally:
            self.waiting -= 1
        return chat_reply(secrets.token_hex(12), model.name, model.version, completion)
