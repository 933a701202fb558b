"""Headings of the help: which commands stand under which, the daily ones first; the same for options of one command.

Leaves out: the texts, which are the commands' own.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup

#: Heading -> first words of commands, in the order of the help. Commands of other packages stand under OTHER.
PANELS: dict[str, tuple[str, ...]] = {
    "Every day": ("init", "data", "annotate", "curate", "train", "eval", "serve", "rl", "web", "doctor"),
    "Data and judgments": ("queue", "judge", "principles", "label-studio"),
    "Reward models": ("calibrate", "verify", "ensemble", "merge", "length-bias", "attack", "eval-judge"),
    "Serving": ("score", "compose", "serve-chat", "keys", "serve-admin"),
    "Policies": ("recipes", "export-policy", "measure", "decode"),
    "Runs and workspace": ("runs", "models", "publish", "lineage", "report", "backup", "restore", "rebuild", "plugins"),
    "Pages": ("up", "account", "demo"),
}
OTHER = "Other commands"
_ORDER = {word: (panel, order) for order, (word, panel) in enumerate((w, p) for p, ws in PANELS.items() for w in ws)}


class GroupedCommands(TyperGroup):
    """The commands in the order of `PANELS`, which is the order of the headings, too."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda word: (_ORDER.get(word, (OTHER, len(_ORDER)))[1], word))


def assign_panels(app: typer.Typer) -> None:
    """Give every registered command its heading; one that names its own keeps it."""
    for command in app.registered_commands:
        command.rich_help_panel = _panel(command)
    for group in app.registered_groups:
        inner = None if isinstance(group.name, str) else group.typer_instance
        group.rich_help_panel = _panel(group if inner is None else inner.info)


def _panel(command: Any) -> str:
    word = command.name
    named = isinstance(command.rich_help_panel, str)
    return str(command.rich_help_panel) if named else _ORDER.get(str(word), (OTHER, 0))[0]


def option_panels(
    panels: Mapping[str, Collection[str]], *, first: Collection[str], others_panel: str
) -> Callable[[Any], Any]:
    """Decorate a command: its parameters `first` stand at the top of its help in this order, those named in `panels`
    under their headings, all others under `others_panel`."""
    panel_of = {name: panel for panel, names in panels.items() for name in names}
    order = [*first, *panel_of]

    def position_of(parameter: inspect.Parameter) -> int:
        return order.index(parameter.name) if parameter.name in order else len(order)

    def decorate(command: Any) -> Any:
        parameters = inspect.signature(command).parameters.values()
        grouped = []
        for parameter in sorted(parameters, key=position_of):
            annotation = parameter.annotation
            if get_args(annotation) and parameter.name not in first:
                type_, option, *extra = get_args(annotation)
                option = copy(option)
                option.rich_help_panel = panel_of.get(parameter.name, others_panel)
                annotation = Annotated[(type_, option, *extra)]
            grouped.append(parameter.replace(annotation=annotation))
        command.__signature__ = inspect.Signature(grouped)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in grouped}
        return command

    return decorate
