"""Forms of jobs, made of the options of their commands: names, types, defaults, ranges, help; and back to arguments.

A setting is called as the option without dashes in front and with _ within, an argument as the command calls it. Where
the option comes from a dataclass (`assay.settings`), the form has its range and choices. Leaves out: which options a
form shows first (`kind`), what could be chosen (`suggestions`), keys, which are never part of a command line.
"""

import inspect
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import BaseModel

from assay.cli.main import build_app
from assay.errors import BadInputError
from assay.registry import unknown
from assay.settings import SettingField
from assay_web.jobs.kind import JobKind, Settings, SettingValue

FieldType = Literal["switch", "whole", "number", "text", "list"]
#: Options that belong to a terminal, to the folder that a job runs in anyway, or that write over other folders.
LEFT_OUT = frozenset(("workspace", "json", "example", "api_key", "watch_key", "api_key_env", "out"))
LONGEST = 4_000  #: characters of a value


class FormField(BaseModel):
    """A setting. `choices`: the only values, `suggestions`: some of them. `least`, `most`: the range, where there is
    one; `prominent`: stands in the form at once. `heading`: of the others, null without one."""

    name: str
    type: FieldType
    help: str
    default: bool | int | float | str | list[str] | None
    required: bool
    choices: list[str]
    suggestions: list[str] = []
    least: float | None
    most: float | None
    placeholder: str | None
    heading: str | None
    prominent: bool


class JobForm(BaseModel):
    """`choice`: what chooses the command among `choices`, each with its first sentence; null where there is one."""

    kind: str
    title: str
    summary: str
    choice: str | None
    choices: dict[str, str]
    fields: list[FormField]


def form_of(name: str, kind: JobKind, chosen: str | None = None) -> JobForm:
    """Raises BadInputError for a choice that is not there."""
    group = _command(kind.command)
    commands: dict[str, Any] = group.commands if kind.choice is not None else {}
    if kind.choice is not None and chosen is None:
        chosen = next(iter(commands))
    command = _chosen(kind, chosen)
    fields = {declared.name: declared for declared in _fields(command)}
    first = [fields.pop(one).model_copy(update={"prominent": True}) for one in kind.prominent if one in fields]
    required = [
        fields.pop(one.name).model_copy(update={"prominent": True}) for one in [*fields.values()] if one.required
    ]
    return JobForm(
        kind=name,
        title=kind.title,
        summary=_first_sentence(command),
        choice=kind.choice,
        choices={word: _first_sentence(each) for word, each in commands.items()},
        fields=[*first, *required, *fields.values()],
    )


def arguments_for(kind: JobKind, settings: Settings) -> list[str]:
    """The arguments of `assay`; options at their default are left out. Raises BadInputError that names the setting."""
    words = list(kind.command)
    values = dict(settings)
    chosen = values.pop(kind.choice, None) if kind.choice is not None else None
    if kind.choice is not None and not isinstance(chosen, str):
        raise BadInputError("is to be chosen", field=kind.choice)
    command = _chosen(kind, chosen if isinstance(chosen, str) else None)
    words += [chosen] if isinstance(chosen, str) else []
    fields = {field.name: field for field in _fields(command)}
    for name in values:
        if name not in fields:
            raise unknown(f"setting of assay {' '.join(words)}", name, fields, field=name)
    positional: list[str] = []
    options: list[str] = []
    for parameter in command.params:
        name = _name(parameter)
        value = values.get(name)
        if name not in fields or value is None or value == "" or value == []:
            if name in fields and fields[name].required:
                raise BadInputError("is needed", field=name)
            continue
        texts = _texts(fields[name], value, _declared(command, parameter))
        if value == fields[name].default:
            continue
        if parameter.param_type_name == "argument":
            positional += texts
        elif fields[name].type == "switch":
            options += parameter.opts[:1] if value else parameter.secondary_opts[:1]
        else:
            option = _long(parameter.opts)
            options += [p for text in texts for p in ([f"{option}={text}"] if text[:1] == "-" else [option, text])]
    if any(text.startswith("-") for text in positional):
        raise BadInputError(f"{positional[0]!r} may not begin with a dash", field=next(iter(fields)))
    return [*words, *positional, *options]


def has_resume(arguments: Sequence[str]) -> str | None:
    """The words of the command in these arguments, where it takes --resume RUN; None where the same again resumes."""
    command, words = _top(arguments[0]), 1
    while words < len(arguments) and arguments[words] in (getattr(command, "commands", None) or {}):
        command, words = command.commands[arguments[words]], words + 1
    return " ".join(arguments[:words]) if any(p.name == "resume" for p in command.params) else None


@cache
def _top(word: str) -> Any:
    app: Any = typer.main.get_command(build_app(word))
    if word not in app.commands:
        raise BadInputError(f"there is no command assay {word}", field="kind")
    return app.commands[word]


def _command(words: tuple[str, ...]) -> Any:
    command = _top(words[0])
    for word in words[1:]:
        if word not in (getattr(command, "commands", None) or {}):
            raise BadInputError(f"there is no command assay {' '.join(words)}", field="kind")
        command = command.commands[word]
    return command


def _chosen(kind: JobKind, chosen: str | None) -> Any:
    group = _command(kind.command)
    if kind.choice is None:
        return group
    if chosen not in group.commands:
        raise unknown(kind.choice, chosen, group.commands, field=kind.choice)
    return group.commands[chosen]


def _fields(command: Any) -> list[FormField]:
    fields = []
    for parameter in command.params:
        name, envvar = _name(parameter), str(getattr(parameter, "envvar", None) or "")
        if name in LEFT_OUT or getattr(parameter, "hidden", False) or envvar.endswith("_KEY"):
            continue
        fields.append(_field(name, parameter, _declared(command, parameter)))
    return fields


def _field(name: str, parameter: Any, declared: SettingField | None) -> FormField:
    type_ = _type(parameter)
    default = parameter.default
    if callable(default) or isinstance(default, Path):
        default = None if callable(default) else str(default)
    metavar = parameter.metavar or ""
    choices = list(map(str, declared.choices)) if declared is not None else []
    words = metavar.split("|")
    alternatives = words if len(words) > 1 and all(word.islower() for word in words) else []
    return FormField(
        name=name,
        type=type_,
        help=" ".join((getattr(parameter, "help", None) or "").replace("`", "").split()),
        default=list(default) if isinstance(default, tuple) else default,
        required=bool(parameter.required),
        choices=choices or alternatives,
        least=None if declared is None else declared.ge if declared.ge is not None else declared.gt,
        most=None if declared is None else declared.le if declared.le is not None else declared.lt,
        placeholder=metavar if metavar and not alternatives else None,
        heading=getattr(parameter, "rich_help_panel", None),
        prominent=False,
    )


def _type(parameter: Any) -> FieldType:
    annotation = parameter.type_descriptor.annotation
    if parameter.multiple if hasattr(parameter, "multiple") else parameter.nargs != 1:
        return "list"
    names: dict[Any, FieldType] = {bool: "switch", int: "whole", float: "number"}
    return names.get(annotation, "text")


def _declared(command: Any, parameter: Any) -> SettingField | None:
    """The field of the dataclass that the option is made of."""
    signature = inspect.signature(command.callback).parameters.get(parameter.name)
    metadata = getattr(signature.annotation, "__metadata__", ()) if signature is not None else ()
    return next((entry for entry in metadata if isinstance(entry, SettingField)), None)


def _texts(field: FormField, value: SettingValue, declared: SettingField | None) -> list[str]:
    """The value as the command line has it. Raises BadInputError for a value of another type or outside the range."""
    if field.type == "switch":
        if not isinstance(value, bool):
            raise BadInputError(f"is on or off, not {value!r}", field=field.name)
        return []
    if field.type in ("whole", "number"):
        if isinstance(value, str):
            value = _number(field, value)
        if isinstance(value, bool) or not isinstance(value, int if field.type == "whole" else int | float):
            raise BadInputError(
                f"must be a {'whole ' * (field.type == 'whole')}number, not {value!r}", field=field.name
            )
        if declared is not None:
            declared.check(value)
        return [str(value) if isinstance(value, int) else _shortest(value)]
    parts = value if isinstance(value, list) else [value]
    if field.type != "list" and isinstance(value, list):
        raise BadInputError("takes one value", field=field.name)
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    for text in texts:
        if len(text) > LONGEST or any(ord(character) < 32 and character not in "\n\t" for character in text):
            raise BadInputError(f"is no text of at most {LONGEST} characters", field=field.name)
        if field.choices and text not in field.choices:
            raise BadInputError(f"unknown {field.name} {text!r}; one of {', '.join(field.choices)}", field=field.name)
    return texts


def _number(field: FormField, text: str) -> int | float:
    try:
        return int(text) if field.type == "whole" else float(text)
    except ValueError:
        raise BadInputError(f"must be a number, not {text!r}", field=field.name) from None


def _shortest(value: float) -> str:
    return text if float(text := f"{value:g}") == value else repr(value)


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name)
    return _long(parameter.opts).lstrip("-").replace("-", "_")


def _long(options: Sequence[str]) -> str:
    return max(options, key=len)


def _first_sentence(command: Any) -> str:
    text = " ".join((command.help or "").split())
    return text.split(". ")[0].rstrip(".") + "." if text else ""
