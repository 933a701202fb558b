"""The description of a declared benchmark, from YAML.

    title, source, obtain: texts        rows: file or folder, or a list of them, from the YAML file's folder
    hub: [{repository, split, config, part}]
    protocol: pair | three-way | best-of-n | listwise | item-auc | first-error | system-ranking
    fields: what the rows call things (`Fields`)
    overall: pooled (over items) | groups (mean of the groups)
    means: {NAME: [GROUP, ...]}         headline: the figure called `overall`
    skip_incomplete: true: rows without a response are counted as skipped, not refused
    margin: of three-way; None: chosen on other prompts
    systems: of system-ranking, {rows: FILE, system: FIELD, value: FIELD}

A field is a path of names and list numbers, `targets.choices`; `$folder` and `$file` are of the row's file. Leaves out:
reading rows (`rows`), the protocols.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Ge, Len
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from assay.errors import BadInputError, plain_reason
from assay_rm_training.benchmarks.records import HubSplit

Label = int | Literal["tie"]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Some = Annotated[Names, Len(1)]
Meanings = Annotated[
    Mapping[str, Any],
    BeforeValidator(lambda value: {str(k): v for k, v in value.items()} if isinstance(value, dict) else value),
]
_STRICT = ConfigDict(extra="forbid")
#: Labels that need no `values`: the number of the better response from 1, or a tie.
LABELS: dict[str, Label] = {"1": 1, "2": 2, "A": 1, "B": 2, "model_a": 1, "model_b": 2, "tie": "tie", "Tie": "tie"}


@dataclass(frozen=True)
class RowFields:
    """Paths by what they hold; of several the first that a row has, except `prompt` (joined), `responses`, `votes`.

    `responses`: one path of a list, or one of each response. `text`, `system`: within a response that is an object.
    `gold`: a number for each response, of the row or within each response. `label`: which response is better, by
    `values`, or one of several `votes`, of which the majority counts. `list`: rows with this value make up one item,
    each with a response; `label` is then of that response, by numbers in `values`. `pairs`: a list of objects with the
    numbers of the `better` and the `worse` response.
    """

    __pydantic_config__ = _STRICT

    id: Names = ("id",)
    prompt: Some = ("prompt",)
    responses: Some = ("responses",)
    text: str = "text"
    system: str = "system"
    gold: str = ""
    label: str = ""
    votes: Names = ()
    values: Meanings = field(default_factory=lambda: dict(LABELS))
    list: str = ""
    pairs: str = ""
    better: str = "better"
    worse: str = "worse"
    group: Names = ()


@dataclass(frozen=True)
class PublishedSystems:
    """Where the published strength of each system stands: a file of rows with its name and its value."""

    __pydantic_config__ = _STRICT

    rows: str
    system: str = "system"
    value: str = "value"


@dataclass(frozen=True)
class BenchmarkDescription:
    """As in the module's docstring."""

    __pydantic_config__ = _STRICT

    name: str
    protocol: str
    title: str = ""
    source: str = "a benchmark of one's own"
    obtain: str = ""
    rows: Names = ()
    hub: tuple[HubSplit, ...] = ()
    fields: RowFields = field(default_factory=RowFields)
    overall: Literal["pooled", "groups"] = "pooled"
    means: Mapping[str, Names] = field(default_factory=dict)
    headline: str = ""
    margin: Annotated[float, Ge(0)] | None = None
    skip_incomplete: bool = False
    systems: PublishedSystems | None = None


def description_of(text: str, name: str) -> BenchmarkDescription:
    """Raises BadInputError that names the field."""
    try:
        payload = yaml.safe_load(text)
        values = {"name": name, "title": name} | (payload if isinstance(payload, dict) else {})
        return TypeAdapter(BenchmarkDescription).validate_python(values)
    except yaml.YAMLError as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        unexpected = first["type"] == "unexpected_keyword_argument"
        reason = "there is no such field" if unexpected else plain_reason(first)
        raise BadInputError(reason, field=where) from error
