"""How chat templates write conversations, and reading such texts back into messages.

Covers: any template, by what it writes around the turns of a probe; the common families (ChatML, Llama 3, Gemma,
Mistral, Zephyr, Phi-3, DeepSeek), known by their markers. Leaves out: what is done with a text that was read
(`assay.models.chat.rendered_text`).

A reading is kept only where writing its messages gives the text again, character by character: a wrong guess is no
reading, never another conversation.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from assay.domain import Message, Role
from assay.errors import BadInputError

Writer = Callable[[Sequence[Message]], str]

_ROLES: tuple[tuple[Role, ...], ...] = (
    ("user", "assistant", "user", "assistant"),
    ("system", "user", "assistant", "user", "assistant"),
    ("user", "assistant"),
    ("system", "user", "assistant"),
)


class Found(NamedTuple):
    """Messages, the last one the assistant's; `lacking`: what the template would write after the text's end;
    `before`: what it would write before its beginning (BOS)."""

    messages: tuple[Message, ...]
    lacking: str
    before: str


class ChatForm:
    """One template's way of writing. `write` gives a conversation that ends with the assistant's turn as text, and
    raises BadInputError for one that the template refuses. `bos`: what callers may leave out at the beginning."""

    def __init__(self, name: str, write: Writer, *, bos: str = "") -> None:
        self.name, self._write, self._bos = name, write, bos
        self._starts: set[tuple[str, Role]] = set()
        self._joints: dict[Role, dict[str, Role]] = {}
        self._ends: list[str] = []
        for roles in _ROLES:
            self._learn(roles)

    def read(self, text: str) -> Found | None:
        """The conversation that this template writes as `text`, None where there is none."""
        openings = {(opening, role, "") for opening, role in self._starts}
        if self._bos:
            openings |= {
                (opening.removeprefix(self._bos), role, self._bos)
                for opening, role in self._starts
                if opening.startswith(self._bos)
            }
        for opening, role, before in sorted(openings, key=lambda each: (-len(each[0]), each[1:])):
            begins = text.startswith(opening)
            if begins and (conversation := self._read_from(text, len(opening), role, before)) is not None:
                return conversation
        return None

    def _learn(self, roles: Sequence[Role]) -> None:
        contents = [f"zq{index}zq" for index in range(len(roles))]
        try:
            remaining = self._write([Message(role, content) for role, content in zip(roles, contents, strict=True)])
        except BadInputError:
            return
        parts = []
        for content in contents:
            part, separator, remaining = remaining.partition(content)
            if not separator or content in remaining:
                return  # it writes turns in another order, or twice
            parts.append(part)
        self._starts.add((parts[0], roles[0]))
        for (role, following), part in zip(pairwise(roles), parts[1:], strict=True):
            if part:
                self._joints.setdefault(role, {})[part] = following
        if remaining not in self._ends:
            self._ends.append(remaining)

    def _read_from(self, text: str, start: int, role: Role, before: str) -> Found | None:
        messages: list[Message] = []
        spots: dict[str, int] = {}  # of each joint from `place` on: a text is searched once, however many its turns
        while True:
            joints = self._joints.get(role, {})
            for joint in joints:
                if 0 <= spots.get(joint, 0) < start or joint not in spots:
                    spots[joint] = text.find(joint, start)
            at, width = min(((spots[joint], -len(joint)) for joint in joints if spots[joint] >= 0), default=(-1, 0))
            if at < 0:
                break
            messages.append(Message(role, text[start:at]))
            start = at - width
            role = joints[text[at:start]]
        if role != "assistant":
            return None
        last = text[start:]
        for end in self._ends:
            for suffix in (end, end.rstrip(), ""):
                if last.endswith(suffix):
                    content = last[: len(last) - len(suffix)]
                    conversation = Found((*messages, Message("assistant", content)), end[len(suffix) :], before)
                    if self._writes(conversation, text):
                        return conversation
        return None

    def _writes(self, conversation: Found, text: str) -> bool:
        try:
            return self._write(conversation.messages) == conversation.before + text + conversation.lacking
        except BadInputError:
            return False


@dataclass(frozen=True)
class Family:
    """A common way of writing. `markers`: what only its texts hold, all of them. `turns`: text before and after a
    content by role; None = known by its markers only."""

    name: str
    markers: tuple[str, ...]
    bos: str = ""
    turns: Mapping[str, tuple[str, str]] | None = None

    def write(self, messages: Sequence[Message]) -> str:
        """Raises BadInputError for a role that the family does not have."""
        assert self.turns is not None
        text = self.bos
        for message in messages:
            if message.role not in self.turns:
                raise BadInputError(f"{self.name} has no {message.role} turns", field="role")
            before, after = self.turns[message.role]
            text += before + message.text + after
        return text

    def wrote(self, text: str) -> bool:
        """Whether the text has its markers."""
        return all(marker in text for marker in self.markers)

    @cached_property
    def form(self) -> ChatForm | None:
        return ChatForm(self.name, self.write, bos=self.bos) if self.turns is not None else None


def _families() -> tuple[Family, ...]:
    entries = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))["family"]
    for entry in entries:
        if "turns" in entry:
            entry["turns"] = {role: tuple(texts) for role, texts in entry["turns"].items()}
    return tuple(Family(**{**entry, "markers": tuple(entry["markers"])}) for entry in entries)


FAMILIES = _families()
