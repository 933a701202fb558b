"""Images from anywhere cost a bounded amount of memory and time, and what is wrong with one is said in a line."""

import functools
import io
import signal
import struct
import zlib

import pytest
from PIL import Image

from assay.errors import BadInputError
from assay.system import images
from assay.system.images import check_image, decode_image


def png(width: int, height: int, colour: str = "red") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, format="PNG")
    return stream.getvalue()


@functools.cache
def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes whose pixels are all one."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows, row = zlib.compressobj(9), b"\0" * (width // 8 + 1)
    data = b"".join(rows.compress(row) for _ in range(height)) + rows.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


GOOD = png(4, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ((10_000, 6_000), "an image of more than 50 megapixels"),
        ((40_000, 40_000), "an image of more than 50 megapixels"),
        (GOOD + b"\0" * 21_000_000, "an image of more than 20 MB"),
        (png(300, 300)[:-200], "a PNG image that is truncated or broken"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>', "not an image (PNG, JPEG, GIF, WEBP, BMP, TIFF)"),
        (b"GIF89a", "not an image (PNG, JPEG, GIF, WEBP, BMP, TIFF)"),
        (b"", "not an image (PNG, JPEG, GIF, WEBP, BMP, TIFF)"),
    ],
    ids=["60-megapixels", "bomb", "21-MB", "truncated", "svg", "half-a-header", "empty"],
)
def test_a_bad_image_is_one_line_and_the_next_one_is_read(content: bytes | tuple[int, int], reason: str) -> None:
    """`content`: or the sizes of a bomb, which takes a second to make."""
    if isinstance(content, tuple):
        content = bomb(*content)
    for read in (check_image, decode_image):
        with pytest.raises(BadInputError) as refused:
            read(content)
        assert str(refused.value) == reason
    image = decode_image(GOOD)
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (4, 3), (255, 0, 0))


def test_an_image_at_the_bound_is_read() -> None:
    """50 megapixels, with colours and transparency: 200 MB decoded."""
    header = check_image(bomb(10_000, 5_000))
    assert (header.format, header.width, header.height) == ("PNG", 10_000, 5_000)
    assert decode_image(bomb(10_000, 5_000)).size == (10_000, 5_000)


@pytest.mark.parametrize(("waited", "by"), [(10_000, "its own CPU time"), (1, "the clock, of a decoder that hangs")])
def test_the_decoder_is_killed_at_its_deadline(monkeypatch: pytest.MonkeyPatch, waited: int, by: str) -> None:
    decode_image(GOOD)
    monkeypatch.setattr(images, "SECONDS", 0.02)
    monkeypatch.setattr(images, "WAITED", waited)
    if "hangs" in by:
        assert images._decoder._process is not None
        images._decoder._process.send_signal(signal.SIGSTOP)
    with pytest.raises(BadInputError, match=r"takes more than 0\.02 s to decode"):
        decode_image(bomb(10_000, 5_000))
    assert images._decoder._process is None
    monkeypatch.undo()
    assert decode_image(GOOD).size == (4, 3)


def test_what_takes_too_much_memory_is_that_images_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of pixels taken away, as if a format's decoder took more memory than its pixels."""
    images._decoder.stop()
    monkeypatch.setattr(images, "MOST_PIXELS", 10**12)
    with pytest.raises(BadInputError, match="takes too much memory"):
        decode_image(bomb(40_000, 40_000))
    images._decoder.stop()
    monkeypatch.undo()
    assert decode_image(GOOD).size == (4, 3)
