"""Published settings of reward-model trainings, by name, each with its source, as `presets.toml` lists them.

Covers: settings of `TrainingConfig`, and of the objective where a source has another than Assay's default. What a paper
does not state (Skywork: warm-up, betas) keeps Assay's default; a trainer's code states everything, with its defaults.
Leaves out: the data.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
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


def _preset(source: str, settings: Mapping[str, Any], beside: str = "") -> Preset:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Preset(MappingProxyType({"head_lr": 0.0, **values}), source, beside, MappingProxyType({"centring": 0.0}))


_LISTED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PRESETS: Mapping[str, Preset] = MappingProxyType({name: _preset(**listed) for name, listed in _LISTED.items()})


def preset(name: str) -> Preset:
    """Raises BadInputError for an unknown name."""
    if name not in PRESETS:
        raise BadInputError(f"unknown preset {name!r}; one of {', '.join(PRESETS)}", field="preset")
    return PRESETS[name]
