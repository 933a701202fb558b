"""Policies cannot write images: rows that would have them do so are left out by name, before a model is there."""

import pytest

from assay.conversation.parts import ImagePart, TextPart
from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay_rm_training.data.response_labels import UnpairedResponse
from assay_rm_training.preference.pairs import Dpo
from assay_rm_training.preference.unpaired import Kto


def test_a_response_with_an_image_is_left_out_by_name() -> None:
    renderer, prompt = Renderer(load_tokenizer("tiny"), max_length=200), (Message("user", "Draw."),)
    drawn = (Message("assistant", (TextPart("see"), ImagePart(url="data:image/png;base64,AAAA"))),)
    words = (Message("assistant", "no"),)
    with pytest.raises(BadInputError, match="an image in a response"):
        Dpo().encode([PreferencePair(prompt, words, drawn)], renderer)
    with pytest.raises(BadInputError, match="an image in a response"):
        Kto().encode([UnpairedResponse(prompt, drawn, True)], renderer)
    assert len(Kto().encode([UnpairedResponse(prompt, words, True)], renderer).items) == 1
