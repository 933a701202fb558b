"""Snapshots: named, immutable, content-hashed selections of labelled comparisons, which training reads.

Covers: selecting by pool, source and category, splitting by a hash of the group (so a split needs no random state
and never cuts a group), creating, listing, loading as pairs in a fixed order. Leaves out: what put comparisons in
their pools (curation), files (`assay.data.pairs`).
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from assay import ids
from assay.conversation.message import stored_prompt, stored_response
from assay.domain import Pool, PreferencePair, Response
from assay.errors import BadInputError, NotFoundError, nearest_names
from assay.store.database import Connection
from assay.workspace import Workspace

GroupBy = Literal["prompt", "category"]
POOLS: tuple[str, ...] = ("unverified", *get_args(Pool))
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
_FETCH = 20_000
_NAMED = 10  #: sources or categories that a message lists


# Prompts that differ in case or white space only are one group: else one of them could be held out from the other.
# The replacement costs most of a split, and most prompts have no white space but single blanks.
_SAME_PROMPT = r"""(SELECT trim(lower(CASE WHEN regexp_matches(said, '[\t\n\f\r]|  ')
        THEN regexp_replace(said, '\s+', ' ', 'g') ELSE said END))
    FROM (SELECT array_to_string([m.role || chr(31) || m.content for m in q.messages], chr(30)) AS said))"""
_HASHES = 16**12  #: a group's hash is a whole number below this


@dataclass(frozen=True)
class HashSlice:
    """The groups whose hash, as a fraction in [0, 1), lies in [low, high). Prompts that differ in case or white space
    only are in one group. Grouping by category keeps prompts whole: a prompt seen under several categories belongs
    to the first of them by name."""

    low: float
    high: float
    by: GroupBy = "prompt"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise BadInputError(f"a slice goes from low to high within 0..1, not {self.low}..{self.high}")
        if self.by not in get_args(GroupBy):
            raise BadInputError(f"cannot group by {self.by!r}; one of {', '.join(get_args(GroupBy))}")


@dataclass(frozen=True)
class Selection:
    """Which comparisons. Empty `sources` or `categories` mean all; a comparison of several origins matches by any."""

    pools: tuple[str, ...] = ("gold", "silver", "recycled", "unverified")
    sources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    slice: HashSlice | None = None

    def __post_init__(self) -> None:
        if unknown := [pool for pool in self.pools if pool not in POOLS]:
            raise BadInputError(f"unknown pool {unknown[0]!r}; one of {', '.join(POOLS)}")

    def where(self) -> tuple[str, dict[str, Any]]:
        """SQL condition over the view `pools AS p`, and its parameters."""
        parts, values = ["list_contains($pools, p.pool)"], {"pools": list(self.pools)}
        for column, accepted in (("source", self.sources), ("category", self.categories)):
            if accepted:
                parts.append(
                    f"EXISTS (SELECT 1 FROM origins o WHERE o.comparison_id = p.comparison_id "
                    f"AND list_contains(${column}s, o.{column}))"
                )
                values[f"{column}s"] = list(accepted)
        if self.slice is not None:
            part, group = self.slice, _SAME_PROMPT
            if part.by == "category":
                group = f"coalesce(g.category, {_SAME_PROMPT})"
            digest = f"('0x' || left(sha256({int(part.seed)} || chr(31) || {group}), 12))::BIGINT"
            low, high = math.ceil(part.low * _HASHES), math.ceil(part.high * _HASHES)
            parts.append(
                f"EXISTS (SELECT 1 FROM prompts q WHERE q.prompt_id = p.prompt_id "
                f"AND {digest} BETWEEN {low} AND {high - 1})"
            )
        return " AND ".join(parts), values


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot holds. `ties` are items too, but `load_pairs` leaves them out; `unlabelled` comparisons matched
    the selection and could not become items (no label, or sources that contradict each other)."""

    id: str
    name: str
    content_hash: str
    items: int
    ties: int
    pools: dict[str, int] = field(default_factory=dict)
    unlabelled: int = 0
    created: bool = False  #: False when it was there already with the same content


CATEGORIES = """(SELECT c.prompt_id, min(o.category) AS category
    FROM comparisons c JOIN origins o USING (comparison_id) GROUP BY c.prompt_id)"""
# A row of `ids.rows_digest`: DuckDB writes a DOUBLE as Python does. A preference that is NULL leaves no field, so that
# what was selected before there were any keeps its hash.
_ITEMS = """
    SELECT concat_ws(
        chr(31), comparison_id, label, coalesce(margin::VARCHAR, ''), weight::VARCHAR, pool, preference::VARCHAR
    ) || chr(30)
    FROM {table} ORDER BY comparison_id"""


def create_snapshot(
    workspace: Workspace, name: str, selection: Selection, run_id: str | None, *, keep: bool = False
) -> Snapshot:
    """Fix the selection under `name`. The same content again is no error; other content under the name is, unless
    `keep`: then what that name and selection were fixed as stays, whatever has been decided since.

    Raises BadInputError for that, for a selection of nothing and for a bad name.
    """
    with workspace.store.unit() as db:
        if keep and _selection_of(db, name) == json.loads(json.dumps(asdict(selection))):
            return _find(db, name)
        return _create(db, name, selection, run_id)


def check_snapshot(name: str, holdout: float | None = None) -> None:
    """Raises BadInputError for a name that no snapshot can have, and for a holdout that is no share."""
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is not a snapshot name: letters, digits, and . _ + - after the first")
    if holdout is not None and not 0 < holdout < 1:
        raise BadInputError(f"the holdout is a share between 0 and 1, not {holdout}")


def create_split(
    workspace: Workspace, name: str, selection: Selection, *, holdout: float, by: GroupBy, seed: int, run_id: str | None
) -> tuple[Snapshot, Snapshot]:
    """`NAME` and `NAME-holdout`, both or neither: `holdout` is the expected share of groups kept out of training."""
    check_snapshot(name, holdout)
    if selection.slice is not None:
        raise BadInputError("a selection that is a slice already cannot be split")
    train_slice, holdout_slice = (HashSlice(holdout, 1.0, by, seed), HashSlice(0.0, holdout, by, seed))
    with workspace.store.unit() as db:
        holdout_snapshot = _create(db, f"{name}-holdout", _sliced(selection, holdout_slice), run_id)
        return _create(db, name, _sliced(selection, train_slice), run_id), holdout_snapshot


def list_snapshots(workspace: Workspace, *, newest: int | None = None) -> list[Snapshot]:
    """Newest first; at most `newest` of them."""
    with workspace.store.unit() as db:
        names = db.execute("SELECT name FROM snapshots ORDER BY created_at DESC, name LIMIT ?", [newest]).fetchall()
        return [_find(db, name) for (name,) in names]


def get_snapshot(workspace: Workspace, name: str) -> Snapshot:
    """By name or id. Raises NotFoundError that names those there are."""
    with workspace.store.unit() as db:
        return _find(db, name)


def load_pairs(workspace: Workspace, name: str) -> list[PreferencePair]:
    """The snapshot's decided pairs, ordered by comparison id. Ties are left out; `get_snapshot(...).ties` counts them.

    Raises NotFoundError.
    """
    with workspace.store.unit() as db:
        snapshot = _find(db, name)
        cursor = db.execute(
            """SELECT pr.messages, pr.conversation, a.content, a.turns, b.content, b.turns, i.label, i.comparison_id,
                      i.margin, i.weight, coalesce(o.source, ''), coalesce(o.category, ''),
                      coalesce(i.preference, 1.0)
               FROM snapshot_items i
               JOIN comparisons c USING (comparison_id)
               JOIN prompts pr USING (prompt_id)
               JOIN responses a ON a.response_id = c.response_a
               JOIN responses b ON b.response_id = c.response_b
               LEFT JOIN (SELECT comparison_id, min(o).source AS source, min(o).category AS category
                          FROM (SELECT comparison_id, {'source': source, 'category': category} AS o FROM origins)
                          GROUP BY comparison_id) o USING (comparison_id)
               WHERE i.snapshot_id = ? AND i.label <> 'tie'
               ORDER BY i.comparison_id""",
            [snapshot.id],
        )
        return [
            PreferencePair(
                stored_prompt(messages, conversation),
                *_chosen_first(stored_response(a, a_turns), stored_response(b, b_turns), label),
                *columns,
            )
            for messages, conversation, a, a_turns, b, b_turns, label, *columns in _rows(cursor)
        ]


def _chosen_first(a: Response, b: Response, label: str) -> tuple[Response, Response]:
    return (a, b) if label == "A" else (b, a)


def _create(db: Connection, name: str, selection: Selection, run_id: str | None) -> Snapshot:
    check_snapshot(name)
    condition, values = selection.where()
    by_category = selection.slice is not None and selection.slice.by == "category"
    grouped = f"LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id" if by_category else ""
    db.execute(
        f"""CREATE OR REPLACE TEMP TABLE selected AS
            SELECT p.comparison_id, p.label, p.margin::DOUBLE AS margin,
                   coalesce(w.weight, 1.0)::DOUBLE AS weight, p.pool, w.preference
            FROM pools p {grouped} LEFT JOIN (
                SELECT comparison_id, weight, preference FROM current_decisions
                WHERE weight IS NOT NULL OR preference IS NOT NULL) w ON w.comparison_id = p.comparison_id
            WHERE {condition}""",
        values,
    )
    unlabelled = _number(db, "SELECT count(*) FROM selected WHERE label IS NULL")
    db.execute("DELETE FROM selected WHERE label IS NULL")
    items = _number(db, "SELECT count(*) FROM selected")
    if not items:
        raise BadInputError(f"snapshot {name!r} would be empty: {why_empty(db, selection, unlabelled)}")
    content = _digest(db, _ITEMS.format(table="selected"))
    existing = db.execute("SELECT content_hash FROM snapshots WHERE name = ?", [name]).fetchone()
    if existing is not None and existing[0] != content:
        raise BadInputError(
            f"snapshot {name!r} exists with other content, and snapshots do not change: choose a new name"
        )
    created = existing is None
    if created:
        snapshot = "s-" + ids.digest(name + ids.FIELD + content)
        db.execute(
            """INSERT INTO snapshots (snapshot_id, name, content_hash, items, selection, run_id)
               VALUES (?, ?, ?, ?, ?, ?)""",
            [snapshot, name, content, items, json.dumps(asdict(selection)), run_id],
        )
        db.execute(
            """INSERT INTO snapshot_items (snapshot_id, comparison_id, label, margin, weight, pool, preference)
               SELECT ?, comparison_id, label, margin, weight, pool, preference FROM selected""",
            [snapshot],
        )
    db.execute("DROP TABLE selected")
    stored = _find(db, name)
    if run_id is not None:
        db.execute(
            "INSERT INTO run_links VALUES (?, 'output', 'snapshot', ?) ON CONFLICT DO NOTHING", [run_id, stored.id]
        )
    return Snapshot(**{**asdict(stored), "unlabelled": unlabelled, "created": created})


def _find(db: Connection, name: str) -> Snapshot:
    row = db.execute(
        "SELECT snapshot_id, name, content_hash, items FROM snapshots WHERE name = $n OR snapshot_id = $n", {"n": name}
    ).fetchone()
    if row is None:
        names = [r[0] for r in db.execute("SELECT name FROM snapshots ORDER BY created_at DESC").fetchall()]
        available = f"there are: {', '.join(names[:10])}" if names else "there are none yet: assay data snapshot NAME"
        raise NotFoundError(f"no snapshot {name!r}; {available}{nearest_names(name, names)}")
    counts = db.execute(
        "SELECT pool, count(*), count(*) FILTER (label = 'tie') FROM snapshot_items WHERE snapshot_id = ? GROUP BY ALL",
        [row[0]],
    ).fetchall()
    snapshot, title, content, items = row
    pools = {pool: number for pool, number, _ in sorted(counts)}
    return Snapshot(snapshot, title, content, items, ties=sum(c[2] for c in counts), pools=pools)


def _selection_of(db: Connection, name: str) -> Any:
    """As stored; None where there is no such snapshot."""
    row = db.execute("SELECT selection FROM snapshots WHERE name = ?", [name]).fetchone()
    return json.loads(row[0]) if row else None


def _sliced(selection: Selection, part: HashSlice) -> Selection:
    return replace(selection, slice=part)


def why_empty(db: Connection, selection: Selection, unlabelled: int = 0, *, alone: bool = False) -> str:
    """Why nothing matches: the first source or category that no comparison has (`alone`: and no single response), with
    those that there are; else a holdout's share, `unlabelled` matches that were left out, or what the pools hold."""
    asked = "(FROM origins UNION ALL BY NAME FROM response_origins)" if alone else "origins"
    for column, accepted in (("source", selection.sources), ("category", selection.categories)):
        query = f"SELECT {column}, count(*) AS n FROM {asked} WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY n DESC, 1"
        present = [value for value, _ in db.execute(query).fetchall()] if accepted else []
        for name in accepted:
            if present and name not in present:
                more = f", and {len(present) - _NAMED} more" if len(present) > _NAMED else ""
                return f"no {column} {name!r}; there are: {', '.join(map(repr, present[:_NAMED]))}{more}"
    if selection.slice is not None:
        condition, values = replace(selection, slice=None).where()
        row = db.execute(f"SELECT count(*) FROM pools p WHERE p.label IS NOT NULL AND {condition}", values).fetchone()
        if row is not None and row[0]:
            reason = f"none of the {row[0]} labelled comparisons falls to its share"
            return f"{reason}: choose another share or seed, or no holdout"
    if unlabelled:
        return f"all {unlabelled} comparisons that match have no label"
    pools = db.execute("SELECT pool, count(*) FROM pools GROUP BY pool ORDER BY pool").fetchall()
    return "the pools hold " + ", ".join(f"{n} {pool}" for pool, n in pools) if pools else "the store is empty"


def _number(db: Connection, query: str) -> int:
    row = db.execute(query).fetchone()
    return int(row[0]) if row else 0


def _digest(db: Connection, query: str) -> str:
    """`ids.rows_digest` of the rows that the query's one text column has already in its form."""
    hasher, cursor = hashlib.sha256(), db.execute(query)
    while rows := cursor.fetchmany(_FETCH):
        hasher.update("".join(text for (text,) in rows).encode("utf-8"))
    return hasher.hexdigest()[: ids.HEX_DIGITS]


def _rows(cursor: Connection) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_FETCH):
        yield from rows
