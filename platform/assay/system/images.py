"""Images from anywhere, decoded in a process of their own with bounded memory and time.

Covers: the bounds (bytes, pixels, seconds), starting the decoder (`image_decoder.py`) and killing it at its deadline.
Leaves out: where images come from and are kept (`assay.store.media`), what a model's processor makes of them
(`assay.models.chat.image_reader`).

One decoder serves a process's threads in turn. It is Python with Pillow alone: a broken decoder's crash, or the memory
that it takes, is that image's failure.
"""

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BackendError, BadInputError

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 20_000_000  #: of one image
MOST_PIXELS = 50_000_000
SECONDS = 5.0  #: of CPU time to decode one image
WAITED = 4  #: times as long on the clock: a busy machine gives a process a share of a core
#: Pillow's formats that are read; a browser shows all but TIFF. None holds scripts.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
_STARTING_S = 30.0  # more for the first image: a busy machine starts Python slowly
_PROGRAM = Path(__file__).with_name("image_decoder.py")


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """`format`: Pillow's name of it. `width`, `height`: pixels."""

    format: str
    width: int
    height: int


def check_image(content: bytes) -> ImageHeader:
    """Decode the whole image and keep its header. Raises BadInputError for what is no image, or passes a bound."""
    return _decode(content, b"H")[0]


def decode_image(content: bytes) -> "Image":
    """The image upright, in RGB. Raises BadInputError as `check_image` does."""
    from PIL.Image import frombytes

    header, pixels = _decode(content, b"P")
    return frombytes("RGB", (header.width, header.height), pixels)


def _decode(content: bytes, kind: bytes) -> tuple[ImageHeader, bytes]:
    if len(content) > MOST_BYTES:
        raise BadInputError(f"an image of more than {MOST_BYTES // 10**6} MB")
    with _lock:
        head, pixels = _decoder.ask(content, kind)
    if "error" in head:
        raise BadInputError(str(head["error"]))
    return ImageHeader(str(head["format"]), int(str(head["width"])), int(str(head["height"]))), pixels


class _Decoder:
    """The running process, started when first asked, and again after it was killed or in a forked process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._owner = 0

    def ask(self, content: bytes, kind: bytes) -> tuple[dict[str, object], bytes]:
        started = self._started()
        deadline = time.monotonic() + WAITED * SECONDS + (_STARTING_S if started else 0.0)
        try:
            self._send(struct.pack("<cdQ", kind, SECONDS, len(content)) + content, deadline)
            (length,) = struct.unpack("<Q", self._receive(8, deadline))
            head, _, pixels = self._receive(length, deadline).partition(b"\n")
            return json.loads(head), pixels
        except (OSError, EOFError) as error:  # the clock's deadline is an OSError too
            status = self.stop()
            if isinstance(error, TimeoutError) or status == -signal.SIGPROF:
                raise BadInputError(f"an image that takes more than {SECONDS:g} s to decode") from None
            if started:
                raise BackendError("the process that decodes images does not start") from error
            raise BadInputError("an image whose decoder ended: it is broken, or takes too much memory") from error

    def _started(self) -> bool:
        """Whether it had to be started."""
        if self._owner == os.getpid() and self._process is not None and self._process.poll() is None:
            return False
        if self._owner == os.getpid():
            self.stop()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_PROGRAM), ",".join(FORMATS), str(MOST_PIXELS)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt is for the program that asked
            )
        self._socket, self._owner = ours, os.getpid()
        return True

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._socket is not None
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        self._socket.sendall(data)

    def _receive(self, length: int, deadline: float) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < length:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            if not (part := self._socket.recv(min(length - len(received), 1 << 22))):
                raise EOFError
            received += part
        return bytes(received)

    def stop(self) -> int | None:
        """The exit status of the process, where it was this one's."""
        status = None
        if self._socket is not None:
            self._socket.close()
        if self._process is not None and self._owner == os.getpid():
            with suppress(OSError):
                self._process.kill()
            status = self._process.wait()
        self._process = self._socket = None
        return status


_lock = threading.Lock()
_decoder = _Decoder()
atexit.register(_decoder.stop)


def _forget() -> None:
    """In a forked process: its parent keeps the decoder, and a lock that another thread held stays locked."""
    global _lock, _decoder
    _lock, _decoder = threading.Lock(), _Decoder()


os.register_at_fork(after_in_child=_forget)
