"""Signatures of webhooks against the Standard Webhooks library's, and which addresses they may be at."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import get_args

import pytest
import trustme

from assay.errors import BadInputError
from assay_web.access.webhook_routes import EventType
from assay_web.webhooks.event import TYPES
from assay_web.webhooks.sender import _authorities, check_url, refusal_of, send, signature


def test_a_signature_is_that_of_the_standard() -> None:
    # Computed by standardwebhooks 1.1.0 (PyPI), with the values of its own tests.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLjSw", '{"test": 2432232314}'
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,q6KMVIJHk4Gs770FfR5f591Ftx7uVJSGl5wHV1ri978="
    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265331, body) != signed
    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body + " ") != signed


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.7", "172.16.0.1", "100.64.0.1", "::1", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::"],
)
def test_private_addresses_are_for_webhooks_that_may_be_there(address: str) -> None:
    assert refusal_of(address, private=False) is not None
    assert refusal_of(address, private=True) is None


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "::ffff:169.254.169.254"]
)
def test_addresses_of_no_server_are_for_none(address: str) -> None:
    assert refusal_of(address, private=True) is not None


def test_public_addresses_are_for_all() -> None:
    assert refusal_of("93.184.215.14", private=False) is None
    assert refusal_of("2606:2800:220:1::", private=False) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "https://",
        "https://user:pw@example.org/",
        "https://example.org/#a",
        "https://example.org:99999/",
        "https://[::1/",
        "https://example.org/" + "x" * 3_000,
        "https://a\nb/",
    ],
)
def test_urls_that_webhooks_cannot_be_at(url: str) -> None:
    with pytest.raises(BadInputError):
        check_url(url, private=False)


def test_nothing_is_sent_to_an_address_that_became_private() -> None:
    attempt = send("https://localhost:9/hook", "whsec_AAAA", "msg_1", "{}", private=False, now=0.0)
    assert attempt.status is None
    assert "private" in (attempt.error or "")


def test_a_certificate_must_be_the_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The request goes to an address, and the certificate is checked against the name."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    _authorities.cache_clear()
    statuses = {}
    for name in ("localhost", "elsewhere.example"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # answers 501
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        attempt = send(f"https://localhost:{port}/", "whsec_AAAA", "msg_1", "{}", private=True, now=0.0)
        statuses[name] = (attempt.status, "CERTIFICATE_VERIFY_FAILED" in (attempt.error or ""))
        server.shutdown()
        server.server_close()
    _authorities.cache_clear()
    assert statuses == {"localhost": (501, False), "elsewhere.example": (None, True)}


def test_routes_know_the_events_there_are() -> None:
    assert get_args(EventType) == TYPES
