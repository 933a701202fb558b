"""Vision-language models: which they are, and as reward models a sequence classifier where transformers has none.

Covers: whether a configuration is of a model that reads images, the class that writes text, the class with a scalar
head, the token at the places of images, which no model may write. Leaves out: images (`chat.image_reader`), loading
(`loading`).

transformers makes its classifiers of one generic class over the architecture's base (Gemma 3 and Qwen 3.5 have theirs);
the same is done here for the others, under the name that it would have, so that a checkpoint stays a stock one: weights
`model.*` and `score.weight`.
"""

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: In place of a logit: its token has probability 0 in float32, and sums over the vocabulary stay finite.
BARRED = -1e4


def reads_images(config: Any) -> bool:
    """Whether the architecture is one that writes text from images and text."""
    from transformers import AutoModelForImageTextToText

    has_vision = getattr(config, "vision_config", None) is not None
    return has_vision and type(config) in AutoModelForImageTextToText._model_mapping


def writer_for(config: Any) -> Any:
    """What loads a model of this configuration that writes text."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if reads_images(config) else AutoModelForCausalLM


def classifier_for(config: Any) -> Any:
    """What loads a sequence classifier of this configuration: the class itself where transformers has none."""
    from transformers import AutoModelForSequenceClassification

    if not reads_images(config) or type(config) in AutoModelForSequenceClassification._model_mapping:
        return AutoModelForSequenceClassification
    kind: Any = type(config)
    return _classifier(kind)


@cache
def _classifier(config: Any) -> type:
    from transformers import AutoModelForImageTextToText
    from transformers.conversion_mapping import (
        get_checkpoint_conversion_mapping,
        register_checkpoint_conversion_mapping,
    )
    from transformers.modeling_layers import GenericForSequenceClassification

    writer: Any = AutoModelForImageTextToText._model_mapping[config]
    base = next(cls for cls in writer.__mro__ if cls.__name__.endswith("PreTrainedModel"))
    name = writer.__name__.removesuffix("ForConditionalGeneration") + "ForSequenceClassification"
    # Where files name weights otherwise than the class (Qwen2-VL), so do those of the classifier.
    renamed: Any = get_checkpoint_conversion_mapping(writer.__name__)  # type: ignore[no-untyped-call]
    if renamed is not None:
        register_checkpoint_conversion_mapping(name, renamed, overwrite=True)
    return type(name, (GenericForSequenceClassification, base), {"__module__": __name__})


def processor_without_videos(config: Any) -> Any:
    """The class of the configuration's processor, without its part for videos, whose library may not be there; None
    for a processor that has no such part, or is not made without it, or none at all."""
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    if type(config) not in PROCESSOR_MAPPING:
        return None
    kind: Any = PROCESSOR_MAPPING[type(config)]
    videos = inspect.signature(kind.__init__).parameters.get("video_processor")
    if videos is None or videos.default is inspect.Parameter.empty:
        return None
    parts = [part for part in kind.get_attributes() if part != "video_processor"]
    return type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda cls: parts)})


def image_token_of(config: Any) -> int | None:
    """The token at the positions of images; None for models that read text alone."""
    token = getattr(config, "image_token_id", None)
    token = getattr(config, "image_token_index", None) if token is None else token
    return None if token is None else int(token)


def without_image_places(logits: "torch.Tensor", config: Any) -> "torch.Tensor":
    """Logits [..., V] of the distribution without the token of images' places: written in a response, it would be a
    place without an image, which no forward pass reads."""
    if (token := image_token_of(config)) is None:
        return logits
    barred = logits.clone()
    barred[..., token] = BARRED
    return barred
