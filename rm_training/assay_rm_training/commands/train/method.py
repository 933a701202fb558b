"""`assay train method`: train by a registered method or one from your own file.

Leaves out: shared options (`options.py`), the commands of the built-in methods.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_rm_training.methods.method import TRAINING_METHODS

if TYPE_CHECKING:
    from assay_rm_training.methods.method import Method


def method(
    training_method: Annotated[
        str | None, typer.Option("--method", metavar="NAME", help=TRAINING_METHODS.help())
    ] = None,
    method_settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method, its value as JSON; repeatable."),
    ] = None,
) -> Method:
    """Train a reward model by a method of an installed package or of your own file.

    Example: `assay train method --method my_method.py:MyMethod --set margin=0.5 --data gold`
    """
    from assay.errors import BadInputError
    from assay_rm_training.methods.method import method_of

    if training_method is None:
        raise BadInputError("name the training method: --method NAME")
    values: dict[str, Any] = {}
    for entry in method_settings or ():
        key, equals, text = entry.partition("=")
        if not equals:
            raise BadInputError(f"--set takes KEY=VALUE, not {entry!r}")
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            values[key] = text
    return method_of({**values, "name": TRAINING_METHODS.absolute(training_method)})
