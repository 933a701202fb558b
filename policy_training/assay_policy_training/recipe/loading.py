"""Recipes from YAML and back: strict reading, `key=value` overrides, writing.

An unknown key or a value of the wrong type is an error that names the key. A section of `slots.SLOTS` carries `kind`:
the name of a member of its kind, `package.module:Class`, or `file.py:Class` beside the recipe's file; its remaining
keys are the fields of that dataclass. A chain (`shaping`, `filters`, ...) is a list of such sections.
"""

import types
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from assay.errors import BadInputError
from assay.registry import unknown
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.recipe.shipped import recipe_sections, shipped_recipes
from assay_policy_training.recipe.slots import DEFAULTS, SLOTS

__all__ = ["load_recipe", "recipe_from_dict", "recipe_to_dict", "shipped_recipes"]


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """JSON- and YAML-ready; `recipe_from_dict` is the inverse."""
    return {f.name: _plain(f.name, getattr(recipe, f.name)) for f in fields(recipe)}


def _plain(slot: str, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(slot, entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _plain("", entry) for key, entry in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    kind = {"kind": SLOTS[slot].name_of(type(value))} if slot in SLOTS else {}
    return kind | {f.name: _plain("", getattr(value, f.name)) for f in _settings(type(value))}


def _settings(cls: type[Any]) -> list[Field[Any]]:
    """A plug-in's settings; what `init` does not take is its memory."""
    return [f for f in fields(cls) if f.init]


def _names(hint: Any) -> set[str]:
    """Settings of a section of this type."""
    options = [one for one in (hint, *get_args(hint)) if is_dataclass(one) and isinstance(one, type)]
    return {f.name for one in options for f in _settings(one)}


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or a YAML file by path, with `section.key=value` overrides.

    Raises NotFoundError for a missing file, BadInputError for an unknown name, or naming the key that is wrong.
    """
    sections = recipe_sections(name)
    chosen: set[str] = set()
    for override in overrides:
        _override(sections, override, chosen)
    path = Path(name).expanduser()
    return recipe_from_dict(sections, folder=path.parent if path.is_file() else None)


def recipe_from_dict(sections: Mapping[str, Any], *, folder: Path | None = None) -> Recipe:
    """`folder`: where a plug-in given as `file.py:Class` is looked for; default: the working directory.

    Raises BadInputError naming the key that is unknown, missing or of the wrong type.
    """
    recipe: Recipe = _Reader(folder).build(Recipe, sections, "")
    return recipe


def refuse_contradictions(overrides: Iterable[str], by_option: Iterable[tuple[str, str]]) -> None:
    """Raises BadInputError where an override gives a key another value than an option does. `by_option`: options,
    and the override that each stands for."""
    chosen = {key.strip(): text for key, _, text in (override.partition("=") for override in overrides)}
    for option, override in by_option:
        key, _, text = override.partition("=")
        names = key.split(".")
        for depth in range(1, len(names) + 1):
            section = ".".join(names[:depth])
            for value in _inside(chosen.get(section), names[depth:]):
                if value != _number_or_yaml(text):
                    message = f"{option} says {text}, --set says {section}={chosen[section]}: give one of them"
                    raise BadInputError(message, field=key)


def _inside(text: str | None, names: Sequence[str]) -> list[Any]:
    """The value under these names of an override's text, in a list; an empty one where it has none."""
    value = MISSING if text is None else _number_or_yaml(text)
    for name in names:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return [] if value is MISSING else [_number_or_yaml(value) if isinstance(value, str) else value]


def _number_or_yaml(text: str) -> Any:
    try:
        return float(text)  # 1e-5, which YAML takes for a text
    except ValueError:
        with suppress(yaml.YAMLError):  # which the recipe's reader reports
            return yaml.safe_load(text)
    return text


def _override(sections: dict[str, Any], override: str, chosen: set[str]) -> None:
    """`chosen`: keys of the overrides so far, without those that a later one replaced with their section."""
    key, equals, text = override.partition("=")
    *above, last = key.strip().split(".")
    if not equals or not last:
        raise BadInputError(f"an override is key=value, e.g. optimisation.lr=1e-6, not {override!r}", field="--set")
    target: Any = sections
    for depth, name in enumerate(above):
        if isinstance(target, list) and name.isdigit() and int(name) < len(target):
            target = target[int(name)]
        elif isinstance(target, list) or (depth == 1 and name.isdigit() and not target):
            chain = above[0]
            message = f"there is no {chain}.{name}: the recipe lists {len(target)}, counted from 0"
            raise BadInputError(f"{message}; to replace the list: --set '{chain}=[{{kind: ...}}]'", field=key)
        else:
            target = target.setdefault(name, {}) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        raise BadInputError(f"no such key: {'.'.join(above)} is not a mapping", field=key)
    if last == "kind":  # another plug-in has other fields than the recipe's; those chosen for it stay
        for name in [name for name in target if ".".join((*above, name)) not in chosen]:
            del target[name]
    chosen -= {one for one in chosen if one.startswith(f"{key.strip()}.")}
    chosen.add(key.strip())
    try:
        target[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInputError(f"not a YAML value: {text!r}", field=key) from error


class _Reader:
    """Builds dataclasses from plain data, strictly. `where` is the dotted path for messages."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def build(self, cls: type[Any], values: Any, where: str, others: Iterable[str] = ()) -> Any:
        """`others`: keys of the section that are read already."""
        if not isinstance(values, Mapping):
            raise BadInputError(f"must be a mapping, not {values!r}", field=where or "recipe")
        hints = get_type_hints(cls)
        types_by_name = {f.name: hints[f.name] for f in _settings(cls)}
        prefix = f"{where}." if where else ""
        for key in sorted(str(key) for key in values if key not in types_by_name):
            if inner := [f"{name}.{key}" for name, hint in types_by_name.items() if key in _names(hint)]:
                raise BadInputError(f"no such key; did you mean {' or '.join(inner)}?", field=prefix + key)
            raise unknown(f"key of {where or 'a recipe'}", key, {*types_by_name, *others}, field=prefix + key)
        built = {
            key: self._value(types_by_name[key], value, prefix + key, key if cls is Recipe else "")
            for key, value in values.items()
        }
        try:
            return cls(**built)
        except TypeError as error:
            missing = [
                f.name
                for f in _settings(cls)
                if f.name not in built and f.default is MISSING and f.default_factory is MISSING
            ]
            if not missing:
                raise
            raise BadInputError("missing", field=prefix + missing[0]) from error

    def _value(self, hint: Any, value: Any, where: str, slot: str = "") -> Any:
        if slot in SLOTS:
            chain = get_origin(hint) is tuple
            if chain:
                listed = value if isinstance(value, list | tuple) else [value]
                return tuple(self._plugin(slot, entry, f"{where}.{i}") for i, entry in enumerate(listed))
            return None if value is None and type(None) in get_args(hint) else self._plugin(slot, value, where)
        if is_dataclass(hint) and isinstance(hint, type):
            return self.build(hint, value, where)
        if hint is Any:
            return value
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            if value is None and type(None) in get_args(hint):
                return None
            hint = next(option for option in get_args(hint) if option is not type(None))
            return self._value(hint, value, where)
        if origin is Literal and isinstance(value, str):  # which one, the class itself checks
            return value
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(self._value(get_args(hint)[0], v, where) for v in value)
        if origin is not None and isinstance(value, Mapping):
            return {str(k): self._value(get_args(hint)[1], v, f"{where}.{k}") for k, v in value.items()}
        if hint is float and isinstance(value, str):  # YAML reads 1e-6, without a dot, as text
            try:
                return float(value)
            except ValueError as error:
                raise BadInputError(f"must be a number, not {value!r}", field=where) from error
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
            return value
        raise BadInputError(f"must be {getattr(hint, '__name__', 'of another type')}, not {value!r}", field=where)

    def _plugin(self, slot: str, value: Any, where: str) -> Any:
        section = dict(value) if isinstance(value, Mapping) else {"kind": value}
        kind, name = SLOTS[slot], section.pop("kind", None) or DEFAULTS.get(slot)
        if name is None:
            raise BadInputError(f"missing; {kind.help()}", field=f"{where}.kind")
        cls = kind.find(name, folder=self.folder, field=f"{where}.kind")
        if not (isinstance(cls, type) and is_dataclass(cls)):
            raise BadInputError(f"{name!r} is not a dataclass", field=f"{where}.kind")
        return self.build(cls, section, where, ["kind"])
