"""One preference row, as the field writes it, to a prompt and two responses.

Covers: TRL's explicit and implicit prompt, plain text and message lists, prompts repeated inside the sides, sides that
differ in several turns, a row's columns of tools and of images. Leaves out: the forms of a message
(`assay.data.message_forms`), files and rows (`assay.data.pairs`, `assay_pipelines.importers`), texts in Anthropic's
Human/Assistant form (`assay_pipelines.importers.adapters`). All complaints are `RowError`.
"""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, TypeAlias

from assay.conversation.message import ROLES, prompt_of, response_of, response_text
from assay.data.json_lines import RowError
from assay.data.message_forms import Turns as Turns
from assay.data.message_forms import image_form, kind_of, read_message, tool_definitions
from assay.ids import conversation_json, forms_json

#: A response: text, or turns that begin and end with the assistant's.
ResponseForm: TypeAlias = str | Turns

#: The columns of a row that hold parts of its conversation.
PART_COLUMNS = frozenset({"tools", "functions", "images", "image"})
_MESSAGE = {"role", "content"}
_IMAGE = "<image>"  # where an image belongs in a text, as LLaMA-Factory and others write it

#: Where the assistant begins to speak, in the templates that preference data is written in.
ASSISTANT_MARKER = re.compile(
    r"(?:^|\n\n)Assistant:|(?:^|\s)ASSISTANT:|(?:^|\n)### (?:Response|Assistant):|<\|im_start\|>assistant\n"
    r"|<\|assistant\|>|<\|start_header_id\|>assistant<\|end_header_id\|>\n\n|\[/INST\]|<start_of_turn>model\n"
)

DIVERGED = "the sides diverge before the last turn"
DIVERGED_PROMPT = "the sides diverge in a turn that is not the assistant's"


def text_of(value: object, field: str) -> str:
    """A non-empty text that UTF-8 can hold."""
    if value is None:
        raise RowError("missing", field=field)
    if not isinstance(value, str):
        raise RowError(f"wrong type: {kind_of(value)} instead of text", field=field)
    if not value:
        raise RowError("empty", field=field)
    check_unicode(value, field)
    return value


def text_or_empty(value: object, field: str) -> str:
    """A response's text. An empty one is no fault of the file: training leaves its row out, and counts it."""
    return "" if value == "" else text_of(value, field)


def turns_of(value: object, field: str) -> Turns:
    """A non-empty list of messages of any form (`read_message`); other keys of a message are left out."""
    if not isinstance(value, list | tuple):
        raise RowError(f"wrong type: {kind_of(value)} instead of a list of messages", field=field)
    if not value:
        raise RowError("empty", field=field)
    turns: Turns = []
    for message in value:
        if type(message) is dict and message.keys() == _MESSAGE and message["role"] in ROLES:
            content = message["content"]
            if type(content) is str:
                check_unicode(content, field)
                turns.append({"role": message["role"], "content": content})
                continue
        read = read_message(message, field)
        check_unicode(forms_json(read), field)
        turns += read
    return turns


def prompt_turns(value: object, field: str = "prompt") -> Turns:
    """A prompt given as text (one user turn) or as messages. At least one turn has content."""
    if isinstance(value, list | tuple):
        turns = turns_of(value, field)
        if not any(turn["content"] for turn in turns):
            raise RowError("empty", field=field)
        return turns
    return [{"role": "user", "content": text_of(value, field)}]


def response_form_of(value: object, field: str) -> ResponseForm:
    """A response given as text, which may be empty, or as messages that end with the assistant's."""
    return _response(turns_of(value, field), field) if isinstance(value, list | tuple) else text_or_empty(value, field)


def row_turns(record: Mapping[str, Any], turns: Turns, *responses: ResponseForm) -> Turns:
    """The prompt of a row with its columns `tools` (or `functions`) and `images` (or `image`) in it.

    An image goes where a message says that there is one, in order; else where a text says `<image>`; else, if nothing
    says so, before the first user's text. Raises RowError where the numbers differ.
    """
    for name in ("tools", "functions"):
        if record.get(name):
            definitions = tool_definitions(record[name], name)
            check_unicode(forms_json(definitions), name)
            turns = _with_tools(turns, definitions)
    column = next((name for name in ("images", "image") if record.get(name) is not None), None)
    images = [] if column is None else _images(record[column], column)
    if images:
        turns = _with_images(turns, images, [turn for side in responses if not isinstance(side, str) for turn in side])
    return turns


def prompt_columns(turns: Turns) -> tuple[Turns, str | None]:
    """A prompt as the store's intake takes it: texts, and the JSON of what is more than text."""
    if all(type(turn["content"]) is str for turn in turns):
        return turns, None
    texts = [{"role": message.role, "content": message.text} for message in prompt_of(turns)]
    return texts, forms_json(turns)


def response_columns(response: ResponseForm) -> tuple[str, str | None]:
    """A response as the store's intake takes it: its text view, and the JSON of what is more than text."""
    if isinstance(response, str):
        return response, None
    read = response_of(response)
    return response_text(read), None if isinstance(read, str) else conversation_json(read)


def split_pair(prompt: object, chosen: object, rejected: object) -> tuple[Turns, ResponseForm, ResponseForm]:
    """Prompt turns, chosen response, rejected response of one row in any of TRL's forms.

    `prompt=None` is TRL's implicit prompt: the sides' common beginning. Of plain text that is everything up to the last
    assistant marker of a known template (`ASSISTANT_MARKER`); of text without one the longest common prefix, cut as
    `trl.extract_prompt` cuts it, which also takes the words that both responses begin with.
    """
    for value, field in ((chosen, "chosen"), (rejected, "rejected")):
        if value is None:
            raise RowError("missing", field=field)
        if not isinstance(value, str | list):
            raise RowError("neither a text nor messages", field=field)
    if isinstance(chosen, str) != isinstance(rejected, str):
        raise RowError("wrong type: one side is text, the other messages", field="rejected")
    if isinstance(chosen, str):
        if prompt is not None:
            return prompt_turns(prompt), text_or_empty(chosen, "chosen"), text_or_empty(rejected, "rejected")
        return _split_text(text_of(chosen, "chosen"), text_of(rejected, "rejected"))
    shared = prompt_turns(prompt) if prompt is not None else []
    sides = (
        _conversation(turns_of(chosen, "chosen"), shared, "chosen"),
        _conversation(turns_of(rejected, "rejected"), shared, "rejected"),
    )
    at = _divergence(*sides)
    if not at:
        raise RowError("missing", field="prompt")
    return sides[0][:at], _response(sides[0][at:], "chosen"), _response(sides[1][at:], "rejected")


def check_unicode(text: str, field: str) -> None:
    """Raises RowError for a text with a lone surrogate, which no UTF-8 file or database can hold."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError("a lone surrogate: not valid Unicode", field=field) from error


def _conversation(side: Turns, prompt: Turns, field: str) -> Turns:
    """The conversation of a side. The prompt may be repeated in it."""
    turns = side if prompt and side[: len(prompt)] == prompt else prompt + side
    if turns[-1]["role"] != "assistant":
        raise RowError("the last message is not the assistant's", field=field)
    return turns


def _divergence(first: Turns, second: Turns) -> int:
    """Where the two responses begin: at the assistant's turn in which they differ, or after which a tool answered
    differently or only one of them goes on. Of equal sides at the last turn."""
    most = min(len(first), len(second)) - 1
    at = next((n for n in range(most) if first[n] != second[n]), most)
    while at and (roles := {first[at]["role"], second[at]["role"]}) != {"assistant"} and roles != {"user"}:
        at -= 1
    if first[at]["role"] != "assistant" or second[at]["role"] != "assistant":
        raise RowError(DIVERGED_PROMPT, field="rejected")
    return at


def _response(turns: Turns, field: str) -> ResponseForm:
    if not turns or turns[0]["role"] != "assistant" or turns[-1]["role"] != "assistant":
        raise RowError("the last message is not the assistant's", field=field)
    if len(turns) == 1 and isinstance(turns[0]["content"], str):
        return text_or_empty(turns[0]["content"], field)
    return turns


def _with_tools(turns: Turns, definitions: list[dict[str, Any]]) -> Turns:
    """The definitions in the first message, of the role system."""
    if not definitions:
        return turns
    if turns and turns[0]["role"] == "system":
        content = turns[0]["content"]
        parts = ([{"type": "text", "text": content}] if content else []) if isinstance(content, str) else content
        return [{"role": "system", "content": [*parts, *definitions]}, *turns[1:]]
    return [{"role": "system", "content": definitions}, *turns]


def with_system(turns: Turns, text: str) -> Turns:
    """With the system's text first, where the system says none yet."""
    if turns[0]["role"] != "system":
        return [{"role": "system", "content": text}, *turns]
    content = turns[0]["content"]
    if isinstance(content, list) and all(part["type"] == "tool_definition" for part in content):
        return [{"role": "system", "content": [{"type": "text", "text": text}, *content]}, *turns[1:]]
    return turns


def _images(column: object, field: str) -> list[dict[str, Any]]:
    listed = column if isinstance(column, list | tuple) else [column]
    return [image_form(image, field) for image in listed if image is not None]


def _with_images(turns: Turns, images: list[dict[str, Any]], response: Turns) -> Turns:
    turns = [{**turn, "content": _marked(turn["content"])} for turn in turns]
    places = [
        (turn["content"], n)
        for turn in chain(turns, response)
        if isinstance(turn["content"], list)
        for n, part in enumerate(turn["content"])
        if part == {"type": "image"}
    ]
    if not places:
        user_turn = next((turn for turn in turns if turn["role"] == "user"), turns[-1])
        content = user_turn["content"]
        user_turn["content"] = [*images, *(_text_parts(content) if isinstance(content, str) else content)]
        return turns
    if len(places) != len(images):
        raise RowError("not as many images as the messages have places for", field="images")
    for (parts, n), image in zip(places, images, strict=True):
        parts[n] = image
    return turns


def _marked(content: Any) -> Any:
    """A text with `<image>` in it as parts; a list of parts as a new list."""
    if not isinstance(content, str):
        return list(content)
    if _IMAGE not in content:
        return content
    pieces = content.split(_IMAGE)
    parts = _text_parts(pieces[0])
    for piece in pieces[1:]:
        parts += [{"type": "image"}, *_text_parts(piece)]
    return parts


def _text_parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


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
        return [{"role": "user", "content": chosen[:cut]}], chosen[cut:], rejected[cut:]
    if cut and chosen[cut - 1] == " ":
        cut -= 1
    if not chosen[:cut]:
        raise RowError("the sides share no beginning, and no prompt is given", field="prompt")
    return [{"role": "user", "content": chosen[:cut]}], chosen[cut:], rejected[cut:]
