"""Path expressions: where in a record a value stands.

A name, or names joined by dots (`question.full_text`), is looked up directly; names may have hyphens, and a column
whose whole name has dots comes first. Everything else is a JMESPath expression (https://jmespath.org), such as
`answers[].rank`, which may also call `RecordFunctions`: texts by a pattern, turns of two lists, pairs of lists. Each
takes values as they stand in a record and raises RowError for others, so that the record is rejected.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

import jmespath
from jmespath import functions
from jmespath.exceptions import JMESPathError

from assay.data.conversation import text_of
from assay.data.json_lines import RowError
from assay.errors import BadInputError


class RecordFunctions(functions.Functions):
    @functions.signature({"types": []}, {"types": ["string"]})
    def _func_match(self, text: Any, pattern: str) -> dict[str, str] | None:
        """`matched`, the whole text, and the named groups of a regular expression; null where it has another form."""
        match = _compiled(pattern).fullmatch(text) if isinstance(text, str) else None
        return {"matched": match[0], **match.groupdict()} if match is not None else None

    @functions.signature({"types": []}, {"types": []})
    def _func_interleaved(self, answers: Any, questions: Any) -> list[str]:
        """The texts of two lists in turns, a question before its answer."""
        answers, questions = _list(answers), _list(questions)
        if len(answers) != len(questions):
            raise RowError("not one answer for each turn of the prompt")
        return [text_of(text, "") for turn in zip(questions, answers, strict=True) for text in turn]

    @functions.signature({"types": []}, {"types": []})
    def _func_product(self, first: Any, second: Any) -> list[dict[str, Any]]:
        """`first` and `second` of each pair of two lists, and their `places` in the two joined."""
        first, second = _list(first), _list(second)
        places = product(range(len(first)), range(len(first), len(first) + len(second)))
        return _pairs([*first, *second], places, tie=False)

    @functions.signature({"types": []})
    def _func_combinations(self, entries: Any) -> list[dict[str, Any]]:
        """The pairs within one list, in the form of `product`; `tie` is true."""
        entries = _list(entries)
        return _pairs(entries, combinations(range(len(entries)), 2), tie=True)

    @functions.signature({"types": []}, {"types": []})
    def _func_at(self, entries: Any, places: Any) -> list[Any] | None:
        """The entries of a list at these places; null where it has none of that number."""
        if not isinstance(entries, list) or max(places, default=0) >= len(entries):
            return None
        return [entries[place] for place in places]


def _pairs(entries: list[Any], places: Any, *, tie: bool) -> list[dict[str, Any]]:
    return [{"first": entries[i], "second": entries[j], "places": [i, j], "tie": tie} for i, j in places]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise RowError("missing" if value is None else "empty" if value == [] else "wrong type: not a list")
    return value


_compiled = cache(re.compile)


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
