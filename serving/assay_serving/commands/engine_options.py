"""Options shared by commands that load a model to score with, from the fields of `ModelConfig`.

Leaves out: options of all commands (`assay.cli.options`), options of one command.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from assay.cli.settings_options import Command, replace_parameter
from assay.errors import BadInputError
from assay.settings import fields_of
from assay_serving.engines.engine import ENGINES
from assay_serving.model_config import ModelConfig

_FIELDS = {field.name: field for field in fields_of(ModelConfig)}
_FIELDS["engine"] = replace(_FIELDS["engine"], help=f"What runs the models: {ENGINES.help()}.")
_FIELDS["engine_options"] = replace(_FIELDS["engine_options"], type=tuple[str, ...], default=())

#: Fields of `ModelConfig` with an option in every command that loads models, here or in a server.
MODEL_OPTIONS = tuple(
    name for name, field in _FIELDS.items() if field.help and name not in ("policy_templates", "tools")
)


def model_options(names: Sequence[str] = MODEL_OPTIONS) -> Callable[[Command], Command]:
    """Replace the parameter of type `ModelConfig`, whose reference the command fills in, by the options `names`."""

    def build(engine_options: tuple[str, ...] = (), **settings: Any) -> ModelConfig:
        return ModelConfig("", engine_options=engine_settings(engine_options), **settings)

    return replace_parameter(ModelConfig, [_FIELDS[name] for name in names], build)


def engine_settings(texts: Sequence[str]) -> dict[str, Any]:
    """From "KEY=VALUE" texts: numbers, true and false are converted, everything else is text. Raises BadInputError."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise BadInputError(f"expects KEY=VALUE, not {text!r}", field="--engine-option")
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        settings[name] = read if isinstance(read, bool | int | float) else value
    return settings
