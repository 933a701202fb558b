"""Compressed files as plain streams, which end where they expand beyond measure.

Covers: gzip, zstd and xz, recognised by their first bytes. Leaves out: what the bytes mean; the compression inside
Parquet.
"""

import gzip
import io
import lzma
from typing import IO, Any

GZIP_MAGIC, ZSTD_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00"
#: A compressed file may hold this many times its own size, and always FREE_BYTES. Text compresses 3 to 20 times.
EXPANSION = 200
FREE_BYTES = 64 * 2**20
BUFFER = 1 << 18
XZ_MEMORY = 256 * 2**20  #: what unpacking xz may take; its strongest level needs 65 MiB


class ExpansionError(OSError):
    """A compressed file holds more than EXPANSION times its size."""

    def __init__(self) -> None:
        super().__init__(f"it expands to more than {EXPANSION} times its size: unpack it first if that is meant")


def decompressed(raw: IO[bytes]) -> IO[bytes]:
    """The stream's content, whether gzip, zstd, xz or plain. Reading raises ExpansionError beyond EXPANSION."""
    magic = raw.read(len(XZ_MAGIC))
    raw.seek(0)
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(_Expanding(gzip.GzipFile(fileobj=raw), raw), BUFFER)
    if magic == XZ_MAGIC:
        return io.BufferedReader(_Expanding(_Xz(raw), raw), BUFFER)
    if magic.startswith(ZSTD_MAGIC):
        import pyarrow as pa

        return io.BufferedReader(_Expanding(pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"), raw), BUFFER)
    return raw


def require_expansion(content: int, compressed: int) -> None:
    """Raises ExpansionError where `compressed` bytes hold `content` bytes, and that is too many."""
    if content > FREE_BYTES and content > EXPANSION * compressed:
        raise ExpansionError


class _Expanding(io.RawIOBase):
    """What `content` reads from `raw`, counted against what it took of `raw`."""

    def __init__(self, content: Any, raw: IO[bytes]) -> None:
        self._content, self._raw, self._bytes = content, raw, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._content.readinto(buffer))
        self._bytes += count
        require_expansion(self._bytes, self._raw.tell())
        return count


class _Xz:
    """An xz file of one or more streams, unpacked in bounded memory. Raises EOFError for one that is cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._decompressor = raw, _xz_decompressor()

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decompressor.eof:
                packed = self._decompressor.unused_data.lstrip(b"\x00") or self._raw.read(BUFFER).lstrip(b"\x00")
                if not packed:
                    return 0
                self._decompressor = _xz_decompressor()
            elif self._decompressor.needs_input:
                packed = self._raw.read(BUFFER)
                if not packed:
                    raise EOFError("the xz file ends before its end mark")
            else:
                packed = b""
            try:
                content = self._decompressor.decompress(packed, len(buffer))
            except lzma.LZMAError as error:
                raise OSError(str(error)) from error
            if content:
                buffer[: len(content)] = content
                return len(content)


def _xz_decompressor() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
