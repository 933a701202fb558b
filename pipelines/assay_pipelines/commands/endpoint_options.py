"""The options of commands that ask a language model at an endpoint: address, sampling, prices and what may be spent.

Leaves out: judges that are no endpoint (`judge`), which comparisons (`selection`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.settings_options import Command, replace_parameter, settings_options
from assay.errors import BadInputError
from assay.settings import fields_of
from assay_pipelines.llm.budget import Budget
from assay_pipelines.llm.configuration import EndpointConfig

PromptsFolder = Annotated[
    Path | None, typer.Option("--prompts", help="Folder of prompts of your own.", show_default=False)
]
ENDPOINT_OPTIONS = (
    *("base_url", "model", "api_key_env", "temperature", "max_tokens", "concurrency", "timeout"),
    *("price_in", "price_out"),
)
_OPTIONAL = ("base_url", "model", "temperature")


@dataclass(frozen=True)
class EndpointOptions:
    """`settings`: fields of `EndpointConfig`; None where an option without a default is not given."""

    settings: dict[str, Any]

    def required(self, option: str) -> str:
        """Raises BadInputError without the option."""
        if not (text := self.settings[option]):
            raise BadInputError(f"--{option.replace('_', '-')} is needed here")
        return str(text)

    def endpoint(self) -> EndpointConfig:
        """Raises BadInputError without an address or a model, and for what cannot be asked."""
        for option in ("base_url", "model"):
            self.required(option)
        return EndpointConfig(**{name: setting for name, setting in self.settings.items() if setting is not None})


def endpoint_options(max_tokens: int = 1024) -> Callable[[Command], Command]:
    """Replace the parameters of types `EndpointOptions` and `Budget` by their options."""
    defaults: dict[str, Any] = dict.fromkeys(_OPTIONAL) | {"max_tokens": max_tokens}
    fields = {field.name: field for field in fields_of(EndpointConfig)}
    declared = [replace(fields[name], default=defaults.get(name, fields[name].default)) for name in ENDPOINT_OPTIONS]
    endpoint = replace_parameter(EndpointOptions, declared, lambda **settings: EndpointOptions(settings))
    return lambda command: endpoint(settings_options(Budget, exclude=("questions",))(command))
