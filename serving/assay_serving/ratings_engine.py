"""Scoring with several named ratings under an aggregation that is no sum (the worst, a gate): it does not fold into one
head, so the checkpoint keeps one output a rating and the spec says how they become a reward.

Leaves out: linear aggregations, which are folded when the model is saved and need no engine of their own; training
(`assay_rm_training.rated`). Other engines load the checkpoint as a stock classifier of several labels, and give the
ratings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from assay.errors import BadInputError
from assay.models.devices import pick_device, pick_dtype
from assay.models.loading import load_scalar_model, load_tokenizer, resolve_model, spec_of
from assay.models.renderer import Encoded, Renderer
from assay.models.spec import RatingHeads, RewardModelSpec
from assay_serving.packed_engine import default_name, is_soft_capped
from assay_serving.scorer import ScoreItem
from assay_serving.state_engine import Reading, StateScorer
from assay_serving.transformers_engine import TransformersScorer

if TYPE_CHECKING:
    import torch


class RatingsScorer(StateScorer):
    """Scores by the aggregate of the model's ratings, in the ratings' own units."""

    @classmethod
    def load(
        cls,
        name: str,
        *,
        served_as: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        max_length: int | None = None,
        allow_failed_parity: bool = False,
        **options: Any,
    ) -> Self:
        """Load a folder; options as `TransformersScorer.load`."""
        chosen, tokenizer = pick_device(device), load_tokenizer(name)
        spec = RewardModelSpec.read(Path(resolve_model(name)))
        if spec is None or spec.ratings is None:
            raise BadInputError(f"{name} has no named ratings")
        if spec.parity.startswith("failed") and not allow_failed_parity:
            raise BadInputError(
                f"{name} does not give the scores it was trained to (parity {spec.parity}); "
                "it is not served unless that is allowed explicitly"
            )
        spec = spec_of(name, template_hash=spec.template_hash)  # also checks that these are its files
        assert spec.ratings is not None
        labels = len(spec.ratings.names)
        model = load_scalar_model(name, tokenizer, dtype=pick_dtype(chosen, dtype), device=chosen, labels=labels)
        if is_soft_capped(model.config):
            model.set_attn_implementation("eager")  # fused kernels leave the cap out
        renderer = Renderer(tokenizer, max_length=min(spec.trained_length, max_length or spec.trained_length))
        made = cls.__new__(cls)
        made._take(TransformersScorer(model, renderer, spec, name=served_as or default_name(name), **options))
        return made

    def check(self, spec: RewardModelSpec) -> None:
        if spec.ratings is None:
            raise BadInputError("this model has no named ratings")

    @property
    def ratings(self) -> RatingHeads:
        assert self.spec.ratings is not None  # checked
        return self.spec.ratings

    def read(self, item: ScoreItem, conversation: Encoded) -> Reading:
        return Reading(conversation, (len(conversation.ids) - 1,))

    def reward(self, outputs: torch.Tensor) -> float:
        return self.ratings.reward(outputs[0].tolist())
