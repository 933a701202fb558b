"""Rows of a declared benchmark as items: paths into rows, gold from grades, labels or votes.

Leaves out: which gold a protocol needs (the protocols check it), reading files (`benchmarks.records`).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from assay.domain import Message, Prompt, prompt_of
from assay.errors import BadInputError
from assay_rm_training.benchmarks.declared.description import LABELS, RowFields
from assay_rm_training.benchmarks.item import BenchmarkItem, Record, publisher_id

TIE = (0.5, 0.5)
_NO_GOLD = "nothing says which response is better: name fields.gold, fields.label or fields.votes"


def require_prompt_fields(records: Sequence[Record], fields: RowFields) -> None:
    """Raises BadInputError for a part of the prompt that no row has: what is joined would lack it in silence."""
    for path in fields.prompt:
        if records and all(at(record, path) is None for record in records):
            fields_of_row = ", ".join(records[0].values)
            raise BadInputError(
                f"no row has {path!r}; the first row's fields are {fields_of_row}", field="fields.prompt"
            )


def items_of(records: Iterable[Record], fields: RowFields) -> list[BenchmarkItem]:
    """One item a row; with `fields.list` one for the rows of a list. Raises BadInputError naming file, row, field."""
    if not fields.list:
        return [_item(record, fields) for record in records]
    lists: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        key = _group(record, fields), str(_needed(record, fields.list))
        lists.setdefault(key, []).append(record)
    return [_joined(key, rows, fields) for (_, key), rows in lists.items()]


def step_items(records: Iterable[Record], fields: RowFields) -> list[BenchmarkItem]:
    """One item a row whose responses are the steps of one solution, without gold."""
    return [_benchmark_item(_id(row, fields), row, _responses(row, fields)[0], (), fields) for row in records]


def single_responses(records: Iterable[Record], fields: RowFields) -> list[BenchmarkItem]:
    """One item for each response of a row, whose author is in `models` and whose prompt's id in `part`."""
    out = []
    for record in records:
        prompt, row_id = _prompt(record, fields), _id(record, fields)
        responses = at(record, fields.responses[0])
        for one in responses if isinstance(responses, list | tuple) else [record.values]:
            inner = Record(record.file, record.row, one if isinstance(one, dict) else {})
            name = fields.text if isinstance(responses, list | tuple) else fields.responses[0]
            system = str(_needed(inner, fields.system))
            text = _text(inner, name, at(inner, name))
            case = BenchmarkItem(f"{row_id}/{system}", prompt, (text,), (), part=row_id, models=(system,))
            out.append(replace(case, file=record.file, row=record.row))
    return out


def at(record: Record, path: str) -> Any:
    """What stands at the path; None where nothing does, and for NaN."""
    if path in ("$file", "$folder"):
        file = PurePath(record.file)
        return file.name if path == "$file" else file.parent.name
    node: Any = record.values
    for name in [path] if path in record.values else path.split("."):
        if isinstance(node, list | tuple) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        elif isinstance(node, dict):
            node = node.get(name)
        else:
            return None
    return None if isinstance(node, float) and math.isnan(node) else node


def _item(record: Record, fields: RowFields) -> BenchmarkItem:
    responses, objects = _responses(record, fields)
    case = _benchmark_item(
        _id(record, fields), record, responses, _gold(record, fields, objects, len(responses)), fields
    )
    return replace(case, pairs=_pairs(record, fields, len(responses)))


def _joined(key: str, rows: Sequence[Record], fields: RowFields) -> BenchmarkItem:
    path, prompt = fields.responses[0], _prompt(rows[0], fields)
    if (other := next((row for row in rows if _prompt(row, fields) != prompt), None)) is not None:
        raise other.error(f"another prompt than row {rows[0].row}, which is of the same list", fields.list)
    responses = [_text(row, path, at(row, path)) for row in rows]
    return _benchmark_item(key, rows[0], responses, [_grade(row, fields) for row in rows], fields)


def _benchmark_item(
    id_: str, record: Record, responses: Sequence[str], gold: Sequence[float], fields: RowFields
) -> BenchmarkItem:
    group, prompt = _group(record, fields), _prompt(record, fields)
    return BenchmarkItem(id_, prompt, tuple(responses), tuple(gold), group, group, file=record.file, row=record.row)


def _id(record: Record, fields: RowFields) -> str:
    for path in fields.id:
        if (value := publisher_id(at(record, path))) is not None:
            return value
    return f"row-{record.row}"


def _group(record: Record, fields: RowFields) -> str:
    names = (at(record, path) for path in fields.group)
    return next((str(name) for name in names if name not in (None, "")), "")


def _prompt(record: Record, fields: RowFields) -> Prompt:
    parts = [(path, value) for path in fields.prompt if (value := at(record, path)) not in (None, "", [])]
    if not parts:
        raise record.error("missing, or empty", fields.prompt[0])
    path, value = parts[0]
    if isinstance(value, list | tuple):
        try:
            return prompt_of([{"role": turn["role"], "content": turn["content"]} for turn in value])
        except (BadInputError, KeyError, TypeError):
            raise record.error("a message without a known role and content", path) from None
    return (Message("user", "\n\n".join(_text(record, name, part) for name, part in parts)),)


def _responses(record: Record, fields: RowFields) -> tuple[list[str], list[Any]]:
    """The texts, and what they stand in."""
    if len(fields.responses) > 1:
        values = [_needed(record, path) for path in fields.responses]
        return [_text(record, path, value) for path, value in zip(fields.responses, values, strict=True)], values
    path = fields.responses[0]
    values = _needed(record, path)
    if not isinstance(values, list | tuple) or not values:
        raise record.error("not a list of responses", path)
    texts = [one.get(fields.text) if isinstance(one, dict) else one for one in values]
    return [_text(record, path, text) for text in texts], list(values)


def _text(record: Record, path: str, value: Any) -> str:
    """A text; a list of them is of its parts, one a line."""
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise record.error("missing" if value is None else f"not a text: {value!r:.60}", path)
    return value


def _gold(record: Record, fields: RowFields, objects: Sequence[Any], responses: int) -> tuple[float, ...]:
    if fields.gold:
        grades = at(record, fields.gold)
        if grades is None:
            grades = [one.get(fields.gold) if isinstance(one, dict) else None for one in objects]
        if not isinstance(grades, list | tuple) or len(grades) != responses:
            raise record.error(f"not a list of {responses} numbers, one a response", fields.gold)
        return tuple(_number(record, fields.gold, grade) for grade in grades)
    if fields.votes:
        votes = [_label(record, path, fields) for path in fields.votes]
        return _one_hot(max(votes, key=votes.count), responses, record, fields.votes[0])
    if fields.label:
        return _one_hot(_label(record, fields.label, fields), responses, record, fields.label)
    if fields.pairs:
        return (0.0,) * responses
    if len(fields.responses) < 2:
        raise record.error(_NO_GOLD)
    return (1.0,) + (0.0,) * (responses - 1)  # named in order: the first is the better one


def _one_hot(label: int | str, responses: int, record: Record, path: str) -> tuple[float, ...]:
    if label == "tie" and responses == 2:
        return TIE
    if not isinstance(label, int) or not 1 <= label <= responses:
        raise record.error(f"{label!r} is no response from 1 to {responses}", path)
    return tuple(float(n == label) for n in range(1, responses + 1))


def _label(record: Record, path: str, fields: RowFields) -> int | str:
    label = _needed(record, path)
    text = str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
    if text not in fields.values:
        known_labels = ", ".join(fields.values)
        raise record.error(f"{label!r:.60} is none of {known_labels}; say in fields.values what it means", path)
    meaning: int | str = fields.values[text]
    return LABELS.get(str(meaning), meaning)


def _grade(record: Record, fields: RowFields) -> float:
    path = fields.gold or fields.label
    if not path:
        raise record.error(_NO_GOLD)
    label = _needed(record, path)
    return _number(record, path, fields.values.get(str(label), label))


def _number(record: Record, path: str, value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):  # True and False are grades
        raise record.error(f"not a number: {value!r:.60}", path)
    return float(value)


def _pairs(record: Record, fields: RowFields, responses: int) -> tuple[tuple[int, int], ...]:
    if not fields.pairs:
        return ()
    graph = _needed(record, fields.pairs)
    if not isinstance(graph, list | tuple):
        raise record.error("not a list of pairs", fields.pairs)
    pairs = []
    for one in graph:
        inner = Record(record.file, record.row, one if isinstance(one, dict) else {})
        better, worse = at(inner, fields.better), at(inner, fields.worse)
        if not all(type(n) is int and 0 <= n < responses for n in (better, worse)) or better == worse:
            raise record.error(f"{one!r:.80} names no two of the {responses} responses", fields.pairs)
        pairs.append((better, worse))
    return tuple(pairs)


def _needed(record: Record, path: str) -> Any:
    if (value := at(record, path)) is None:
        raise record.error(f"missing; the row's fields are {', '.join(record.values) or 'none'}", path)
    return value
