"""Command-line options from a settings dataclass (`assay.settings`): one option per field, with its default and help.

    @settings_options(CheckConfig)
    def decontaminate(config: CheckConfig, workspace: WorkspaceOption = None) -> None: ...

`exclude`: fields without an option. The decorator may be repeated for several parameters. The dataclass checks the
values, so that an error reads the same on the command line, in a file and in the API. Leaves out: options that are no
settings, which stay parameters.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from assay.settings import SettingField, fields_of

Command = Callable[..., Any]


def settings_options(settings: type, *, exclude: Collection[str] = ()) -> Callable[[Command], Command]:
    """Replace the parameter of a command whose type is `settings` by one option for each of its fields."""
    return replace_parameter(settings, [field for field in fields_of(settings) if field.name not in exclude], settings)


def replace_parameter(
    type_: type, declared: Sequence[SettingField], build: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Replace the parameter of type `type_` by the declared options; `build` makes its argument of their values."""

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        (replaced,) = (name for name, hint in hints.items() if hint is type_)
        for p in inspect.signature(command).parameters.values():
            if p.name == replaced:
                parameters += map(_parameter, declared)
            else:
                parameters.append(p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]))

        @wraps(command)
        def run(**options: Any) -> Any:
            values = {field.name: options.pop(field.name) for field in declared}
            for field in filter(_is_list, declared):
                given = values[field.name]
                values[field.name] = tuple(given) if given else () if field.required else field.default
            return command(**{replaced: build(**values)}, **options)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def option_parameters(settings: type, *, exclude: Collection[str] = ()) -> list[inspect.Parameter]:
    """One keyword parameter for each field, as typer reads it, for a command that puts its signature together."""
    return [_parameter(field) for field in fields_of(settings) if field.name not in exclude]


def _parameter(field: SettingField) -> inspect.Parameter:
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=_option(field)
    )


def _option(field: SettingField) -> Any:
    text = f"{field.help} ({field.range})" if field.range else field.help
    metavar = field.metavar or ("|".join(map(str, field.choices)) or None)
    elements = _elements(field)
    type_: Any = str if field.choices else list[elements] if elements else field.type  # type: ignore[valid-type]
    if field.positional:
        return Annotated[type_, typer.Argument(help=text, metavar=field.option), field]
    names, panel = field.option.split(", "), field.panel
    option = typer.Option(*names, help=text, metavar=metavar, envvar=field.envvar, rich_help_panel=panel)
    return Annotated[type_ | None if elements else type_, option, field]  # typer passes over the field; forms read it


def _default(field: SettingField) -> Any:
    if field.required:
        return inspect.Parameter.empty
    return None if _is_list(field) else field.default


def _is_list(field: SettingField) -> bool:
    return _elements(field) is not None


def _elements(field: SettingField) -> Any:
    """The type of the elements of a repeatable setting; None for one that is not."""
    parts = (field.type, *get_args(field.type))
    return next((get_args(part)[0] for part in parts if get_origin(part) is tuple), None)
