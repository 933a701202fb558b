"""Content-hash identities. Equal content has an equal id on every machine, so imports are idempotent.

Covers: the canonical byte form of each thing and its id, a one-letter-code prefix and 128 bits of SHA-256 in
hex. The same canonical forms are written in SQL in `assay.store.identity` for bulk work; a property test keeps
the two equal. Leaves out: run ids, which name events, not content (`assay.runs.record`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

HEX_DIGITS = 32  # 128 bits: collisions are out of the question at 10^9 rows (about 1e-21)
FIELD, RECORD = "\x1f", "\x1e"  # ASCII unit and record separators


class HasRoleAndContent(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...


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
    return "p-" + digest(RECORD.join(f"{m.role}{FIELD}{sized(m.content)}" for m in messages))


def response_id(prompt: str, content: str) -> str:
    """Identity of a response *to this prompt* (given by its id): scores and votes belong to both."""
    return "r-" + digest(prompt + FIELD + content)


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


def rows_digest(rows: Iterable[Sequence[object]]) -> str:
    """Digest of rows in the given order; the caller sorts."""
    hasher = hashlib.sha256()
    for row in rows:
        hasher.update((FIELD.join("" if v is None else str(v) for v in row) + RECORD).encode("utf-8"))
    return hasher.hexdigest()[:HEX_DIGITS]
