"""Options of commands that ask a language model at an endpoint, so that they read the same everywhere.

Covers: where it is and how it is asked, what may be spent; what they come to. A command lists the options and takes its
context. Leaves out: judges that are no endpoint (`judge`), which comparisons (`selection`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay_pipelines.llm.budget import Spending
    from assay_pipelines.llm.configuration import EndpointConfig

BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", help="Of an OpenAI-compatible endpoint, e.g. https://host/v1.", show_default=False),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Its name there, or what to load.", show_default=False)
]
KeyVariable = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="Environment variable with the key.", show_default=False),
]
Temperature = Annotated[
    float | None,
    typer.Option(min=0.0, help="Default: 0; 0.7 for several samples.", show_default=False),
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Of one answer.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Calls at once.")]
Timeout = Annotated[float, typer.Option(help="Seconds of one try.")]
PriceIn = Annotated[float | None, typer.Option(min=0.0, help="Per million tokens read.", show_default=False)]
PriceOut = Annotated[float | None, typer.Option(min=0.0, help="Per million tokens written.", show_default=False)]
MaxCost = Annotated[float | None, typer.Option("--max-cost", help="Stop before it costs more.", show_default=False)]
MaxCalls = Annotated[int | None, typer.Option("--max-calls", help="Stop after so many calls.", show_default=False)]
MaxTotal = Annotated[
    int | None, typer.Option("--max-total-tokens", help="Stop before more tokens are used.", show_default=False)
]
PromptsFolder = Annotated[
    Path | None, typer.Option("--prompts", help="Folder of prompts of your own.", show_default=False)
]

#: Each is a field of `EndpointConfig`.
_FIELDS = ("base_url", "model", "api_key_env", "max_tokens", "concurrency", "timeout", "price_in", "price_out")
ENDPOINT_OPTIONS = (*_FIELDS, "temperature")  #: of a command, as `endpoint_fields` reads them


def needed(context: typer.Context, option: str) -> str:
    """What was given for it. Raises BadInputError where nothing was."""
    from assay.errors import BadInputError

    value = context.params[option]
    if not value:
        raise BadInputError(f"--{option.replace('_', '-')} is needed here")
    return str(value)


def endpoint_fields(context: typer.Context) -> dict[str, Any]:
    """Fields of an `EndpointConfig`. Raises BadInputError without an address or a model."""
    for option in ("base_url", "model"):
        needed(context, option)
    options = {option: context.params[option] for option in _FIELDS}
    temperature = context.params["temperature"]
    return options | ({} if temperature is None else {"temperature": temperature})


def endpoint_of(context: typer.Context) -> EndpointConfig:
    """Raises BadInputError for what cannot be asked."""
    from assay_pipelines.llm.configuration import EndpointConfig

    return EndpointConfig(**endpoint_fields(context))


def spending_of(context: typer.Context) -> Spending:
    """Nothing spent yet of what may be."""
    from assay_pipelines.llm.budget import Budget, Spending

    options = context.params
    return Spending(Budget(calls=options["max_calls"], tokens=options["max_total_tokens"], cost=options["max_cost"]))
