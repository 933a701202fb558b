"""Scoring with transformers: the reference engine, for scalar reward models on any device.

Covers: loading, the head. Leaves out: the conversations (`token_engine`), the pass (`packed_engine`), batching across
callers (`assay_serving.server`), generative and principle models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_scalar_model, load_tokenizer, spec_of
from assay.models.pooling import HEAD, head_outputs
from assay_serving.engines.packed import Layout, PackedScorer, default_name, for_scoring, require_parity
from assay_serving.engines.token import UNLIMITED, ScalarReader

if TYPE_CHECKING:
    import torch


class TransformersScorer(ScalarReader, PackedScorer):
    """Scores with a sequence classifier: the reward is its one logit at the conversation's last token."""

    def check(self, name: str) -> None:
        super().check(name)
        model = self.model
        if not hasattr(model, HEAD) or not hasattr(model, model.base_model_prefix):
            raise BadInputError(f"{name} ({type(model).__name__}) has no '{HEAD}' head on a decoder; not supported")

    @classmethod
    def load(
        cls,
        name: str,
        *,
        served_as: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        token_budget: int | None = None,
        max_length: int | None = None,
        layout: Layout = "packed",
        allow_failed_parity: bool = False,
    ) -> Self:
        """Load a folder or hub id; `served_as` is the name its scores carry (default: the folder's name).

        float32 by default even where bfloat16 is faster: bfloat16 moves scores by about 5 % of their spread.
        `max_length` (tokens) can only shorten what the model was trained with. Raises BadInputError for a
        checkpoint that failed its parity check (unless allowed), BackendError for another chat template than it
        was trained with, and what `assay.models.loading` raises.
        """
        chosen = pick_device(device)
        tokenizer = load_tokenizer(name)
        template_hash = Renderer(tokenizer, max_length=UNLIMITED).template_hash
        spec = spec_of(name, template_hash=template_hash)
        require_parity(name, spec, allowed=allow_failed_parity)
        length = min(spec.trained_length, max_length or spec.trained_length)
        labels = cls.labels(name, spec)
        model = load_scalar_model(name, tokenizer, dtype=pick_dtype(chosen, dtype), device=chosen, labels=labels)
        return cls(
            for_scoring(model),
            Renderer(tokenizer, max_length=length),
            spec,
            name=served_as or default_name(name),
            token_budget=token_budget,
            layout=layout,
        )

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """The model's own, in float32."""
        return head_outputs(getattr(self.model, HEAD), states)
