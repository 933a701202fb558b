"""Images at addresses of the web, fetched only where the import was told to (`--fetch-images`).

Covers: http and https, few redirects, a bound on size and time, public addresses only: a data set must not read what
only this machine can reach. The address that was checked is the one that is connected to.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Collection
from urllib.parse import urljoin, urlsplit

from assay.errors import BadInputError
from assay.store.media import MOST_BYTES

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
            raise _failure(f"more than {MOST_BYTES // 2**20} MiB")
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
