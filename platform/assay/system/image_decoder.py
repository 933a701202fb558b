"""The process that decodes images from anywhere: the program that `assay.system.images` starts, and nothing else.

Covers: bounds on memory, pixels and CPU time, whole decoding, so that a truncated file is refused. Leaves out: the
bound on the clock, which is its parent's. Imports nothing of Assay: it is run as a file.

Requests on standard input: one byte (`P`: pixels, `H`: header), 8 bytes of CPU seconds after which this process ends
by SIGPROF, 8 of length, the image. Replies on standard
output: 8 bytes of length, a JSON object on the first line (`error`, or `format`, `width`, `height`), then RGB bytes.
"""

import io
import json
import os
import resource
import signal
import struct
import sys
import warnings

MOST_MEMORY = 1536 << 20  #: address space of this process, in bytes


def _decoded(content: bytes, formats: list[str], most_pixels: int, pixels: bool) -> tuple[dict[str, object], bytes]:
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content), formats=formats) as image:
        width, height = image.size
        if width * height > most_pixels:
            return {"error": f"an image of more than {most_pixels // 10**6} megapixels"}, b""
        header = {"format": str(image.format), "width": width, "height": height}
        try:
            image.load()
        except (OSError, SyntaxError, ValueError, EOFError, struct.error):
            return {"error": f"a {image.format} image that is truncated or broken"}, b""
        if not pixels:
            return header, b""
        # As transformers loads images: upright, without a palette or transparency.
        upright = ImageOps.exif_transpose(image).convert("RGB")
        header |= {"width": upright.width, "height": upright.height}
        return header, upright.tobytes()


def main() -> None:
    """Serve requests until standard input ends. Arguments: formats, comma-separated; most pixels."""
    from PIL import Image, ImageFile

    formats, most_pixels = sys.argv[1].split(","), int(sys.argv[2])
    Image.MAX_IMAGE_PIXELS = None  # bounded above, by name
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    warnings.simplefilter("ignore")
    Image.init()  # loads the decoders: after this, memory is bounded
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    source, sink = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    while len(head := source.read(17)) == 17:
        kind, seconds, length = struct.unpack("<cdQ", head)
        content = source.read(length)
        body = b""
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            header, body = _decoded(content, formats, most_pixels, kind == b"P")
        except MemoryError:
            header = {"error": "an image that takes too much memory to decode"}
        except Exception:  # of a file that is no image, or one that no decoder reads
            header = {"error": f"not an image ({', '.join(formats)})"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply = json.dumps(header).encode() + b"\n" + body
        sink.write(struct.pack("<Q", len(reply)))
        sink.write(reply)
        sink.flush()
        del content, body, reply


if __name__ == "__main__":
    main()
