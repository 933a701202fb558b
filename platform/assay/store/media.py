"""Images of a workspace: files named by the hash of their bytes, and one row for each.

Covers: what kind of image some bytes are (decoded by `assay.system.images`), writing the file (complete and on the disk
before any row names it), rows, what the conversations name that is not there, files whose bytes have changed. Leaves
out: where bytes come from (`assay_pipelines.importers.images`), copies (`assay.backups`).

    WORKSPACE/media/ab/abcdef....png
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.ids import HEX_DIGITS
from assay.store.keys import unknown
from assay.system.atomic_files import replacing
from assay.system.images import check_image

if TYPE_CHECKING:
    from assay.store.connection import Connection

#: Of the files of `assay.system.images.FORMATS`.
ENDINGS = {"PNG": "png", "JPEG": "jpg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp", "TIFF": "tif"}

# The hash of every image in the JSON of typed conversations. A quote inside a text is escaped there: it cannot match.
_NAMED = """
    SELECT DISTINCT unnest(regexp_extract_all(conversation, '"content_hash":"([0-9a-f]+)"', 1)) AS content_hash FROM (
        SELECT conversation::VARCHAR AS conversation FROM prompts WHERE conversation IS NOT NULL
        UNION ALL SELECT turns::VARCHAR FROM responses WHERE turns IS NOT NULL)"""


@dataclass(frozen=True, slots=True)
class MediaFile:
    """`bytes`: size. `width`, `height`: pixels. `origin_url`: the address or path that the source gave."""

    content_hash: str
    media_type: str
    bytes: int
    width: int
    height: int
    origin_url: str | None = None


class MediaFolder:
    """The folder `media` of a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, content: bytes, origin_url: str | None = None) -> MediaFile:
        """Write an image unless it is there. Raises BadInputError for bytes that are none, or too many."""
        file = describe(content, origin_url)
        path = self._path(file.content_hash, file.media_type)
        if not path.is_file() or path.stat().st_size != file.bytes:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        return file

    def find(self, content_hash: str) -> Path | None:
        """The file of that hash; None where it is not there."""
        if len(content_hash) != HEX_DIGITS or not set(content_hash) <= set("0123456789abcdef"):
            return None
        return next((self.root / content_hash[:2]).glob(f"{content_hash}.*"), None)

    def damaged(self) -> Iterator[Path]:
        """Files whose bytes are not those that they are named by."""
        for path in sorted(self.root.glob("??/*.*")):
            if not path.name.startswith(".") and content_hash_of(path.read_bytes()) != path.stem:
                yield path

    def _path(self, content_hash: str, media_type: str) -> Path:
        ending = next(end for name, end in ENDINGS.items() if media_type == _media_type(name))
        return self.root / content_hash[:2] / f"{content_hash}.{ending}"


def describe(content: bytes, origin_url: str | None = None) -> MediaFile:
    """What kind of image the bytes are; all of it is decoded. Raises BadInputError."""
    image = check_image(content)
    media_type = _media_type(image.format)
    return MediaFile(content_hash_of(content), media_type, len(content), image.width, image.height, origin_url)


def media_type_of(path: Path) -> str | None:
    """By the file's ending; None for one that `put` never gives."""
    return next((_media_type(name) for name, ending in ENDINGS.items() if path.suffix == f".{ending}"), None)


def content_hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:HEX_DIGITS]


def insert_media(db: "Connection", files: Iterable[MediaFile], run_id: str | None) -> int:
    """Rows of files that are on the disk; one that is there stays. Returns how many were new."""
    import pyarrow as pa

    from assay.store.database import registered

    rows = {file.content_hash: file for file in files}
    if not rows:
        return 0
    names = MediaFile.__slots__
    table = pa.Table.from_pylist([{name: getattr(file, name) for name in names} for file in rows.values()], _schema())
    with registered(db, "incoming_media", table):
        columns = ", ".join(names)
        row = db.execute(
            f"INSERT INTO media ({columns}, run_id) SELECT {columns}, $run FROM ({unknown('media', 'incoming_media')})",
            {"run": run_id},
        ).fetchone()
    return int(row[0]) if row else 0


def missing_media(db: "Connection", folder: MediaFolder) -> list[str]:
    """Hashes of images that a conversation or a row names and that have no file, in order."""
    rows = db.execute(f"SELECT content_hash FROM media UNION ({_NAMED}) ORDER BY content_hash").fetchall()
    return [content_hash for (content_hash,) in rows if folder.find(content_hash) is None]


def _schema() -> object:
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        [
            ("content_hash", text),
            ("media_type", text),
            ("bytes", pa.int64()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("origin_url", text),
        ]
    )


def _media_type(name: str) -> str:
    return f"image/{name.lower()}"
