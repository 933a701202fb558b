"""Request bodies of the native routes as pydantic models, from which OpenAPI is generated.

Covers: shapes and types, and the items to score. Leaves out: replies (`replies`); whether a conversation can be scored,
which depends on the model's template and fails only that item (`assay.score.ScoreFailure`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from assay.domain import Message, Prompt, Role
from assay.http.body_lists import ListOf
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Priority
from assay_serving.server.http.json_route import examples

_PROMPT = "A text (one user turn) or the messages before the response."
_PRINCIPLE = "The question to judge by, for models that take one (/v1/principles)."
_REFERENCES = "Other responses to the prompt, for rewards that are relative to them; models ignore them."
_LABEL = "What a verifier checks against: text, or JSON; models ignore it."
_PROMPT_IS_EMPTY = "a prompt needs at least one message"


class Body(BaseModel):
    """A misspelt field is an error, not a default."""

    model_config = ConfigDict(extra="forbid")


class MessageBody(Body):
    role: Role
    content: str


PromptBody = str | ListOf[MessageBody]
LabelBody = str | int | float | list[Any] | dict[str, Any]


class ItemBody(Body):
    """One response: `prompt` and `response`, or the whole conversation as `messages`, the last one the assistant's."""

    prompt: PromptBody | None = Field(None, description=_PROMPT)
    response: str | None = None
    messages: ListOf[MessageBody] | None = Field(None, description="The conversation, ending with the response.")
    principle: str | None = Field(None, description=_PRINCIPLE)
    references: ListOf[str] = Field([], description=_REFERENCES)
    label: LabelBody | None = Field(None, description=_LABEL)

    @model_validator(mode="after")
    def check(self) -> ItemBody:
        if self.messages is not None:
            if self.prompt is not None or self.response is not None:
                raise ValueError("give either messages, or prompt and response")
            if len(self.messages) < 2 or self.messages[-1].role != "assistant":
                raise ValueError("messages end with the assistant's, after at least one other")
        elif self.prompt is None or self.response is None:
            raise ValueError("give prompt and response, or messages")
        elif not self.prompt and isinstance(self.prompt, list):
            raise ValueError(_PROMPT_IS_EMPTY)
        return self

    def item(self) -> ScoreItem:
        if self.messages is not None:
            *before, last = self.messages
            prompt, response = _turns(before), last.content
        else:
            prompt, response = prompt_of(self.prompt or ""), self.response or ""
        return ScoreItem(prompt, response, self.principle, label=_label(self.label), references=tuple(self.references))


class SharedPromptBody(Body):
    """What several responses to one prompt share."""

    prompt: PromptBody = Field(description=_PROMPT)
    principle: str | None = Field(None, description=_PRINCIPLE)
    references: ListOf[str] = Field([], description=_REFERENCES)
    label: LabelBody | None = Field(None, description=_LABEL)

    @model_validator(mode="after")
    def check(self) -> Self:
        if not self.prompt and isinstance(self.prompt, list):
            raise ValueError(_PROMPT_IS_EMPTY)
        return self

    def items_of(self, responses: Iterable[str]) -> list[ScoreItem]:
        prompt, label, references = prompt_of(self.prompt), _label(self.label), tuple(self.references)
        return [
            ScoreItem(prompt, response, self.principle, label=label, references=references) for response in responses
        ]


class GroupBody(SharedPromptBody):
    """Several responses to one prompt."""

    responses: ListOf[str]

    def items(self) -> list[ScoreItem]:
        return self.items_of(self.responses)


class ScoringBody(Body):
    """Options of every scoring request."""

    model: str | None = Field(None, description="Needed only where several models are served.")
    priority: Literal["interactive", "bulk"] = Field(
        "interactive", description="Interactive requests go before bulk ones of trainers and jobs."
    )
    timeout: float | None = Field(
        None, gt=0, description="Seconds after which the reply is not needed any more; at most the server's own limit."
    )

    @property
    def rank(self) -> Priority:
        return Priority.BULK if self.priority == "bulk" else Priority.INTERACTIVE


class ScoreBody(ScoringBody):
    """Responses to score: as `items`, as `groups`, or as one `prompt` with its `responses`."""

    model_config = examples(
        {"items": [{"prompt": "Name a metal.", "response": "Gold."}]},
        {"prompt": [{"role": "user", "content": "Name a metal."}], "responses": ["Gold.", "Glass."]},
        {
            "groups": [
                {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]},
                {"prompt": "Name a gas.", "responses": ["Neon.", "Iron."], "label": "Neon"},
            ],
            "priority": "bulk",
        },
        {
            "prompt": "Name a metal.",
            "responses": ["Gold."],
            "principles": ["The response is short.", "The response is correct."],
        },
    )

    items: ListOf[ItemBody] | None = None
    groups: ListOf[GroupBody] | None = None
    prompt: PromptBody | None = Field(None, description=_PROMPT)
    responses: ListOf[str] | None = None
    principle: str | None = Field(None, description=_PRINCIPLE)
    principles: ListOf[str] | None = Field(
        None, min_length=1, description="Several questions: every response is judged by each (`by_principle`)."
    )
    references: ListOf[str] = Field([], description=_REFERENCES)
    label: LabelBody | None = Field(None, description=_LABEL)

    @model_validator(mode="after")
    def check(self) -> ScoreBody:
        one = self.prompt is not None or self.responses is not None
        if (self.items is not None) + (self.groups is not None) + one != 1:
            raise ValueError("give items, or groups, or prompt and responses")
        if one:
            if self.prompt is None or self.responses is None:
                raise ValueError("give items, or groups, or prompt and responses")
            if not self.prompt and isinstance(self.prompt, list):
                raise ValueError(_PROMPT_IS_EMPTY)
        elif self.principle is not None or self.references or self.label is not None:
            raise ValueError("principle, references and label go into each of the items or groups")
        if self.principles is not None:
            parts = self.items or self.groups or ()
            if self.principle is not None or any(part.principle is not None for part in parts):
                raise ValueError("give either principle or principles")
            if len(set(self.principles)) < len(self.principles):
                raise ValueError("a principle is given twice")
        return self

    def score_items(self) -> list[ScoreItem]:
        """The items in order; with `principles`, all of the first principle, then all of the second, ..."""
        if self.items is not None:
            items = [item.item() for item in self.items]
        elif self.groups is not None:
            items = [item for group in self.groups for item in group.items()]
        else:
            prompt, label, references = prompt_of(self.prompt or ""), _label(self.label), tuple(self.references)
            items = [
                ScoreItem(prompt, response, self.principle, label=label, references=references)
                for response in self.responses or ()
            ]
        if self.principles is None:
            return items
        return [
            ScoreItem(item.prompt, item.response, principle, label=item.label, references=item.references)
            for principle in self.principles
            for item in items
        ]


class PairBody(SharedPromptBody):
    """Two responses to one prompt."""

    a: str = Field(description="One response.")
    b: str = Field(description="The other response.")

    def items(self) -> list[ScoreItem]:
        return self.items_of((self.a, self.b))


class CompareBody(ScoringBody):
    """Pairs to compare."""

    model_config = examples(
        {"pairs": [{"prompt": "Name a metal.", "a": "Gold.", "b": "Glass."}]},
        {
            "pairs": [
                {"prompt": [{"role": "user", "content": "Name a metal."}], "a": "Gold.", "b": "Glass."},
                {"prompt": "Name a gas.", "a": "Neon.", "b": "Iron.", "principle": "The response is true."},
            ]
        },
    )

    pairs: ListOf[PairBody]


class RankBody(ScoringBody, GroupBody):
    """Responses to one prompt, to be put in order."""

    model_config = examples({"prompt": "Name a metal.", "responses": ["Glass.", "Gold.", "Glass."]})

    tie_margin: float = Field(0.0, ge=0, description="A reward within this of the best one of its tie shares its rank.")


def prompt_of(prompt: PromptBody) -> Prompt:
    """The domain's prompt of either form."""
    return (Message("user", prompt),) if isinstance(prompt, str) else _turns(prompt)


def _turns(messages: list[MessageBody]) -> Prompt:
    return tuple(Message(message.role, message.content) for message in messages)


def _label(label: LabelBody | None) -> str | None:
    return label if label is None or isinstance(label, str) else json.dumps(label, ensure_ascii=False)
