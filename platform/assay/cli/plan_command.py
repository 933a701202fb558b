"""`assay plan`: what a training would take, in front of its command. Leaves out: the plan (`assay.planning`), which the
training's own command makes, since only it knows its settings."""

import re
from typing import Annotated

import typer

from assay.cli.options import JsonOption
from assay.cli.settings_options import settings_options
from assay.errors import BadInputError
from assay.planning.request import PlanRequest, planning
from assay.settings import fields_of

_PLANNED = ("train", "rl")


def register(app: typer.Typer) -> None:
    app.command("plan", context_settings={"allow_interspersed_args": False})(plan)


@settings_options(PlanRequest)
def plan(
    request: PlanRequest,
    command: Annotated[list[str], typer.Argument(metavar="train|rl ...", help="The training, as it would be run.")],
    as_json: JsonOption = False,
) -> None:
    """Will it fit? Peak memory of a training by kind, the largest micro-batch that fits a card, tokens a second, and
    what to change. Nothing is loaded or trained: its step runs on tensors without memory.

    Give it in front of the command, whose --data and --reward may be left out; of the base only the config is read.

    Example: `assay plan --card h100 train bt --base smollm2 --lora 16`
    """
    from assay.cli.main import _command

    if command[0] not in _PLANNED:
        raise BadInputError(f"plans {' and '.join(_PLANNED)}, not {command[0]}")
    plan_options = [name for field in fields_of(PlanRequest) for name in re.split(r"[,/] ?", field.option)]
    for word in command:
        if (option := word.partition("=")[0]) in plan_options:
            text = f"is an option of plan, in front of the training: assay plan {option} ... {command[0]} ..."
            raise BadInputError(text, field=option)
    arguments = [*command, "--json"] if as_json and "--json" not in command else command
    with planning(request):
        _command(command[0])(args=arguments, standalone_mode=False)
