"""Content-hash identities. Equal content has an equal id on every machine, so imports are idempotent.

Covers: the canonical byte form of each thing and its id, a one-letter-code prefix and 128 bits of SHA-256 in
hex. The same canonical forms are written in SQL in `assay.store.identity` for bulk work; a property test keeps
the two equal. Leaves out: run ids, which name events, not content (`assay.runs.record`).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

HEX_DIGITS = 32  # 128 bits: collisions are out of the question at 10^9 rows (about 1e-21)
FIELD, RECORD = "\x1f", "\x1e"  # ASCII unit and record separators
TYPED = "typed"  # no role: no text-only conversation has this beginning


class HasRoleAndContent(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> object: ...
    def to_dict(self) -> dict[str, Any]: ...


def digest(text: str) -> str:
    """First 32 hex digits of SHA-256 over UTF-8. Lone surrogates raise UnicodeEncodeError."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:HEX_DIGITS]


def fraction(*parts: object) -> float:
    """A number in [0, 1) from a hash of the parts."""
    hashed = hashlib.sha256(FIELD.join(map(str, parts)).encode()).digest()
    return int.from_bytes(hashed[:7], "big") / (1 << 56)


def sized(text: str) -> str:
    """Length in UTF-8 bytes, separator, text: no two sequences of fields share one canonical form."""
    return f"{len(text.encode('utf-8'))}{FIELD}{text}"


def prompt_id(messages: Sequence[HasRoleAndContent]) -> str:
    """Identity of a conversation: of its texts, or of its JSON where any content is more than text."""
    turns = [(m.role, m.content) for m in messages]
    if all(isinstance(content, str) for _, content in turns):
        return "p-" + digest(RECORD.join(f"{role}{FIELD}{sized(content)}" for role, content in turns))  # type: ignore[arg-type]
    return "p-" + digest(TYPED + RECORD + conversation_json(messages))


def response_id(prompt: str, content: str | Sequence[HasRoleAndContent]) -> str:
    """Identity of a response *to this prompt* (given by its id): scores and votes belong to both."""
    if isinstance(content, str):
        return "r-" + digest(prompt + FIELD + content)
    return "r-" + digest(prompt + RECORD + conversation_json(content))


def conversation_json(messages: Iterable[HasRoleAndContent]) -> str:
    """The one JSON text of messages with typed parts: the store holds it, identities are made of it."""
    return forms_json([message.to_dict() for message in messages])


def forms_json(messages: Sequence[dict[str, Any]]) -> str:
    """`conversation_json` of messages in their JSON form."""
    return json.dumps(messages, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def comparison_id(prompt: str, first: str, second: str) -> str:
    """Unordered in the two response ids."""
    low, high = sorted((first, second))
    return "c-" + digest(prompt + FIELD + low + FIELD + high)


def annotator_id(kind: str, name: str) -> str:
    return "a-" + digest(kind + FIELD + name)


def judgment_id(comparison: str, annotator: str, answer: str, strength: int | None, origin: str) -> str:
    parts = (comparison, annotator, answer, "" if strength is None else str(strength), origin)
    return "j-" + digest(FIELD.join(parts))


def feedback_id(response: str, annotator: str, content: str) -> str:
    """What one annotator wrote about one response."""
    return "b-" + digest(FIELD.join((response, annotator, content)))


def principle_id(statement: str) -> str:
    return "n-" + digest(statement)


def principle_judgment_id(response: str, principle: str, annotator: str, answer: str) -> str:
    return "y-" + digest(FIELD.join((response, principle, annotator, answer)))


def response_judgment_id(response: str, annotator: str, aspect: str, value: float | None, origin: str) -> str:
    return "v-" + digest(FIELD.join((response, annotator, aspect, number_text(value), origin)))


def step_judgment_id(
    response: str,
    annotator: str,
    step: int | None,
    start: int,
    end: int,
    label: str | None,
    value: float | None,
    origin: str,
) -> str:
    parts = (response, annotator, "" if step is None else str(step), str(start), str(end), label or "")
    return "t-" + digest(FIELD.join((*parts, number_text(value), origin)))


def number_text(value: float | None) -> str:
    """All digits of a finite number, so that no two numbers share a text; empty for None."""
    return "" if value is None else format(value + 0.0, ".17g")


class RowsDigest:
    """Digest of rows in the order in which they are added."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def add(self, row: Sequence[object]) -> None:
        self._hasher.update((FIELD.join("" if v is None else str(v) for v in row) + RECORD).encode("utf-8"))

    def __str__(self) -> str:
        return self._hasher.hexdigest()[:HEX_DIGITS]


def rows_digest(rows: Iterable[Sequence[object]]) -> str:
    """Digest of rows in the given order; the caller sorts."""
    digest_of_rows = RowsDigest()
    for row in rows:
        digest_of_rows.add(row)
    return str(digest_of_rows)
