"""Conversations with tools, images, thinking and several turns, in the forms that people write them in."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from empty_workspaces import new_workspace
from pair_files import write_pairs
from PIL import Image

from assay.conversation.message import response_form
from assay.data.json_lines import RowError
from assay.data.message_forms import compact, read_message, tool_definitions
from assay.data.pairs import read_pair_file
from assay.data.snapshots import Selection, create_snapshot, load_pairs
from assay.domain import PreferencePair
from assay.store.media import content_hash_of, missing_media
from assay.workspace import Workspace
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a town",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}
DEFINITION = {
    "type": "tool_definition",
    "name": "weather",
    "description": "of a town",
    "parameters": '{"type":"object","properties":{"town":{"type":"string"}}}',
}
CALL = {"type": "tool_call", "name": "weather", "arguments": '{"town":"Ulm","day":1.0}', "call_id": "c1"}
RESULT = {"type": "tool_result", "content": "rain", "call_id": "c1"}
USER = {"role": "user", "content": "Is it raining?"}
TOWN = {"town": "Ulm"}
OPENAI_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"town": "Ulm", "day": 1.0}'},
}


def png(colour: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(stream, format="PNG")
    return stream.getvalue()


RED, BLUE = png("red"), png("blue")
RED_HASH, BLUE_HASH = content_hash_of(RED), content_hash_of(BLUE)


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return new_workspace(tmp_path / "ws")


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def take(workspace: Workspace, path: Path, *rows: dict[str, Any]) -> ImportReport:
    if rows:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return run_import(workspace, open_import(workspace, ImportConfig(str(path))))


def stored(workspace: Workspace) -> list[PreferencePair]:
    create_snapshot(workspace, "all", Selection(), None)
    return load_pairs(workspace, "all")


@pytest.mark.parametrize(
    ("message", "turns"),
    [
        ({"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}, [("assistant", [CALL])]),
        ({"role": "tool", "tool_call_id": "c1", "content": "rain"}, [("tool", [RESULT])]),
        ({"role": "tool", "content": [{"type": "text", "text": "rain"}], "tool_call_id": "c1"}, [("tool", [RESULT])]),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": TOWN}]},
            [("assistant", [{**CALL, "arguments": '{"town":"Ulm"}'}])],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
                    {"type": "text", "text": "So?"},
                ],
            },
            [("tool", [RESULT]), ("user", "So?")],
        ),
        (
            {"from": "function_call", "value": '{"name": "weather", "arguments": {"town": "Ulm"}}'},
            [("assistant", [{"type": "tool_call", "name": "weather", "arguments": '{"town":"Ulm"}'}])],
        ),
        ({"from": "observation", "value": "rain"}, [("tool", "rain")]),
        ({"from": "gpt", "value": "Yes."}, [("assistant", "Yes.")]),
        ({"role": "developer", "content": "Be brief."}, [("developer", "Be brief.")]),
        (
            {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes."},
            [("assistant", [{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "Yes."}])],
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, "Yes."]},
            [("assistant", [{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "Yes."}])],
        ),
        ({"role": "user", "content": [{"type": "input_text", "text": "a"}, {"text": "b"}]}, [("user", "a\nb")]),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]},
            [("user", [{"type": "image", "url": "https://a/b.png"}])],
        ),
        ({"type": "function_call_output", "call_id": "c1", "output": "rain"}, [("tool", [RESULT])]),
        ({"role": "assistant", "function_call": {"name": "weather", "arguments": "{oops"}},
         [("assistant", [{"type": "tool_call", "name": "weather", "arguments": "{oops"}])]),
    ],
)  # fmt: skip
def test_messages_of_every_form(message: dict[str, Any], turns: list[tuple[str, Any]]) -> None:
    assert [(turn["role"], turn["content"]) for turn in read_message(message, "prompt")] == turns


@pytest.mark.parametrize("kind", ["input_audio", "video_url", "file", "redacted_thinking"])
def test_an_unknown_part_is_refused_by_name(kind: str) -> None:
    with pytest.raises(RowError, match=f"a message part of the type '{kind}', which is not known"):
        read_message({"role": "user", "content": [{"type": kind, kind: {}}]}, "prompt")


def test_tools_of_every_form_are_one() -> None:
    bare = TOOL["function"]
    assert isinstance(bare, dict)
    anthropic = {"name": "weather", "description": "of a town", "input_schema": bare["parameters"]}
    for form in ([TOOL], [bare], [anthropic], json.dumps([TOOL]), [json.dumps(TOOL)]):
        assert tool_definitions(form) == [DEFINITION]


def test_json_texts_keep_their_keys_order_and_numbers() -> None:
    assert compact('{ "b": 1.50, "a": [1e400, "x y"] }') == '{"b":1.50,"a":[1e400,"x y"]}'
    assert compact({"town": "Ulm", "day": None}) == '{"town":"Ulm"}', "null of a column that another row fills"


@pytest.mark.slow
def test_tool_pairs_of_trl(workspace: Workspace, tmp_path: Path) -> None:
    """Tools as a column; the sides part at a call, and one of them goes on after it."""
    system = {"role": "system", "content": "Be brief."}
    called = [{"role": "assistant", "content": "", "tool_calls": [OPENAI_CALL]}]
    answered = [
        *called,
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "assistant", "content": "Yes."},
    ]
    row = {"prompt": [system, USER], "chosen": answered, "rejected": called, "tools": json.dumps([TOOL])}
    plain = {"prompt": "Name a metal.", "chosen": "Gold.", "rejected": "Glass."}
    report = take(workspace, tmp_path / "pairs.jsonl", row, plain)
    assert (report.pairs, report.rejected) == (2, {})
    typed = next(pair for pair in stored(workspace) if len(pair.prompt) == 2)
    assert [m.to_dict() for m in typed.prompt] == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}, DEFINITION]},
        USER,
    ]
    assert response_form(typed.rejected) == [{"role": "assistant", "content": [CALL]}]
    assert response_form(typed.chosen) == [
        {"role": "assistant", "content": [CALL]},
        {"role": "tool", "content": [RESULT]},
        {"role": "assistant", "content": "Yes."},
    ]
    again = take(workspace, tmp_path / "pairs.jsonl")
    assert (again.new.prompts, again.new.responses, again.new.comparisons) == (0, 0, 0)
    write_pairs(tmp_path / "written.jsonl", [typed])
    assert read_pair_file(tmp_path / "written.jsonl")[0].comparison_id == typed.comparison_id


def test_images_of_every_kind_are_stored_once(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "red.png").write_bytes(RED)
    asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What colour?"}]}]
    sides: dict[str, Any] = {"chosen": said("Red."), "rejected": said("Blue.")}
    report = take(
        workspace,
        tmp_path / "pairs.jsonl",
        {"prompt": asked, **sides, "images": ["pictures/red.png"]},
        {"prompt": "<image>What colour?", **sides, "images": [data_url(RED)]},
        {"prompt": "What colour?", **sides, "image": data_url(BLUE)},
        {
            "prompt": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}],
            **sides,
        },
        {"prompt": asked, **sides, "images": []},
        {"prompt": asked, **sides, "images": [data_url(RED), data_url(BLUE)]},
        {"prompt": asked, **sides, "images": ["../../etc/passwd"]},
        {"prompt": asked, **sides, "images": [data_url(b"no image")]},
        {"prompt": asked, **sides, "images": ["red\0.png"]},
        {"prompt": asked, **sides, "images": ["lost.png"]},
    )
    assert (report.pairs, report.images, report.unfetched_images) == (4, 2, 1)
    assert report.rejected == {
        "images: an image without bytes, path or address": 1,
        "images: not as many images as the messages have places for": 1,
        "images: an image outside of the imported file's folder": 1,
        "images: an image whose file cannot be read": 1,
        "images: an image whose file does not exist": 1,
        "images: not an image (PNG, JPEG, GIF, WEBP, BMP, TIFF)": 1,
    }
    image = {"type": "image", "content_hash": RED_HASH, "media_type": "image/png"}
    pairs = stored(workspace)
    assert len(pairs) == 3, "two forms of one question are one comparison"
    prompts = [[m.to_dict() for m in pair.prompt] for pair in pairs]
    assert [{"role": "user", "content": [image, {"type": "text", "text": "What colour?"}]}] in prompts
    assert [{"role": "user", "content": [{"type": "image", "url": "https://a/b.png"}]}] in prompts
    path = workspace.media.find(RED_HASH)
    assert path is not None
    assert path.read_bytes() == RED
    with workspace.store.unit() as db:
        assert missing_media(db, workspace.media) == []
        path.unlink()
        assert missing_media(db, workspace.media) == [RED_HASH]


def test_parquet_with_images_of_the_datasets_library(workspace: Workspace, tmp_path: Path) -> None:
    """A column of {bytes, path}, and message columns that are filled with null where another row has more."""
    message = pa.struct([("type", pa.string()), ("text", pa.string())])
    turn = pa.struct([("role", pa.string()), ("content", pa.list_(message))])
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    said = [{"role": "assistant", "content": [{"type": "text", "text": text}]} for text in ("Red.", "Blue.")]
    asked = {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "What colour?"}]}
    columns = {
        "prompt": pa.array([[asked]], pa.list_(turn)),
        "chosen": pa.array([said[:1]], pa.list_(turn)),
        "rejected": pa.array([said[1:]], pa.list_(turn)),
        "images": pa.array([[{"bytes": RED, "path": "red.png"}]], pa.list_(image)),
    }
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet")
    assert take(workspace, tmp_path / "pairs.parquet").images == 1
    (pair,) = stored(workspace)
    assert pair.chosen == "Red."
    assert pair.prompt[0].to_dict()["content"][0]["content_hash"] == RED_HASH
