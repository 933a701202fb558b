"""The private folder of a server: who may take it away, and when. Whole servers: tests/system/test_serve_restarts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from assay_serving.engine_process.folder import METRICS, PREFIX, SOCKET, private_folder, remove_left_over


@pytest.fixture
def parent(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, of a name so short that a socket's path fits."""
    folder = tmp_path_factory.mktemp("s")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_over(parent: Path, name: str, mode: int = 0o700) -> Path:
    folder = parent / f"{PREFIX}{name}"
    folder.mkdir()
    folder.chmod(mode)
    (folder / SOCKET).touch()
    (folder / METRICS).mkdir()
    (folder / METRICS / "counter.db").touch()
    return folder


def test_it_is_its_users_alone_and_goes_with_the_server(parent: Path) -> None:
    with private_folder() as folder:
        assert folder.parent == parent
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / METRICS).mkdir()
        with private_folder() as other:  # of a second server: it takes nothing away that is in use
            assert folder.is_dir()
            assert other != folder
        remove_left_over()
        assert (folder / METRICS).is_dir()
    assert list(parent.iterdir()) == []


def test_left_over_is_what_nobody_holds_and_a_server_made(
    parent: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stale = left_over(parent, "stale")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / SOCKET).touch()
    link = parent / f"{PREFIX}link"
    link.symlink_to(elsewhere)
    shared = left_over(parent, "shared", 0o755)
    more = left_over(parent, "more")
    (more / "thesis.txt").touch()
    (parent / f"{PREFIX}file").touch()
    kept = set(parent.iterdir()) - {stale}
    with private_folder() as folder:
        assert set(parent.iterdir()) == kept | {folder}
    assert set(parent.iterdir()) == kept
    assert (elsewhere / SOCKET).exists()
    assert {shared, more, link} <= kept


def test_it_is_short_enough_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with private_folder() as folder:
        assert len(os.fsencode(folder / SOCKET)) <= 100
    assert list(long.iterdir()) == []
