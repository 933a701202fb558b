"""What files would be read as, over HTTP: recognised, mapped, refused in one line; which places may be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from web_pages import running_web, signed_in

from assay.workspace import Workspace

PAIRS = [{"prompt": f"Say {n}.", "chosen": f"{n}", "rejected": "no"} for n in range(30)]


@pytest.fixture(scope="module")
def workspace(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    opened = Workspace.open(shutil.copytree(empty_workspace, tmp_path_factory.mktemp("imports") / "workspace"))
    (opened.root / "uploads").mkdir()
    (opened.root / "data").mkdir()
    return opened


@pytest.fixture(scope="module")
def client(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    shared = tmp_path_factory.mktemp("shared")
    (shared / "more.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))
    with running_web(workspace, import_roots=(shared,)) as url, signed_in(url) as opened:
        opened.headers["shared"] = str(shared)
        yield opened


def previewed(client: httpx.Client, file: str, **more: Any) -> dict[str, Any]:
    reply = client.post("/api/imports/preview", json={"file": file, **more})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def refused(client: httpx.Client, file: str, **more: Any) -> tuple[int, str]:
    reply = client.post("/api/imports/preview", json={"file": file, **more})
    assert reply.status_code >= 400, reply.text
    return reply.status_code, str(reply.json()["detail"])


def test_rows_are_shown_as_they_would_be_imported(workspace: Workspace, client: httpx.Client) -> None:
    rows = [*PAIRS[:4], {"prompt": "Same?", "chosen": "x", "rejected": "x"}, {**PAIRS[5], "note": "kept"}]
    (workspace.root / "uploads" / "pairs.jsonl").write_text("\n".join([*map(json.dumps, rows), "{broken"]))
    seen = previewed(client, "uploads/pairs.jsonl")
    assert seen["recognised"] == "TRL pairs with an explicit prompt in JSON Lines"
    assert (seen["rows"], seen["readable"], seen["counts"]) == (7, 5, {"pairs": 5})
    assert seen["examples"][0]["prompt"] == [{"role": "user", "content": "Say 0.", "cut": False}]
    assert [one["content"] for one in seen["examples"][0]["responses"]] == ["0", "no"]
    assert seen["examples"][0]["label"] == "first"
    assert [(one["row"], one["reason"]) for one in seen["rejects"]] == [
        (5, "the two sides are identical"),
        (7, "broken JSON (Expecting property name enclosed in double quotes)"),
    ]
    assert {one["name"]: one["use"] for one in seen["columns"]} == {
        **dict.fromkeys(("prompt", "chosen", "rejected"), "read"),
        "note": "metadata",
    }


def test_unknown_columns_are_mapped_and_their_codes_named(workspace: Workspace, client: httpx.Client) -> None:
    lines = ["frage;eins;zwei;besser", *(f"Frage {n};a{n};b{n};{n % 2}" for n in range(20))]
    (workspace.root / "data" / "table.csv").write_text("\n".join(lines))
    assert client.get("/api/imports/choices").json()["files"][0] == "data/table.csv"
    seen = previewed(client, "data/table.csv")
    assert (seen["recognised"], seen["rows"], seen["examples"]) == (None, 20, [])
    assert [(one["name"], one["codes"][:2]) for one in seen["columns"][2:]] == [("zwei", []), ("besser", ["0", "1"])]
    mapping = {"prompt": "frage", "response_a": "eins", "response_b": "zwei", "label": "besser"}
    seen = previewed(client, "data/table.csv", mapping=mapping)
    assert (seen["readable"], seen["mostly_unreadable"]) == (0, True)
    assert list(seen["rejected"]) == [
        "label: a number does not say which response it means: write A, B or tie, or give --values"
    ]
    seen = previewed(client, "data/table.csv", mapping=mapping, values={"0": "first", "1": "second"})
    assert (seen["readable"], [one["label"] for one in seen["examples"]]) == (20, ["first", "second", "first"])
    assert refused(client, "data/table.csv", mapping={"prompt": "nothing"})[0] == 422
    assert refused(client, "data/table.csv", mapping={"prompts": "frage"})[0] == 422


def test_what_cannot_be_read_is_said_in_one_line(workspace: Workspace, client: httpx.Client) -> None:
    uploads = workspace.root / "uploads"
    (uploads / "empty.jsonl").write_bytes(b"\n\n")
    (uploads / "garbage.bin").write_bytes(bytes(range(256)) * 4096)
    (uploads / "truncated.parquet").write_bytes(b"PAR1" + b"x" * 100)
    (uploads / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5000))
    (uploads / "empty.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00damaged")
    for name in ("empty.jsonl", "garbage.bin", "truncated.parquet", "empty.jsonl.gz"):
        status, line = refused(client, f"uploads/{name}")
        assert status == 422, line
        assert "\n" not in line
        assert str(workspace.root) not in line, line
    assert previewed(client, "uploads/picture.csv")["readable"] == 0


@pytest.mark.slow
def test_a_line_of_two_gigabytes_is_one_refused_row(workspace: Workspace, client: httpx.Client) -> None:
    path = workspace.root / "uploads" / "line.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(PAIRS[0]).encode() + b'\n{"prompt": "')
        file.seek(2 << 30)  # a hole of zeros
        file.write(b"\n" + json.dumps(PAIRS[1]).encode())
    seen = previewed(client, "uploads/line.jsonl")
    path.unlink()
    assert seen["rejected"] == {"the row is larger than 32 MiB": 1}
    assert (seen["rows"], seen["readable"]) == (3, 2)


def test_other_places_are_not_read(workspace: Workspace, client: httpx.Client, tmp_path: Path) -> None:
    shared = client.headers["shared"]
    assert previewed(client, f"{shared}/more.jsonl")["readable"] == 30
    (tmp_path / "secret.jsonl").write_text(json.dumps(PAIRS[0]))
    (workspace.root / "uploads" / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    outside = (
        *("/etc/passwd", "../../etc/passwd", "access.sqlite", "assay.duckdb", "uploads/../assay.toml"),
        *("uploads/link.jsonl", "uploads/.parts", str(tmp_path), f"{shared}/../x", "file:///etc/passwd", "/"),
    )
    for place in outside:
        status, line = refused(client, place)
        assert (status, line[:4]) == (403, "only"), place
    for place in ("hf:/etc", "hf:../x", f"hf:{shared}", "hf:data", "hf:a/b/c"):
        assert refused(client, place) == (422, "a data set of the hub is called owner/name")
    for place in ("uploads/never.jsonl", "data/x\x00y", "data/" + "x" * 900):
        assert refused(client, place)[0] in (404, 422)
    for format_ in ("os:system", "x.py:Layout", "/tmp/x.yaml"):
        assert refused(client, "data/table.csv", format=format_) == (422, "there is no format of that name")
