"""Lineage: from any id to its inputs and to what was derived from it.

Covers: the walk over run links and the columns that hold ids, in both directions, as a tree of bounded width and depth:
vote -> decision -> snapshot -> run -> checkpoint -> scored response -> rollout run, and back. Leaves out: recording
(`assay.runs.record`). An id's kind is told by its prefix; snapshots and artifacts may also be named.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from assay.errors import NotFoundError
from assay.runs.record import find_artifact, recorded_path
from assay.store.database import Connection
from assay.workspace import Workspace

Direction = Literal["up", "down"]

PREFIXES: dict[str, str] = {
    "run-": "run",
    "p-": "prompt",
    "r-": "response",
    "c-": "comparison",
    "a-": "annotator",
    "j-": "judgment",
    "v-": "response judgment",
    "t-": "step judgment",
    "y-": "principle judgment",
    "d-": "decision",
    "q-": "queue",
    "s-": "snapshot",
    "m-": "artifact",
    "f-": "artifact",
}

# What scores and runs call the model `a`: the version in its spec, which calibrating leaves as it is. Scores under a
# length correction have the version "VERSION+CORRECTION", those in a half format "VERSION+FORMAT".
_VERSION = "coalesce((a.spec ->> 'version'), a.content_hash)"
_SCORED_BY = "split_part(s.model_version, '+', 1)"
# Models of equal weights have one version: of those with the version of `s`, the one that the run of `s` read by its
# id; all of them where it read none.
_ITS_RUN_READ = "LEFT JOIN run_links r ON r.run_id = s.run_id AND r.direction = 'input' AND r.ref = a.artifact_id"
_OR_ALL = "r.ref IS NOT NULL OR count(r.ref) OVER (PARTITION BY s.run_id, s.model_version) = 0"


def _kinds() -> dict[str, Any]:
    """`lineage.toml`: what each kind of thing is, and its relations in both directions."""
    text = Path(__file__).with_name("lineage.toml").read_text(encoding="utf-8")
    fragments = {"version": _VERSION, "scored_by": _SCORED_BY, "its_run_read": _ITS_RUN_READ, "or_all": _OR_ALL}
    for name, sql in fragments.items():
        text = text.replace(f"{{{name}}}", sql)
    return tomllib.loads(text)


_KINDS = _kinds()


@dataclass
class LineageNode:
    """One thing and its neighbours in one direction."""

    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": True}  # every reply has all fields
    id: str
    kind: str
    about: str
    branches: "list[LineageBranch]" = field(default_factory=list)
    repeated: bool = False  #: shown in full elsewhere in the tree

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"id": self.id, "kind": self.kind, "about": self.about}
        if self.repeated:
            out["repeated"] = True
        if self.branches:
            out["branches"] = [
                {"relation": b.relation, "nodes": [n.to_dict() for n in b.nodes], "more": b.more} for b in self.branches
            ]
        return out

    def walk(self) -> "Iterator[LineageNode]":
        """This node and all below it."""
        yield self
        for branch in self.branches:
            for node in branch.nodes:
                yield from node.walk()


@dataclass
class LineageBranch:
    """Neighbours of one relation; `more` of them are not listed."""

    relation: str
    nodes: list[LineageNode]
    more: int


def lineage(workspace: Workspace, name: str, direction: Direction, *, depth: int = 6, width: int = 5) -> LineageNode:
    """The tree from `name` (an id, a snapshot's or artifact's name, or a file an import read).

    `depth`: steps from the root; `width`: neighbours shown of each relation. Raises NotFoundError.
    """
    at_path = find_artifact(workspace, recorded_path(name))
    with workspace.store.unit() as db:
        root = _resolve(db, name, at_path[1] if at_path else None)
        if root is None:
            raise NotFoundError(f"nothing in {workspace.root} has the id or name {name!r}")
        return _grow(db, root, direction, depth, width, set())


def _grow(
    db: Connection,
    node: LineageNode,
    direction: Direction,
    depth: int,
    width: int,
    seen: set[str],
) -> LineageNode:
    if node.id in seen:
        node.repeated = True
        return node
    seen.add(node.id)
    if depth == 0:
        return node
    for relation, query in _KINDS.get(node.kind, {}).get(direction, {}).items():
        rows = db.execute(f"SELECT id FROM ({query}) LIMIT {int(width) + 1}", {"id": node.id}).fetchall()
        if not rows:
            continue
        ids = [row[0] for row in rows[: int(width)]]
        total = len(rows) if len(rows) <= width else _count(db, query, node.id)
        described = _describe(db, ids)
        nodes = [
            _grow(db, LineageNode(ref, *described.get(ref, ("unknown", ""))), direction, depth - 1, width, seen)
            for ref in ids
        ]
        node.branches.append(LineageBranch(relation, nodes, total - len(nodes)))
    return node


def _count(db: Connection, query: str, ref: str) -> int:
    """Rows of the query; DuckDB would sort all of them by the order at its end."""
    unordered = query.rpartition("ORDER BY")[0] or query
    row = db.execute(f"SELECT count(*) FROM ({unordered})", {"id": ref}).fetchone()
    return int(row[0]) if row else 0


def _describe(db: Connection, refs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Kind and one line of each that there is."""
    by_kind: dict[str, list[str]] = {}
    for ref in dict.fromkeys(refs):
        kind = next((kind for prefix, kind in PREFIXES.items() if ref.startswith(prefix)), "file")
        by_kind.setdefault(kind, []).append(ref)
    described = {ref: (kind, about) for kind, those in by_kind.items() for ref, about in _lines(db, kind, those)}
    for kind in ("file", "model"):
        undescribed = [ref for ref in dict.fromkeys(refs) if ref not in described]
        described |= {ref: (kind, about) for ref, about in _lines(db, kind, undescribed)}
    return described


def _lines(db: Connection, kind: str, refs: Sequence[str]) -> list[tuple[str, str]]:
    if not refs:
        return []
    values = {f"id{n}": ref for n, ref in enumerate(refs)}
    these = f"({', '.join(f'${name}' for name in values)})"
    rows = db.execute(_KINDS[kind]["about"].replace("{these}", these), values).fetchall()
    return [(ref, " ".join(str(about).split())) for ref, about in rows]


def _node(db: Connection, ref: str) -> LineageNode | None:
    description = _describe(db, [ref]).get(ref)
    return None if description is None else LineageNode(ref, *description)


def _resolve(db: Connection, name: str, at_path: str | None) -> LineageNode | None:
    if (node := _node(db, name)) is not None:
        return node
    row = db.execute(
        """SELECT snapshot_id FROM snapshots WHERE name = $name
           UNION ALL (SELECT artifact_id FROM artifacts WHERE name = $name OR content_hash = $name
                      ORDER BY created_at DESC)
           UNION ALL SELECT $at_path WHERE $at_path IS NOT NULL
           UNION ALL SELECT ref FROM run_links WHERE kind = 'file' AND ref = $path
           LIMIT 1""",
        {"name": name, "path": recorded_path(name), "at_path": at_path},
    ).fetchone()
    return _node(db, row[0]) if row is not None else None
