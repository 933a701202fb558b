"""The files that pairs come in: encodings, compression, arrays in objects, Arrow, saved data sets, folders."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from assay.data.compression import FREE_BYTES
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers.containers.folder import open_folder
from assay_pipelines.importers.containers.json_elements import ArrayError, JsonElements, arrays_of_objects, skip
from assay_pipelines.importers.containers.parquet_file import Parquet
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

GERMAN = "Für die Größe der Tröpfchen gilt Ähnliches, “so” steht es im Buch – naïve Leser glauben es."


def take(workspace: Workspace, path: Path, **options: Any) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path), **options)))


def chosen(workspace: Workspace) -> list[str]:
    with workspace.store.unit() as db:
        return [
            row[0] for row in db.execute("SELECT content FROM responses WHERE content <> 'bad' ORDER BY 1").fetchall()
        ]


def pairs(*texts: str) -> list[dict[str, str]]:
    return [{"prompt": f"Why {text}?", "chosen": text, "rejected": "bad"} for text in texts]


@pytest.mark.parametrize(
    ("encoding", "delimiter", "text", "said"),
    [
        ("utf-8", ",", GERMAN, "CSV"),
        ("utf-8-sig", ";", GERMAN, "CSV (semicolons)"),
        ("cp1252", ";", GERMAN, "CSV (semicolons, cp1252)"),
        ("cp1250", "\t", "Světlo se rozptyluje ve vzduchu, žluťoučký kůň úpěl ďábelské ódy.", "CSV (tabs, cp1250)"),
        ("cp1251", "|", "Потому что свет рассеивается в атмосфере, и это видно днём.", "CSV (bars, cp1251)"),
        ("cp932", ",", "光が散乱するからです。夕方は赤く見えます。", "CSV (cp932)"),
        ("utf-16", ";", GERMAN, "CSV (semicolons, utf-16)"),
    ],
)
def test_a_table_is_read_as_it_is_written(
    workspace: Workspace, tmp_path: Path, encoding: str, delimiter: str, text: str, said: str
) -> None:
    rows = [f'"Why {n}?"{delimiter}"{text} {n}"{delimiter}bad' for n in range(4)]
    path = tmp_path / "pairs.csv"
    path.write_bytes("\r\n".join([delimiter.join(("prompt", "chosen", "rejected")), *rows]).encode(encoding))
    report = take(workspace, path)
    assert report.recognised.endswith(f" in {said}")
    assert chosen(workspace) == [f"{text} {n}" for n in range(4)]


def test_text_that_is_not_ascii_is_found_late_and_a_stray_byte_costs_its_row(
    workspace: Workspace, tmp_path: Path
) -> None:
    plain = "".join(f"Why {n}?,plain answer {n},bad\n" for n in range(20_000))
    path = tmp_path / "late.csv"
    path.write_bytes(("prompt,chosen,rejected\n" + plain).encode() + "Why?,Größe über alles,bad\n".encode("cp1252"))
    assert open_import(workspace, ImportConfig(str(path))).container.description == "CSV (cp1252)"
    path.write_bytes("prompt,chosen,rejected\nWhy?,Größe,bad\n".encode() + b"How?,a \xff,bad\n")
    report = take(workspace, path)
    assert (report.recognised.endswith(" in CSV"), report.pairs, sum(report.rejected.values())) == (True, 1, 1)


def test_the_encoding_can_be_given(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("prompt,chosen,rejected\nWhy?,\xe6,bad\n".encode("latin-1"))
    take(workspace, path, encoding="cp1257")
    assert chosen(workspace) == ["ę"]
    with pytest.raises(BadInputError, match="no encoding is named 'utf8000'"):
        take(workspace, path, encoding="utf8000")


@pytest.mark.parametrize("lines", [True, False])
def test_json_in_utf16(workspace: Workspace, tmp_path: Path, lines: bool) -> None:
    rows = pairs(GERMAN, "𝒳 beyond the first plane")
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows, ensure_ascii=False)
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("utf-16"))
    take(workspace, path)
    assert chosen(workspace) == sorted([GERMAN, "𝒳 beyond the first plane"])


def test_xz_in_several_streams_and_damaged(workspace: Workspace, tmp_path: Path) -> None:
    one, two = (lzma.compress(f"{json.dumps(row)}\n".encode()) for row in pairs("a", "b"))
    path = tmp_path / "x.jsonl.xz"
    path.write_bytes(one + two)
    assert take(workspace, path).pairs == 2
    path.write_bytes(one + two[:-10])
    with pytest.raises(BadInputError, match="damaged after row"):
        take(workspace, path)


@pytest.mark.slow
def test_an_xz_bomb_ends_the_import(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.xz"
    row = json.dumps(pairs("a")[0]).encode() + b"\n"
    path.write_bytes(lzma.compress(row + b" " * (FREE_BYTES + 2**20)))
    with pytest.raises(BadInputError, match="expands to more than"):
        take(workspace, path)


@pytest.mark.parametrize("indent", [None, 1])
def test_rows_in_a_member_of_an_object(workspace: Workspace, tmp_path: Path, indent: int | None) -> None:
    content = {"version": '1 ] \\" }', "meta": {"data": [1, [2]]}, "data": pairs("a", "b, ] }", 'c "d"')}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content, indent=indent))
    report = take(workspace, path)
    assert report.recognised.endswith("in the array 'data' of a JSON object")
    assert (report.rows, report.rejected) == (3, {})


def test_splits_in_one_object(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"test": pairs("a"), "train": pairs("b", "c")}))
    assert "'train' of a JSON object; there are also test" in take(workspace, path).recognised
    assert chosen(workspace) == ["b", "c"]
    take(workspace, path, split="test")
    assert chosen(workspace) == ["a", "b", "c"]
    with pytest.raises(BadInputError, match="no array 'dev'; there are test, train"):
        take(workspace, path, split="dev")


def test_a_line_with_a_list_of_objects_is_a_row(workspace: Workspace, tmp_path: Path) -> None:
    row = {"data": [{"role": "user", "content": "x" * 100_000}], **pairs("a")[0]}
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'chosen': 'b'})}\n")
    report = take(workspace, path)
    assert (report.recognised.endswith("in JSON Lines"), report.pairs) == (True, 2)


@pytest.mark.parametrize("text", ["[1]", '{"a": 1', '{"a" 1}', '{"a": [{}]} x', "{1: 2}", '{"a": "b'])
def test_what_is_no_single_object(text: str) -> None:
    with pytest.raises(ArrayError):
        arrays_of_objects(io.BytesIO(text.encode()))


def test_members_are_found_whatever_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {'a "b"': [1, {"c": "]\\"}], "d": 'x\\"', "rows": [{"e": [{}]}], "f": -1.5e3, "g": None, "h": []}
    text = json.dumps(content, indent=2).encode()
    for size in range(1, 9):
        monkeypatch.setattr("assay_pipelines.importers.containers.json_elements.CHUNK", size)
        for before in (b"", b" \n ", *([b"\xef\xbb\xbf"] if size > 3 else [])):
            places = arrays_of_objects(io.BytesIO(before + text))
            assert list(places) == ["rows", "h"]
            stream = io.BytesIO(before + text)
            skip(stream, places["rows"])
            assert [json.loads(element) for element in JsonElements(stream, inner=True)] == content["rows"]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_arrow_files_and_streams(workspace: Workspace, tmp_path: Path, compression: str) -> None:
    table = pa.Table.from_pylist(pairs("a", "b"))
    pyarrow.feather.write_feather(table, str(tmp_path / "x.feather"), compression=compression)
    report = take(workspace, tmp_path / "x.feather")
    assert (report.recognised.endswith("in Arrow"), report.pairs) == (True, 2)
    with pa.OSFile(str(tmp_path / "y.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert take(workspace, tmp_path / "y.arrow").new.comparisons == 0
    (tmp_path / "z.arrow").write_bytes(b"no arrow")
    with pytest.raises(BadInputError, match="not an Arrow file"):
        take(workspace, tmp_path / "z.arrow")


def test_an_arrow_bomb_ends_the_import(workspace: Workspace, tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{**row, "padding": " " * (FREE_BYTES // 4)} for row in pairs(*"abcdef")])
    pyarrow.feather.write_feather(table, str(tmp_path / "x.feather"), compression="zstd", chunksize=2)
    with pytest.raises(BadInputError, match="expands to more than"):
        take(workspace, tmp_path / "x.feather")
    assert chosen(workspace) == ["a", "b"]


def test_saved_data_sets(workspace: Workspace, tmp_path: Path) -> None:
    train, test = (datasets.Dataset.from_list(pairs(*texts)) for texts in (("a", "b"), ("c",)))
    train.save_to_disk(tmp_path / "one", num_shards=2)
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "several")
    assert take(workspace, tmp_path / "one").recognised.endswith("in Arrow, 2 files")
    assert chosen(workspace) == ["a", "b"]
    assert take(workspace, tmp_path / "several", split="test").recognised.endswith("in Arrow (split test)")
    assert chosen(workspace) == ["a", "b", "c"]
    with pytest.raises(BadInputError, match="no split 'dev'; there are train, test"):
        take(workspace, tmp_path / "several", split="dev")


def test_a_folder_of_parquet(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "set" / "data"
    folder.mkdir(parents=True)
    for name, texts in (("train-00000-of-00002", "ab"), ("train-00001-of-00002", "c"), ("test-00000-of-00001", "d")):
        pq.write_table(pa.Table.from_pylist(pairs(*texts)), folder / f"{name}.parquet")
    (tmp_path / "set" / "README.md").write_text("a card")
    report = take(workspace, tmp_path / "set")
    assert report.recognised.endswith("in Parquet, 2 files (split train)")
    assert (report.rows, chosen(workspace)) == (3, ["a", "b", "c"])
    with workspace.store.unit() as db:
        ids = [row[0] for row in db.execute("SELECT record_id FROM origins ORDER BY 1").fetchall()]
    assert ids == ["set#1", "set#2", "set#3"]
    opened = open_folder(folder, None, Parquet)
    assert opened.position() == 0
    assert sum(1 for _ in opened.records()) == opened.position() == opened.size
    (folder / "more.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInputError, match=r"several kinds \(.parquet, .csv\)"):
        take(workspace, tmp_path / "set")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="a folder without files"):
        take(workspace, tmp_path / "empty")
