"""Options shared by commands that load a model to score with.

Leaves out: options of all commands (`assay.cli.options`), options of one command.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from assay_serving.engines.engine import ENGINES

CaOption = Annotated[
    str | None, typer.Option("--ca", help="File of certificate authorities for https.", show_default=False)
]
DtypeOption = Annotated[str, typer.Option(help="float32, bfloat16, float16 or auto.")]
TokenBudgetOption = Annotated[
    int | None, typer.Option(min=1, help="Positions of one forward pass at most (default: 8192, judges 16384).")
]
LengthOption = Annotated[
    int | None, typer.Option(min=1, help="Cut conversations shorter than the model would.", show_default=False)
]
AllowFailedParityOption = Annotated[
    bool, typer.Option("--allow-failed-parity", help="Load a model even if it fails its parity checks.")
]
CorrectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:DOMAIN]", help="Length correction of the model to take off its rewards.", show_default=False
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option(help="Of a model from elsewhere: scalar (default), principle or generative.", show_default=False),
]
QuestionOption = Annotated[
    str | None,
    typer.Option(
        help="Wording that a principle model from elsewhere was trained with, {principle} in it.",
        show_default=False,
    ),
]
EngineOption = Annotated[str, typer.Option(help=f"What runs the models: {ENGINES.help()}.")]
EngineSettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-option",
        metavar="KEY=VALUE",
        help="Option of that engine, e.g. url=http://gpu:8000; repeatable.",
        show_default=False,
    ),
]
OpeningKeysOption = Annotated[
    list[str] | None,
    typer.Option("--api-key", envvar="ASSAY_API_KEY", help="Accepted for every route; repeatable.", show_default=False),
]

#: Options of loading a model: each is a field of `assay_serving.model_config.ModelConfig`.
MODEL_OPTIONS = (
    "device",
    "dtype",
    "token_budget",
    "max_length",
    "kind",
    "question",
    "allow_failed_parity",
    "correct",
    "engine",
    "engine_options",
)


def engine_settings(texts: list[str] | None) -> dict[str, Any]:
    """From "KEY=VALUE" texts: numbers, true and false are converted, everything else is text. Raises BadInputError."""
    import json

    from assay.errors import BadInputError

    settings: dict[str, Any] = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise BadInputError(f"expects KEY=VALUE, not {text!r}", field="--engine-option")
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        settings[name] = read if isinstance(read, bool | int | float) else value
    return settings
