"""Drawn shapes and digits with captions: image pairs whose right answer is known."""

import base64
import io
import random
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageDraw, ImageFont

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 30), "blue": (30, 30, 220), "black": (0, 0, 0)}
SHAPES = ("circle", "square", "triangle", "cross")
SIDE = 32


def drawn(rng: random.Random, colour: str, shape: str) -> Image.Image:
    """A shape of some size somewhere on white."""
    image = Image.new("RGB", (SIDE, SIDE), (255, 255, 255))
    draw, fill, r = ImageDraw.Draw(image), COLOURS[colour], rng.randint(7, 12)
    x, y = (rng.randint(r + 1, SIDE - r - 2) for _ in range(2))
    box = (x - r, y - r, x + r, y + r)
    if shape == "circle":
        draw.ellipse(box, fill=fill)
    elif shape == "square":
        draw.rectangle(box, fill=fill)
    elif shape == "triangle":
        draw.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=fill)
    else:
        draw.rectangle((x - r, y - 2, x + r, y + 2), fill=fill)
        draw.rectangle((x - 2, y - r, x + 2, y + r), fill=fill)
    return image


def digit(rng: random.Random, number: int) -> Image.Image:
    """A digit of some size, moved by some pixels."""
    image = Image.new("RGB", (SIDE, SIDE), (255, 255, 255))
    font, place = ImageFont.load_default(size=rng.randint(18, 26)), (rng.randint(3, 12), rng.randint(0, 6))
    ImageDraw.Draw(image).text(place, str(number), fill=(0, 0, 0), font=font)
    return image


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    return stream.getvalue()


def data_url(image: Image.Image) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"


def asked(url: str, question: str = "What is this?") -> list[dict[str, Any]]:
    """A prompt with an image, as OpenAI's clients send it."""
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    return [{"role": "user", "content": parts}]


def captions(rng: random.Random, kind: str) -> tuple[Image.Image, str, str]:
    """An image, its caption, and one that is wrong: in the colour, in the shape or in the digit."""
    if kind == "digit":
        right, wrong = rng.sample(range(10), 2)
        return digit(rng, right), f"the digit {right}", f"the digit {wrong}"
    colour, shape = rng.choice(list(COLOURS)), rng.choice(SHAPES)
    other = {"colour": rng.choice([c for c in COLOURS if c != colour]), "shape": colour}[kind]
    form = shape if kind == "colour" else rng.choice([s for s in SHAPES if s != shape])
    return drawn(rng, colour, shape), f"a {colour} {shape}", f"a {other} {form}"


def rows(number: int, seed: int, kinds: tuple[str, ...] = ("colour",)) -> Iterator[dict[str, Any]]:
    """Preference pairs: the caption that matches wins."""
    rng = random.Random(seed)
    for n in range(number):
        image, right, wrong = captions(rng, kinds[n % len(kinds)])
        yield {"prompt": asked(data_url(image)), "chosen": right, "rejected": wrong}
