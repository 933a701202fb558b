"""A page of comparisons: what a list shows of each, read for the page's rows only.

Covers: `first_rows`, the next page of a filter's matches; `count`, a part of their number. Leaves out: which
comparisons match (`assay.browsing.walk`), one comparison whole (`assay.browsing.comparison`).
"""

from dataclasses import dataclass
from typing import Any

from assay.browsing.filters import DECIDED, SAID, Filter
from assay.browsing.texts import locate
from assay.browsing.walk import Cursor, Order, WalkResult, walk
from assay.store.database import Connection

EXCERPT = 240  #: characters of a text
BEFORE = 24  #: of them, before the text that was searched for


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text, or the place in it where the searched text is. `cut`: not from its beginning. `length`
    of the whole text, in characters."""

    text: str
    length: int
    found: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """`turns`: messages of the prompt. `opinions`: standing judgments by others than sources."""

    comparison_id: str
    prompt: Excerpt
    turns: int
    a: Excerpt
    b: Excerpt
    pool: str
    label: str | None
    rule: str | None
    sources: list[str]
    categories: list[str]
    languages: list[str]
    opinions: int
    conflict: bool


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """`after`: what to ask for next, None at the end. `examined` of `total` comparisons have been looked at: where
    matches are rare a page may have few rows, or none, before the end."""

    rows: list[ComparisonRow]
    after: Cursor | None
    examined: int
    total: int


def first_rows(
    db: Connection,
    criteria: Filter,
    *,
    after: Cursor | None = None,
    order: Order = "oldest",
    limit: int = 50,
    seconds: float = 0.15,
) -> ComparisonPage:
    """The matches behind `after`, at most `limit`; begins no further look after `seconds`."""
    walked = walk(db, criteria, after=after, order=order, limit=limit, seconds=seconds)
    return ComparisonPage(_rows(db, criteria, walked), walked.after, walked.examined, walked.total)


@dataclass(frozen=True, slots=True)
class Counted:
    """Matches among the comparisons looked at by this call; `after`, `examined` and `total` as of a page."""

    matches: int
    after: Cursor | None
    examined: int
    total: int


def count(
    db: Connection,
    criteria: Filter,
    *,
    after: Cursor | None = None,
    order: Order = "oldest",
    seconds: float = 0.15,
) -> Counted:
    """How many match, from `after` on as far as `seconds` reach."""
    if criteria == Filter() and after is None:
        total = int(db.execute("SELECT count(*) FROM comparisons").fetchall()[0][0])
        return Counted(total, None, total, total)
    walked = walk(db, criteria, after=after, order=order, seconds=seconds)
    return Counted(len(walked.places), walked.after, walked.examined, walked.total)


def _rows(db: Connection, criteria: Filter, walked: WalkResult) -> list[ComparisonRow]:
    if not walked.places:
        return []
    db.execute(
        """CREATE OR REPLACE TEMP TABLE page AS
           SELECT rowid AS place, comparison_id, prompt_id, response_a, response_b FROM comparisons
           WHERE rowid IN (SELECT unnest($places))""",
        {"places": walked.places},
    )
    prompts, responses = _texts(db, criteria, walked)
    decided = dict(db.execute(DECIDED.format(table="page")).fetchall())
    judgments = {row[0]: row[1:] for row in db.execute(_SAID).fetchall()}
    origins = {row[0]: row[1:] for row in db.execute(_ORIGINS).fetchall()}
    rows: dict[int, ComparisonRow] = {}
    for position, comparison_id, prompt_id, a, b in db.execute("FROM page").fetchall():
        decision: dict[str, Any] | None = decided.get(comparison_id)
        label, opinions, conflict = judgments.get(comparison_id, (None, 0, False))
        sources, categories, languages = origins.get(comparison_id, ([], [], []))
        turns, prompt = prompts[prompt_id]
        rows[position] = ComparisonRow(
            comparison_id,
            prompt,
            turns,
            responses[a],
            responses[b],
            decision["pool"] if decision else "unverified",
            decision["label"] if decision else label,
            decision["rule"] if decision else None,
            sources,
            categories,
            languages,
            opinions,
            conflict,
        )
    return [rows[position] for position in walked.places]


_SAID = f"""SELECT comparison_id, source_label, opinions,
    (source_a OR other_a) AND (source_b OR other_b) FROM ({SAID.format(table="page")})"""
_ORIGINS = """
    SELECT comparison_id, list_sort(list_distinct(list(source))), list_sort(list_distinct(list(category))),
           list_sort(list_distinct(list(language)))
    FROM origins SEMI JOIN page USING (comparison_id) GROUP BY comparison_id"""


def _texts(
    db: Connection, criteria: Filter, walked: WalkResult
) -> tuple[dict[str, tuple[int, Excerpt]], dict[str, Excerpt]]:
    """Excerpts by id; of a prompt also how many messages it has."""
    span = (min(walked.places) / walked.total, (max(walked.places) + 1) / walked.total)
    locate(db, "prompts", "SELECT DISTINCT prompt_id FROM page", span)
    locate(db, "responses", "SELECT response_a FROM page UNION SELECT response_b FROM page", span)
    values = {"pattern": criteria.pattern} if criteria.text else {}
    # A prompt is told by what was last asked; where an earlier message has the searched text, by that message.
    message = "messages[-1].content"
    if criteria.text:
        message = (
            f"coalesce(list_filter(messages, lambda m: regexp_matches(m.content, $pattern))[1].content, {message})"
        )
    prompts = db.execute(
        f"""SELECT prompt_id, len(messages), {_excerpt("excerpted", criteria)} FROM (
            SELECT prompt_id, messages, coalesce({message}, '') AS excerpted FROM prompts
            WHERE rowid IN (SELECT place FROM at_prompts))""",
        values,
    ).fetchall()
    responses = db.execute(
        f"""SELECT response_id, {_excerpt("content", criteria)} FROM responses
            WHERE rowid IN (SELECT place FROM at_responses)""",
        values,
    ).fetchall()
    return (
        {prompt: (turns, Excerpt(*excerpt)) for prompt, turns, *excerpt in prompts},
        {response: Excerpt(*excerpt) for response, *excerpt in responses},
    )


def _excerpt(column: str, criteria: Filter) -> str:
    """SQL: text, length, found, cut."""
    plain = f"left({column}, {EXCERPT}), length({column})"
    if not criteria.text:
        return plain
    matches = f"regexp_matches({column}, $pattern)"
    # The position of the match, from the text before it.
    at = f"length(regexp_extract({column}, '(?is)^(.*?)' || substr($pattern, 6), 1))"
    begin = f"greatest({at} - {BEFORE}, 0)"
    return f"""if({matches}, substr({column}, {begin} + 1, {EXCERPT}), left({column}, {EXCERPT})), length({column}),
        {matches}, {matches} AND {begin} > 0"""
