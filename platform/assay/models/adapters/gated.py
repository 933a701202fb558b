"""Reward models that rate several attributes and mix the ratings by a gate that reads the conversation.

Written from publishers' code as public repositories hold it: ArmoRM's modeling file, rewardbench/models/qrm.py of
allenai/reward-bench, for QRM on Gemma 2 another project's class for it (scoring/qrm.py, which names the file that it
follows, its tensors and its token pattern), and for URM sglang's `LlamaForSequenceClassificationWithNormal_Weights`,
which is written for it (the publisher's own file was not at hand). Attribute names: ArmoRM's model card; those of
HelpSteer2 for five. QRM's ratings are the means of its quantiles, which is what its score is made of.
"""

from functools import partial

import torch
from torch import nn

from assay.errors import BadInputError
from assay.models.adapters.adapter import HeadWeights, ModelAdapter
from assay.models.adapters.heads import GatedHead, GatingLayers, RewardHead, linear

#: Where Llama 3's chat template begins the assistant's turn: the gate is read at its first token.
LLAMA3_TURN = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
GEMMA2_TURN = "<end_of_turn>\n<start_of_turn>model\n"
HELPSTEER = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
ATTRIBUTES = (
    *(f"helpsteer-{name}" for name in HELPSTEER),
    *(
        f"ultrafeedback-{n}"
        for n in ("overall_score", "instruction_following", "truthfulness", "honesty", "helpfulness")
    ),
    "beavertails-is_safe",
    "prometheus-score",
    "argilla-overall_quality",
    "argilla-judge_lm",
    *(f"code-{name}" for name in ("complexity", "style", "explanation", "instruction-following", "readability")),
)
_NAMES = {len(ATTRIBUTES): ATTRIBUTES, len(HELPSTEER): HELPSTEER}


def attribute_names(count: int) -> tuple[str, ...]:
    return _NAMES.get(count) or tuple(f"attribute-{number}" for number in range(count))


def _gate(weights: HeadWeights, layers: list[nn.Module], ratings: int, *, temperature: float = 10) -> GatingLayers:
    transform = weights.get("reward_transform_matrix")
    return GatingLayers(
        layers,
        temperature=float(weights.config.get("gating_temperature") or temperature),
        scale=weights["gating.logit_scale"],
        transform=torch.eye(ratings) if transform is None else transform,
    )


def _armorm(weights: HeadWeights) -> RewardHead:
    layers: list[nn.Module] = []
    for number in weights.numbered("gating.layers."):
        layers += [nn.ReLU()] if layers else []
        name = f"gating.layers.{number}"
        layers.append(linear(weights[f"{name}.weight"], weights.get(f"{name}.bias")))
    ratings = linear(weights["regression_layer.weight"], weights.get("regression_layer.bias"))
    names = attribute_names(ratings.out_features)
    return GatedHead(ratings, _gate(weights, layers, len(names)), names)


def _qrm(weights: HeadWeights, *, quantiles: int | None = None, temperature: float = 10) -> RewardHead:
    """Its gate's layers are linear, ReLU, normalisation by the running statistics, and so on; the last is linear.
    `quantiles`, `temperature`: where the configuration does not say them."""
    quantiles = weights.config.get("num_quantiles", quantiles)
    if not isinstance(quantiles, int) or quantiles < 1:
        raise BadInputError(f"{weights.checkpoint.name}: config.json says no num_quantiles")
    rows = weights["regression_layer.weight"].float()  # [attributes * quantiles, H], quantiles of one beside each other
    if rows.shape[0] % quantiles:
        raise BadInputError(f"{weights.checkpoint.name} has {rows.shape[0]} outputs, no multiple of {quantiles}")
    ratings = linear(rows.view(-1, quantiles, rows.shape[1]).mean(1))
    layers: list[nn.Module] = []
    for number in weights.numbered("gating.layers."):
        name = f"gating.layers.{number}"
        if f"{name}.running_mean" not in weights:
            layers.append(linear(weights[f"{name}.weight"], weights.get(f"{name}.bias")))
            continue
        norm = nn.BatchNorm1d(weights[f"{name}.weight"].shape[0])
        keys = ("weight", "bias", "running_mean", "running_var")
        norm.load_state_dict({key: weights[f"{name}.{key}"].float() for key in keys}, strict=False)
        weights.get(f"{name}.num_batches_tracked")
        layers += [nn.ReLU(), norm]
    names = attribute_names(ratings.out_features)
    return GatedHead(ratings, _gate(weights, layers, len(names), temperature=temperature), names)


def _urm(weights: HeadWeights) -> RewardHead:
    """Outputs are pairs (mean, spread) an attribute; the coefficients come of the last token too."""
    ratings = linear(weights["score.weight"][::2])
    layers: list[nn.Module] = []
    for number in weights.numbered("weights.fc."):
        layers += [nn.SELU()] if layers else []
        layers.append(linear(weights[f"weights.fc.{number}.weight"], weights.get(f"weights.fc.{number}.bias")))
    return GatedHead(ratings, nn.Sequential(*layers), attribute_names(ratings.out_features))


_QUANTILES = (r"regression_layer\.weight", r"gating\.logit_scale", r"gating\.layers\.0\.weight")
_GATED = (*_QUANTILES, r"reward_transform_matrix")
_NORMED = r"gating\.layers\.2\.running_mean"
_READS = "ratings at the last token, under a gate that is read where the assistant's turn begins"
ARMORM = ModelAdapter(
    reads=_READS,
    source="publisher's code as public repositories hold it",
    architectures=("LlamaForRewardModelWithGating",),
    signature=(*_GATED, r"gating\.layers\.0\.bias"),
    head=_armorm,
    gate=LLAMA3_TURN,
    max_length=4096,
)
QRM = ModelAdapter(
    reads=f"{_READS}; a rating is the mean of its quantiles",
    source="publisher's code as allenai/reward-bench holds it",
    architectures=(
        "LlamaForRewardModelWithGating",
        "LlamaForRewardModelWithGating3",
        "LlamaForRewardModelWithGating31",
    ),
    signature=(*_GATED, _NORMED),
    head=_qrm,
    gate=LLAMA3_TURN,
)
QRM_GEMMA = ModelAdapter(
    reads="means of quantiles at the last token, under a gate that is read at the end of the user's turn",
    source="another project's class for it",
    architectures=("Gemma2ForQuantileSequenceClassification",),
    requires=(*_QUANTILES, _NORMED),
    head=partial(_qrm, quantiles=19, temperature=1),
    gate=GEMMA2_TURN,
)
URM = ModelAdapter(
    reads="means of attributes at the last token, under weights that are read there too",
    source="sglang's class for it",
    architectures=("LlamaForSequenceClassificationWithNormal_Weights",),
    signature=(r"score\.weight", r"weights\.fc\.0\.weight"),
    head=_urm,
)
