"""The YAML file of `assay serve --config`: models, address, limits and other settings.

Covers: reading it strictly (unknown fields and values of the wrong type are errors that name the file), an example to
start from. Leaves out: options of the command line, which override it (`commands.serve`).
"""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from assay.errors import AssayError, BadInputError, NotFoundError
from assay.registry import absolute_name, unknown
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.settings import FILES, ServeConfig, ServerSettings
from assay_serving.server.models.model_access import is_address

_ERROR_PATH = re.compile(r"(?P<what>.*) - at `\$(?P<path>[^`]*)`")


def read_config(path: Path) -> dict[str, Any]:
    """The file's fields with its values, `models` as plans, paths that exist beside the file made absolute.

    Raises BadInputError naming file and field, NotFoundError where there is no such file. Missing fields are left
    out: the command line may set them.
    """
    try:
        payload = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"no such file: {path}") from error
    except OSError as error:
        raise BadInputError(f"{error.strerror}", file=path) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=path) from error
    if not isinstance(payload, dict):
        raise BadInputError("must be a mapping of fields", file=path)
    try:
        return _read_fields(payload, path.absolute().parent)
    except BadInputError as error:
        raise error if error.file else BadInputError(str(error), file=path) from error


def config_of(values: Mapping[str, Any]) -> ServeConfig:
    """From the fields of the configuration and of `ServerSettings` by name. Raises BadInputError naming the field."""
    fields_here = {name: value for name, value in values.items() if name in _CONFIG_FIELDS}
    settings = {name: value for name, value in values.items() if name in _SETTINGS}
    if "max_items" not in settings and "max_queue_items" in settings:  # a small queue alone is valid
        settings["max_items"] = min(ServerSettings.max_items, settings["max_queue_items"])
    return ServeConfig(**{"models": (), **fields_here}, settings=ServerSettings(**settings))


def path_of(kind: type[Any], value: Any) -> Any:
    """Decodes paths for msgspec, which does not know them."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)  # required by msgspec: it then names the field


def example() -> str:
    """A complete file with every common field explained."""
    return (resources.files("assay_serving.server") / "serve.example.yaml").read_text(encoding="utf-8")


_CONFIG_FIELDS = {f.name: f for f in fields(ServeConfig) if f.name != "settings"}
_SETTINGS = {f.name: f for f in fields(ServerSettings)}


def _read_fields(payload: Mapping[Any, Any], folder: Path) -> dict[str, Any]:
    _refuse_unknown(payload, [*_CONFIG_FIELDS, *_SETTINGS], "")
    values = dict(payload)
    entries = values.pop("models", [])
    if not isinstance(entries, list):
        raise BadInputError("must be a list", field="models")
    read = _typed(values)
    for name in FILES:
        if isinstance(value := read.get(name), str):
            read[name] = str(folder / Path(value).expanduser())
    if "model_folders" in read:
        read["model_folders"] = tuple(
            entry if is_address(entry) else str(folder / Path(entry).expanduser()) for entry in read["model_folders"]
        )
    if read.get("dialects"):
        read["dialects"] = tuple(absolute_name(name, folder) for name in read["dialects"])
    if entries:
        read["models"] = tuple(_read_plan(entry, number, folder) for number, entry in enumerate(entries))
    return read


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the types of their fields; raises BadInputError for one that is of another type."""
    kinds = {**_hints(ServeConfig), **_hints(ServerSettings)}
    return {name: _converted(value, kinds[name], name) for name, value in values.items()}


def _read_plan(entry: Any, number: int, folder: Path) -> ModelConfig:
    field_path = f"models[{number}]"
    if isinstance(entry, str):
        entry = {"reference": entry}
    if not isinstance(entry, dict):
        raise BadInputError("must be a name, or a mapping with a reference", field=field_path)
    _refuse_unknown(entry, list(ModelConfig.__dataclass_fields__), f"{field_path}.")
    kinds = _hints(ModelConfig)
    typed = {name: _converted(value, kinds[name], f"{field_path}.{name}") for name, value in entry.items()}
    try:
        plan = ModelConfig.from_dict(typed)
    except AssayError as error:
        raise BadInputError(str(error), field=field_path) from error
    beside = folder / plan.reference
    return replace(
        plan,
        reference=str(beside) if beside.exists() else plan.reference,
        engine=absolute_name(plan.engine, folder),
        kind=absolute_name(plan.kind, folder) if plan.kind is not None else None,
    )


def _hints(cls: type[Any]) -> dict[str, Any]:
    from typing import get_type_hints

    return get_type_hints(cls)


def _converted(value: Any, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=path_of)
    except msgspec.ValidationError as error:
        match = _ERROR_PATH.fullmatch(str(error))
        what, field_path = (match["what"], name + match["path"]) if match else (str(error), name)
        raise BadInputError(what[:1].lower() + what[1:].replace("`", ""), field=field_path) from None


def _refuse_unknown(payload: Mapping[Any, Any], valid: list[str], prefix: str) -> None:
    for name in payload:
        if name not in valid:
            raise unknown("field", name, valid, field=f"{prefix}{name}")
