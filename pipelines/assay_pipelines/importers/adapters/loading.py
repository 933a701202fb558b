"""Adapters from YAML files: the published ones by name, a user's own by its path."""

import re
from functools import cache
from pathlib import Path

import yaml
from pydantic import ValidationError

from assay.errors import BadInputError, NotFoundError, plain_reason
from assay_pipelines.importers.adapters.layout import AdapterLayout, layout_class
from assay_pipelines.importers.adapters.schema import AdapterSpec

PUBLISHED = Path(__file__).parent / "published"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  #: the first takes a tenth of the time, where libyaml is
_KEY = re.compile(r"[a-z_]+|\d+")  #: other parts of an error's place are names of types


@cache
def adapter_class(path: Path) -> type[AdapterLayout]:
    """The layout class of an adapter's file; the file is read once. Raises BadInputError that names file and key."""
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"not readable as YAML: {' '.join(str(error).split())}", file=path) from error
    if not isinstance(content, dict):
        raise BadInputError("an adapter is a mapping (title, requires, pairs, ...)", file=path)
    try:
        spec = AdapterSpec.model_validate(content)
    except ValidationError as error:
        deepest = max(error.errors(), key=lambda fault: len(fault["loc"]))  # of alternatives, the one that was meant
        key = ".".join(str(part) for part in deepest["loc"] if _KEY.fullmatch(str(part))) or None
        raise BadInputError(plain_reason(deepest), file=path, field=key) from error
    module = f"{__package__}.published" if path.parent == PUBLISHED else str(path)
    return layout_class(spec, path.stem.replace("-", "_"), module)
