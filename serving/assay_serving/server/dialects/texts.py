"""Shared parts of dialects' bodies: one or several texts or lists of token ids, messages in OpenAI's form.

Covers: bodies as pydantic models, their items. Leaves out: the template of a rendered text, which the engine detects
(`assay.models.chat.rendered_text`).
"""

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictInt

from assay.conversation.message import response_of_turns
from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay_serving.chat.message_bodies import MessageFields, with_tools
from assay_serving.scorer import Rendered, ScoreItem

#: A rendered conversation, for examples.
EXAMPLE = "<|im_start|>user\nName a metal.<|im_end|>\n<|im_start|>assistant\nGold.<|im_end|>\n"
Texts = str | ListOf[str] | ListOf[StrictInt] | ListOf[ListOf[StrictInt]]


class OpenBody(BaseModel):
    """Clients send fields that do not concern a reward model: they are ignored."""

    model_config = ConfigDict(extra="ignore")


class ChatTurn(MessageFields, OpenBody):
    """A message of OpenAI's form; a `developer` is the system."""

    def messages(self) -> Prompt:
        """As `MessageFields.messages`."""
        return tuple(
            Message("system", message.content) if message.role == "developer" else message
            for message in super().messages()
        )


def rendered_items(texts: Texts, form: Rendered) -> list[ScoreItem]:
    """One item for each text or list of ids, rendered as `form` says. Raises BadInputError where there is none."""
    if isinstance(texts, str):
        return [ScoreItem((), "", rendered=replace(form, text=texts))]
    if not texts:
        raise BadInputError("is empty", field="input")
    if isinstance(texts[0], int):
        return [ScoreItem((), "", rendered=replace(form, ids=tuple(texts)))]
    return [
        ScoreItem(
            (), "", rendered=replace(form, text=each) if isinstance(each, str) else replace(form, ids=tuple(each))
        )
        for each in texts
    ]


def conversation_item(turns: Prompt, tools: list[dict[str, Any]] | None = None) -> ScoreItem:
    """The item of a conversation that ends with the response. Raises BadInputError for another end."""
    if len(turns) < 2 or turns[-1].role != "assistant":
        raise BadInputError("must end with the assistant's message, the one to be scored", field="messages")
    return ScoreItem(with_tools(turns[:-1], tools), response_of_turns(turns[-1:]))
