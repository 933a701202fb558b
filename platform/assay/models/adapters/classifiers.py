"""Stock classifiers of transformers in other shapes than one label on a decoder with safetensors.

Covers: several labels (named ratings, or a class against another), `.bin` weights, PEFT adapters as TRL with LoRA
writes them, encoders (DeBERTa, ModernBERT, ELECTRA) read as question and answer. Written from transformers' and
peft's own classes; the pair of texts from OpenAssistant's model card (`tokenizer(question, answer)`, the one logit).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.models.adapters.adapter import HeadWeights, ModelAdapter
from assay.models.adapters.checkpoint import PublishedCheckpoint
from assay.models.adapters.heads import LabelledHead, LayeredHead, RewardHead, linear

#: Encoders whose stock classifiers pool in their own way.
ENCODERS = frozenset({"bert", "deberta", "deberta-v2", "electra", "modernbert", "roberta", "xlm-roberta", "distilbert"})
STOCK = "transformers' own classes"


def labels_of(config: Mapping[str, Any]) -> int:
    """Labels of a classifier: one is written as a map of one name."""
    names = config.get("id2label")
    return len(names) if names else int(config.get("num_labels") or 2)


def label_names(config: Mapping[str, Any], count: int) -> list[str]:
    names = {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}
    return [names.get(number, f"LABEL_{number}") for number in range(count)]


def is_classifier(config: Mapping[str, Any]) -> bool:
    return any(str(name).endswith("ForSequenceClassification") for name in config.get("architectures") or ())


def is_plain(config: Mapping[str, Any]) -> bool:
    """Whether it is a stock decoder with one label."""
    own_code = bool(config.get("auto_map"))
    is_stock = is_classifier(config) and not own_code
    return is_stock and labels_of(config) == 1 and config.get("model_type") not in ENCODERS


def score_head(weights: HeadWeights) -> RewardHead:
    """Of a decoder's `score`: one label, two (the log-odds of the second), or more (their mean, each a part)."""
    layer = linear(weights["score.weight"], weights.get("score.bias"))
    count = layer.out_features
    if count <= 2:
        return LayeredHead([layer], minus=count == 2)
    return LabelledHead([layer], label_names(weights.config, count), [1 / count] * count)


def labelled(weights_by_label: Mapping[str, float]) -> ModelAdapter:
    """A classifier whose reward is the sum of its labels' ratings under these weights; other labels count nothing."""

    def head(weights: HeadWeights) -> RewardHead:
        layer = linear(weights["score.weight"], weights.get("score.bias"))
        names = label_names(weights.config, layer.out_features)
        return LabelledHead([layer], names, [weights_by_label.get(name, 0.0) for name in names])

    return ModelAdapter(
        reads=f"all labels at the last token; reward: {weights_by_label}",
        source=STOCK,
        signature=(r"score\.weight",),
        head=head,
        ranked=False,
    )


@dataclass(frozen=True)
class LabelledForm(ModelAdapter):
    """Recognised by its number of labels."""

    def recognises(self, checkpoint: PublishedCheckpoint) -> bool:
        config = checkpoint.config
        plain = is_classifier(config) and config.get("model_type") not in ENCODERS and checkpoint.base is None
        return plain and labels_of(config) > 1


@dataclass(frozen=True)
class PickledForm(ModelAdapter):
    """Recognised by its files."""

    def recognises(self, checkpoint: PublishedCheckpoint) -> bool:
        pickled = any(path.suffix == ".bin" for path in checkpoint.files) and checkpoint.base is None
        return pickled and is_plain(checkpoint.config)


@dataclass(frozen=True)
class EncoderForm(ModelAdapter):
    """Recognised by its model type."""

    def recognises(self, checkpoint: PublishedCheckpoint) -> bool:
        return is_classifier(checkpoint.config) and checkpoint.config.get("model_type") in ENCODERS


@dataclass(frozen=True)
class PeftForm(ModelAdapter):
    """Recognised by its base."""

    def recognises(self, checkpoint: PublishedCheckpoint) -> bool:
        return checkpoint.base is not None


LABELLED = LabelledForm(
    reads="all labels at the last token; reward: their mean, or of two the log-odds of the second",
    source=STOCK,
    requires=(r"score\.weight",),
    head=score_head,
    ranked=False,
)
PICKLED = PickledForm(
    reads="the one label at the last token, from .bin weights opened by torch's weights-only reader",
    source=STOCK,
    requires=(r"score\.weight",),
    head=score_head,
)
PEFT = PeftForm(
    reads="the adapter's own score at the last token, on its base with the adapter merged in memory",
    source="peft's and TRL's own classes",
    requires=(r"base_model\.model\.score(\.modules_to_save\.default)?\.weight",),
    needless=r".*",
    head=score_head,
)
ENCODER = EncoderForm(
    reads="the classifier's own output for question and answer as two texts, or the chat template's one text",
    source="transformers' own classes; the two texts: OpenAssistant's model card",
    body="encoder",
    max_length=None,
)
