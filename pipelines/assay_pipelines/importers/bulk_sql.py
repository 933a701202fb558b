r"""SQL that makes pairs of rows of one shape, and takes no row that the row parser would read otherwise.

Covers: TRL's explicit prompts with text or messages, implicit ones in messages, labelled pairs; all further columns.
Leaves out: rows that any condition here refuses, and why: the row parser reads those and says so.

DuckDB's JSON reader takes more than JSON: trailing commas and NaN, Infinity and their kin (found by comparing it with
Python's; `tests/unit/pipelines/test_bulk_import.py` goes on comparing). So a line with a comma before a bracket is
refused, and so is a number that is not plainly one. Messages are read into role and content and written back: only
what comes back unchanged had no other key, no key twice and no other type.
"""

from __future__ import annotations

import json

from assay.domain import ROLES
from assay_pipelines.importers.bulk_shapes import Shape
from assay_pipelines.importers.fields import LABEL_SPELLINGS, META_CHARACTERS

#: Nested values that are thrown away must still be JSON to Python: not too deep, no huge integer.
NESTED_BRACKETS, INTEGER_DIGITS = 200, 1000

_TURN = 'STRUCT("role" VARCHAR, "content" VARCHAR)'


def statements(shape: Shape, *, source: str | None, default_source: str, name: str) -> tuple[str, str]:
    """(a statement that makes the temporary table `parsed` from `lines` ("row", line), the query for the pairs).

    `source`: for all rows; `default_source`: for rows that name none; `name`: the file's, for record ids.
    """
    return _parse(shape), _pairs(shape, source=source, default_source=default_source, name=name)


def _parse(shape: Shape) -> str:
    """Every column as the JSON it is; prompt and sides that are text as text. One scan of the lines."""
    texts = [name for name in ("prompt", *shape.sides) if name in shape.named and name not in dict(shape.messages)]
    conversation_columns = [name for name in ("prompt", *shape.sides) if name in shape.named]
    spec = dict.fromkeys(shape.columns, "JSON") | {shape.named[name]: "VARCHAR" for name in texts}
    paths = ", ".join(literal(f'$."{shape.named[name]}"') for name in conversation_columns)
    columns = ", ".join(f"s.{identifier(column)} AS {_column(shape, column)}" for column in shape.columns)
    types = []
    for number, name in enumerate(conversation_columns, start=1):
        json_type = "'ARRAY'" if name in dict(shape.messages) else "'VARCHAR'"
        nullable = name == "prompt" and shape.sides[0] in dict(shape.messages)
        types.append(f"types[{number}] IN ({json_type}{', ' + literal('NULL') if nullable else ''})")
    keys = ", ".join(map(literal, shape.columns))
    return f"""
        CREATE OR REPLACE TEMP TABLE parsed AS
        SELECT "row", {columns} FROM (
            SELECT "row", from_json(doc, {literal(json.dumps(spec))}) AS s, json_type(doc, [{paths}]) AS types
            FROM (SELECT "row", line, TRY_CAST(line AS JSON) AS doc FROM lines)
            WHERE json_keys(doc) = [{keys}]
              AND NOT regexp_matches(line, ',\\s*[\\]}}]') AND NOT contains(line, '\\u0000')
        ) WHERE {" AND ".join(types)}"""


def _pairs(shape: Shape, *, source: str | None, default_source: str, name: str) -> str:
    column_of, messages = shape.named, dict(shape.messages)
    conditions: list[str] = []
    for column in (c for n, c in shape.meaning if n not in ("prompt", *shape.sides)):
        conditions.append(_json_to_python(_column(shape, column)))
    hidden = set(shape.columns) - {column for _, column in shape.meaning}
    conditions += [_json_to_python(_column(shape, column)) for column in shape.columns if column in hidden]

    def text(target: str) -> str:
        if target not in column_of:
            return "NULL::VARCHAR"
        value = _column(shape, column_of[target])
        conditions.append(f"coalesce(json_type({value}), 'NULL') IN ('NULL', 'VARCHAR', 'UBIGINT', 'BIGINT')")
        return (
            f"CASE json_type({value}) WHEN 'VARCHAR' THEN nullif({_text(value)}, '') "
            f"WHEN 'UBIGINT' THEN {value}::VARCHAR WHEN 'BIGINT' THEN {value}::VARCHAR END"
        )

    turns, first, second, relations = _conversation(shape)
    conditions += relations
    strength, margin_columns = _strength(shape, conditions)
    label = _label(shape, conditions) if shape.labelled else "'first'"
    meta = _meta(shape, conditions, margin_columns)
    system = text("system")
    if "system" in column_of:
        prepended = f"[{{'role': 'system', 'content': system}}::{_TURN}] || turns"
        turns_out = f"CASE WHEN system IS NOT NULL AND turns[1].role <> 'system' THEN {prepended} ELSE turns END"
    else:
        turns_out = "turns"
    columns = {
        "label": label,
        "strength": strength,
        "rationale": text("rationale"),
        "votes": "NULL::STRUCT(kind VARCHAR, voter VARCHAR, label VARCHAR, strength TINYINT, rationale VARCHAR)[]",
        "source": literal(source) if source is not None else f"coalesce({text('source')}, {literal(default_source)})",
        "record_id": f"""coalesce({text("id")}, {literal(name + "#")} || "row")""",
        "category": text("category"),
        "license": text("license"),
        "language": f"coalesce({text('language')}, {text('lang')})",
        "meta": meta,
        "annotator": text("annotator"),
    }
    if source is not None:
        text("source")  # a source that is no text is refused all the same
    listed = ", ".join(f'{expression} AS "{column}"' for column, expression in columns.items())
    messages_from = _read_messages(shape) if messages else "parsed"
    where = " AND ".join(f"({condition})" for condition in conditions)
    return f"""
        SELECT "row", {turns_out} AS messages, "first", "second", {", ".join(f'"{column}"' for column in columns)}
        FROM (
            SELECT "row", {turns} AS turns, {first} AS "first", {second} AS "second", {system} AS system, {listed}
            FROM {messages_from} WHERE {where}
        ) WHERE "first" <> '' AND "second" <> '' AND "first" <> "second" """


def _read_messages(shape: Shape) -> str:
    """`parsed` with every column of messages as a list of turns, its rows only where writing it back gives the same."""
    replaced, conditions = [], []
    roles = ", ".join(map(literal, ROLES))
    for name, order in shape.messages:
        column = _column(shape, shape.named[name])
        spec = literal(json.dumps([dict.fromkeys(order, "VARCHAR")]))
        replaced.append(f"from_json({column}, {spec}) AS read_{name}")
        good = f"list_filter(read_{name}, lambda m: m.role IN ({roles}) AND m.content IS NOT NULL)"
        same = f"to_json(read_{name})::VARCHAR = {column}::VARCHAR AND len(read_{name}) > 0"
        nullable = name == "prompt"
        conditions.append(f"({f'{column} IS NULL OR ' if nullable else ''}{same} AND len({good}) = len(read_{name}))")
    return f"(SELECT * FROM (SELECT *, {', '.join(replaced)} FROM parsed) WHERE {' AND '.join(conditions)})"


def _turns(shape: Shape, name: str) -> str:
    order = dict(shape.messages)[name]
    if order[0] == "role":
        return f"read_{name}"
    return f"list_transform(read_{name}, lambda m: {{'role': m.role, 'content': m.content}})"


def _conversation(shape: Shape) -> tuple[str, str, str, list[str]]:
    """(prompt turns, first, second, conditions), as `assay.data.conversation.split_pair` has them."""
    column_of, messages = shape.named, dict(shape.messages)
    prompt = _column(shape, column_of["prompt"]) if "prompt" in column_of else None
    user_turn = f"[{{'role': 'user', 'content': {prompt}}}::{_TURN}]"
    if "prompt" in messages:
        some = f"len(list_filter({_turns(shape, 'prompt')}, lambda m: m.content <> '')) > 0"
    else:
        some = f"{prompt} <> ''"
    sides = tuple(_column(shape, column_of[side]) for side in shape.sides)
    if shape.sides[0] not in messages:
        return (_turns(shape, "prompt") if "prompt" in messages else user_turn), sides[0], sides[1], [some]
    if prompt is None:
        prompt_turns, conditions = f"[]::{_TURN}[]", []
    else:
        turns = _turns(shape, "prompt") if "prompt" in messages else user_turn
        prompt_turns = f"CASE WHEN {prompt} IS NULL THEN [] ELSE {turns} END"
        conditions = [f"{prompt} IS NULL OR {some}"]
    conversations = []
    for side in shape.sides:
        turns = _turns(shape, side)
        repeated = f"len({prompt_turns}) > 0 AND list_slice({turns}, 1, len({prompt_turns})) = {prompt_turns}"
        conversations.append(f"(CASE WHEN {repeated} THEN {turns} ELSE {prompt_turns} || {turns} END)")
    befores = [f"list_slice({conversation}, 1, len({conversation}) - 1)" for conversation in conversations]
    conditions += [f"{conversation}[-1].role = 'assistant'" for conversation in conversations]
    conditions += [f"len({conversations[0]}) > 1", f"{befores[0]} = {befores[1]}"]
    return befores[0], f"{conversations[0]}[-1].content", f"{conversations[1]}[-1].content", conditions


def _strength(shape: Shape, conditions: list[str]) -> tuple[str, list[str]]:
    """(the strength 0-3, the columns that become metadata where there is none)."""
    columns: list[str] = [name for name in ("strength", "margin") if name in shape.named]
    candidates = []
    for name in columns:
        value = _column(shape, shape.named[name])
        conditions.append(
            f"coalesce(json_type({value}), 'NULL') IN ('NULL', 'UBIGINT', 'BIGINT', 'DOUBLE') AND {_scalar(value)}"
        )
        listed = "'0', '1', '2', '3', '0.0', '1.0', '2.0', '3.0', '-0.0'"
        candidates.append(
            f"CASE WHEN {value}::VARCHAR IN ({listed}) THEN left(ltrim({value}::VARCHAR, '-'), 1)::TINYINT END"
        )
    return (
        f"coalesce({', '.join(candidates)})" if len(candidates) > 1 else (candidates or ["NULL::TINYINT"])[0]
    ), columns


def _label(shape: Shape, conditions: list[str]) -> str:
    if "label" not in shape.named:
        return "NULL::VARCHAR"
    value = _column(shape, shape.named["label"])
    text = f"lower(trim({_text(value)}))"
    spellings = " ".join(
        f"WHEN {literal(spelling)} THEN {literal(canonical)}" for spelling, canonical in LABEL_SPELLINGS.items()
    )
    ascii_ = f"strlen({_text(value)}) = length({_text(value)})"
    listed = ", ".join(map(literal, ("", *LABEL_SPELLINGS)))
    conditions.append(
        f"coalesce(json_type({value}), 'NULL') = 'NULL' OR "
        f"(json_type({value}) = 'VARCHAR' AND {ascii_} AND {text} IN ({listed}) "
        f"AND ({_text(value)} = '' OR {text} <> ''))"
    )
    return f"CASE WHEN json_type({value}) = 'VARCHAR' THEN CASE {text} {spellings} END END"


def _meta(shape: Shape, conditions: list[str], margin_columns: list[str]) -> str:
    """Single values of columns nobody asked for, as `rows.meta_json` writes them."""
    pieces = []
    for name, column in shape.extras:
        value = _column(shape, column)
        conditions.append(_scalar(value))
        short = f"length({_text(value)}) BETWEEN 1 AND {META_CHARACTERS}"
        json_text = (
            f"CASE json_type({value}) WHEN 'VARCHAR' THEN CASE WHEN {short} THEN {value}::VARCHAR END "
            f"WHEN 'NULL' THEN NULL WHEN 'ARRAY' THEN NULL WHEN 'OBJECT' THEN NULL ELSE {value}::VARCHAR END"
        )
        pieces.append(f"{literal(json.dumps(name) + ': ')} || ({json_text})")
    for name in margin_columns:
        value = _column(shape, shape.named[name])
        json_text = f"CASE WHEN strength IS NULL AND json_type({value}) <> 'NULL' THEN {value}::VARCHAR END"
        pieces.append(f"{literal(json.dumps(name) + ': ')} || ({json_text})")
    if not pieces:
        return "NULL::VARCHAR"
    joined = f"array_to_string([{', '.join(pieces)}], ', ')"
    return f"'{{' || nullif({joined}, '') || '}}'"


def _scalar(value: str) -> str:
    """A value that DuckDB writes as Python's json does, or one that is not written at all."""
    number = f"regexp_full_match({value}::VARCHAR, '-?\\d{{1,15}}\\.\\d{{1,17}}')"
    small = f"regexp_matches({value}::VARCHAR, '^-?0\\.0000')"
    return (
        f"CASE json_type({value}) WHEN 'DOUBLE' THEN {number} AND NOT {small} "
        f"WHEN 'VARCHAR' THEN NOT contains({value}::VARCHAR, '\\u00') ELSE true END"
    )


def _json_to_python(value: str) -> str:
    """A value that Python's reader takes too, whatever becomes of it."""
    text = f"{value}::VARCHAR"
    deep = f"strlen({text}) - strlen(translate({text}, '[{{', '')) > {NESTED_BRACKETS}"
    long = f"contains(translate({text}, '123456789', '000000000'), repeat('0', {INTEGER_DIGITS}))"
    lax = f"regexp_matches({text}, '[:\\[,][+-]?(?i:nan|inf)')"
    return (
        f"CASE json_type({value}) WHEN 'DOUBLE' THEN regexp_full_match({text}, '[-+.eE\\d]{{1,400}}') "
        f"WHEN 'ARRAY' THEN NOT ({deep} OR {lax} OR {long}) WHEN 'OBJECT' THEN NOT ({deep} OR {lax} OR {long}) "
        f"ELSE true END"
    )


def _text(value: str) -> str:
    """A JSON string's text. (`->>` binds more loosely than a comparison.)"""
    return f"json_extract_string({value}, '$')"


def _column(shape: Shape, column: str) -> str:
    """The name in `parsed`, where the file's names cannot collide with ours."""
    return f"c{shape.columns.index(column)}"


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
