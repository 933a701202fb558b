"""Published settings of reward-model trainings, by name, each with its source.

Covers: settings of `TrainingConfig`, and of the objective where a source has another than Assay's default. What a paper
does not state (Skywork: warm-up, betas) keeps Assay's default; a trainer's code states everything, with its defaults.
Leaves out: the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from assay.errors import BadInputError


@dataclass(frozen=True)
class Preset:
    """`settings`: fields of `TrainingConfig`. `objective`: options of the training method. `source`: where they are
    published. `beside`: parts of the recipe that are no setting here."""

    settings: Mapping[str, Any]
    source: str
    beside: str = ""
    objective: Mapping[str, Any] = field(default_factory=dict)


#: Every source trains all weights at one rate, by the plain loss.
_ONE_RATE = MappingProxyType({"head_lr": 0.0})
_PLAIN_LOSS = MappingProxyType({"centring": 0.0})
#: Defaults of transformers' Trainer and of a new head in `AutoModelForSequenceClassification`.
_TRAINER = MappingProxyType(
    {
        "optimizer": "adamw",
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "max_grad_norm": 1.0,
        "min_lr_ratio": 0.0,
        "head_init": "stock",
    }
)


def _preset(source: str, beside: str = "", **settings: Any) -> Preset:
    return Preset(MappingProxyType({**_ONE_RATE, **settings}), source, beside, _PLAIN_LOSS)


_SKYWORK_V1 = "Skywork-Reward, arXiv 2410.18451 (tables read in transcription)"
_SKYWORK_V2 = "Skywork-Reward-V2 paper (2025), training details"

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "skywork-v1-8b": _preset(_SKYWORK_V1, lr=2e-6, batch_size=128, weight_decay=1e-3, schedule="cosine", epochs=2),
        "skywork-v1-27b": _preset(_SKYWORK_V1, lr=1e-6, batch_size=128, weight_decay=1e-3, schedule="cosine", epochs=2),
        "skywork-v2": _preset(
            _SKYWORK_V2, lr=3e-6, batch_size=10_240, schedule="constant", epochs=1, max_length=16_384
        ),
        "skywork-v2-dev-8b": _preset(
            f"{_SKYWORK_V2}, development runs of 8B models",
            lr=1e-6,
            batch_size=256,
            schedule="linear",
            epochs=1,
            max_length=16_384,
        ),
        "skywork-v2-dev-small": _preset(
            f"{_SKYWORK_V2}, development runs of models below 8B",
            lr=4e-6,
            batch_size=256,
            schedule="linear",
            epochs=1,
            max_length=16_384,
        ),
        "rlhflow": _preset(
            "RLHFlow RLHF-Reward-Modeling, bradley-terry-rm/llama3_rm.py",
            "conversations too long lose their beginning, as here; a paged optimiser and bfloat16 weights there",
            **_TRAINER,
            lr=2e-6,
            batch_size=512,
            weight_decay=1e-3,
            schedule="cosine",
            warmup_ratio=0.03,
            epochs=1,
            max_length=4096,
            gradient_checkpointing=True,
        ),
        "nemo-rl": _preset(
            "NVIDIA NeMo-RL, examples/configs/rm.yaml",
            optimizer="adamw",
            lr=2e-6,
            batch_size=128,
            weight_decay=0.1,
            betas=(0.9, 0.98),
            eps=1e-5,
            max_grad_norm=1.0,
            schedule="constant",
            warmup_ratio=0.0,
            epochs=1,
            max_length=8192,
            gradient_checkpointing=False,
        ),
        "trl": _preset(
            "TRL 1.16, RewardConfig's defaults on one device",
            "a rate for adapters: use with --lora; pairs too long are left out there, here they lose old turns; "
            "margins of the data are used there, here with --margins",
            **_TRAINER,
            lr=1e-4,
            batch_size=8,
            weight_decay=0.0,
            schedule="linear",
            warmup_ratio=0.0,
            epochs=3,
            max_length=1024,
            gradient_checkpointing=True,
        ),
    }
)


def preset(name: str) -> Preset:
    """Raises BadInputError for an unknown name."""
    if name not in PRESETS:
        raise BadInputError(f"unknown preset {name!r}; one of {', '.join(PRESETS)}", field="preset")
    return PRESETS[name]
