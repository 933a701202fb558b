"""Files in pieces: what counts, what is dropped, names, the same file again, a disk without room."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from assay.errors import BadInputError, ConflictError, NotFoundError
from assay_web.settings import UploadLimits
from assay_web.uploads.upload_folder import PIECE, DiskFullError, Upload, UploadFolder, clean_name

LIMITS = UploadLimits(most_bytes=10 * PIECE, spare_bytes=0)


@pytest.fixture
def folder(tmp_path: Path) -> UploadFolder:
    return UploadFolder(tmp_path, LIMITS)


def content_of(size: int) -> bytes:
    return os.urandom(1 << 16) * (size // (1 << 16)) + os.urandom(size % (1 << 16))


def send(folder: UploadFolder, upload: Upload, content: bytes) -> Upload:
    while folder.get(upload.id).file is None:
        offset = folder.offset(upload)
        with folder.piece(upload, offset) as piece:
            piece.write(content[offset : offset + PIECE])
    return folder.get(upload.id)


def begin(folder: UploadFolder, content: bytes, name: str = "a.jsonl", by: str = "ada", **more: str) -> Upload:
    return folder.begin(name, len(content), 1, more.get("digest"), by)


def digest_of(content: bytes) -> str:
    pieces = [content[start : start + PIECE] for start in range(0, len(content), PIECE)]
    return hashlib.sha256(b"".join(hashlib.sha256(piece).digest() for piece in pieces)).hexdigest()


def test_a_cut_piece_is_dropped_and_the_upload_goes_on(folder: UploadFolder, tmp_path: Path) -> None:
    content = content_of(2 * PIECE + 5)
    upload = begin(folder, content)
    with folder.piece(upload, 0) as piece:
        piece.write(content[:PIECE])
    with pytest.raises(BadInputError, match="did not arrive"), folder.piece(upload, PIECE) as piece:
        piece.write(content[PIECE : PIECE + 100])
    part = tmp_path / "uploads" / ".parts" / f"{upload.id}.part"
    part.write_bytes(part.read_bytes() + b"of a killed server")
    again = begin(UploadFolder(tmp_path, LIMITS), content)
    assert (again.id, folder.offset(again)) == (upload.id, PIECE)
    with pytest.raises(ConflictError, match=f"goes on at byte {PIECE}"), folder.piece(upload, 0):
        pass
    with pytest.raises(BadInputError, match="longer"), folder.piece(upload, PIECE) as piece:
        piece.write(content[PIECE:])
    complete = send(folder, upload, content)
    assert complete.digest == digest_of(content)
    assert (tmp_path / "uploads" / "a.jsonl").read_bytes() == content
    assert [path.name for path in (tmp_path / "uploads" / ".parts").iterdir()] != []
    assert not list((tmp_path / "uploads" / ".parts").glob("*.part"))


def test_one_piece_at_a_time(folder: UploadFolder) -> None:
    content = content_of(100)
    upload = begin(folder, content)
    with folder.piece(upload, 0) as piece:
        with pytest.raises(ConflictError, match="on its way"), folder.piece(upload, 0):
            pass
        piece.write(content)
    assert folder.get(upload.id).file == "a.jsonl"


def test_the_same_file_is_kept_once_and_known_by_its_digest(folder: UploadFolder, tmp_path: Path) -> None:
    content = content_of(PIECE + 1)
    first = send(folder, begin(folder, content), content)
    assert begin(folder, content, "b.jsonl", "bob", digest=digest_of(content)).id == first.id
    second = send(folder, begin(folder, content, "b.jsonl", "bob"), content)  # whose browser had no digest
    assert second.file == "a.jsonl"
    other = send(folder, begin(folder, content[::-1]), content[::-1])
    assert other.file == "a-2.jsonl"
    assert sorted(file.name for file in folder.files()) == ["a-2.jsonl", "a.jsonl"]
    folder.remove("a.jsonl")
    assert begin(folder, content, digest=digest_of(content)).file is None
    with pytest.raises(NotFoundError):
        folder.remove("../workspace.toml")
    assert (tmp_path / "uploads" / "a-2.jsonl").exists()


def test_a_server_killed_before_the_file_had_its_name_settles_it(folder: UploadFolder, tmp_path: Path) -> None:
    content = content_of(100)
    upload = begin(folder, content)
    part = tmp_path / "uploads" / ".parts" / f"{upload.id}.part"
    complete = send(folder, upload, content)
    (tmp_path / "uploads" / "a.jsonl").rename(part)
    assert complete.file == "a.jsonl"
    assert [file.name for file in UploadFolder(tmp_path, LIMITS).files()] == ["a.jsonl"]
    assert not part.exists()


def test_what_does_not_fit_is_refused_before_a_byte_is_sent(folder: UploadFolder, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="the file is empty"):
        folder.begin("a", 0, 0, None, "ada")
    with pytest.raises(BadInputError, match="20 GB; the limit is"):
        folder.begin("a", 20 * 10**9, 0, None, "ada")
    small = UploadFolder(tmp_path, UploadLimits(spare_bytes=1 << 60))
    with pytest.raises(DiskFullError, match="the disk has room for 0 bytes"):
        small.begin("a", 1, 0, None, "ada")
    before = folder.room()
    upload = folder.begin("a", PIECE, 0, None, "ada")
    assert folder.room() <= before
    assert folder.offset(upload) == 0


def test_a_disk_that_fills_up_keeps_nothing_of_the_file(folder: UploadFolder, tmp_path: Path) -> None:
    content = content_of(2 * PIECE)
    upload = begin(folder, content)
    with folder.piece(upload, 0) as piece:
        piece.write(content[:PIECE])
    with pytest.raises(DiskFullError, match="nothing of the file was kept"), folder.piece(upload, PIECE):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [path.name for path in (tmp_path / "uploads" / ".parts").iterdir()] == ["lock"]
    with pytest.raises(NotFoundError, match="choose the file again"):
        folder.get(upload.id)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\data\\pairs.csv", "pairs.csv"),
        ("-rf.jsonl", "rf.jsonl"),
        (".hidden", "hidden"),
        ("a\x00b\n<script>.csv", "a_b__script_.csv"),
        ("hf:name", "hf_name"),
        ("", "upload"),
        ("...", "upload"),
        ("数据 (1).jsonl.gz", "数据 (1).jsonl.gz"),
        ("\udc80.csv", "_.csv"),
    ],
)
def test_names_are_only_names(given: str, kept: str) -> None:
    assert clean_name(given) == kept
    assert clean_name(kept) == kept


def test_long_names_keep_their_endings() -> None:
    name = clean_name("数" * 400 + ".jsonl.gz")
    assert name.endswith("数.jsonl.gz")
    assert len(name.encode()) <= 150
