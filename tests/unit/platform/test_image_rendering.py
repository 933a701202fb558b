"""Images through a vision-language model's processor and chat template, into tokens and tensors."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_images import SIDE, asked, data_url, digit, drawn, png
from vision_models import gemma3, llava, qwen2_vl, smolvlm

from assay.conversation.parts import ImagePart, TextPart
from assay.data.conversation import turns_of
from assay.domain import Message, Prompt, prompt_of
from assay.errors import BadInputError
from assay.models.attention.packing import forward, forward_rows, group_of
from assay.models.chat import image_reader
from assay.models.chat.image_reader import MOST_IMAGES, ImageReader
from assay.models.chat.options import ChatOptions
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_scalar_model, load_tokenizer
from assay.models.tiny_vision import make_tiny_vision
from assay.store.media import MediaFolder

#: As SmolVLM's: contents are lists of parts, and a plain text is written nowhere.
LISTS_ONLY = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}:{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% elif part['type'] == 'image' %}<image>{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
)
BLANK = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] | string | length }}\n{% endfor %}"
RED, SEVEN = (data_url(image) for image in (drawn(random.Random(1), "red", "circle"), digit(random.Random(2), 7)))
PLACE = "<fake_token_around_image><global-img><image><fake_token_around_image>"


def renderer(max_length: int = 2_000, template: str | None = None, media: MediaFolder | None = None) -> Renderer:
    tokenizer = load_tokenizer("tiny-vision")
    images = ImageReader.load("tiny-vision", tokenizer, lambda: media)
    chat = None if template is None else ChatOptions(template=template)
    return Renderer(tokenizer, max_length=max_length, images=images, chat=chat)


def prompt(url: str, question: str = "What is this?") -> Prompt:
    return prompt_of(turns_of(asked(url, question), "prompt"))


@pytest.mark.parametrize("template", [None, LISTS_ONLY], ids=["own", "lists-only"])
def test_an_image_becomes_what_the_processor_writes_and_the_response_begins_after_it(template: str | None) -> None:
    reads = renderer(template=template)
    encoded = reads.encode((Message("system", "Be brief."), *prompt(RED)), "a <image> circle")
    text = str(reads.tokenizer.decode(list(encoded.ids)))
    assert text.count(PLACE) == 1
    assert text.count("<image>") == 1  # the one in the response is text
    assert "Be brief." in text
    assert encoded.images == (RED,)
    response = str(reads.tokenizer.decode(list(encoded.ids[encoded.response_start :])))
    assert response.startswith("a <")
    assert response.rstrip().endswith("circle<|im_end|>")


def test_images_go_with_their_turn_and_are_never_cut() -> None:
    earlier = (*prompt(SEVEN), Message("assistant", "seven"))
    short = renderer().encode(prompt(RED), "red")
    encoded = renderer(max_length=len(short) + 5).encode((*earlier, *prompt(RED)), "red")
    assert (encoded.ids, encoded.images, encoded.truncated) == (short.ids, (RED,), True)
    with pytest.raises(BadInputError, match="an image cannot be cut"):
        renderer(max_length=len(short) - 5).encode(prompt(RED), "red")


def test_an_image_that_cannot_be_read_or_has_no_place_is_refused(tmp_path: Path) -> None:
    media = MediaFolder(tmp_path)
    file = media.put(png(digit(random.Random(3), 3)))
    stored = (Message("user", (ImagePart(file.content_hash, file.media_type), TextPart("Which?"))),)
    assert renderer(media=media).encode(stored, "3").images == (file.content_hash,)
    with pytest.raises(BadInputError, match="there is no workspace"):
        renderer().encode(stored, "3")
    with pytest.raises(BadInputError, match="not in the workspace"):
        renderer(media=MediaFolder(tmp_path / "other")).encode(stored, "3")
    with pytest.raises(BadInputError, match="is not fetched"):
        renderer().encode(prompt("https://a.example/b.png"), "3")
    with pytest.raises(BadInputError, match="base64 is broken"):
        renderer().encode(prompt("data:image/png;base64,é"), "3")
    with pytest.raises(BadInputError, match="writes 0 of the conversation's 1 images"):
        renderer(template=BLANK).encode(prompt(RED), "red")


def test_many_images_take_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is within its own bounds: a flat image of 50 megapixels is 70 kB as a file, and a processor enlarges."""
    images = renderer().images
    assert images is not None
    assert len(images.read([RED, SEVEN] * (MOST_IMAGES // 2)).texts) == MOST_IMAGES
    with pytest.raises(BadInputError, match="a conversation of 17 images, over 16"):
        images.read([RED] * 17)
    monkeypatch.setattr(image_reader, "MOST_PIXELS_TOGETHER", 2 * SIDE * SIDE)
    images.read([RED, RED])
    with pytest.raises(BadInputError, match="megapixels together"):
        images.read([RED, RED, RED])


def test_the_processor_is_part_of_the_template_hash() -> None:
    reads, other = renderer(), renderer()
    assert reads.template_hash == other.template_hash
    assert other.images is not None
    other.images.processor.image_processor.size = {"longest_edge": 16}
    assert reads.template_hash != other.template_hash


@pytest.mark.parametrize(
    "make",
    [make_tiny_vision, gemma3, llava, qwen2_vl, smolvlm],
    ids=["idefics3", "gemma3", "llava", "qwen2-vl", "smolvlm"],
)
def test_rows_score_alone_as_in_a_batch_padded_on_either_side_and_as_the_stock_model(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        make(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    reads = Renderer(tokenizer, max_length=2_000, images=ImageReader.load(str(tmp_path), tokenizer))
    images = reads.images
    assert images is not None
    model: Any = load_scalar_model(
        str(tmp_path), tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True
    )
    two = (Message("user", (ImagePart(url=RED), TextPart("or"), ImagePart(url=SEVEN))),)
    rows = [reads.encode(each, "it is red") for each in (prompt(RED), two, (Message("user", "plain"),))]
    groups = [group_of([row.ids], [row.images]) for row in rows]
    with torch.no_grad():
        together = forward(model, groups, images).last()
        left = forward_rows(model, groups, pad_left=True, images=images).last()
        alone = torch.cat([forward(model, [group], images).last() for group in groups])
        swapped = forward(model, [group_of([rows[0].ids], [(SEVEN,)])], images).last()
        ids = torch.tensor([rows[1].ids])
        stock = model(input_ids=ids, **images.inputs(model.model, ids, [rows[1].images])).logits
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(left, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(stock, model.score(alone[1:2]), atol=1e-5, rtol=1e-4)
    assert float((swapped - alone[:1]).detach().abs().max()) > 1e-3
    with pytest.raises(BadInputError, match="whose images this computation does not take"):
        forward(model, groups[:1])
    with pytest.raises(BadInputError, match="whose images this computation does not take"):
        forward(model, [group_of([rows[0].ids])], images)
