"""Published settings of reward-model trainings, by name, each with its source.

Covers: settings of `TrainingConfig` only. What a source does not state (warm-up, betas, ...) keeps Assay's default.
Leaves out: the data and the objective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from assay.errors import BadInputError


@dataclass(frozen=True)
class Preset:
    """`settings`: fields of `TrainingConfig`. `source`: where they are published. `beside`: parts of the recipe that
    are no setting here."""

    settings: Mapping[str, Any]
    source: str
    beside: str = ""


def _preset(source: str, beside: str = "", **settings: Any) -> Preset:
    return Preset(MappingProxyType(settings), source, beside)


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
            "RLHFlow RLHF-Reward-Modeling, its code",
            "conversations that are too long lose their beginning, as here",
            lr=2e-6,
            batch_size=512,
            weight_decay=1e-3,
            schedule="cosine",
            epochs=1,
            max_length=4096,
        ),
        "nemo-rl": _preset(
            "NVIDIA NeMo-RL, its reward-model recipe",
            lr=2e-6,
            batch_size=128,
            weight_decay=0.1,
            betas=(0.9, 0.98),
            max_length=8192,
        ),
        "trl": _preset(
            "TRL RewardTrainer, its defaults", "a rate for adapters: use with --lora", lr=1e-4, max_length=1024
        ),
    }
)


def preset(name: str) -> Preset:
    """Raises BadInputError for an unknown name."""
    if name not in PRESETS:
        raise BadInputError(f"unknown preset {name!r}; one of {', '.join(PRESETS)}", field="preset")
    return PRESETS[name]
