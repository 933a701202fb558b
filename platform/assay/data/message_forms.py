"""Messages in the forms that people write them in, read as Assay's JSON form of messages.

Covers: OpenAI's content lists, `tool_calls`, `tool_call_id` and legacy `function_call`, its Responses items, Hugging
Face's image parts, Anthropic's `tool_use`, `tool_result`, `thinking` and image blocks, ShareGPT's `from`/`value`,
`reasoning_content`, tool definitions of any of them, Assay's own form. Leaves out: rows (`assay.data.conversation`),
reading the images that a form names (`assay_pipelines.importers.images`). A part of an unknown type is refused by name.

Data sets libraries fill a missing key with null: null is as if it were not there, also inside arguments and schemas
that come as objects. JSON that comes as text is kept as it was written, without spaces between its tokens.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from assay.conversation.message import ROLES
from assay.conversation.parts import Part
from assay.data.json_lines import RowError

#: Messages in their JSON form: `role`, and `content` as text or a list of parts. An image that was not read yet has a
#: `url`: an address, a data URL, or a path; one without any waits for the row's list of images.
Turns: TypeAlias = list[dict[str, Any]]

_ALIASES = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "prompter": "user",
    "model": "assistant",
    "function_call": "assistant",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
    "tool_response": "tool",
}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_NAMED = 40  #: characters of a foreign word that a message repeats


def read_message(message: object, field: str) -> Turns:
    """One message of any form: usually one turn; Anthropic's results beside a user's text are two. Raises RowError."""
    if not isinstance(message, Mapping):
        raise RowError("a message without role and content", field=field)
    message = {key: value for key, value in message.items() if value is not None}
    if "role" not in message and message.get("type") in ("function_call", "function_call_output", "reasoning"):
        return _response_item(message, field)
    role = message.get("role", message.get("from"))
    if role is None or not (_has_content(message)):
        raise RowError("a message without role and content", field=field)
    turn_role = _ALIASES.get(str(role), str(role))
    if turn_role not in ROLES:
        raise RowError(f"a message of an unknown role (known: {', '.join(ROLES)})", field=field)
    content = message.get("content", message.get("value"))
    if role == "function_call" or (role == "tool_call" and "from" in message):
        return [{"role": "assistant", "content": _called_text(content, field)}]
    thoughts = [message[name] for name in _THOUGHTS if isinstance(message.get(name), str) and message[name]]
    parts: list[dict[str, Any]] = [{"type": "thinking", "text": thought} for thought in dict.fromkeys(thoughts)]
    for name in ("tools", "functions"):
        if message.get(name):
            parts += tool_definitions(message[name], field)
    parts += _content_parts(content, field)
    for image in _list(message.get("images"), field):
        parts.append(image_form(image, field))
    for call in _list(message.get("tool_calls"), field):
        parts.append(_call(call, field))
    if message.get("function_call"):
        parts.append(_call(message["function_call"], field))
    if turn_role == "tool":
        parts = _as_result(message, parts)
    return _turns(turn_role, parts)


def _has_content(message: Mapping[str, Any]) -> bool:
    return any(name in message for name in ("content", "value", "tool_calls", "function_call", *_THOUGHTS))


def _turns(role: str, parts: list[dict[str, Any]]) -> Turns:
    """One turn of the parts; results and images in them that a user's turn carries become the tool's turn."""
    results = [part for part in parts if part["type"] == "tool_result"] if role == "user" else []
    turns: Turns = [{"role": "tool", "content": results}] if results else []
    said = [part for part in parts if not results or part["type"] != "tool_result"]
    if said or not results:
        turns.append({"role": role, "content": _plain(said)})
    return turns


def _plain(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Texts alone are one text, whatever they were cut into."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _content_parts(content: object, field: str) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list | tuple):
        raise RowError(f"a message whose content is {kind_of(content)} instead of text", field=field)
    parts = []
    for part in content:
        parts += _part(part, field)
    return parts


def _part(part: object, field: str) -> list[dict[str, Any]]:
    if isinstance(part, str):
        return [{"type": "text", "text": part}]
    if not isinstance(part, Mapping):
        raise RowError(f"a message part that is {kind_of(part)}", field=field)
    part = {key: value for key, value in part.items() if value is not None}
    kind = part.get("type", next((name for name in ("text", "image", "image_url") if name in part), None))
    if not isinstance(kind, str) or kind not in _PARTS:
        named = "without a type" if kind is None else f"of the type {str(kind)[:_NAMED]!r}"
        raise RowError(f"a message part {named}, which is not known", field=field)
    return _PARTS[kind](part, field)


def _text(part: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    text = next((part[name] for name in ("text", "refusal", "content") if name in part), None)
    if not isinstance(text, str):
        raise RowError(f"a message part of the type {part.get('type', 'text')!r} without text", field=field)
    return [{"type": "text", "text": text}] if text else []


def _thinking(part: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    text = next((part[name] for name in ("thinking", "text", "reasoning", "reasoning_content") if name in part), None)
    if text is None and isinstance(part.get("summary"), list | tuple):
        text = "\n".join(str(each.get("text", "")) for each in part["summary"] if isinstance(each, Mapping))
    if not isinstance(text, str):
        raise RowError("a thinking part without text", field=field)
    return [{"type": "thinking", "text": text}] if text else []


def _image(part: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    if part.get("content_hash"):
        return [_checked(part, field)]
    source = next(
        (part[name] for name in ("image_url", "image", "source", "url", "path", "bytes") if name in part), None
    )
    if source is None and "base64" in part:
        source = _data_url(str(part["base64"]), part.get("mime_type"))
    return [{"type": "image"} if source is None else image_form(source, field)]


def image_form(source: object, field: str) -> dict[str, Any]:
    """An image part of what a row has in place of an image: an address, a path, a data URL, bytes, {bytes, path}, an
    object of Anthropic's or OpenAI's, a decoded image. Raises RowError."""
    if isinstance(source, Mapping):
        source = {key: value for key, value in source.items() if value is not None}
        if source.get("type") == "base64" and isinstance(source.get("data"), str):
            return {"type": "image", "url": _data_url(source["data"], source.get("media_type"))}
        source = next((source[name] for name in ("bytes", "url", "image_url", "path") if name in source), None)
    if isinstance(source, bytes | bytearray):
        return {"type": "image", "url": _data_url(base64.b64encode(source).decode("ascii"), None)}
    if isinstance(source, str) and source:
        return {"type": "image", "url": source}
    if callable(save := getattr(source, "save", None)):
        return {"type": "image", "url": _data_url(_png(save), None)}
    raise RowError("an image without bytes, path or address", field=field)


def _png(save: Callable[..., object]) -> str:
    """A decoded image (Pillow's), as the data sets library yields it."""
    import io

    stream = io.BytesIO()
    save(stream, format="PNG")
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _data_url(encoded: str, media_type: object) -> str:
    return f"data:{media_type or 'application/octet-stream'};base64,{encoded}"


def _tool_use(part: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    return [_call(part, field)]


def _tool_result(part: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    inner = _content_parts(part.get("content", part.get("output", "")), field)
    call = part.get("call_id", part.get("tool_use_id", part.get("tool_call_id")))
    return _as_result({"tool_call_id": call, "name": part.get("name")}, inner, always=True)


def _canonical_part(part: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    return [_checked(part, field)]


def _checked(part: Mapping[str, Any], field: str) -> dict[str, Any]:
    try:
        form: dict[str, Any] = msgspec.to_builtins(msgspec.convert(dict(part), Part))
    except msgspec.ValidationError as error:
        raise RowError(
            f"a message part of the type {part['type']!r} that is not whole: {error}", field=field
        ) from error
    return form


_PARTS: dict[str, Callable[[Mapping[str, Any], str], list[dict[str, Any]]]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal"), _text),
    **dict.fromkeys(("thinking", "reasoning"), _thinking),
    **dict.fromkeys(("image", "image_url", "input_image"), _image),
    **dict.fromkeys(("tool_use", "tool_call", "function_call"), _tool_use),
    **dict.fromkeys(("tool_result", "function_call_output"), _tool_result),
    "tool_definition": _canonical_part,
}
#: The types of parts that are read, in the words of all forms.
PART_TYPES = tuple(_PARTS)


def _as_result(
    message: Mapping[str, Any], parts: list[dict[str, Any]], *, always: bool = False
) -> list[dict[str, Any]]:
    """What a tool answered: its texts as one result, images after it. A tool's text without a call stays text."""
    call, name = message.get("tool_call_id", message.get("call_id")), message.get("name")
    if not (always or call or name) or any(part["type"] == "tool_result" for part in parts):
        return parts
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    call_fields = {"call_id": call, "name": name}
    result = {
        "type": "tool_result",
        "content": text,
        **{key: str(value) for key, value in call_fields.items() if value},
    }
    return [result, *(part for part in parts if part["type"] != "text")]


def _call(call: object, field: str) -> dict[str, Any]:
    """A tool call of OpenAI's, Anthropic's or Assay's form."""
    if not isinstance(call, Mapping):
        raise RowError(f"a tool call that is {kind_of(call)}", field=field)
    function = call.get("function") if isinstance(call.get("function"), Mapping) else call
    assert isinstance(function, Mapping)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RowError("a tool call without a name", field=field)
    arguments = next(
        (function[key] for key in ("arguments", "input", "parameters") if function.get(key) is not None), ""
    )
    part = {"type": "tool_call", "name": name, "arguments": compact(arguments)}
    if call_id := call.get("call_id") or call.get("id"):
        part["call_id"] = str(call_id)
    return part


def _called_text(content: object, field: str) -> list[dict[str, Any]]:
    """ShareGPT's calls: the JSON of one call, or of several, as the turn's text."""
    try:
        calls = json.loads(content) if isinstance(content, str) else content
    except (ValueError, RecursionError) as error:
        raise RowError("a function call that is no JSON", field=field) from error
    return [_call(call, field) for call in (calls if isinstance(calls, list) else [calls])]


def _response_item(item: Mapping[str, Any], field: str) -> Turns:
    """An item of OpenAI's Responses that is no message."""
    role = "tool" if item["type"] == "function_call_output" else "assistant"
    return [{"role": role, "content": _part(item, field)}]


def tool_definitions(tools: object, field: str = "tools") -> list[dict[str, Any]]:
    """Definitions of OpenAI's form (with or without `function`), Anthropic's (`input_schema`) or Assay's, in a list or
    its JSON text. Raises RowError."""
    if isinstance(tools, str):
        if not tools.strip():
            return []
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise RowError("not the JSON of tool definitions", field=field) from error
    parts = []
    for tool in _list(tools, field):
        if isinstance(tool, str):  # a list of JSON texts
            parts += tool_definitions(tool, field)
            continue
        function = (
            tool.get("function") if isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping) else tool
        )
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise RowError("a tool definition without a name", field=field)
        assert isinstance(function, Mapping)
        part = {"type": "tool_definition", "name": name}
        if function.get("description"):
            part["description"] = str(function["description"])
        if schema := next((function[key] for key in ("parameters", "input_schema") if function.get(key)), None):
            part["parameters"] = compact(schema)
        parts.append(part)
    return parts


def compact(value: object) -> str:
    """JSON text without spaces between tokens, keys in their order; a text that is no JSON object as it is."""
    if isinstance(value, str):
        try:
            read = json.loads(value, parse_float=_Number, parse_int=_Number)
        except (ValueError, RecursionError):
            return value
        return _dump(read) if isinstance(read, dict | list) else value
    return _dump(_without_nulls(value))


class _Number(str):
    """A number as it was written: 1.0 stays 1.0, however many digits it has."""


def _dump(node: object) -> str:
    if isinstance(node, _Number):
        return str(node)
    if isinstance(node, Mapping):
        return "{" + ",".join(f"{_dump(str(key))}:{_dump(value)}" for key, value in node.items()) + "}"
    if isinstance(node, list | tuple):
        return "[" + ",".join(map(_dump, node)) + "]"
    return json.dumps(node, ensure_ascii=False, default=str)


def _without_nulls(node: object) -> object:
    if isinstance(node, Mapping):
        return {key: _without_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list | tuple):
        return [_without_nulls(value) for value in node]
    return node


def _list(value: object, field: str) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return (value,)
    if not isinstance(value, list | tuple):
        raise RowError(f"wrong type: {kind_of(value)} instead of a list", field=field)
    return value


def kind_of(value: object) -> str:
    """A JSON value's type in words."""
    names = {"NoneType": "null", "dict": "an object", "list": "a list", "str": "text", "bool": "true/false"}
    return names.get(type(value).__name__, "a number" if isinstance(value, int | float) else type(value).__name__)
