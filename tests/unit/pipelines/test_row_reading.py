"""Reading rows: JSON as Python's own reader has it, on any bytes; chunks, damaged files and Parquet."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.data.json_lines import RowError, parse_object
from assay.errors import BadInputError
from assay.store.media import MediaFolder
from assay_pipelines.importers import rows
from assay_pipelines.importers.rows import ReadBatch
from assay_pipelines.importers.source import ImportConfig, ImportSource, open_source

Rows = tuple[list[dict[str, Any]], list[dict[str, Any]], int]
PLAIN = {"prompt": "why?", "chosen": "because", "rejected": "no"}
TURN = {"role": "user", "content": "why?"}


def answer(text: object) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def opened(path: Path, **config: Any) -> ImportSource:
    media = MediaFolder(path.parent / "media")
    return open_source(ImportConfig(str(path), **config), spill=path.with_suffix(".spill"), media=media)


def collect(batches: list[ReadBatch]) -> Rows:
    pairs = [row for batch in batches for row in batch.pairs.to_pylist()]
    rejects = [row for batch in batches for row in batch.rejects.to_pylist()]
    return pairs, rejects, sum(batch.rows for batch in batches)


def reference(line: bytes) -> dict[str, Any] | None:
    """The object of a line by Python's reader, without NaN, Infinity and keys that occur twice; None where it refuses
    the line."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(name)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    try:
        record = json.loads(line.decode("utf-8"), parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def assert_same(line: bytes) -> None:
    expected = reference(line)
    try:
        record = parse_object(line)
    except RowError:
        assert expected is None, line
        return
    assert expected is not None, line
    assert repr(record) == repr(expected)  # tells -0.0 from 0.0 and 1 from True


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


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: value[:20])
def test_odd_values_are_read_as_python_reads_them(value: str) -> None:
    assert_same(f'{{"prompt": "why?", "extra": {value}, "last": "z"}}'.encode())


def test_odd_lines_are_read_as_python_reads_them() -> None:
    for line in ODD_LINES:
        assert_same(line if isinstance(line, bytes) else line.encode())


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(line=line())
@example(line=b'{"prompt":"p","chosen":"a","rejected":"b","x":-0.0}')
@example(line=b'{"prompt":"p","chosen":"a","rejected":"b","x":1E2}')
def test_any_line_is_read_as_python_reads_it(line: bytes) -> None:
    assert_same(line)


def test_odd_lines_among_good_ones(tmp_path: Path) -> None:
    good = json.dumps({**PLAIN, "id": "x"}).encode()
    path = tmp_path / "x.jsonl"
    lines = [part for odd in ODD_LINES for part in (good, odd if isinstance(odd, bytes) else odd.encode())]
    path.write_bytes(b"\n".join(lines) + b"\n")
    pairs, rejects, _ = collect(list(opened(path).batches()))
    assert sum(row["record_id"] == "x" for row in pairs) == len(ODD_LINES)
    assert len(rejects) > 15
    assert {row["row"] for row in pairs}.isdisjoint(row["row"] for row in rejects)


def test_columns_of_a_plain_row(tmp_path: Path) -> None:
    extra = {"id": 7, "source": "s", "score": 0.1 + 0.2, "n": -3, "ok": True, "note": 'a "b"\n\\ é/', "list": [1, [2]]}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({**PLAIN, **extra}) + "\n")
    ((pair,), rejects, _) = collect(list(opened(path).batches()))
    assert rejects == []
    assert (pair["record_id"], pair["source"], pair["messages"]) == ("7", "s", [TURN])
    assert json.loads(pair["meta"]) == {key: extra[key] for key in ("score", "n", "ok", "note")}


def test_small_batches_and_a_last_line_without_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_PAIRS", 7)
    lines = [json.dumps({**PLAIN, "chosen": f"yes {n}" * (n % 40)}) for n in range(60)]
    path = tmp_path / "x.jsonl"
    path.write_bytes(("\n".join(lines)).encode())
    batches = list(opened(path).batches())
    assert len(batches) == 9
    pairs, rejects, count = collect(batches)
    assert (len(pairs), [row["row"] for row in rejects], count) == (58, [1, 41], 60)
    with gzip.open(tmp_path / "x.jsonl.gz", "wb") as stream:
        stream.write(path.read_bytes())
    zipped = collect(list(opened(tmp_path / "x.jsonl.gz").batches()))[0]
    assert [row["first"] for row in zipped] == [row["first"] for row in pairs]


def test_a_damaged_file_keeps_what_comes_before(tmp_path: Path) -> None:
    # hardly compressible, so that the damage comes some buffers after the beginning
    lines = [json.dumps({**PLAIN, "chosen": hashlib.sha512(str(n).encode()).hexdigest()}) for n in range(12000)]
    complete = gzip.compress("\n".join(lines).encode())
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(complete[: len(complete) // 2])
    batches: list[ReadBatch] = []
    with pytest.raises(BadInputError, match="damaged after row"):
        batches.extend(opened(path).batches())  # extend keeps what came before the exception
    pairs, rejects, count = collect(batches)
    assert (rejects, len(pairs)) == ([], count)
    assert 0 < count < 12000


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
        "odd 'name'": pa.array(["x", None] * (count // 2)),
    }
    path = tmp_path / "x.parquet"
    pq.write_table(pa.concat_tables([pa.table(columns)] * 5), path)
    pairs, rejects, total = collect(list(opened(path).batches()))
    assert (total, len(pairs) + len(rejects), len(pairs)) == (5 * count, 5 * count, 20)
    assert json.loads(pairs[0]["meta"]) == {"score": 0.1 + 0.2, "odd 'name'": "x"}


def test_parquet_with_broken_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [b"fine", b"\xff", *[b"good %d" % n for n in range(20)]]
    broken = pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())
    table = pa.table({"prompt": ["why?"] * len(texts), "chosen": broken, "rejected": ["no"] * len(texts)})
    pq.write_table(table, tmp_path / "x.parquet")
    pairs, rejects, _ = collect(list(opened(tmp_path / "x.parquet").batches()))
    assert (len(pairs), [(row["row"], row["reason"]) for row in rejects]) == (21, [(2, "invalid UTF-8")])
