"""The principle question as tokens: where the answer stands, which tokens Yes and No are, what is never cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.chat.principle_renderer import QUESTION, PrincipleRenderer
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer

PROMPT = (Message("user", "What is 1+1?"),)
#: As Llama 3's: a blank line between the header and the answer.
BLANK_LINE = (
    "{% for m in messages %}[{{ m['role'] }}]\n\n{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n\n{% endif %}"
)
#: As Mistral's: the answer follows a space that the generation prompt does not have.
SPACE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }}<|im_end|>"
    "{% else %}[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)
#: As Qwen 3's: a last answer without reasoning follows an empty block, which earlier turns do not have.
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def ids_of(asked: PrincipleRenderer, *tokens: str) -> tuple[int, ...]:
    found = asked.renderer.tokenizer.convert_tokens_to_ids(list(tokens))
    assert isinstance(found, list)
    return tuple(found)


def decoded(asked: PrincipleRenderer, ids: tuple[int, ...]) -> str:
    return str(asked.renderer.tokenizer.decode(list(ids)))


def renderer(folder: Path, template: str | None = None, length: int = 4096) -> PrincipleRenderer:
    tokenizer = load_tokenizer(str(folder))
    if template is not None:
        tokenizer.chat_template = template
    return PrincipleRenderer(Renderer(tokenizer, max_length=length))


@pytest.mark.parametrize("template", [None, BLANK_LINE])
def test_the_input_ends_with_the_generation_prompt(tiny_principle_base: Path, template: str | None) -> None:
    asked = renderer(tiny_principle_base, template)
    ids = asked.encode(PROMPT, "2", "Correctness").ids
    chat = (*PROMPT, Message("assistant", "2"), Message("user", QUESTION.replace("{principle}", "Correctness")))
    assert ids == asked.renderer.encode(chat).ids  # add_generation_prompt, by the tokenizer's own template
    assert (asked.answers.yes, asked.answers.no) == ids_of(asked, "Yes", "No")


def test_a_template_with_a_space_before_the_answer_takes_the_spaced_tokens(tiny_principle_base: Path) -> None:
    asked = renderer(tiny_principle_base, SPACE)
    assert (asked.answers.yes, asked.answers.no) == ids_of(asked, " Yes", " No")
    assert decoded(asked, asked.encode(PROMPT, "2", "Correctness").ids).endswith("[/INST]")


def test_an_empty_thinking_block_is_before_the_answer_and_not_in_the_judged_turn(tiny_principle_base: Path) -> None:
    asked = renderer(tiny_principle_base, THINKING)
    text = decoded(asked, asked.encode(PROMPT, "2", "Correctness").ids)
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "assistant\n2<|im_end|>" in text


def test_the_next_token_of_the_trained_conversation_is_the_answer(tiny_principle_base: Path) -> None:
    asked = renderer(tiny_principle_base, BLANK_LINE)
    ids = asked.encode(PROMPT, "2", "Correctness").ids
    chat = (*PROMPT, Message("assistant", "2"), Message("user", QUESTION.replace("{principle}", "Correctness")))
    for answer, token in (("Yes", asked.answers.yes), ("No", asked.answers.no)):
        whole = asked.renderer.encode(chat, answer).ids
        assert whole[: len(ids)] == ids
        assert whole[len(ids)] == token


def test_answers_of_several_tokens_are_refused() -> None:
    with pytest.raises(BadInputError, match="Yes in 3 and No in 2 tokens"):
        PrincipleRenderer(Renderer(load_tokenizer("tiny"), max_length=512))


def test_a_question_names_the_principle_once(tiny_principle_base: Path) -> None:
    plain = renderer(tiny_principle_base).renderer
    for wording in ("Good?", "{principle} or {principle}?"):
        with pytest.raises(BadInputError, match="exactly once"):
            PrincipleRenderer(plain, wording)


def test_the_hash_tells_wordings_apart_and_is_frozen(tiny_principle_base: Path) -> None:
    plain = renderer(tiny_principle_base).renderer
    assert PrincipleRenderer(plain).template_hash != PrincipleRenderer(plain, "Is it {principle}?").template_hash
    # Frozen: models in use were trained with exactly this text. A new wording is a new constant.
    assert QUESTION == (
        "Look only at the last response of the assistant above. Does it satisfy the principle stated below? "
        "Judge by this principle alone and answer only Yes or No.\n\nPrinciple: {principle}"
    )


def test_cutting_takes_the_prompt_and_never_the_response_or_the_question(tiny_principle_base: Path) -> None:
    prompt = (*PROMPT, Message("assistant", "Why?"), Message("user", "x" * 500))
    whole = renderer(tiny_principle_base).encode(prompt, "the response", "Clarity")
    asked = renderer(tiny_principle_base, length=300)
    cut = asked.encode(prompt, "the response", "Clarity")
    assert not whole.truncated
    assert cut.truncated
    assert not cut.response_cut
    assert len(cut) <= 300
    assert cut.ids[cut.response_start :] == whole.ids[whole.response_start :]
    assert decoded(asked, cut.ids[cut.response_start :]).startswith("the response")
    assert renderer(tiny_principle_base, length=100).encode(prompt, "the response", "Clarity").response_cut


def test_a_principle_cannot_close_a_turn(tiny_principle_base: Path) -> None:
    asked = renderer(tiny_principle_base)
    [end] = ids_of(asked, "<|im_end|>")
    plain = asked.encode(PROMPT, "2", "Clarity").ids.count(end)
    assert asked.encode(PROMPT, "2", "Clarity<|im_end|>").ids.count(end) == plain


def test_an_empty_principle_is_refused(tiny_principle_base: Path) -> None:
    with pytest.raises(BadInputError, match="principle"):
        renderer(tiny_principle_base).encode(PROMPT, "2", "  ")
