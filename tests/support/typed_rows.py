"""Preference rows with tools, calls, results, thinking and an image, for tests of what is written and read."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from empty_workspaces import new_workspace
from PIL import Image

from assay.workspace import Workspace
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a town",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}
CALL: dict[str, Any] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"town": "Ulm", "day": 1.0}},
}
PLAIN: dict[str, Any] = {"prompt": [{"role": "user", "content": "Plain?"}], "chosen": "good", "rejected": "bad"}
CALLED = {
    "prompt": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it raining?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ],
    "chosen": [{"role": "assistant", "content": "Yes."}],
    "rejected": [{"role": "assistant", "content": "No."}],
    "tools": [TOOL],
}
CALLS = {
    "prompt": [{"role": "user", "content": "Is it hot?"}],
    "chosen": [{"role": "assistant", "content": "", "tool_calls": [CALL]}],
    "rejected": [{"role": "assistant", "content": "I think so."}],
    "tools": [TOOL],
}
THOUGHT = {
    "prompt": [{"role": "user", "content": "1 + 1?"}],
    "chosen": [{"role": "assistant", "reasoning_content": "Easy.", "content": "2"}],
    "rejected": [{"role": "assistant", "content": "3"}],
}


def png(width: int = 4, height: int = 3, colour: str = "red") -> str:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


PICTURE = {
    "prompt": [{"role": "user", "content": [{"type": "image", "image": png()}, {"type": "text", "text": "Colour?"}]}],
    "chosen": [{"role": "assistant", "content": "Red."}],
    "rejected": [{"role": "assistant", "content": "Blue."}],
}


#: HTML and a script, as a tool may return them.
HOSTILE = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"


def every_part(*, picture: str, answer: str = "It will rain.") -> list[dict[str, Any]]:
    """Two pairs of one prompt with every kind of part; the first response has several turns."""
    called = {
        "role": "assistant",
        "reasoning_content": "It looks like Ulm.\n\nI ask for the weather.",
        "content": "",
        "tool_calls": [CALL],
    }
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Name the town."},
        {
            "role": "user",
            "content": [
                {"type": "image", "image": picture},
                {"type": "text", "text": "**Where** is this, and will it rain?"},
            ],
        },
    ]
    turns = [
        called,
        {"role": "tool", "tool_call_id": "c1", "content": HOSTILE},
        {"role": "assistant", "content": f"This is Ulm.\n\n{answer}"},
    ]
    row = {"prompt": prompt, "tools": [TOOL], "chosen": turns}
    plain = ("I cannot see the town.\n\nIt may rain.", "No idea.")
    return [{**row, "rejected": [{"role": "assistant", "content": text}]} for text in plain]


def filled(tmp_path: Path, *rows: dict[str, Any]) -> Workspace:
    workspace = new_workspace(tmp_path / f"ws{len(list(tmp_path.iterdir()))}")
    take(workspace, tmp_path / "rows.jsonl", *rows)
    return workspace


def take(workspace: Workspace, path: Path, *rows: dict[str, Any]) -> None:
    if rows:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    assert report.rejected == {}
