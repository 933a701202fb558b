"""Shared parts of dialects' bodies: one or several texts or lists of token ids, messages in OpenAI's form.

Covers: bodies as pydantic models, their items. Leaves out: the template of a rendered text, which the engine detects
(`assay.models.chat.rendered_text`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictInt

from assay.domain import Message, Prompt, Role
from assay.errors import BadInputError
from assay.http.body_lists import ListOf
from assay_serving.scorer import Rendered, ScoreItem

Texts = str | ListOf[str] | ListOf[StrictInt] | ListOf[ListOf[StrictInt]]


class OpenBody(BaseModel):
    """Clients send fields that do not concern a reward model: they are ignored."""

    model_config = ConfigDict(extra="ignore")


class TextPart(OpenBody):
    type: Literal["text", "input_text", "output_text"]
    text: str


class ChatTurn(OpenBody):
    """A message of OpenAI's form; a `developer` is the system. Images and tool calls are refused."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | ListOf[TextPart]

    def message(self) -> Message:
        role: Role = "system" if self.role == "developer" else self.role
        return Message(role, text_of(self.content))


def text_of(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


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


def conversation_item(turns: list[Message], **more: Any) -> ScoreItem:
    """The item of a conversation that ends with the response. Raises BadInputError for another end."""
    if len(turns) < 2 or turns[-1].role != "assistant":
        raise BadInputError("must end with the assistant's message, the one to be scored", field="messages")
    prompt: Prompt = tuple(turns[:-1])
    return ScoreItem(prompt, turns[-1].content, **more)
