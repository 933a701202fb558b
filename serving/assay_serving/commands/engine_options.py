"""Options of commands that open a model to score with, so that they read the same everywhere.

Leaves out: what every command has (`assay.cli.options`), options of one command.
"""

from __future__ import annotations

from typing import Annotated

import typer

DtypeOption = Annotated[str, typer.Option(help="float32, bfloat16, float16 or auto.")]
TokenBudgetOption = Annotated[
    int | None, typer.Option(min=1, help="Positions of one forward pass at most (default: 8192, judges 16384).")
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
OpeningKeysOption = Annotated[
    list[str] | None,
    typer.Option("--api-key", envvar="ASSAY_API_KEY", help="Opens every route; repeatable.", show_default=False),
]
