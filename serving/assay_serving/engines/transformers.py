"""Scoring with transformers: the reference engine, for scalar reward models on any device.

Covers: loading, the head. Leaves out: conversations (`token`), the forward pass (`packed`), batching across callers
(`assay_serving.server`), generative and principle models.
"""

from typing import TYPE_CHECKING, Self

from assay.errors import BadInputError
from assay.models.chat.image_reader import ImageReader
from assay.models.chat.renderer import Renderer
from assay.models.devices import pick_device, pick_dtype
from assay.models.heads import HEAD, head_outputs
from assay.models.loading import load_scalar_model, load_tokenizer, spec_of
from assay_serving.engines.packed import Layout, PackedScorer, require_parity
from assay_serving.engines.token import ScalarReader
from assay_serving.model_config import ModelConfig
from assay_serving.model_reference import media_of
from assay_serving.scorer import UNLIMITED

if TYPE_CHECKING:
    import torch

    from assay_serving.engines.engine import ModelLoader


class TransformersScorer(ScalarReader, PackedScorer):
    """Scores with a sequence classifier: the reward is its one logit at the conversation's last token."""

    parted = False

    def check(self, name: str) -> None:
        super().check(name)
        model = self.model
        if not hasattr(model, HEAD) or not hasattr(model, model.base_model_prefix):
            raise BadInputError(f"{name} ({type(model).__name__}) has no '{HEAD}' head on a decoder; not supported")

    @classmethod
    def load(
        cls,
        config: ModelConfig,
        loader: "ModelLoader | None" = None,
        *,
        layout: Layout = "packed",
    ) -> Self:
        """Load a folder or hub id. `loader`: says which workspace stored images are in; this model has no parts.

        Raises BadInputError for a checkpoint that failed its parity check (unless the config allows it), BackendError
        for another chat template than it was trained with, and what `assay.models.loading` raises.
        """
        name, device = config.reference, pick_device(config.device)
        tokenizer = load_tokenizer(name)
        images = ImageReader.load(name, tokenizer, media_of(loader))
        spec = spec_of(
            name, template_hash=lambda: Renderer(tokenizer, max_length=UNLIMITED, images=images).template_hash
        )
        require_parity(config, spec)
        labels, dtype = cls.labels(name, spec), pick_dtype(device, config.dtype)
        model = load_scalar_model(name, tokenizer, dtype=dtype, device=device, labels=labels)
        return cls.of_model(model, tokenizer, spec, config, images=images, layout=layout)

    def head(self, states: "torch.Tensor") -> "torch.Tensor":
        """The model's own, in float32."""
        return head_outputs(getattr(self.model, HEAD), states)
