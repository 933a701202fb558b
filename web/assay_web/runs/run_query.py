"""What a list of runs is asked for: words, conditions on settings and figures, the order, columns; as SQL.

    held config.learning_rate<1e-4 metrics.accuracy>=0.8 tag:best kind:train -tag:old

Covers: reading the text, its SQL with parameters, the value of a column. Leaves out: the rows (`records`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from assay.errors import BadInputError
from assay_web.report.pages.runs import flattened

MOST_TERMS = 20
MOST_COLUMNS = 30
MOST_DOTS = 5  #: of a name that may be within its keys
#: Parts of `config` or `metrics`, such as config.recipe.steps.
FIELD = re.compile(r'(config|metrics)\.([^"\\\s<>=!~]{1,200})')
_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*")+')
_SPACES = re.compile(r"\s*(<=|>=|!=|[<>=~])\s*")
_TERM = re.compile(r'(-?)(?:((?:config|metrics)\.[^"\s<>=!~]+)(<=|>=|!=|[<>=~])|(tag|kind|status):)(.*)', re.DOTALL)
#: One text of all that a word may be in; its paths are looked up in one pass over the JSON.
_WORDS = """concat_ws(' ', run_id, note, array_to_string(tags, ' '), array_to_string(
    json_extract_string(config, ['$.name', '$.model', '$.group', '$.bench']), ' '))"""
_SORTED: Mapping[str, str] = {
    "started": "epoch(started_at)",
    "took": "epoch(coalesce(ended_at, now()) - started_at)",
    "kind": "kind",
    "status": "status",
    "name": "lower(coalesce(config ->> 'name', config ->> 'model', kind))",
}
Bound: TypeAlias = dict[str, str | float]


@dataclass(frozen=True)
class RunQuery:
    """`archived`: with those that are. `sort`: one of `_SORTED` or a field."""

    kind: str | None = None
    status: str | None = None
    text: str | None = None
    archived: bool = False
    sort: str = "started"
    direction: Literal["up", "down"] = "down"

    def where(self) -> tuple[str, Bound]:
        """A condition over `runs` left joined with `run_notes`, and its parameters. Raises BadInputError for a number
        that is none."""
        conditions = [] if self.archived else ["NOT coalesce(archived, false)"]
        bound: Bound = {}
        for name in ("kind", "status"):
            if (value := getattr(self, name)) is not None:
                conditions.append(f"{name} = ${name}")
                bound[name] = value
        tokens = _TOKEN.findall(_SPACES.sub(r"\1", self.text or ""))
        if len(tokens) > MOST_TERMS:
            raise BadInputError(f"a search has at most {MOST_TERMS} terms", field="text")
        for number, token in enumerate(tokens):
            conditions.append(_condition(token, f"t{number}", bound))
        return " AND ".join(conditions) or "true", bound

    def order(self) -> str:
        """Runs without the value come last; of equal ones the newest first. Raises BadInputError for no such order."""
        way = "DESC" if self.direction == "down" else "ASC"
        if self.sort in _SORTED:
            return f"{_SORTED[self.sort]} {way} NULLS LAST, started_at {way}, run_id {way}"
        value = _field(self.sort)
        return f"TRY_CAST({value} AS DOUBLE) {way} NULLS LAST, {value} {way} NULLS LAST, started_at DESC, run_id DESC"


def require_columns(columns: list[str]) -> None:
    """Raises BadInputError for what is no field."""
    if len(columns) > MOST_COLUMNS:
        raise BadInputError(f"at most {MOST_COLUMNS} columns", field="column")
    for name in columns:
        if not FIELD.fullmatch(name):
            raise BadInputError(f"{name!r} is no setting or figure: config.NAME or metrics.NAME", field="column")


def column_values(
    settings: Mapping[str, Any], results: Mapping[str, Any], columns: list[str]
) -> dict[str, str | float | None]:
    """Numbers as numbers, everything else as text; None where the run has none."""
    if not columns:
        return {}
    flat = {"config": dict(flattened(settings)), "metrics": dict(flattened(results))}
    values: dict[str, str | float | None] = {}
    for column in columns:
        part, _, name = column.partition(".")
        value = flat[part].get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        values[column] = value if value is None or number else _text(value)
    return values


def _text(value: Any) -> str:
    return value[:300] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:300]


def _condition(token: str, name: str, bound: Bound) -> str:
    """A term, or a word that is part of what people call the run or wrote about it."""
    match = _TERM.fullmatch(token)
    if match is None:
        negative, text = ("-", token[1:]) if token.startswith("-") and len(token) > 1 else ("", token)
        bound[name] = text.replace('"', "").lower()
        condition = f"contains(lower({_WORDS}), ${name})"
    else:
        negative, field, operator, column, value = match.groups()
        value = value.replace('"', "")
        if column is not None:
            bound[name] = value
            condition = f"list_contains(coalesce(tags, []), ${name})" if column == "tag" else f"{column} = ${name}"
        else:
            condition = _comparison(_field(field), operator, value, name, bound)
    return f"NOT coalesce({condition}, false)" if negative else condition


def _comparison(field: str, operator: str, value: str, name: str, bound: Bound) -> str:
    try:
        number = float(value)
    except ValueError:
        if operator in ("=", "!=", "~"):
            bound[name] = value.lower()
            equal = f"contains(lower({field}), ${name})" if operator == "~" else f"lower({field}) = ${name}"
            return f"NOT coalesce({equal}, false)" if operator == "!=" else equal
        raise BadInputError(f"{value!r} is not a number: {operator} compares numbers", field="text") from None
    if operator == "~":
        bound[name] = value
        return f"contains({field}, ${name})"
    bound[name] = number
    return f"TRY_CAST({field} AS DOUBLE) {operator} ${name}"


def _field(field: str) -> str:
    """SQL for the text of a setting or figure. A key may hold dots: of each way to part the name the first that is
    there."""
    match = FIELD.fullmatch(field)
    if match is None:
        raise BadInputError(f"{field!r} is no setting or figure: config.NAME or metrics.NAME", field="sort")
    part, name = match.groups()
    *keys, last = name.split(".")
    paths = [""]
    for key in keys[-MOST_DOTS:]:
        paths = [f"{path}{key}{end}" for path in paths for end in ('"."', ".")]
    first = "".join(f'{key}"."' for key in keys[:-MOST_DOTS])
    quoted = (f'$."{first}{path}{last}"'.replace("'", "''") for path in paths)
    literals = ", ".join(f"'{path}'" for path in quoted)
    return f"list_filter(json_extract_string({part}, [{literals}]), lambda text: text IS NOT NULL)[1]"
