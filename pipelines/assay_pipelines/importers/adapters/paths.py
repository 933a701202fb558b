"""Path expressions: where in a record a value stands.

A name, or names joined by dots (`question.full_text`), is looked up directly; names may have hyphens, and a column
whose whole name has dots comes first. Everything else is a JMESPath expression (https://jmespath.org), such as
`answers[].rank`, which may also call `assay_pipelines.importers.adapters.functions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

import jmespath
from jmespath.exceptions import JMESPathError

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay_pipelines.importers.adapters.functions import RecordFunctions

Getter: TypeAlias = Callable[[Any], Any]
_OPTIONS = jmespath.Options(custom_functions=RecordFunctions())
_CHAINS = ("subexpression", "index_expression", "pipe")
_DIRECT = (*_CHAINS, "or_expression", "and_expression", "not_expression")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"lt": lt, "lte": le, "gt": gt, "gte": ge}
_NAMES = re.compile(r"[\w-]+(\.[\w-]+)*")


@cache
def getter(path: str) -> Getter:
    """A function from a record to the value at the path; None where there is none, and for NaN, which is how tables of
    floats say that a value is missing. Raises BadInputError for a path that is no expression.
    """
    if path == "@":
        return _present
    if _NAMES.fullmatch(path):
        return _nested_getter(path)
    try:
        expression = jmespath.compile(path)
    except JMESPathError as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{path!r} is no path expression: {reason}", field=path) from error

    if (direct := _direct(expression.parsed)) is not None:
        return lambda record: _present(direct(record))

    def search(record: Any) -> Any:
        try:
            return _present(expression.search(record, _OPTIONS))
        except RowError as error:
            raise RowError(error.reason, field=error.field or field_of(path)) from error
        except (JMESPathError, TypeError):  # a function or comparison that does not take what the record has there
            return None

    return search


def columns_of(path: str) -> list[str]:
    """The columns of a record that a path begins with, in the order of the path."""
    if path == "@":
        return []
    if _NAMES.fullmatch(path):
        return list(dict.fromkeys((path, path.partition(".")[0])))
    return list(dict.fromkeys(_fields(jmespath.compile(path).parsed)))


def field_of(path: str) -> str:
    """How complaints name what stands at a path: the path itself, of an expression its first column."""
    return path if _NAMES.fullmatch(path) else next(iter(columns_of(path)), path)


def _direct(node: Mapping[str, Any]) -> Getter | None:
    """What an expression of names, indexes, literals, `<` and its kin, `||`, `&&`, `!` and `map` gives, without the
    interpreter, which takes ten times as long; None for other expressions."""
    kind, children = node["type"], node["children"]
    name: Any = node.get("value")
    if kind == "field":
        return lambda value: value.get(name) if isinstance(value, dict) else None
    if kind == "literal":
        return lambda value: name
    if kind == "current":
        return lambda value: value
    if kind == "index":
        return lambda value: value[name] if isinstance(value, list) and -len(value) <= name < len(value) else None
    mapped = kind == "function_expression" and name == "map" and children[0]["type"] == "expref"
    ordered = _ORDERS.get(name) if kind == "comparator" else None
    if not mapped and ordered is None and kind not in _DIRECT:
        return None
    steps = [_direct(child) for child in ([children[0]["children"][0], children[1]] if mapped else children)]
    if None in steps:
        return None
    first, second = steps[0], steps[-1]
    assert first is not None
    assert second is not None
    if mapped:
        return lambda value: [first(entry) for entry in entries] if isinstance(entries := second(value), list) else None
    if ordered is not None:
        return lambda value: ordered(one, two) if _are_comparable(one := first(value), two := second(value)) else None
    if kind in _CHAINS:
        return (lambda value: second(first(value))) if len(steps) == 2 else (lambda value: _chained(steps, value))
    if kind == "or_expression":
        return lambda value: second(value) if _is_false(one := first(value)) else one
    if kind == "and_expression":
        return lambda value: one if _is_false(one := first(value)) else second(value)
    return lambda value: _is_false(first(value))


def _chained(steps: Sequence[Any], value: Any) -> Any:
    for step in steps:
        value = step(value)
    return value


def _is_false(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _are_comparable(first: Any, second: Any) -> bool:
    if type(first) is str:
        return type(second) is str
    return type(first) in (int, float) and type(second) in (int, float)


def _nested_getter(path: str) -> Getter:
    head, *rest = path.split(".")

    def column(record: Any) -> Any:
        value = record.get(path) if isinstance(record, dict) else None
        return None if type(value) is float and value != value else value

    if not rest:
        return column

    def get(record: Any) -> Any:
        if not isinstance(record, dict):
            return None
        if path in record:
            return _present(record[path])
        value = record.get(head)
        for name in rest:
            value = value.get(name) if isinstance(value, dict) else None
        return _present(value)

    return get


def _present(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _fields(node: Mapping[str, Any]) -> list[str]:
    """The names that are looked up in the record itself, not in what another name gave."""
    kind, children = node["type"], node["children"]
    if kind == "field":
        return [node["value"]]
    if kind in ("subexpression", "index_expression", "projection", "value_projection", "filter_projection", "pipe"):
        return _fields(children[0])
    return [name for child in children for name in _fields(child)]
