"""Benchmark items, the outcomes of models on them, and the rows that items are read from.

Leaves out: reading files (`records.py`), matching recorded scores to items (`recorded.py`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.domain import Message, Prompt, Response, prompt_of
from assay.errors import BadInputError

#: Decisive verdicts of a pairwise game.
LABELS = ("A>B", "B>A")


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a publisher's file: `file` as given, `row` 1-based."""

    file: str
    row: int
    values: Mapping[str, Any]

    def error(self, message: str, field: str | None = None) -> BadInputError:
        """An error that names this row."""
        return BadInputError(message, file=self.file, row=self.row, field=field)

    def get(self, name: str) -> Any:
        if self.values.get(name) is None:
            present = ", ".join(self.values) or "none"
            raise self.error(f"missing; the row's fields are {present}", name)
        return self.values[name]

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise self.error(f"not a text: {value!r:.60}", name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; a text counts as a list of one."""
        value = self.get(name)
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
            raise self.error(f"not a list of texts: {value!r:.60}", name)
        return tuple(value)

    def identity(self, *names: str) -> str:
        """The row's id as text, from the first of these fields that it has."""
        for name in names:
            if (row_id := publisher_id(self.values.get(name))) is not None:
                return row_id
        raise self.error("missing, or neither a text nor a whole number", names[0])

    def prompt(self, name: str) -> Prompt:
        """A text (one user turn) or a list of role/content messages."""
        value = self.get(name)
        if isinstance(value, str):
            return (Message("user", value),)
        if not isinstance(value, list | tuple) or not value:
            raise self.error("neither a text nor a list of messages", name)
        try:
            return prompt_of([{"role": turn["role"], "content": turn["content"]} for turn in value])
        except (BadInputError, KeyError, TypeError):
            raise self.error("a message without a known role and content", name) from None


@dataclass(frozen=True, slots=True)
class BenchmarkItem:
    """A prompt, its responses in the order of scores, and their gold labels.

    `gold`: one number a response, 1 right and 0 wrong unless the benchmark grades finer. `subset` is the benchmark's
    name of the part; `part` the key that its protocol aggregates by. `models`: the author of each response, where the
    protocol needs it. `pairs`: (better, worse) response numbers, where the benchmark names the pairs that count.
    """

    id: str
    prompt: Prompt
    responses: tuple[Response, ...]
    gold: tuple[float, ...]
    subset: str = ""
    part: str = ""
    principle: str | None = None
    models: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()  #: of solutions in steps, whose beginnings `responses` are then, in order
    key: str = ""  #: unique: `id`, or a longer name where ids repeat
    file: str = field(default="", compare=False)
    row: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A model's result on one item: a score for each response, decisions of pairwise games, or a failure.

    `decisions`: "A>B", "B>A", another text (a tie) or None (unreadable), one per game, in the item's A and B.
    `failure`: a code ("missing", "null", "non_finite", "too_long", ...), then without scores.
    """

    scores: tuple[float, ...] | None = None
    decisions: tuple[str | None, ...] | None = None
    failure: str | None = None
    truncated: bool = False


def flipped(decision: str | None) -> str | None:
    """The verdict with A and B exchanged."""
    return {"A>B": "B>A", "B>A": "A>B"}.get(decision or "", decision)


def publisher_id(value: Any) -> str | None:
    """A publisher's id as text: a text as it is, a whole number in digits; None for anything else."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def with_unique_keys(items: Sequence[BenchmarkItem]) -> tuple[list[BenchmarkItem], int]:
    """The items with unique keys, and the number of rows left out as repeated in another file. A key is the item's id,
    or PART/id where parts share ids, or PART/id#2 for a second one."""
    first_files: dict[tuple[Any, ...], str] = {}
    mine: list[BenchmarkItem] = []
    for item in items:
        content = (item.id, item.part, item.prompt, item.responses, item.gold)
        if first_files.setdefault(content, item.file) == item.file:
            mine.append(item)
    by_id = Counter(item.id for item in mine)
    by_part = Counter((item.part, item.id) for item in mine)
    seen: Counter[tuple[str, str]] = Counter()
    out = []
    for item in mine:
        key = item.id if by_id[item.id] == 1 else f"{item.part}/{item.id}"
        if by_part[item.part, item.id] > 1:
            seen[item.part, item.id] += 1
            key = f"{item.part}/{item.id}#{seen[item.part, item.id]}"
        out.append(replace(item, key=key))
    return out, len(items) - len(mine)
