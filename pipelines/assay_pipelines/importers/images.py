"""The images that rows name, put into the workspace: from data URLs, from files beside the imported one, from the web.

Covers: parts of a message with a `url` become parts with a content hash; an address of the web stays as it is,
unfetched, unless a fetcher is given. Fetching: http and https, few redirects, a bound on size and time, public
addresses only, for a data set must not read what only this machine can reach; the address that was checked is the one
that is connected to. Leaves out: finding images in rows (`assay.data.message_forms`), files and hashes
(`assay.store.media`).
"""

import base64
import binascii
import ipaddress
import re
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay.store.media import MediaFile, MediaFolder
from assay.system.images import MOST_BYTES

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
                raise RowError(f"an image of more than {MOST_BYTES // 10**6} MB", field="images")
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


SECONDS = 20.0  #: of one image, all in all
REDIRECTS = 3


class ImageFetcher:
    """Fetches one image after another. `private`: hosts whose addresses need not be public. Raises BadInputError for
    what cannot be had."""

    def __init__(self, private: Collection[str] = ()) -> None:
        import httpx

        self._private = frozenset(private)
        self._client = httpx.Client(timeout=SECONDS / 2, follow_redirects=False, trust_env=False)

    def __call__(self, url: str) -> bytes:
        import httpx

        deadline = time.monotonic() + SECONDS
        for _ in range(REDIRECTS + 1):
            try:
                answer = self._get(url, deadline)
                if isinstance(answer, bytes):
                    return answer
                url = urljoin(url, answer)
            except (ValueError, httpx.InvalidURL) as error:  # of a host or port that is none
                raise _failure("not an http address") from error
        raise _failure("it redirects too often")

    def _get(self, url: str, deadline: float) -> bytes | str:
        """The bytes, or where a redirect leads to."""
        import httpx

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _failure("not an http address")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = resolved_address(parts.hostname, port, public=parts.hostname not in self._private)
        host = f"[{address}]" if ":" in address else address
        target = httpx.URL(url).copy_with(host=host)
        headers = {"Host": parts.netloc.rpartition("@")[2], "Accept": "image/*", "Accept-Encoding": "identity"}
        try:
            with self._client.stream(
                "GET", target, headers=headers, extensions={"sni_hostname": parts.hostname}
            ) as response:
                if response.is_redirect:
                    return response.headers["location"]
                if response.status_code != httpx.codes.OK:
                    raise _failure(f"status {response.status_code}")
                return _body(response, deadline)
        except (httpx.HTTPError, KeyError) as error:
            raise _failure(type(error).__name__) from error


def _body(response: object, deadline: float) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():  # type: ignore[attr-defined]
        content += chunk
        if len(content) > MOST_BYTES:
            raise _failure(f"more than {MOST_BYTES // 10**6} MB")
        if time.monotonic() > deadline:
            raise _failure(f"not there after {SECONDS:g} s")
    return bytes(content)


def resolved_address(host: str, port: int, *, public: bool) -> str:
    """An address of the host. Raises BadInputError where one of them is not public, if that is asked."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        raise _failure("the host has no address") from error
    for address in addresses if public else ():
        if not ipaddress.ip_address(address.partition("%")[0]).is_global:
            raise _failure("an address that is not public")
    return min(addresses)


def _failure(reason: str) -> BadInputError:
    return BadInputError(f"an image that could not be fetched: {reason}")
