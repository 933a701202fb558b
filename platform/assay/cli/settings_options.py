"""Command-line options from a settings dataclass (`assay.settings`): one option per field, with its default and help.

    @settings_options(CheckConfig)
    def decontaminate(config: CheckConfig, workspace: WorkspaceOption = None) -> None: ...

`exclude`: fields without an option. The dataclass checks the values, so that an error reads the same on the command
line, in a file and in the API. Leaves out: options that are no settings, which stay parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from assay.settings import SettingField, fields_of

Command = Callable[..., None]


def settings_options(settings: type, *, exclude: Collection[str] = ()) -> Callable[[Command], Command]:
    """Replace the first parameter of a command, an instance of `settings`, by one option for each of its fields."""
    declared = [field for field in fields_of(settings) if field.name not in exclude]

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        _, *remaining = inspect.signature(command).parameters.values()
        parameters = option_parameters(settings, exclude=exclude)
        parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name]) for p in remaining]

        @wraps(command)
        def run(**options: Any) -> None:
            values = {field.name: options.pop(field.name) for field in declared}
            values |= {field.name: tuple(values[field.name] or ()) for field in declared if _is_list(field)}
            command(settings(**values), **options)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def option_parameters(settings: type, *, exclude: Collection[str] = ()) -> list[inspect.Parameter]:
    """One keyword parameter for each field, as typer reads it, for a command that puts its signature together."""
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=_option(field)
        )
        for field in fields_of(settings)
        if field.name not in exclude
    ]


def _option(field: SettingField) -> Any:
    text = f"{field.help} ({field.range})" if field.range else field.help
    names = (field.option,) if field.type is not bool else ()
    if _is_list(field):
        return Annotated[list[str] | None, typer.Option(*names, help=text)]
    if field.choices:
        return Annotated[str, typer.Option(*names, help=text, metavar="|".join(map(str, field.choices)))]
    return Annotated[field.type, typer.Option(*names, help=text)]


def _default(field: SettingField) -> Any:
    if field.required:
        return inspect.Parameter.empty
    return None if _is_list(field) else field.default


def _is_list(field: SettingField) -> bool:
    return get_origin(field.type) is tuple
