"""Tools in a conversation with a local model: how they are offered, and the tokens between two of its turns.

Covers: definitions where the chat template has a place for them, else a text before the first message in Qwen's
wording; results as the template's tool message, else as a user's. A row is the model's own tokens with those of the
results between them, so that what was sampled is what is read and trained on, whatever the template makes of past
turns. Leaves out: endpoints, which take OpenAI's form (`assay_serving.generative.remote`).
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from assay.conversation.parts import ToolDefinitionPart
from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay_serving.tools.tool import ToolResult, response_text

_MARK = "zqturn"  # stands for the model's turn while the tokens after it are found
_OFFER = """# Tools

You may call functions before you answer. Their signatures are within <tools></tools> tags:
<tools>
{signatures}
</tools>

For each call write a JSON object with the function's name and arguments within <tool_call></tool_call> tags, and then \
end your turn:
<tool_call>
{{"name": <name>, "arguments": <object>}}
</tool_call>
You then read the results within <tool_response></tool_response> tags.

"""


def offered(prompt: Prompt, tools: Sequence[ToolDefinitionPart], renderer: Renderer) -> Prompt:
    """The prompt with the tools in its first message: as definitions where the template shows them, else as text.
    Raises BadInputError for a first message of parts where there is only place for text."""
    first = prompt[0]
    if renderer.shows("tool definitions") and renderer.shows("tool calls"):
        if first.role == "system":
            return (Message("system", (*tools, *first.parts)), *prompt[1:])
        return (Message("system", tuple(tools)), *prompt)
    text = _OFFER.format(signatures="\n".join(json.dumps(signature(one), ensure_ascii=False) for one in tools))
    if not isinstance(first.content, str):
        raise BadInputError("a question with parts has no place for tools in text", field="prompt")
    return (replace(first, content=text + first.content), *prompt[1:])


def signature(tool: ToolDefinitionPart) -> dict[str, Any]:
    """A definition in OpenAI's form."""
    function = {"name": tool.name, "description": tool.description or "", "parameters": parameters_of(tool)}
    return {"type": "function", "function": function}


def parameters_of(tool: ToolDefinitionPart) -> dict[str, Any]:
    """The JSON schema of its arguments."""
    schema: dict[str, Any] = json.loads(tool.parameters or '{"type": "object", "properties": {}}')
    return schema


def joined(messages: Iterable[Message]) -> list[Message]:
    """The messages, those of the user's that follow each other as one: many templates refuse two in a row."""
    merged: list[Message] = []
    for message in messages:
        if not (merged and merged[-1].role == message.role == "user"):
            merged.append(message)
        elif isinstance(merged[-1].content, str) and isinstance(message.content, str):
            merged[-1] = Message("user", f"{merged[-1].content}\n\n{message.content}")
        else:
            merged[-1] = Message("user", (*merged[-1].parts, *message.parts))
    return merged


def between_turns(
    renderer: Renderer,
    results: Sequence[ToolResult],
    messages: Sequence[Message] = (),
    *,
    ended_by: Collection[int] | None = None,
    characters: int | None = None,
) -> list[int]:
    """The tokens after the model's turn up to where it goes on: the results, other messages, and what opens its next
    turn. `ended_by`: the tokens that end a turn, if this one has its own already (None: the tokenizer's); where it has
    none (empty), the tokens begin with it. `characters`: only the first so many are tokenized, for a caller that has no
    use for more tokens than those make.

    They are what the template adds to a conversation that ends with a turn of the model, so that what it makes of past
    turns (thinking that it takes out, white space) changes nothing. Raises BadInputError where the template refuses
    both forms of a result, or a message.
    """
    observed = joined((*result_messages(renderer, results), *messages))
    rendered = renderer.render((Message("user", "q"), Message("assistant", _MARK), *observed))
    suffix = rendered.partition(_MARK)[2][:characters]
    ids = list(renderer.tokenizer(suffix, add_special_tokens=False, verbose=False)["input_ids"])
    ends = [renderer.tokenizer.eos_token_id] if ended_by is None else ended_by
    return ids[1:] if ids and ids[0] in ends else ids


def result_messages(renderer: Renderer, results: Sequence[ToolResult]) -> tuple[Message, ...]:
    """Results as the template's tool messages, else as a user's."""
    if not results:
        return ()
    if renderer.shows("tool messages"):
        return tuple(Message("tool", result.content) for result in results)
    return (Message("user", response_text(results)),)
