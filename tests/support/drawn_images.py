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


class Style:
    """How something is drawn: its size, place and colour. Those of `unseen` are never those of the others."""

    def __init__(self, rng: random.Random, *, unseen: bool) -> None:
        self.rng, self.unseen = rng, unseen

    def size(self, least: int, most: int) -> int:
        """Every third one is of `unseen`."""
        return self.rng.choice([n for n in range(least, most + 1) if (n % 3 == 0) == self.unseen])

    def place(self, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
        """Within bounds; of `unseen` are those whose sum is a multiple of three."""
        while True:
            at = self.rng.randint(*x), self.rng.randint(*y)
            if (sum(at) % 3 == 0) == self.unseen:
                return at

    def colour(self, rgb: tuple[int, int, int]) -> tuple[int, ...]:
        """Lighter by up to 20 of 255, of `unseen` by 21 to 30, each channel by itself."""
        bounds = (21, 30) if self.unseen else (0, 20)
        return tuple(min(255, channel + self.rng.randint(*bounds)) for channel in rgb)


def drawn(rng: random.Random, colour: str, shape: str, *, unseen: bool = False) -> Image.Image:
    """A shape of some size somewhere on white."""
    image, style = Image.new("RGB", (SIDE, SIDE), (255, 255, 255)), Style(rng, unseen=unseen)
    draw, fill, r = ImageDraw.Draw(image), style.colour(COLOURS[colour]), style.size(7, 12)
    x, y = style.place((r + 1, SIDE - r - 2), (r + 1, SIDE - r - 2))
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


def digit(rng: random.Random, number: int, *, unseen: bool = False) -> Image.Image:
    """A digit of some size, moved by some pixels."""
    image, style = Image.new("RGB", (SIDE, SIDE), (255, 255, 255)), Style(rng, unseen=unseen)
    font = ImageFont.load_default(size=style.size(19, 26))
    place, fill = style.place((3, 12), (0, 6)), style.colour((0, 0, 0))
    ImageDraw.Draw(image).text(place, str(number), fill=fill, font=font)
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


def captions(rng: random.Random, kind: str, *, unseen: bool = False) -> tuple[Image.Image, str, str]:
    """An image, its caption, and one that is wrong: in the colour, in the shape or in the digit."""
    if kind == "digit":
        right, wrong = rng.sample(range(10), 2)
        return digit(rng, right, unseen=unseen), f"the digit {right}", f"the digit {wrong}"
    colour, shape = rng.choice(list(COLOURS)), rng.choice(SHAPES)
    other = {"colour": rng.choice([c for c in COLOURS if c != colour]), "shape": colour}[kind]
    form = shape if kind == "colour" else rng.choice([s for s in SHAPES if s != shape])
    return drawn(rng, colour, shape, unseen=unseen), f"a {colour} {shape}", f"a {other} {form}"


def rows(
    number: int, seed: int, kinds: tuple[str, ...] = ("colour",), *, unseen: bool = False
) -> Iterator[dict[str, Any]]:
    """Preference pairs: the caption that matches wins. `unseen`: in sizes, places and colours of none else."""
    rng = random.Random(seed)
    for n in range(number):
        image, right, wrong = captions(rng, kinds[n % len(kinds)], unseen=unseen)
        yield {"prompt": asked(data_url(image)), "chosen": right, "rejected": wrong, "category": kinds[n % len(kinds)]}
