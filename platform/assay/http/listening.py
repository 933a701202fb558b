"""The address of a server: bound before its models are loaded, as a URL, with its certificate.

Leaves out: serving (`process`), and every import that takes time, so that a port in use shows at once.
"""

import errno
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from assay.errors import BadInputError, BusyError, NotFoundError


@dataclass(frozen=True)
class Tls:
    """Files in PEM: the certificate with its chain, and its key, which must not be encrypted."""

    cert: str
    key: str

    def check(self) -> None:
        """Raises NotFoundError for a file that there is not, BadInputError naming the one that cannot be read, or
        saying that the two do not fit."""
        for name, file in (("tls_cert", self.cert), ("tls_key", self.key)):
            try:
                Path(file).read_bytes()
            except FileNotFoundError as error:
                raise NotFoundError(f"field {name!r}: no such file: {file}") from error
            except OSError as error:
                raise BadInputError(f"{file}: {error.strerror}", field=name) from error
        try:
            # The empty password: without one an encrypted key would be asked for at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, password="")
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            raise BadInputError(
                f"{self.cert} and {self.key} are no certificate and its key: {why}", field="tls_cert"
            ) from error


def claim_port(host: str, port: int) -> socket.socket:
    """A socket bound to the address, not yet listening: a port in use shows before minutes of loading.

    Raises BusyError when the port is taken, BadInputError for an address that is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, OverflowError) as error:
        raise BadInputError(f"no address {host}:{port}: {error}", field="host") from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise port_error(error, host, port) from error
    return listening


def url_of(listening: socket.socket, *, tls: Tls | None = None) -> str:
    """Where a client on this machine reaches the socket."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    scheme = "https" if tls is not None else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def port_error(error: OSError, host: str, port: int) -> BusyError | BadInputError:
    """What became of binding the address or listening on it, in our words."""
    if error.errno == errno.EADDRINUSE:
        return BusyError(f"port {port} on {host} is in use; name another with --port")
    return BadInputError(f"cannot listen on {host}:{port}: {error.strerror}", field="host")
