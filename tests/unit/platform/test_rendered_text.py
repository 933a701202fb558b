"""Texts that a caller rendered: as they stand, carried over from another template, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.formats import FAMILIES, ChatForm
from assay.models.chat.rendered_text import PolicyTemplate, RenderedTexts
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.tiny import make_tiny

PROMPT = (Message("user", "Name a metal."), Message("assistant", "Iron?"), Message("user", "Another."))
RESPONSE = "Gold, of\ncourse."
TURNS = (*PROMPT, Message("assistant", RESPONSE))

# Written here as each model's own Jinja template writes them (their published form, by hand).
WRITTEN = {
    "Llama 3": "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nName a metal.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nIron?<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nAnother.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nGold, of\ncourse.<|eot_id|>",
    "Gemma": "<bos><start_of_turn>user\nName a metal.<end_of_turn>\n<start_of_turn>model\nIron?<end_of_turn>\n"
    "<start_of_turn>user\nAnother.<end_of_turn>\n<start_of_turn>model\nGold, of\ncourse.<end_of_turn>\n",
    "Mistral, spaced": "<s>[INST] Name a metal. [/INST] Iron?</s>[INST] Another. [/INST] Gold, of\ncourse.</s>",
    "Mistral, tight": "<s>[INST]Name a metal.[/INST]Iron?</s>[INST]Another.[/INST]Gold, of\ncourse.</s>",
    "Zephyr": "<|user|>\nName a metal.</s>\n<|assistant|>\nIron?</s>\n<|user|>\nAnother.</s>\n"
    "<|assistant|>\nGold, of\ncourse.</s>\n",
    "Phi-3": "<|user|>\nName a metal.<|end|>\n<|assistant|>\nIron?<|end|>\n<|user|>\nAnother.<|end|>\n"
    "<|assistant|>\nGold, of\ncourse.<|end|>\n",
    "DeepSeek": "<｜begin▁of▁sentence｜><｜User｜>Name a metal.<｜Assistant｜>Iron?<｜end▁of▁sentence｜>"
    "<｜User｜>Another.<｜Assistant｜>Gold, of\ncourse.<｜end▁of▁sentence｜>",
}


def renderer(template: str | None = None, max_length: int = 4096) -> Renderer:
    tokenizer = load_tokenizer("tiny")
    if template is not None:
        tokenizer.chat_template = template
    return Renderer(tokenizer, max_length=max_length)


@pytest.fixture(scope="module")
def texts() -> RenderedTexts:
    return RenderedTexts(renderer())


def test_the_own_templates_text_stands_as_it_is(texts: RenderedTexts) -> None:
    whole = texts.renderer.encode(PROMPT, RESPONSE)
    text = texts.renderer.render(PROMPT, RESPONSE)
    assert texts.encode(text).ids == whole.ids
    assert texts.encode(text, add_special_tokens=True).ids == whole.ids  # BOS once, not twice
    assert texts.conversation(text) == (PROMPT, RESPONSE)


def test_a_bos_that_the_caller_took_off_is_put_back(texts: RenderedTexts) -> None:
    text = texts.renderer.render(PROMPT, RESPONSE)
    bos = str(texts.renderer.tokenizer.bos_token)
    assert text.startswith(bos)
    for special in (False, True):
        assert texts.encode(text.removeprefix(bos), add_special_tokens=special).ids == texts.encode(text).ids


def test_only_the_closing_white_space_of_a_finished_turn_is_completed(texts: RenderedTexts) -> None:
    text = texts.renderer.render(PROMPT, RESPONSE)
    finished, cut = text.removesuffix("\n"), text.removesuffix("<|im_end|>\n")
    assert len(texts.encode(finished)) == len(texts.encode(text)) - 1
    assert texts.encode(finished, complete=True).ids == texts.encode(text).ids
    assert texts.encode(cut, complete=True).ids == texts.encode(cut).ids != texts.encode(text).ids


@pytest.mark.parametrize("family", WRITTEN)
@pytest.mark.parametrize("change", ["whole", "without bos", "cut off"])
def test_a_common_familys_text_is_written_anew(texts: RenderedTexts, family: str, change: str) -> None:
    text = WRITTEN[family]
    if change == "without bos":
        for bos in ("<|begin_of_text|>", "<bos>", "<s>", "<｜begin▁of▁sentence｜>"):
            text = text.removeprefix(bos)
    if change == "cut off":
        text = text[: text.index("course.") + len("course.")]
    assert texts.conversation(text) == (PROMPT, RESPONSE)
    assert texts.encode(text, add_special_tokens=True).ids == texts.renderer.encode(PROMPT, RESPONSE).ids


def test_every_family_reads_what_it_writes() -> None:
    for family in FAMILIES:
        if family.form is not None:
            found = family.form.read(family.write(TURNS))
            assert found is not None
            assert found.messages == TURNS
            assert (found.lacking, found.before) == ("", "")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s>", "Llama 2"),
        ("<|start|>user<|message|>Hi<|end|>", "Harmony"),
        ("[INST] somebody writes about tokens", "Mistral"),
        ("<|start_header_id|>user<|end_header_id|>\n\nonly a question<|eot_id|>", "Llama 3"),
    ],
)
def test_a_foreign_text_that_cannot_be_read_back_is_refused(texts: RenderedTexts, text: str, named: str) -> None:
    with pytest.raises(BadInputError, match=rf"{named}.* template is ChatML.*--policy-template"):
        texts.encode(text)


def test_text_of_no_known_template_and_own_markers_stand_as_they_are(texts: RenderedTexts) -> None:
    for text in ("no template at all", "<|im_start|>user\nquoting [INST] and <<SYS>><|im_end|>\n"):
        assert bytes_of(texts, texts.encode(text).ids) == text
    with pytest.raises(BadInputError, match="prompt and response"):
        texts.conversation("no template at all")


def bytes_of(texts: RenderedTexts, ids: Any) -> str:
    return str(texts.renderer.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def test_markers_inside_what_somebody_said_open_no_turn(texts: RenderedTexts) -> None:
    """A Llama 3 text whose user wrote a ChatML marker: carried over it must stay text."""
    said = "what does <|im_end|> mean?"
    llama = next(family for family in FAMILIES if family.name == "Llama 3")
    text = llama.write((Message("user", said), Message("assistant", RESPONSE)))
    assert texts.encode(text).ids == texts.renderer.encode((Message("user", said),), RESPONSE).ids


def test_a_named_policys_template_is_read_before_the_families(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}>{{ message['content'] | trim }}"
        "</{{ message['role'] }}>{% endfor %}"
    )
    make_tiny(tmp_path)
    tokenizer = load_tokenizer("tiny")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path)
    texts = RenderedTexts(renderer(), [PolicyTemplate(str(tmp_path))])
    text = tokenizer.apply_chat_template([m.to_dict() for m in TURNS], tokenize=False)
    assert isinstance(text, str)
    assert texts.encode(text).ids == texts.renderer.encode(PROMPT, RESPONSE).ids
    plain = texts.renderer.render(PROMPT, RESPONSE)
    assert texts.encode(plain).ids == texts.renderer.encode(PROMPT, RESPONSE).ids


def test_templates_that_turn_the_order_of_turns_learn_nothing_wrong() -> None:
    """One that writes the system text before the last question: its texts are read only where that is exact."""

    def write(messages: Any) -> str:
        system = "".join(m.content + "\n" for m in messages if m.role == "system")
        turns = [m for m in messages if m.role != "system"]
        last = max(n for n, m in enumerate(turns) if m.role == "user")
        return "".join(
            f"[Q]{system if n == last else ''}{m.content}[/Q]" if m.role == "user" else f"{m.content}[E]"
            for n, m in enumerate(turns)
        )

    form = ChatForm("last system", write)
    conversation = (Message("system", "Brief."), *TURNS)
    found = form.read(write(conversation))
    assert found is None or write(found.messages) == write(conversation)
    assert form.read(write(TURNS)) is not None


def test_very_many_turns_are_read_in_one_pass(texts: RenderedTexts) -> None:
    """Searched anew for every turn, this text would take hours."""
    turns = tuple(Message("user" if n % 2 == 0 else "assistant", "x") for n in range(60_000))
    gemma = next(family for family in FAMILIES if family.name == "Gemma")
    prompt, response = texts.conversation(gemma.write(turns))
    assert (len(prompt), response) == (59_999, "x")


def test_ids_are_checked_against_the_vocabulary(texts: RenderedTexts) -> None:
    assert texts.encode_ids([1, 2, 258]).ids == (1, 2, 258)
    for wrong in (259, -1, 1 << 40):
        with pytest.raises(BadInputError, match=f"{wrong} is not in the vocabulary of 259"):
            texts.encode_ids([1, wrong])
