"""Scoring with transformers: the reference engine, for scalar reward models on any device.

Covers: the checks of a scalar model, its conversations, its head. Leaves out: the pass (`packed_engine`), batching
across callers (`assay_serving.server`), generative and principle models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from assay.conversation import check_unicode
from assay.errors import BackendError, BadInputError
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_scalar_model, load_tokenizer, spec_of
from assay.models.pooling import HEAD, head_outputs
from assay.models.renderer import Encoded, Renderer
from assay.models.spec import RewardModelSpec
from assay.score import ScoreFailure
from assay_serving.packed_engine import (
    UNLIMITED,
    Layout,
    PackedScorer,
    default_name,
    for_scoring,
    require_parity,
)
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch


class TransformersScorer(PackedScorer):
    """Scores with a sequence classifier: the reward is its one logit at the conversation's last token."""

    def check(self, name: str) -> None:
        model, spec, renderer = self.model, self.spec, self.renderer
        if spec.kind != "scalar":
            raise BadInputError(f"{name} is a {spec.kind} reward model; this engine scores scalar ones")
        self.labels(name, spec)
        if not hasattr(model, HEAD) or not hasattr(model, model.base_model_prefix):
            raise BadInputError(f"{name} ({type(model).__name__}) has no '{HEAD}' head on a decoder; not supported")
        if spec.template_hash != renderer.template_hash:
            raise BackendError(
                f"{name} was trained with chat template {spec.template_hash}, "
                f"its tokenizer now gives {renderer.template_hash}: its scores would mean nothing"
            )

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

    @classmethod
    def labels(cls, name: str, spec: RewardModelSpec) -> int:
        """Outputs of the head. Raises BadInputError for a model that is not this engine's."""
        return 1

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        """The item's tokens, or why it cannot be scored."""
        if item.principle is not None:
            return self.failure("bad_input", "this model takes no principle")
        try:
            for message in item.prompt:
                check_unicode(message.content, "prompt")
            check_unicode(item.response, "response")
            encoded = self.renderer.encode(item.prompt, item.response)
        except BadInputError as error:
            return self.failure("bad_input", str(error))
        if not encoded.ids:
            return self.failure("bad_input", "the conversation has no tokens")
        if encoded.response_cut:
            limit = self.renderer.max_length
            return self.failure("too_long", f"the response alone does not fit in {limit} tokens")
        return encoded

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """The model's own, in float32."""
        return head_outputs(getattr(self.model, HEAD), states)
