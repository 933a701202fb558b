"""One preference row, as the field writes it, to a prompt and two final responses.

Covers: TRL's explicit and implicit prompt, plain text and message lists, prompts repeated inside the sides, sides that
diverge too early. Leaves out: files and rows (`assay.data.pairs`, `assay_pipelines.importers`), texts in Anthropic's
Human/Assistant form (`assay_pipelines.importers.formats.hh`). All complaints are `RowError`.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from assay.data.json_lines import RowError
from assay.domain import ROLES

#: Messages as role/content dictionaries.
Turns: TypeAlias = list[dict[str, str]]

#: Where the assistant begins to speak, in the templates that preference data is written in.
ASSISTANT_MARKER = re.compile(
    r"(?:^|\n\n)Assistant:|(?:^|\s)ASSISTANT:|(?:^|\n)### (?:Response|Assistant):|<\|im_start\|>assistant\n"
    r"|<\|assistant\|>|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n|\[/INST\]|<start_of_turn>model\n"
)

DIVERGED = "the sides diverge before the last turn"


def text_of(value: object, field: str) -> str:
    """A non-empty text that UTF-8 can hold."""
    if value is None:
        raise RowError("missing", field=field)
    if not isinstance(value, str):
        raise RowError(f"wrong type: {_kind(value)} instead of text", field=field)
    if not value:
        raise RowError("empty", field=field)
    check_unicode(value, field)
    return value


def turns_of(value: object, field: str) -> Turns:
    """A non-empty list of messages; other keys of a message are left out."""
    if not isinstance(value, list | tuple):
        raise RowError(f"wrong type: {_kind(value)} instead of a list of messages", field=field)
    if not value:
        raise RowError("empty", field=field)
    turns = []
    for message in value:
        if not isinstance(message, dict) or "role" not in message or "content" not in message:
            raise RowError("a message without role and content", field=field)
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise RowError(f"a message of an unknown role (known: {', '.join(ROLES)})", field=field)
        if not isinstance(content, str):
            raise RowError(f"a message whose content is {_kind(content)} instead of text", field=field)
        check_unicode(content, field)
        turns.append({"role": role, "content": content})
    return turns


def prompt_turns(value: object, field: str = "prompt") -> Turns:
    """A prompt given as text (one user turn) or as messages. At least one turn has text."""
    if isinstance(value, list | tuple):
        turns = turns_of(value, field)
        if not any(turn["content"] for turn in turns):
            raise RowError("empty", field=field)
        return turns
    return [{"role": "user", "content": text_of(value, field)}]


def split_pair(prompt: object, chosen: object, rejected: object) -> tuple[Turns, str, str]:
    """Prompt turns, chosen response, rejected response of one row in any of TRL's forms.

    `prompt=None` is TRL's implicit prompt: the sides' common beginning. Of plain text that is everything up to the last
    assistant marker of a known template (`ASSISTANT_MARKER`); of text without one the longest common prefix, cut as
    `trl.extract_prompt` cuts it, which also takes the words that both responses begin with.
    """
    for value, field in ((chosen, "chosen"), (rejected, "rejected")):
        if value is None:
            raise RowError("missing", field=field)
    if isinstance(chosen, str) != isinstance(rejected, str):
        raise RowError("wrong type: one side is text, the other messages", field="rejected")
    if isinstance(chosen, str):
        first, second = text_of(chosen, "chosen"), text_of(rejected, "rejected")
        if prompt is not None:
            return prompt_turns(prompt), first, second
        return _split_text(first, second)
    shared_turns = prompt_turns(prompt) if prompt is not None else []
    chosen_prompt, first = _last_turn(turns_of(chosen, "chosen"), shared_turns, "chosen")
    rejected_prompt, second = _last_turn(turns_of(rejected, "rejected"), shared_turns, "rejected")
    if chosen_prompt != rejected_prompt:
        raise RowError(DIVERGED, field="rejected")
    if not chosen_prompt:
        raise RowError("missing", field="prompt")
    return chosen_prompt, first, second


def check_unicode(text: str, field: str) -> None:
    """Raises RowError for a text with a lone surrogate, which no UTF-8 file or database can hold."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError("a lone surrogate: not valid Unicode", field=field) from error


def _last_turn(side: Turns, prompt: Turns, field: str) -> tuple[Turns, str]:
    """The conversation before the side's last turn, and that turn's text. The prompt may be repeated in the side."""
    turns = side if prompt and side[: len(prompt)] == prompt else prompt + side
    if turns[-1]["role"] != "assistant":
        raise RowError("the last message is not the assistant's", field=field)
    return turns[:-1], text_of(turns[-1]["content"], field)


def _split_text(chosen: str, rejected: str) -> tuple[Turns, str, str]:
    if chosen == rejected:
        raise RowError("the two sides are identical")
    cut = next(
        (i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), min(len(chosen), len(rejected))
    )
    last = [[match.end() for match in ASSISTANT_MARKER.finditer(text)][-1:] for text in (chosen, rejected)]
    if ASSISTANT_MARKER.search(chosen[:cut]):
        if max(last)[0] > cut:
            raise RowError(DIVERGED, field="rejected")
        cut = last[0][0]
        prompt = [{"role": "user", "content": chosen[:cut]}]
        return prompt, text_of(chosen[cut:], "chosen"), text_of(rejected[cut:], "rejected")
    if cut and chosen[cut - 1] == " ":
        cut -= 1
    if not chosen[:cut]:
        raise RowError("the sides share no beginning, and no prompt is given", field="prompt")
    prompt = [{"role": "user", "content": chosen[:cut]}]
    return prompt, text_of(chosen[cut:], "chosen"), text_of(rejected[cut:], "rejected")


def _kind(value: object) -> str:
    names = {"NoneType": "null", "dict": "an object", "list": "a list", "str": "text", "bool": "true/false"}
    return names.get(type(value).__name__, "a number" if isinstance(value, int | float) else type(value).__name__)
