"""The file of `assay serve --config`: models, address, limits and the rest in YAML.

Covers: reading it strictly (a field that there is not, and a value of the wrong type, are named with the file), an
example to start from. Leaves out: options of the command line, which go before it (`commands.serve`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from assay.errors import AssayError, BadInputError, NotFoundError
from assay.http.listening import Tls
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.logs import FORMATS, Format
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.models.model_access import is_address

MOST_WORKERS = 64
_PLACE = re.compile(r"(?P<what>.*) - at `\$(?P<place>[^`]*)`")


@dataclass(frozen=True)
class ServeConfig:
    """All that a server is started with. The fields of `settings` stand beside the others in the file."""

    models: tuple[ModelConfig, ...]
    host: str = "127.0.0.1"
    port: int = 8000  #: 0 = a free one
    workers: int = 1  #: processes that speak HTTP; 0 = one process does everything
    tls_cert: str | None = None
    tls_key: str | None = None
    log_requests: bool = False
    log_format: Format = "text"
    workspace: str | None = None  #: folder in which names of models are looked up
    settings: ServerSettings = field(default_factory=ServerSettings)

    def __post_init__(self) -> None:
        if not self.models:
            raise BadInputError("a server needs at least one model", field="models")
        if not 0 <= self.port <= 65535:
            raise BadInputError(f"goes from 0 to 65535, not {self.port}", field="port")
        if not 0 <= self.workers <= MOST_WORKERS:
            raise BadInputError(f"goes from 0 to {MOST_WORKERS}, not {self.workers}", field="workers")
        if self.log_format not in FORMATS:
            raise BadInputError(f"{self.log_format!r} is not one of {', '.join(FORMATS)}", field="log_format")
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise BadInputError("is missing: TLS needs the certificate and its key", field=missing)

    @property
    def tls(self) -> Tls | None:
        return Tls(self.tls_cert, self.tls_key) if self.tls_cert and self.tls_key else None


def read_config(path: Path) -> dict[str, Any]:
    """The file's fields with its values, `models` as plans, paths that exist beside the file made absolute.

    Raises BadInputError naming file and field, NotFoundError where there is no such file. What is missing is left out:
    the command line may bring it.
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
    own = {name: value for name, value in values.items() if name in _OWN}
    settings = {name: value for name, value in values.items() if name in _SETTINGS}
    if "max_items" not in settings and "max_queue_items" in settings:  # a small queue alone is no contradiction
        settings["max_items"] = min(ServerSettings.max_items, settings["max_queue_items"])
    return ServeConfig(**{"models": (), **own}, settings=ServerSettings(**settings))


def path_of(kind: type[Any], value: Any) -> Any:
    """For msgspec, which has no paths of its own: the path that a text names."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(kind)  # what msgspec asks of such a hook: it then names the field itself


def example() -> str:
    """A file that works as it is, with every common field explained."""
    return (resources.files("assay_serving.server") / "serve.example.yaml").read_text(encoding="utf-8")


_OWN = {f.name: f for f in fields(ServeConfig) if f.name != "settings"}
_SETTINGS = {f.name: f for f in fields(ServerSettings)}
_FILES = ("tls_cert", "tls_key", "workspace", "keys_file", "cache_path")


def _read_fields(payload: Mapping[Any, Any], folder: Path) -> dict[str, Any]:
    _refuse_unknown(payload, [*_OWN, *_SETTINGS], "")
    values = dict(payload)
    entries = values.pop("models", [])
    if not isinstance(entries, list):
        raise BadInputError("must be a list", field="models")
    read = _typed(values)
    for name in _FILES:
        if isinstance(value := read.get(name), str):
            read[name] = str(folder / Path(value).expanduser())
    if "model_folders" in read:
        read["model_folders"] = tuple(
            entry if is_address(entry) else str(folder / Path(entry).expanduser()) for entry in read["model_folders"]
        )
    if entries:
        read["models"] = tuple(_read_plan(entry, number, folder) for number, entry in enumerate(entries))
    return read


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the types of their fields; raises BadInputError for one that is of another type."""
    kinds = {**_hints(ServeConfig), **_hints(ServerSettings)}
    return {name: _converted(value, kinds[name], name) for name, value in values.items()}


def _read_plan(entry: Any, number: int, folder: Path) -> ModelConfig:
    place = f"models[{number}]"
    if isinstance(entry, str):
        entry = {"reference": entry}
    if not isinstance(entry, dict):
        raise BadInputError("must be a name, or a mapping with a reference", field=place)
    _refuse_unknown(entry, list(ModelConfig.__dataclass_fields__), f"{place}.")
    kinds = _hints(ModelConfig)
    typed = {name: _converted(value, kinds[name], f"{place}.{name}") for name, value in entry.items()}
    try:
        plan = ModelConfig.from_dict(typed)
    except AssayError as error:
        raise BadInputError(str(error), field=place) from error
    beside = folder / plan.reference
    return replace(plan, reference=str(beside)) if beside.exists() else plan


def _hints(cls: type[Any]) -> dict[str, Any]:
    from typing import get_type_hints

    return get_type_hints(cls)


def _converted(value: Any, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=path_of)
    except msgspec.ValidationError as error:
        found = _PLACE.fullmatch(str(error))
        what, place = (found["what"], name + found["place"]) if found else (str(error), name)
        raise BadInputError(what[:1].lower() + what[1:].replace("`", ""), field=place) from None


def _refuse_unknown(payload: Mapping[Any, Any], known: list[str], prefix: str) -> None:
    for name in payload:
        if name not in known:
            from difflib import get_close_matches

            close = get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise BadInputError(f"no such field; {hint}", field=f"{prefix}{name}")
