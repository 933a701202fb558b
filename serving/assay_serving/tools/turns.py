"""Tools in a conversation with a local model: how they are offered, and the tokens between two of its turns.

Covers: definitions where the chat template has a place for them, else a text before the first message in Qwen's
wording; results as the template's tool message, else as a user's. A row is the model's own tokens with those of the
results between them, so that what was sampled is what is read and trained on, whatever the template makes of past
turns. Leaves out: endpoints, which take OpenAI's form (`assay_serving.generative.remote`).
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay_serving.tools.tool import ToolResult, response_text
from assay_serving.tools.toolbox import Toolbox

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


def offered(prompt: Prompt, tools: Toolbox, renderer: Renderer) -> Prompt:
    """The prompt with the tools in its first message: as definitions where the template shows them, else as text.
    Raises BadInputError for a first message of parts where there is only place for text."""
    first = prompt[0]
    if renderer.shows("tool definitions") and renderer.shows("tool calls"):
        if first.role == "system":
            return (Message("system", (*tools.definitions, *first.parts)), *prompt[1:])
        return (Message("system", tools.definitions), *prompt)
    text = _OFFER.format(signatures="\n".join(json.dumps(one, ensure_ascii=False) for one in tools.functions))
    if not isinstance(first.content, str):
        raise BadInputError("a question with parts has no place for tools in text", field="prompt")
    return (replace(first, content=text + first.content), *prompt[1:])


def between_turns(renderer: Renderer, results: Sequence[ToolResult]) -> list[int]:
    """The tokens after the model's end of turn up to where it goes on: the results, and what opens its next turn.

    Raises BadInputError where the template refuses both forms of a result.
    """
    messages: tuple[Message, ...] = (Message("user", response_text(results)),)
    if renderer.shows("tool messages"):
        messages = tuple(Message("tool", result.content) for result in results)
    rendered = renderer.render((Message("user", "q"), Message("assistant", _MARK), *messages))
    suffix = rendered.partition(_MARK)[2]
    ids = list(renderer.tokenizer(suffix, add_special_tokens=False, verbose=False)["input_ids"])
    end = renderer.tokenizer.eos_token_id
    return ids[1:] if ids[:1] == [end] else ids
