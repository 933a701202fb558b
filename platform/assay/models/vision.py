"""Vision-language models as reward models: a sequence classifier for those that transformers has none of.

Covers: whether a configuration is of a model that reads images, the class with a scalar head. Leaves out: images
(`assay.models.chat.image_reader`), loading (`loading`).

transformers makes its classifiers of one generic class over the architecture's base (Gemma 3 and Qwen 3.5 have theirs);
the same is done here for the others, under the name that it would have, so that a checkpoint stays a stock one: weights
`model.*` and `score.weight`.
"""

from functools import cache
from typing import Any


def reads_images(config: Any) -> bool:
    """Whether the architecture is one that writes text from images and text."""
    from transformers import AutoModelForImageTextToText

    has_vision = getattr(config, "vision_config", None) is not None
    return has_vision and type(config) in AutoModelForImageTextToText._model_mapping


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
    from transformers.modeling_layers import GenericForSequenceClassification

    writer: Any = AutoModelForImageTextToText._model_mapping[config]
    base = next(cls for cls in writer.__mro__ if cls.__name__.endswith("PreTrainedModel"))
    name = writer.__name__.removesuffix("ForConditionalGeneration") + "ForSequenceClassification"
    return type(name, (GenericForSequenceClassification, base), {"__module__": __name__})


def image_token_of(config: Any) -> int | None:
    """The token at the positions of images; None for models that read text alone."""
    token = getattr(config, "image_token_id", None)
    token = getattr(config, "image_token_index", None) if token is None else token
    return None if token is None else int(token)
