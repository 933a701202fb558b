"""API keys: made once, kept as hashes, edited by several at a time, read again by a running server."""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay.errors import AssayError, BadInputError, NotFoundError
from assay_serving.server.auth.api_keys import KeyRing, id_of, key_in
from assay_serving.server.auth.key_store import create_key, read_keys, revoke_key


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def rewrite(file: Path, **changes: Any) -> None:
    """Change the first entry by hand, as somebody with an editor would."""
    payload = json.loads(file.read_text())
    payload["keys"][0].update(changes)
    file.write_text(json.dumps(payload))


def test_the_file_holds_hashes_only_and_belongs_to_its_owner(file: Path) -> None:
    key, entry = create_key(file, "trainer", ["score"], requests_per_minute=600, expires="90d")
    secret = key.split("_", 2)[2]
    assert id_of(key) == entry.id
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    text = file.read_text()
    assert secret not in text
    assert key not in text
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_keys(file).entries == (entry,)
    left = datetime.fromisoformat(str(entry.expires)) - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)


def test_the_same_key_has_another_hash_in_another_file(tmp_path: Path) -> None:
    key, _ = create_key(tmp_path / "one.json", "a", ["score"])
    create_key(tmp_path / "two.json", "a", ["score"])
    assert read_keys(tmp_path / "one.json").hash_of(key) != read_keys(tmp_path / "two.json").hash_of(key)


def test_edits_at_the_same_time_all_arrive(file: Path) -> None:
    made: list[str] = []

    def create(worker: int) -> None:
        for n in range(4):
            made.append(create_key(file, f"key-{worker}-{n}", ["score"])[0])

    workers = [threading.Thread(target=create, args=(worker,)) for worker in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_keys(file).entries) == 24
    ring = KeyRing(file=file)
    assert {access.client.name for key in made if (access := ring.find(key))} == {
        f"key-{worker}-{n}" for worker in range(6) for n in range(4)
    }


def test_a_failed_write_leaves_the_file_as_it_was(file: Path) -> None:
    create_key(file, "a", ["score"])
    before = file.read_bytes()
    with pytest.raises(BadInputError, match="there is a key named a"):
        create_key(file, "a", ["admin"])
    with pytest.raises(NotFoundError):
        revoke_key(file, "b")
    assert file.read_bytes() == before
    assert sorted(path.name for path in file.parent.iterdir()) == [".keys.json.lock", "keys.json"]


def test_an_edit_through_a_link_keeps_the_link_and_the_groups_right_to_read(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    create_key(real, "a", ["score"])
    real.chmod(0o644)
    link.symlink_to(real)
    create_key(link, "b", ["score"])
    assert link.is_symlink()
    assert [entry.name for entry in read_keys(real).entries] == ["a", "b"]
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "../a", "a\nb", "x" * 65, "-a", "anonymous", "api-key", "api-key-2"]
)
def test_names_are_harmless_in_logs_and_labels(file: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="a name is"):
        create_key(file, name, ["score"])
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"scopes": ["root"]}, "scope"),
        ({"scopes": []}, "scope"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"items_per_minute": float("nan")}, "items_per_minute"),
        ({"items_per_minute": float("inf")}, "items_per_minute"),
        ({"expires": "soon"}, "expires"),
        ({"expires": "0d"}, "expires"),
        ({"expires": "2001-01-01"}, "expires"),
        ({"expires": "999999w"}, "expires"),
    ],
)
def test_what_makes_no_sense_is_refused_naming_it(file: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError) as refused:
        create_key(file, "a", **{"scopes": ["score"], **options})
    assert refused.value.field == field


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 5000,
        b'{"format": 2, "salt": "", "keys": []}',
        b'{"format": 1, "salt": "zz", "keys": []}',
        b'{"format": 1, "salt": "00", "keys": []}',
        b'{"format": 1, "salt": "00000000000000000000000000000000", "keys": 3}',
        b'{"format": 1, "salt": "00000000000000000000000000000000", "keys": [{"name": "a"}]}',
    ],
)
def test_broken_files_are_one_line(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(BadInputError, match=r"keys\.json") as refused:
        read_keys(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a\nb"},
        {"hash": "00"},
        {"scopes": ["root"]},
        {"scopes": None},
        {"items_per_minute": "many"},
        {"requests_per_minute": True},
        {"expires": "2030-01-31"},
        {"expires": "never"},
        {"comment": "unknown field"},
    ],
)
def test_a_broken_entry_is_named_by_its_row(file: Path, changes: dict[str, Any]) -> None:
    create_key(file, "a", ["score"])
    rewrite(file, **changes)
    with pytest.raises(BadInputError, match="row 1"):
        read_keys(file)


def test_two_entries_with_one_name_are_refused(file: Path) -> None:
    create_key(file, "a", ["score"])
    create_key(file, "b", ["score"])
    rewrite(file, name="b")
    with pytest.raises(BadInputError, match="two keys have the same name"):
        read_keys(file)


def test_a_file_that_anybody_may_write_is_refused(file: Path) -> None:
    create_key(file, "a", ["score"])
    file.chmod(0o666)
    with pytest.raises(BadInputError, match="chmod 600"):
        KeyRing(file=file)


def test_a_ring_without_keys_needs_none_and_an_empty_file_opens_to_nobody(file: Path) -> None:
    assert not KeyRing().needed
    key, _ = create_key(file, "a", ["score"])
    revoke_key(file, "a")
    ring = KeyRing(file=file)
    assert ring.needed
    assert ring.find(key) is None
    assert ring.find("") is None
    with pytest.raises(NotFoundError):
        KeyRing(file=file.with_name("none.json"))


def test_keys_carry_their_name_scopes_and_limits(file: Path) -> None:
    key, _ = create_key(file, "trainer", ["admin", "score"], requests_per_minute=600, items_per_minute=20_000)
    ring = KeyRing(["plain", "other"], file)
    access = ring.find(key)
    assert access is not None
    assert (access.client.name, access.scopes) == ("trainer", frozenset({"score", "admin"}))
    assert (access.client.requests_per_minute, access.client.items_per_minute) == (600, 20_000)
    for plain, name in (("plain", "api-key"), ("other", "api-key-2")):
        access = ring.find(plain)
        assert access is not None
        assert access.client.name == name
        assert access.scopes == {"read", "score", "admin"}
    for wrong in (key[:-1], key + "x", key.replace("_", "-"), "plai", "plainx", "assay_", "assay_00000000_x", "\udcff"):
        assert ring.find(wrong) is None


def test_revoked_new_and_expired_keys_without_a_restart(file: Path) -> None:
    clock = Clock()
    first, _ = create_key(file, "first", ["score"])
    ring = KeyRing(file=file, clock=clock)
    assert ring.find(first)
    second, _ = create_key(file, "second", ["score"])
    revoke_key(file, "first")
    clock.now += 0.5
    assert ring.find(first)  # looked at a moment ago
    clock.now += 0.6
    assert ring.find(first) is None
    assert ring.find(second)
    rewrite(file, expires="2020-01-01T00:00:00+00:00")
    clock.now += 2
    assert ring.find(second) is None


def test_a_broken_or_missing_file_keeps_the_keys_and_says_so_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    key, _ = create_key(file, "a", ["score"])
    whole = file.read_bytes()
    ring = KeyRing(file=file, clock=clock)
    file.write_bytes(b'{"format": 1, ')
    for _ in range(3):
        clock.now += 2
        assert ring.find(key)
    file.unlink()
    clock.now += 2
    assert ring.find(key)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 2
    assert all("the previous 1 keys stay" in line for line in told)
    file.write_bytes(whole)
    create_key(file, "b", ["score"])
    clock.now += 2
    assert ring.find(key)
    assert "keys file reloaded: 2 keys" in caplog.text
    assert key not in caplog.text


def test_where_a_key_may_stand(tmp_path: Path) -> None:
    def basic(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    assert key_in("Bearer KEY", "") == "KEY"
    assert key_in("bearer  KEY ", "OTHER") == "KEY"
    assert key_in(basic("any:KEY"), "") == "KEY"
    assert key_in(basic("any:KEY:with:colons"), "") == "KEY:with:colons"
    assert key_in(basic("KEY:"), "") == "KEY"
    assert key_in("", "KEY") == "KEY"
    for nothing in ("Bearer", "Basic", "Basic ???", "Basic /w==", "Digest KEY", "KEY"):
        assert key_in(nothing, "") == ""


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_KEYS_FILE", "ASSAY_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["keys", *arguments])
        said = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, said.out, said.err

    code, _, err = run("list")
    assert code == 3
    assert "--keys-file" in err
    code, out, err = run("create", "trainer", "--keys-file", "k.json", "--items-per-minute", "500", "--expires", "90d")
    key = out.strip()
    assert code == 0
    assert KeyRing(file=tmp_path / "k.json").find(key)
    assert "score; 500 items a minute; expires" in err
    assert key not in err
    monkeypatch.setenv("ASSAY_KEYS_FILE", str(tmp_path / "k.json"))
    code, out, _ = run("create", "boss", "--scope", "admin", "--scope", "read", "--json")
    made = json.loads(out)
    assert (made["scopes"], made["expires"]) == (["read", "admin"], None)
    code, out, _ = run("list", "--json")
    listed = json.loads(out)["keys"]
    assert [entry["name"] for entry in listed] == ["trainer", "boss"]
    assert not any("hash" in entry or "key" in entry for entry in listed)
    code, out, _ = run("revoke", "boss")
    assert (code, out) == (0, f"revoked boss ({made['id']})\n")
    assert run("revoke", "boss")[0] == 3
    assert run("create", "trainer")[0] == 2
    code, out, err = run("create", "ours", "--models", "rm,judge", "--models", "safe", "--json")
    assert json.loads(out)["models"] == ["rm", "judge", "safe"]
    assert "ours" in run("list")[1]
    assert "score with rm, judge, safe only; no rate limit" in run("list")[1]
    assert run("create", "empty", "--models", "rm,")[0] == 2
    rewrite(tmp_path / "k.json", expires="2020-01-01T00:00:00+00:00")
    assert "EXPIRED" in run("list")[1]


def test_keys_of_a_workspace_lie_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.workspace import Workspace
    from assay_serving.commands.keys import locate_keys_file

    root = Workspace.create(tmp_path / "space").root
    assert locate_keys_file(None, root) == root / "keys.json"
    assert locate_keys_file(Path("x.json"), root) == Path("x.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    with pytest.raises(AssayError):
        locate_keys_file(None, None)


def test_the_file_can_be_read_by_a_server_that_may_not_write_it(file: Path) -> None:
    key, _ = create_key(file, "a", ["score"])
    os.chmod(file, 0o440)
    assert KeyRing(file=file).find(key)
