"""Sending one delivery: the signature, the address that a URL may lead to, what counts as taken.

Headers and signature are those of Standard Webhooks (https://www.standardwebhooks.com), so that its libraries verify
them: `webhook-id`, `webhook-timestamp`, and `webhook-signature: v1,BASE64`, HMAC-SHA256 over "id.timestamp.body".

A URL is an administrator's, and still no way into the network behind this server: its name is resolved here, every
address must be public unless the webhook may be at a private one, link-local addresses (of clouds' metadata) never, and
the request goes to the address that was checked, whatever the name leads to a moment later. Redirects and proxies of
the environment are not followed, and no reply's text is kept. Leaves out: when to send again (`dispatcher`).
"""

import base64
import hashlib
import hmac
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from functools import cache
from urllib.parse import SplitResult, urlsplit, urlunsplit

import certifi
import httpx

from assay import __version__
from assay.errors import BadInputError
from assay_web.webhooks.webhook_file import LONGEST_URL, SECRET

TIMEOUT_S = 15.0


@dataclass(frozen=True)
class DeliveryAttempt:
    """`status`: HTTP status of the reply. `error`: why it was no success. `gone`: the receiver wants no more (410)."""

    status: int | None
    error: str | None
    address: str | None
    gone: bool = False


def signature(secret: str, message: str, timestamp: int, body: str) -> str:
    """The header's value. `secret`: `whsec_` and base64."""
    key = base64.b64decode(secret.removeprefix(SECRET))
    signed = f"{message}.{timestamp}.{body}".encode()
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


@cache
def _authorities() -> ssl.SSLContext:
    """The machine's and those of certifi, for machines that have none."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def check_url(url: str, *, private: bool) -> None:
    """Raises BadInputError for a URL that webhooks cannot be sent to."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadInputError("that is no URL", field="url") from None
    if parts.scheme not in ("https", "http") or not host or len(url) > LONGEST_URL or not url.isprintable():
        raise BadInputError("a URL begins with https:// and names a host", field="url")
    if parts.scheme == "http" and not private:
        raise BadInputError("http is for private addresses alone: give an https URL", field="url")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise BadInputError("leave out user, password and fragment: receivers check the signature", field="url")


def addresses_of(url: str) -> list[str]:
    """What its host's name leads to now. Raises BadInputError where it leads nowhere."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        answers = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise BadInputError(f"the name {parts.hostname} leads nowhere", field="url") from None
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def refusal_of(address: str, *, private: bool) -> str | None:
    """Why nothing is sent to this address; None where it may be."""
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip.sixtofour or ip
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        return f"{address} is no address of a server"
    if not ip.is_global and not private:
        return f"{address} is a private address, and this webhook may not be at one"
    return None


def send(url: str, secret: str, message: str, body: str, *, private: bool, now: float) -> DeliveryAttempt:
    """One attempt, within TIMEOUT_S."""
    try:
        check_url(url, private=private)
        addresses = addresses_of(url)
    except BadInputError as error:
        return DeliveryAttempt(None, str(error), None)
    refused = next((why for each in addresses if (why := refusal_of(each, private=private)) is not None), None)
    if refused is not None:
        return DeliveryAttempt(None, refused, ", ".join(addresses))
    parts = urlsplit(url)
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": f"assay/{__version__}",
        "webhook-id": message,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": signature(secret, message, int(now), body),
    }
    for address in addresses:
        try:
            status = _posted(parts, address, headers, body)
            break
        except httpx.TimeoutException:
            return DeliveryAttempt(None, f"no answer within {TIMEOUT_S:.0f} s", address)
        except httpx.ConnectError as error:  # the next address may have somebody who listens
            if address == addresses[-1]:
                return DeliveryAttempt(None, f"no connection: {error}"[:300], address)
        except httpx.HTTPError as error:
            return DeliveryAttempt(None, f"no reply: {error}"[:300], address)
    if 200 <= status < 300:
        return DeliveryAttempt(status, None, address)
    why = "a redirect, which is not followed" if 300 <= status < 400 else f"the receiver answered {status}"
    return DeliveryAttempt(status, why, address, gone=status == 410)


def _posted(parts: SplitResult, address: str, headers: dict[str, str], body: str) -> int:
    """The reply's status, of a request to this address and no other."""
    literal = f"[{address}]" if ":" in address else address
    pinned = urlunsplit(parts._replace(netloc=f"{literal}:{parts.port}" if parts.port else literal))
    name = {"sni_hostname": parts.hostname or ""}  # the certificate is the name's
    with (
        httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False, verify=_authorities()) as client,
        client.stream("POST", pinned, content=body.encode(), headers=headers, extensions=name) as reply,
    ):
        return reply.status_code
