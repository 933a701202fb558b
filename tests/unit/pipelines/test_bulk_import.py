"""The bulk reader gives exactly what the row parser gives: pairs, rejects, row numbers, on any bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_pipelines.importers import bulk, rows
from assay_pipelines.importers.formats import ImportConfig, Source, open_source
from assay_pipelines.importers.rows import ReadBatch

Result = tuple[list[dict[str, Any]], list[dict[str, Any]], int]


def collect(batches: list[ReadBatch]) -> Result:
    pairs = [row for batch in batches for row in batch.pairs.to_pylist()]
    rejects = [row for batch in batches for row in batch.rejects.to_pylist()]
    order = sorted(pairs, key=lambda row: int(row["row"])), sorted(rejects, key=lambda row: int(row["row"]))
    return *order, sum(batch.rows for batch in batches)


def opened(path: Path, **config: Any) -> Source:
    return open_source(ImportConfig(str(path), **config), spill=path.with_suffix(".spill"))


def compare(path: Path, **config: Any) -> tuple[Result, int]:
    """What both readers give, after asserting that it is one thing; and how many rows SQL took."""
    source = opened(path, **config)
    assert bulk.can_read(source)
    by_row = collect(list(source.batches()))
    counted: list[int] = []
    original = Source.parsed

    def counting(self: Source, builder: Any, records: Any) -> Any:
        for item in original(self, builder, records):
            counted.append(1)
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "parsed", counting)
        in_bulk = collect([batch for batch, _ in bulk.batches(source)])
    assert in_bulk == by_row
    return in_bulk, in_bulk[2] - len(counted)


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n")
    return path


PLAIN = {"prompt": "why?", "chosen": "because", "rejected": "no"}
TURN = {"role": "user", "content": "why?"}


def answer(text: object) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def test_plain_rows_all_go_through_sql(tmp_path: Path) -> None:
    extra = {"id": 7, "source": "s", "score": 0.1 + 0.2, "n": -3, "ok": True, "note": 'a "b"\n\\ é/', "list": [1, [2]]}
    lines = [json.dumps({**PLAIN, "chosen": f"yes {n} naïve 日本", **extra}) for n in range(500)]
    (pairs, rejects, count), fast = compare(write(tmp_path / "x.jsonl", *lines))
    assert (len(pairs), rejects, count, fast) == (500, [], 500, 500)
    assert pairs[0]["record_id"] == "7"
    assert json.loads(pairs[0]["meta"]) == {key: extra[key] for key in ("score", "n", "ok", "note")}


@pytest.mark.parametrize("keys", [("role", "content"), ("content", "role")])
def test_messages_all_go_through_sql(tmp_path: Path, keys: tuple[str, str]) -> None:
    def ordered(*turns: dict[str, object]) -> list[dict[str, object]]:
        return [{key: turn[key] for key in keys} for turn in turns]

    user: dict[str, object] = dict(TURN)
    rounds: list[dict[str, object]] = [
        {"prompt": ordered(user), "chosen": ordered(answer("a")), "rejected": ordered(answer("b"))},
        {"prompt": ordered(user), "chosen": ordered(user, answer("a")), "rejected": ordered(user, answer("b"))},
        {"prompt": "why?", "chosen": ordered(user, answer("a")), "rejected": ordered(user, answer("b"))},
        {"chosen": ordered(user, answer("a")), "rejected": ordered(user, answer("b"))},
        {"prompt": None, "chosen": ordered(user, answer("a")), "rejected": ordered(user, answer("b"))},
        {"prompt": ordered(user), "chosen": "a", "rejected": "b", "system": "be kind"},
    ]
    for number, record in enumerate(rounds):
        (pairs, rejects, _), fast = compare(write(tmp_path / f"{number}.jsonl", *[json.dumps(record)] * 30))
        assert (len(pairs), rejects) == (30, [])
        assert fast == 30, record
        assert pairs[0]["first"] == "a"
        assert pairs[0]["messages"][-1] == TURN


def test_labels_mapping_and_other_shapes(tmp_path: Path) -> None:
    labels = ["A", "b", " tie ", "both_good", "", None, "model_a", "Tie (bothbad)", "skip", "1", 1, "ſ", "\u212a"]
    lines = [json.dumps({"q": "why?", "response_a": "x", "response_b": "y", "label": value}) for value in labels * 9]
    (_, rejects, _), fast = compare(write(tmp_path / "x.jsonl", *lines), mapping={"prompt": "q"})
    assert len(rejects) == 4 * 9
    assert fast == 9 * 9
    mixed = [json.dumps(PLAIN), json.dumps({**PLAIN, "id": "1"}), json.dumps({"id": "2", **PLAIN})] * 50
    assert compare(write(tmp_path / "y.jsonl", *mixed), source="other")[1] == 150


ODD_LINES: list[str | bytes] = [
    b"\xff\xfe broken",
    b'{"prompt": "why?", "chosen": "\xe9", "rejected": "b"}',
    "",
    "   \t",
    "\x0b",
    "[1, 2]",
    "null",
    "{",
    '{"prompt": "why?", "chosen": "a", "rejected": "b"} x',
    '{"prompt": "why?", "chosen": "a", "rejected": "b",}',
    '{"prompt": "why?", "chosen": "a", "rejected": "b", "prompt": "other"}',
    '{"prompt": "why?", "chosen": "\\ud800", "rejected": "b"}',
    '{"prompt": "why?", "chosen": "\\u0000", "rejected": "b"}',
    '{"prompt": "why?", "chosen": "\\ud83d\\ude00", "rejected": "b"}',
    '{"prompt": 5, "chosen": "a", "rejected": "b"}',
    '{"prompt": 1.0, "chosen": "a", "rejected": "b"}',
    '{"prompt": "why?", "chosen": null, "rejected": "b"}',
    '{"prompt": "why?", "chosen": "", "rejected": "b"}',
    '{"prompt": "why?", "chosen": "b", "rejected": "b"}',
    '{"prompt": "why?", "chosen": ["a"], "rejected": "b"}',
    '{"prompt": null, "chosen": "say a", "rejected": "say b"}',
    '{"prompt": "why?", "chosen": "a, ]", "rejected": "b ,}"}',
    '{"prompt": "", "chosen": "a", "rejected": "b"}',
    '\x0b {"prompt": "why?", "chosen": "a", "rejected": "b"} \x0c\r',
    '{"prompt": "why?", "chosen": "a", "rejected": "b\t"}',
    '\ufeff{"prompt": "why?", "chosen": "a", "rejected": "b"}',
    '{"Prompt": "why?", "chosen": "a", "rejected": "b"}',
    json.dumps({**PLAIN, "chosen": "x" * 3_000_000}),
]

ODD_VALUES = [
    "NaN",
    "-Infinity",
    "inf",
    "-0",
    "-0.0",
    "0.0",
    "1.50",
    "1e5",
    "1e-7",
    "0.00001",
    "0.0001",
    "1e400",
    "-1E+2",
    "123456789.123456789",
    "1234567890123456789012345",
    "18446744073709551616",
    "9223372036854775808",
    "-9223372036854775809",
    "1e16",
    "1e15",
    "0.1",
    "2",
    "2.0",
    "3.5",
    "true",
    "false",
    "null",
    '""',
    '"2"',
    '" "',
    '"\\u000b\\u001f\\u007f"',
    '"\\u2028é/"',
    '"' + "y" * 1000 + '"',
    '"' + "é" * 1000 + '"',
    '"' + "y" * 1001 + '"',
    "[]",
    "{}",
    "[NaN]",
    "[1,]",
    '{"a": inf}',
    "[" * 150 + "]" * 150,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    "1" * 5000,
    "[" + "1" * 5000 + "]",
    '[":nan, [inf"]',
    '{"x": 1, "x": 2}',
    '["\\ud800"]',
    "[1e999]",
    '"\\ud800"',
    "01",
    "+1",
    ".5",
    "'x'",
    "1.7976931348623157e308",
    "0.1234567890123456789",
    "5e-324",
    "100000000000000000.5",
    "999999999999999.9",
    "1.0e3",
]


@pytest.mark.parametrize("base", [PLAIN, {"prompt": [TURN], "chosen": [answer("a")], "rejected": [answer("b")]}])
def test_odd_lines_among_good_ones(tmp_path: Path, base: dict[str, object]) -> None:
    good = [json.dumps(base), json.dumps({**base, "id": "x"}), json.dumps(base, separators=(",", ":"))]
    lines = [line for odd in ODD_LINES for line in (good[0], odd, good[1], good[2])]
    (pairs, rejects, _), fast = compare(write(tmp_path / "x.jsonl", *lines))
    assert fast >= 3 * len(ODD_LINES)
    assert len(rejects) > 15
    assert {row["row"] for row in pairs}.isdisjoint(row["row"] for row in rejects)


@pytest.mark.parametrize(
    "column", ["extra", "id", "strength", "margin", "rationale", "source", "system", "label", "completion"]
)
def test_odd_values_in_further_columns(tmp_path: Path, column: str) -> None:
    start = json.dumps(PLAIN)[:-1]
    lines = [f'{start}, "{column}": {value}, "last": "z"}}' for value in ODD_VALUES]
    usual = [f'{start}, "{column}": "t", "last": 1}}'] * 50
    (pairs, rejects, _), fast = compare(write(tmp_path / "x.jsonl", *usual, *lines))
    assert fast > 0
    assert len(pairs) + len(rejects) == 50 + len(ODD_VALUES)


def odd_conversations() -> list[Any]:
    user, other = dict(TURN), {"role": "user", "content": "else"}
    sides: list[Any] = [
        [answer("a")],
        [user, answer("a")],
        [other, answer("a")],
        [user],
        [],
        None,
        "a",
        [answer(5)],
        [answer("")],
        [answer(None)],
        [{"role": "assistant", "content": "a", "name": "n"}],
        [{"role": "robot", "content": "a"}],
        [{"role": "assistant"}],
        [user, answer("x"), user, answer("a")],
        ["a"],
        [[]],
        {"role": "assistant", "content": "a"},
        [answer("NaN")],
        [answer("b")],
        [{"content": "a", "role": "assistant"}],
        [{"role": ["assistant"], "content": "a"}],
    ]
    prompts: list[Any] = [
        [user],
        "why?",
        None,
        [],
        [{"role": "user", "content": ""}],
        [answer("x")],
        [user, answer("a")],
        5,
        {},
    ]
    return [{"prompt": p, "chosen": c, "rejected": r} for p in prompts for c in sides for r in sides[-3:] + sides[:4]]


def test_odd_conversations(tmp_path: Path) -> None:
    lines = [json.dumps(record) for record in odd_conversations()]
    lines += [
        '{"prompt":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"a","content":"c"}],"rejected":[{"role":"assistant","content":NaN}]}'
    ]
    usual = [json.dumps({"prompt": [TURN], "chosen": [answer("a")], "rejected": [answer("b")]})] * 100
    (pairs, rejects, _), fast = compare(write(tmp_path / "x.jsonl", *usual, *lines))
    assert fast >= 100
    assert len(pairs) > 130
    assert len(rejects) > 400


TEXT = st.text(max_size=8) | st.sampled_from(["a", "b", ", ]", "\\u0000", "NaN", '"', "\x7f\x1f", "naïve"])
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool", "x"]), "content": TEXT | JSON_VALUE}
)
SIDE = TEXT | st.lists(MESSAGE, max_size=3) | JSON_VALUE
COLUMN = st.sampled_from(
    ["id", "source", "strength", "margin", "system", "label", "x", "lang", "rationale", "category", "score"]
)


@st.composite
def line(draw: st.DrawFn) -> bytes:
    record: dict[str, Any] = draw(st.fixed_dictionaries({"prompt": SIDE, "chosen": SIDE, "rejected": SIDE}))
    record |= draw(st.dictionaries(COLUMN, JSON_VALUE, max_size=3))
    text = json.dumps(
        record, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([None, (",", ":"), (" ,", ": ")]))
    )
    raw = text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    if draw(st.booleans()):  # damage one place
        at = draw(st.integers(0, len(raw)))
        raw = (
            raw[:at]
            + draw(st.binary(max_size=2) | st.sampled_from([b",", b'"', b"}", b"]", b"\\", b" ", b"N"]))
            + raw[at + 1 :]
        )
    return raw.replace(b"\n", b" ")


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(lines=st.lists(line(), min_size=1, max_size=12))
@example(
    lines=[
        b'{"prompt":"p","chosen":"a","rejected":"b","x":-0.0}',
        b'{"prompt":"p","chosen":"a","rejected":"b","x":1E2}',
    ]
)
def test_bulk_equals_row_parser(tmp_path: Path, lines: list[bytes]) -> None:
    usual = json.dumps({"prompt": "why?", "chosen": "a", "rejected": "b"}).encode()
    # each line's own shape is among the sample, so that SQL has to judge it
    compare(write(tmp_path / "x.jsonl", usual, *lines))


def test_small_chunks_and_a_last_line_without_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_PAIRS", 7)
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 100)
    lines = [json.dumps({**PLAIN, "chosen": f"yes {n}" * (n % 40)}) for n in range(60)]
    path = tmp_path / "x.jsonl"
    path.write_bytes(("\n".join(lines)).encode())
    (pairs, rejects, count), _ = compare(path)
    assert (len(pairs), len(rejects), count) == (58, 2, 60)
    with gzip.open(tmp_path / "x.jsonl.gz", "wb") as stream:
        stream.write(path.read_bytes())
    assert compare(tmp_path / "x.jsonl.gz")[0][0][5]["first"] == pairs[5]["first"]


def test_a_damaged_file_keeps_what_comes_before(tmp_path: Path) -> None:
    # hardly compressible, so that the damage comes some buffers after the beginning
    lines = [json.dumps({**PLAIN, "chosen": hashlib.sha512(str(n).encode()).hexdigest()}) for n in range(12000)]
    whole = gzip.compress("\n".join(lines).encode())
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    source = opened(path)
    seen: list[list[ReadBatch]] = [[], []]
    for kept, batches in zip(seen, (source.batches(), (batch for batch, _ in bulk.batches(source))), strict=True):
        with pytest.raises(BadInputError, match="damaged after row"):
            kept.extend(batches)  # extend keeps what came before the exception
    assert collect(seen[0]) == collect(seen[1])
    assert collect(seen[0])[2] > 0


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    turn = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
    sides = [[answer("a")], [dict(TURN), answer("a")], [], None, [answer("")], [{"role": "x", "content": "a"}], [None]]
    count = len(sides) * 4
    columns = {
        "prompt": pa.array(["why?", None, "", "q"] * len(sides)),
        "chosen": pa.array([side for side in sides for _ in range(4)], type=turn),
        "rejected": pa.array([[answer("b")], [dict(TURN), answer("b")]] * (count // 2), type=turn),
        "score": pa.array([0.1 + 0.2, float("nan"), 1e-9, None] * len(sides)),
        "n": pa.array(range(count), type=pa.uint64()),
        "odd 'name'": pa.array(["x", None] * (count // 2)),
        "tags": pa.array([["a"], [], None, ["b", None]] * len(sides)),
    }
    for number, left_out in enumerate([(), ("odd 'name'",)]):
        table = pa.table({name: column for name, column in columns.items() if name not in left_out})
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.concat_tables([table] * 5), path)
        (pairs, rejects, total), fast = compare(path)
        assert (total, len(pairs) + len(rejects)) == (5 * count, 5 * count)
        assert len(pairs) == 20
        assert (fast > 0) == bool(number), "a column name with a quotation mark is not for SQL"


def test_parquet_with_broken_text_or_other_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [b"fine", b"\xff", *[b"good %d" % n for n in range(20)]]
    broken = pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())
    table = pa.table({"prompt": ["why?"] * len(texts), "chosen": broken, "rejected": ["no"] * len(texts)})
    pq.write_table(table, tmp_path / "x.parquet")
    monkeypatch.setattr(rows, "BATCH_PAIRS", 5)
    (pairs, rejects, _), fast = compare(tmp_path / "x.parquet")
    assert (len(pairs), len(rejects), fast) == (21, 1, 17)
    pq.write_table(table.append_column("at", pa.array([0.5] * len(texts), pa.float32())), tmp_path / "y.parquet")
    assert not bulk.can_read(opened(tmp_path / "y.parquet"))
