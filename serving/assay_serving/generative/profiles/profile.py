"""A judge profile: the prompt that a judge was trained with, its generation settings, and the parser of its replies.

Covers: profiles as YAML, filling the slots of a prompt. Leaves out: parsers (`reply_parser`), the profiles that ship
(YAML files in `published`), finding one by name (`assay_serving.generative.templates.format_named`).

    title: one line                  responses: 1, 2, or list         source, licence, checked: where the texts are from
    system, user: templates          with_reference: the user's template where a right answer is known
    criterion: where none is given   generation: {temperature, top_p, max_new_tokens, tools,
                                                           tool_rounds, tool_errors}
    reads: {pattern or json, values or range, take, window, integer, ignore_case}
    each: template of one of a list, with {n} and {response}
    turns: {role: template} after a conversation                 final: what the verdict is written as, with {label}

Slots, each filled as it is: {prompt} (several turns under their roles), {response} or {response_a} and {response_b}, or
{responses} (of a list, each as `each` says, a line after the other),
{criterion} (the principle or rubric to judge by), {reference}. Other braces are text. `user: conversation` sends the
judged conversation itself, for judges whose own chat template holds the question: the response is its last turn, or
`turns` show it, or two, in the roles that the template has for them. With `final` the labels' log-probs are read there.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import yaml

from assay.conversation.message import JUDGE_ROLES, JudgeRole, images_of
from assay.domain import Message, Prompt, Response, response_text
from assay.errors import BadInputError, NotFoundError
from assay.models.spec import Judging
from assay_serving.generative.profiles.reply_parser import ReplyParser, parser_of
from assay_serving.generative.shown_images import content_with, named_images
from assay_serving.generative.templates import JudgeFormat
from assay_serving.generative.verdict import JudgeVerdict, ParseFailure

CONVERSATION = "conversation"
_SLOT = re.compile(r"\{(prompt|response|response_a|response_b|responses|n|criterion|reference)\}")
LIST = 0  #: `responses` of a form that rates lists, before the size of one is known
_GENERATION = ("temperature", "top_p", "max_new_tokens", "tools", "tool_rounds", "tool_errors")
_ROLES = {"user": "User", "assistant": "Assistant", "system": "System"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeProfile(JudgeFormat):
    """`text`: template of the user's message. `checked`: what was read, and what is from memory."""

    reads: ReplyParser
    system: str = ""
    with_reference: str = ""
    criterion: str = ""
    final: str = ""
    each: str = ""
    turns: Mapping[str, str] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    source: str = ""
    licence: str = ""
    checked: str = ""

    @property
    def hash(self) -> str:
        """Identity of all that shapes the question and how its answer is read; not of the path that a file is named
        by."""
        reads = repr(sorted(asdict(self.reads).items()))
        parts = (
            "" if Path(self.name).is_absolute() else self.name,
            self.system,
            self.text,
            self.with_reference,
            self.criterion,
            reads,
            *((self.final, repr(sorted(self.turns.items()))) if self.final or self.turns else ()),
            *((self.each,) if self.each else ()),
        )
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]

    @property
    def judging(self) -> Judging:
        return Judging(self.name, self.hash, **self.generation)

    @property
    def has_final_line(self) -> bool:
        return bool(self.final)

    @property
    def classes(self) -> dict[str, float]:
        """Labels of one response and their numbers; empty for preferences and scores."""
        return self.reads.classes

    def ask(
        self,
        prompt: Prompt,
        responses: Sequence[Response],
        principle: str | None = None,
        reference: str | None = None,
    ) -> Prompt:
        self.check(responses)
        texts = [response_text(response) for response in responses]
        names = ("response",) if self.responses == 1 else ("response_a", "response_b")
        slots = {} if self.each else dict(zip(names, texts, strict=True))
        slots |= {"criterion": principle or self.criterion, "reference": reference or ""}

        def filled(template: str, texts_of: Mapping[str, str] = slots) -> str:
            return _SLOT.sub(lambda slot: texts_of[slot[1]], template)

        if self.text == CONVERSATION:
            turns = []
            for role, template in self.turns.items():
                seen = [response for name, response in zip(names, responses, strict=True) if f"{{{name}}}" in template]
                if seen or filled(template):  # no principle, no turn; an empty response is one
                    content = content_with(filled(template), [image for one in seen for image in images_of(one)])
                    turns.append(Message(cast(JudgeRole, role), content))
            if any("{response" in template for template in self.turns.values()):
                return (*prompt, *turns)
            [judged] = responses
            judged_turns = judged if images_of(judged) else (Message("assistant", slots["response"]),)
            return (*prompt, *judged_turns, *turns)
        prompt, images = named_images(prompt, responses)
        slots["prompt"] = turns_of(prompt)
        slots["responses"] = "\n".join(
            filled(self.each, {"n": str(number), "response": text}) for number, text in enumerate(texts, 1) if self.each
        )
        template = self.with_reference if reference and self.with_reference else self.text
        user = Message("user", content_with(filled(template), images))
        return (Message("system", filled(self.system)), user) if self.system else (user,)

    def read(self, text: str, *, ended: bool = True) -> JudgeVerdict | ParseFailure:
        return self.reads.read(text, self.responses, ended=ended, listed=bool(self.each))

    def of(self, responses: int) -> Self:
        """This form for a list of so many."""
        return replace(self, responses=responses)

    def final_line(self, label: str) -> str:
        return self.final.replace("{label}", label)


def turns_of(prompt: Prompt) -> str:
    """A single user turn as it is, several turns under their roles."""
    if len(prompt) == 1 and prompt[0].role == "user":
        return prompt[0].text
    return "\n\n".join(f"{_ROLES.get(message.role, message.role)}: {message.text}" for message in prompt)


def profile_of(text: str, name: str, file: Path | None = None) -> JudgeProfile:
    """A profile from its YAML text. Raises BadInputError that names the file and the field."""
    try:
        return _checked(yaml.safe_load(text), name)
    except yaml.YAMLError as error:
        raise BadInputError(f"not YAML: {' '.join(str(error).split())}", file=file) from error
    except BadInputError as error:
        raise BadInputError(str(error), file=file or name) from error


def profile_of_file(path: Path) -> JudgeProfile:
    """A profile of one's own; it is named by its path, which finds it again. Raises NotFoundError without the file."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise NotFoundError(f"no judge profile {path}")
    return profile_of(path.read_text(encoding="utf-8"), str(path), path)


def _checked(payload: Any, name: str) -> JudgeProfile:
    texts = ("title", "source", "licence", "checked", "system", "user", "with_reference", "criterion", "final", "each")
    fields = (*texts, "responses", "generation", "reads", "turns")
    if not isinstance(payload, dict):
        raise BadInputError(f"must be a mapping of {', '.join(fields)}")
    if unknown := sorted(set(map(str, payload)) - set(fields)):
        raise BadInputError(f"must be a mapping of {', '.join(fields)}", field=unknown[0])
    for field_name in texts:
        if not isinstance(payload.get(field_name, ""), str):
            raise BadInputError("must be a text", field=field_name)
    responses = {1: 1, 2: 2, "list": LIST}.get(payload.get("responses", ""))
    if responses is None:
        raise BadInputError("must be 1, 2 or list", field="responses")
    user, each = payload.get("user", ""), str(payload.get("each", ""))
    needed = {LIST: {"responses"}, 1: {"response"}, 2: {"response_a", "response_b"}}[responses]
    if (responses == LIST) != ({"n", "response"} <= set(_SLOT.findall(each))):
        raise BadInputError("is a template with {n} and {response}, of `responses: list` alone", field="each")
    turns = payload.get("turns") or {}
    if (
        not isinstance(turns, dict)
        or set(turns) - set(JUDGE_ROLES)
        or not all(isinstance(t, str) for t in turns.values())
    ):
        raise BadInputError(f"must be a mapping of {', '.join(JUDGE_ROLES)} to templates", field="turns")
    if turns and user != CONVERSATION:
        raise BadInputError("are for `user: conversation`", field="turns")
    if user == CONVERSATION and responses == 1:
        needed = set()
    if missing := needed - set(_SLOT.findall("".join(turns.values()) if user == CONVERSATION else user)):
        raise BadInputError(f"has no slot {{{min(missing)}}}", field="turns" if user == CONVERSATION else "user")
    if (final := str(payload.get("final", ""))) and not final.endswith("{label}"):
        raise BadInputError("must end with {label}", field="final")
    generation = payload.get("generation") or {}
    if not isinstance(generation, dict) or set(generation) - set(_GENERATION):
        raise BadInputError(f"must be a mapping of {', '.join(_GENERATION)}", field="generation")
    reads = parser_of(payload.get("reads") or {}, responses)
    if responses == LIST and reads.range is None:
        raise BadInputError("a list is read by a range of scores", field="reads")
    described = {name: payload.get(name, "") for name in texts if name != "user"}
    form = {"name": name, "labels": reads.labels(responses), "text": user, "responses": responses}
    profile = JudgeProfile(**form, reads=reads, generation=generation, turns=turns, **described)
    _ = profile.judging  # checks the generation settings
    return profile
