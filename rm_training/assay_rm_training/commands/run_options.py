"""Options that several training commands share: --force, waivers.

Leaves out: what every command has (`assay.cli.options`), opening a model (`assay_serving.commands.engine_options`).
"""

from __future__ import annotations

from typing import Annotated

import typer

ForceOption = Annotated[bool, typer.Option("--force", help="If the name is in use, write NAME-v2, -v3, ...")]
WaiveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--waive-contamination",
        metavar="BENCHMARK=REASON",
        help="Train although the data is not checked against this registered benchmark, or overlaps; repeatable.",
    ),
]
