"""The images that rows name, put into the workspace: from data URLs, and from files beside the imported one.

Covers: parts of a message with a `url` become parts with a content hash; an address of the web stays as it is,
unfetched, unless a fetcher is given. Leaves out: finding images in rows (`assay.data.message_forms`), fetching
(`assay_pipelines.importers.fetching`), files and hashes (`assay.store.media`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay.store.media import MOST_BYTES, MediaFile, MediaFolder

#: Gives the bytes at an address, or raises BadInputError.
Fetcher = Callable[[str], bytes]

_WEB = re.compile(r"https?:", re.IGNORECASE)
_DATA_URL = re.compile(r"data:[^,;]*(?:;(?!base64,)[^,;]*)*(?P<base64>;base64)?,", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]{200,}")


class RowImages:
    """Puts the images of one source into the media folder. `beside`: the folder of the imported file, which no path may
    leave. `take()` gives the files since it was last called."""

    def __init__(self, media: MediaFolder, beside: Path | None, fetch: Fetcher | None = None) -> None:
        self._media, self._beside, self._fetch = media, beside, fetch
        self._files: dict[str, MediaFile] = {}
        self.unfetched = 0

    def take(self) -> list[MediaFile]:
        files = list(self._files.values())
        self._files.clear()
        return files

    def resolved(self, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The turns with their images stored. Raises RowError for one that cannot be read."""
        return [
            turn if isinstance(turn["content"], str) else {**turn, "content": list(map(self._part, turn["content"]))}
            for turn in turns
        ]

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] != "image" or part.get("content_hash"):
            return part
        url = part.get("url")
        if not url:
            raise RowError("an image without bytes, path or address", field="images")
        web = len(url) < 8_000 and _WEB.match(url) is not None
        if web and self._fetch is None:
            self.unfetched += 1
            return part
        try:
            content = self._fetch(url) if web and self._fetch is not None else self._bytes(url)
            origin = None if url.startswith("data:") or len(url) > 2_000 else url
            file = self._media.put(content, origin)
        except RowError:
            raise
        except BadInputError as error:
            raise RowError(str(error), field="images") from error
        self._files[file.content_hash] = file
        return {"type": "image", "content_hash": file.content_hash, "media_type": file.media_type}

    def _bytes(self, url: str) -> bytes:
        if (match := _DATA_URL.match(url[:300])) is not None:
            payload = url[match.end() :]
            return _decoded(payload) if match["base64"] else unquote(payload).encode("latin-1", "replace")
        if _BASE64.fullmatch(url):
            return _decoded(url)
        return self._file(url.removeprefix("file://"))

    def _file(self, name: str) -> bytes:
        if self._beside is None:
            raise RowError("an image by a path, and the source is no file", field="images")
        try:
            path = (self._beside / name).resolve()
            if not path.is_relative_to(self._beside.resolve()):
                raise RowError("an image outside of the imported file's folder", field="images")
            if path.stat().st_size > MOST_BYTES:
                raise RowError(f"an image of more than {MOST_BYTES // 2**20} MiB", field="images")
            return path.read_bytes()
        except (OSError, ValueError, RuntimeError) as error:  # a null byte in the name; links in a circle
            problem = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
            refused = RowError(f"an image whose file {problem}", field="images")
            refused.detail = name
            raise refused from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=False)
    except (binascii.Error, ValueError) as error:
        raise RowError("an image whose base64 is broken", field="images") from error
