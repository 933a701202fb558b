"""Settings declared once, as fields of a frozen dataclass, for the command line, the API, its JSON schema and forms.

    @dataclass(frozen=True)
    class CheckConfig(CheckedSettings):
        ngram: Annotated[int, Ge(1), Le(200), Help("Consecutive units in common that are an overlap.")] = 13
        unit: Annotated[Literal["word", "character"], Help("character: for scripts without spaces.")] = "word"

A command takes one option per field with `@settings_options(CheckConfig)` (`assay.cli.settings_options`) and receives
the instance as its first argument. An API body is a pydantic dataclass that inherits from `CheckConfig`: pydantic reads
the same types, defaults, ranges and descriptions. `arguments_of` gives the options of an instance, `fields_of` what a
form shows. Leaves out: reading configuration files, conditions on several settings (`__post_init__`).
"""

import operator
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from assay.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Help:
    """The description of a setting. `option`: its command-line option, where that is not the field's name; of a switch
    both, as in `--on/--off`, or the one that turns it on; a short form after a comma; without dashes the placeholder of
    a positional argument. `metavar`: the option's placeholder; `panel`: the heading it stands under in the help;
    `envvar`: the environment variable that sets it."""

    text: str
    option: str | None = None
    metavar: str | None = None
    panel: str | None = None
    envvar: str | None = None

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(schema), "description": self.text}


@dataclass(frozen=True)
class SettingField:
    """One declared setting. `type`: without its metadata; `ge`, `gt`, `le`, `lt`: its range; `default`: `MISSING` where
    it must be given."""

    name: str
    type: Any
    default: Any
    help: str
    option: str
    choices: tuple[Any, ...] = ()
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    metavar: str | None = None
    panel: str | None = None
    envvar: str | None = None

    @property
    def positional(self) -> bool:
        return not self.option.startswith("-")

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def range(self) -> str:
        """For a person: "1 to 200", "at least 1", "above 0, at most 1"; empty without a range."""
        if self.ge is not None and self.le is not None:
            return f"{self.ge:g} to {self.le:g}"
        return ", ".join(f"{words} {limit:g}" for words, limit, _ in self._bounds())

    def check(self, value: Any) -> None:
        """Raises BadInputError that names the field and the bound or the choices."""
        if value is None and (self.default is None or type(None) in get_args(self.type)):
            return
        if self.choices and value not in self.choices:
            raise BadInputError(f"unknown {self.name} {value!r}; one of {', '.join(self.choices)}", field=self.name)
        types = get_args(self.type) or (self.type,)
        whole = int in types and float not in types
        for words, limit, holds in self._bounds():
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise BadInputError(f"must be a {'whole ' * whole}number, not {value!r}", field=self.name)
            if not holds(value, limit):
                raise BadInputError(f"must be {words} {limit:g}, not {value:g}", field=self.name)

    def _bounds(self) -> list[tuple[str, float, Callable[[float, float], bool]]]:
        bounds = (
            ("at least", self.ge, operator.ge),
            ("above", self.gt, operator.gt),
            ("at most", self.le, operator.le),
            ("below", self.lt, operator.lt),
        )
        return [(words, limit, holds) for words, limit, holds in bounds if limit is not None]


@cache
def fields_of(settings: type) -> tuple[SettingField, ...]:
    """The declared settings of a dataclass, in the order of its arguments: inherited keywords are last."""
    hints = get_type_hints(settings, include_extras=True)
    ordered = sorted((f for f in fields(settings) if f.init), key=lambda f: bool(f.kw_only))
    return tuple(_field(f.name, hints[f.name], f.default) for f in ordered)


class CheckedSettings:
    """Base of a dataclass of settings without conditions on several of them: `check_settings` when it is made."""

    def __post_init__(self) -> None:
        check_settings(self)


def check_settings(settings: Any, prefix: str = "") -> None:
    """Check every field against its range and choices. Raises BadInputError for the first that fails, with `prefix`
    before its name."""
    declared_by: type = type(settings)
    for declared in fields_of(declared_by):
        named = replace(declared, name=prefix + declared.name) if prefix else declared
        named.check(getattr(settings, declared.name))


def arguments_of(settings: Any, declared_by: type, names: Collection[str] | None = None) -> list[str]:
    """The command-line options that set the fields that `declared_by` declares, or those of them with these `names`,
    to the values of `settings`."""
    arguments: list[str] = []
    for declared in fields_of(declared_by):
        if names is not None and declared.name not in names:
            continue
        value = getattr(settings, declared.name)
        if isinstance(value, bool):
            on, _, off = declared.option.partition("/")
            arguments += [on] if value else [off] if off else []
            continue
        for part in value if isinstance(value, tuple) else () if value is None else (value,):
            arguments += [] if declared.positional else declared.option.split(", ")[:1]
            arguments.append(f"{part:g}" if isinstance(part, float) else str(part))
    return arguments


def _field(name: str, hint: Any, default: Any) -> SettingField:
    type_, *metadata = (hint.__origin__, *hint.__metadata__) if hasattr(hint, "__metadata__") else (hint,)
    description = next((entry for entry in metadata if isinstance(entry, Help)), Help(""))
    limits = {
        key: getattr(entry, key)
        for entry in metadata
        for key in ("ge", "gt", "le", "lt")
        if getattr(entry, key, None) is not None
    }
    union = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    choices = next((get_args(part) for part in union if get_origin(part) is Literal), ())
    words = name.replace("_", "-")
    option = description.option or (f"--{words}/--no-{words}" if type_ is bool else f"--{words}")
    declared = SettingField(name, type_, default, description.text, option, choices, **limits)
    return replace(declared, metavar=description.metavar, panel=description.panel, envvar=description.envvar)
