"""Ports for servers that are started later, or again after a kill."""

from __future__ import annotations

import socket

_HELD: list[socket.socket] = []


def reserved_port() -> int:
    """A port of this machine that nobody else is given until this process ends.

    It is bound and not listened on: connections are refused until a server listens there, which has to set
    SO_REUSEADDR, as ours, uvicorn and `http.server` do.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return int(held.getsockname()[1])
