"""Lineage: from any id to its inputs and to what was derived from it.

Covers: the walk over run links and the columns that hold ids, in both directions, as a tree of bounded width and depth:
vote -> decision -> snapshot -> run -> checkpoint -> scored response -> rollout run, and back. Leaves out: recording
(`assay.runs.record`). An id's kind is told by its prefix; snapshots and artifacts may also be named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from assay.errors import NotFoundError
from assay.runs.record import find_artifact, recorded_path
from assay.store.database import Connection
from assay.store.records import BasisRelation
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

# Id, and one line about it, of each of {these} that there is. `d-N` is the decision at position N. The large tables are
# read once for all of a relation's neighbours, by one narrow column.
_ABOUT: dict[str, str] = {
    "run": """SELECT run_id, kind || ' run, ' || status || ', ' || strftime(started_at, '%Y-%m-%d %H:%M')
        FROM runs WHERE run_id IN {these}""",
    "prompt": """SELECT prompt_id, 'prompt: ' || left(messages[-1].content, 70)
        FROM prompts WHERE rowid IN (SELECT rowid FROM prompts WHERE prompt_id IN {these})
        UNION ALL SELECT prompt_id, 'prompt of benchmark ' || min(benchmark) || ': ' || left(any_value(content), 70)
        FROM benchmark_prompts WHERE prompt_id IN {these}
          AND prompt_id NOT IN (SELECT prompt_id FROM prompts WHERE prompt_id IN {these}) GROUP BY prompt_id""",
    "response": """SELECT response_id, 'response: ' || left(content, 70)
        FROM responses WHERE rowid IN (SELECT rowid FROM responses WHERE response_id IN {these})""",
    "comparison": """SELECT comparison_id, 'comparison of ' || coalesce(sources, 'no source')
            || ', pool ' || coalesce(d.pool, 'unverified')
            || coalesce(', label ' || CASE WHEN d.pool IS NULL THEN s.label ELSE d.label END, '')
        FROM (SELECT comparison_id FROM comparisons WHERE comparison_id IN {these})
        LEFT JOIN (SELECT * FROM current_decisions WHERE comparison_id IN {these}) d USING (comparison_id)
        LEFT JOIN (SELECT * FROM source_labels WHERE comparison_id IN {these}) s USING (comparison_id)
        LEFT JOIN (SELECT comparison_id, string_agg(DISTINCT source, ', ' ORDER BY source) AS sources FROM origins
                   WHERE comparison_id IN {these} GROUP BY comparison_id) USING (comparison_id)""",
    "annotator": "SELECT annotator_id, kind || ' ' || name FROM annotators WHERE annotator_id IN {these}",
    "judgment": """SELECT judgment_id, 'judgment ' || answer || ' by ' || kind || ' ' || name
            || if(w.judgment_id IS NULL, '', ', taken back')
        FROM (SELECT * FROM judgments WHERE rowid IN (SELECT rowid FROM judgments WHERE judgment_id IN {these}))
        JOIN annotators USING (annotator_id) LEFT JOIN withdrawn_judgments w USING (judgment_id)""",
    "response judgment": """SELECT judgment_id, 'rating of ' || aspect || ' by ' || kind || ' ' || name || ': '
            || coalesce(value::VARCHAR, 'skipped') || coalesce(' of ' || low || ' to ' || high, '')
            || if(w.judgment_id IS NULL, '', ', taken back')
        FROM (SELECT * FROM response_judgments
              WHERE rowid IN (SELECT rowid FROM response_judgments WHERE judgment_id IN {these}))
        JOIN annotators USING (annotator_id) LEFT JOIN withdrawn_judgments w USING (judgment_id)""",
    "step judgment": """SELECT judgment_id, coalesce('step ' || (step + 1), 'span') || ', characters ' || start
            || ' to ' || "end" || ', by ' || kind || ' ' || name || ': ' || concat_ws(' ', label, value)
            || if(w.judgment_id IS NULL, '', ', taken back')
        FROM (SELECT * FROM step_judgments
              WHERE rowid IN (SELECT rowid FROM step_judgments WHERE judgment_id IN {these}))
        JOIN annotators USING (annotator_id) LEFT JOIN withdrawn_judgments w USING (judgment_id)""",
    "principle judgment": """SELECT judgment_id, 'principle judgment ' || answer || ' by ' || kind || ' ' || name
            || if(bool_and(gone), ', taken back', '') || ': ' || left(any_value(statement), 70)
        FROM (SELECT judgment_id, principle_id, annotator_id, answer, false AS gone FROM principle_judgments
              WHERE judgment_id IN {these}
              UNION ALL SELECT judgment_id, principle_id, annotator_id, answer, withdrawn_at IS NOT NULL
              FROM principle_votes WHERE judgment_id IN {these})
        JOIN annotators USING (annotator_id) JOIN principles USING (principle_id)
        GROUP BY judgment_id, answer, kind, name""",
    "queue": """SELECT queue_id, 'queue ' || name || ', '
            || (SELECT count(*) FROM queue_items i WHERE i.queue_id = q.queue_id)
            || ' items, ' || if(overlap = 0, 'everyone', overlap::VARCHAR) || ' each'
        FROM queues q WHERE queue_id IN {these}""",
    "decision": """SELECT 'd-' || position, 'decision ' || pool || coalesce(' ' || label, '') || ' by ' || rule || ': '
            || reason || if(basis IS NULL, ' (basis not recorded)', '')
        FROM decisions WHERE rowid IN (SELECT rowid FROM decisions WHERE 'd-' || position IN {these})""",
    "snapshot": """SELECT snapshot_id, 'snapshot ' || name || ', ' || items || ' items'
        FROM snapshots WHERE snapshot_id IN {these}""",
    "artifact": "SELECT artifact_id, kind || ' ' || name || ', ' || path FROM artifacts WHERE artifact_id IN {these}",
    "file": "SELECT DISTINCT ref, 'file' FROM run_links WHERE kind = 'file' AND ref IN {these}",
}

# What scores and runs call the model `a`: the version in its spec, which calibrating leaves as it is. Scores under a
# length correction have the version "VERSION+CORRECTION".
_VERSION = "coalesce((a.spec ->> 'version'), a.content_hash)"
_SCORED_BY = "split_part(s.model_version, '+', 1)"

_BY_RUN = {
    "prompts": "prompt_id",
    "responses": "response_id",
    "comparisons": "comparison_id",
    "judgments": "judgment_id",
    "response_judgments": "judgment_id",
    "step_judgments": "judgment_id",
}


_ONE_RESPONSE = {"response judgment": "response_judgments", "step judgment": "step_judgments"}


def _written_by(table: str, key: str) -> str:
    return f"SELECT run_id AS id FROM {table} WHERE {key} = $id AND run_id IS NOT NULL"


# Of decisions that are older than their basis: judgments of the same comparison, any of which may have been counted.
_UNRECORDED = "on the same comparison (basis not recorded)"
_BEFORE_BASES = """d.basis IS NULL AND j.created_at <= d.created_at
              AND (w.judgment_id IS NULL OR w.withdrawn_at > d.created_at)"""


def _basis(relation: BasisRelation) -> str:
    return f"""SELECT e.ref AS id FROM (SELECT unnest(basis) AS e FROM decisions WHERE 'd-' || position = $id)
            WHERE e.relation = '{relation}' ORDER BY 1"""


def _based_on(*relations: BasisRelation) -> str:
    """SQL: the decisions with $id in their basis."""
    entries = " OR ".join(f"list_contains(basis, {{'relation': '{r}', 'ref': $id}})" for r in relations)
    return f"SELECT 'd-' || position AS id FROM decisions WHERE {entries} ORDER BY position"


# Relation -> query of ids, for each kind and direction. Most telling first.
_UP: dict[str, dict[str, str]] = {
    "run": {
        "read": f"""SELECT coalesce(a.artifact_id, l.ref) AS id FROM run_links l
            LEFT JOIN (SELECT {_VERSION} AS version, min(artifact_id) AS artifact_id FROM artifacts a GROUP BY 1) a
              ON l.kind = 'model_version' AND a.version = l.ref
            WHERE l.run_id = $id AND l.direction = 'input' ORDER BY 1"""
    },
    "prompt": {"written by": _written_by("prompts", "prompt_id")},
    "response": {
        "answers": "SELECT prompt_id AS id FROM responses WHERE response_id = $id",
        "scored by": f"""SELECT DISTINCT a.artifact_id AS id
            FROM scores s JOIN artifacts a ON {_VERSION} = {_SCORED_BY} WHERE s.response_id = $id ORDER BY 1""",
        "written by": _written_by("responses", "response_id"),
    },
    "comparison": {
        "asks": "SELECT prompt_id AS id FROM comparisons WHERE comparison_id = $id",
        "labelled in": """SELECT judgment_id AS id FROM judgments JOIN annotators USING (annotator_id)
            WHERE comparison_id = $id AND kind = 'source' ORDER BY created_at, 1""",
        "written by": _written_by("comparisons", "comparison_id"),
    },
    "annotator": {},
    "judgment": {
        "by": "SELECT annotator_id AS id FROM judgments WHERE judgment_id = $id",
        "of": "SELECT comparison_id AS id FROM judgments WHERE judgment_id = $id",
        "demonstrations": """SELECT comparison_id AS id FROM judgment_demonstrations
            WHERE judgment_id = $id ORDER BY position""",
        "asked in": "SELECT queue_id AS id FROM queue_votes WHERE judgment_id = $id",
        "written by": _written_by("judgments", "judgment_id"),
    },
    **{
        kind: {
            "by": f"SELECT annotator_id AS id FROM {table} WHERE judgment_id = $id",
            "of": f"SELECT response_id AS id FROM {table} WHERE judgment_id = $id",
            "asked in": f"""SELECT queue_id AS id FROM {table} j JOIN queues q ON j.origin LIKE 'queue/%'
                AND split_part(j.origin, '/', 2) = q.name WHERE judgment_id = $id""",
            "written by": _written_by(table, "judgment_id"),
        }
        for kind, table in _ONE_RESPONSE.items()
    },
    "principle judgment": {
        "said with": "SELECT vote_id AS id FROM principle_votes WHERE judgment_id = $id ORDER BY created_at, 1",
        "by": """SELECT annotator_id AS id FROM principle_judgments WHERE judgment_id = $id
            UNION SELECT annotator_id FROM principle_votes WHERE judgment_id = $id""",
        "of": """SELECT response_id AS id FROM principle_judgments WHERE judgment_id = $id
            UNION SELECT response_id FROM principle_votes WHERE judgment_id = $id""",
        "written by": _written_by("principle_judgments", "judgment_id"),
    },
    "decision": {
        "rests on": _basis("counted"),
        "checked": _basis("checked"),
        "demonstrations": """SELECT DISTINCT t.comparison_id AS id FROM judgment_demonstrations t
            WHERE t.judgment_id IN (SELECT e.ref FROM (SELECT unnest(basis) AS e FROM decisions
                                    WHERE 'd-' || position = $id) WHERE e.relation = 'counted') ORDER BY 1""",
        "scored by": f"""SELECT coalesce(a.artifact_id, b.id) AS id FROM ({_basis("scored by")}) b
            LEFT JOIN (SELECT {_VERSION} AS version, min(artifact_id) AS artifact_id FROM artifacts a GROUP BY 1) a
              ON a.version = b.id ORDER BY 1""",
        "retrieved near": _basis("retrieved near"),
        "duplicate of": _basis("duplicate of"),
        "overlaps": _basis("overlaps"),
        _UNRECORDED: f"""SELECT j.judgment_id AS id FROM decisions d JOIN judgments j USING (comparison_id)
            LEFT JOIN withdrawn_judgments w USING (judgment_id)
            WHERE 'd-' || d.position = $id AND {_BEFORE_BASES} ORDER BY j.created_at, 1""",
        "resolved by": "SELECT queue_id AS id FROM queue_decisions WHERE 'd-' || position = $id ORDER BY 1",
        "of": "SELECT comparison_id AS id FROM decisions WHERE 'd-' || position = $id",
        "written by": "SELECT run_id AS id FROM decisions WHERE 'd-' || position = $id AND run_id IS NOT NULL",
    },
    "snapshot": {
        "written by": _written_by("snapshots", "snapshot_id"),
        "holds, decided": """SELECT 'd-' || max(d.position) AS id
            FROM snapshots s JOIN snapshot_items i USING (snapshot_id) JOIN decisions d USING (comparison_id)
            WHERE s.snapshot_id = $id AND d.created_at <= s.created_at
            GROUP BY comparison_id ORDER BY max(d.position)""",
        "holds, undecided": """SELECT comparison_id AS id FROM snapshot_items
            WHERE snapshot_id = $id AND pool = 'unverified' ORDER BY 1""",
    },
    "artifact": {"written by": _written_by("artifacts", "artifact_id")},
    "queue": {"written by": _written_by("queues", "queue_id")},
    "file": {
        "written by": """SELECT run_id AS id FROM run_links
            WHERE kind = 'file' AND ref = $id AND direction = 'output' ORDER BY 1"""
    },
}
_DOWN: dict[str, dict[str, str]] = {
    "run": {
        "wrote": """SELECT ref AS id FROM run_links WHERE run_id = $id AND direction = 'output'
            UNION SELECT artifact_id FROM artifacts WHERE run_id = $id
            UNION SELECT snapshot_id FROM snapshots WHERE run_id = $id ORDER BY 1""",
        "decided": "SELECT 'd-' || position AS id FROM decisions WHERE run_id = $id ORDER BY position",
        **{
            f"wrote {table}": f"SELECT {key} AS id FROM {table} WHERE run_id = $id ORDER BY 1"
            for table, key in _BY_RUN.items()
        },
    },
    "prompt": {
        "answered by": "SELECT response_id AS id FROM responses WHERE prompt_id = $id ORDER BY 1",
        "compared in": "SELECT comparison_id AS id FROM comparisons WHERE prompt_id = $id ORDER BY 1",
    },
    "response": {
        "compared in": """SELECT comparison_id AS id FROM comparisons
            WHERE response_a = $id OR response_b = $id ORDER BY 1""",
        **{
            f"has {kind}s": f"SELECT judgment_id AS id FROM {table} WHERE response_id = $id ORDER BY created_at, 1"
            for kind, table in _ONE_RESPONSE.items()
        },
        "judged by principle in": """SELECT judgment_id AS id FROM standing_principle_judgments
            WHERE response_id = $id ORDER BY created_at, 1""",
    },
    "comparison": {
        "judged in": "SELECT judgment_id AS id FROM judgments WHERE comparison_id = $id ORDER BY created_at, 1",
        "decided in": "SELECT 'd-' || position AS id FROM decisions WHERE comparison_id = $id ORDER BY position",
        "held by": "SELECT snapshot_id AS id FROM snapshot_items WHERE comparison_id = $id ORDER BY 1",
        "shown to judges for": """SELECT judgment_id AS id FROM judgment_demonstrations
            WHERE comparison_id = $id ORDER BY 1""",
        "led to": _based_on("retrieved near", "duplicate of"),
    },
    "annotator": {
        said: f"SELECT judgment_id AS id FROM {table} WHERE annotator_id = $id ORDER BY created_at, 1"
        for said, table in (("said", "judgments"), ("rated", "response_judgments"), ("marked", "step_judgments"))
    },
    "principle judgment": {
        "filtered in": """SELECT DISTINCT run_id AS id FROM principle_outcomes
            WHERE judgment_id = $id AND run_id IS NOT NULL ORDER BY 1""",
    },
    "judgment": {
        "said of principles": "SELECT judgment_id AS id FROM principle_votes WHERE vote_id = $id ORDER BY side, 1",
        "led to": _based_on("counted"),
        "checked by": _based_on("checked"),
        _UNRECORDED: f"""SELECT 'd-' || d.position AS id FROM judgments j JOIN decisions d USING (comparison_id)
            LEFT JOIN withdrawn_judgments w USING (judgment_id)
            WHERE j.judgment_id = $id AND {_BEFORE_BASES} ORDER BY d.position""",
        "held, undecided, by": """SELECT i.snapshot_id AS id
            FROM judgments j JOIN snapshot_items i USING (comparison_id)
            WHERE j.judgment_id = $id AND i.pool = 'unverified' ORDER BY 1""",
    },
    "decision": {
        "held by": """SELECT s.snapshot_id AS id FROM decisions d JOIN snapshot_items i USING (comparison_id)
            JOIN snapshots s USING (snapshot_id)
            WHERE 'd-' || d.position = $id AND s.created_at >= d.created_at ORDER BY s.created_at"""
    },
    "snapshot": {
        "read by": """SELECT run_id AS id FROM run_links
            WHERE direction = 'input' AND kind = 'snapshot' AND ref = $id ORDER BY 1"""
    },
    "artifact": {
        "read by": f"""SELECT DISTINCT l.run_id AS id FROM artifacts a JOIN run_links l
            ON l.direction = 'input' AND l.ref IN (a.artifact_id, {_VERSION})
            WHERE a.artifact_id = $id ORDER BY 1""",
        "scored": f"""SELECT DISTINCT s.response_id AS id
            FROM artifacts a JOIN scores s ON {_SCORED_BY} = {_VERSION} WHERE a.artifact_id = $id ORDER BY 1""",
    },
    "queue": {
        "read by": """SELECT run_id AS id FROM run_links
            WHERE direction = 'input' AND kind = 'queue' AND ref = $id ORDER BY 1""",
        "decided": "SELECT 'd-' || position AS id FROM queue_decisions WHERE queue_id = $id ORDER BY position",
        "was told": "SELECT judgment_id AS id FROM queue_votes WHERE queue_id = $id ORDER BY created_at, 1",
        "asked about": "SELECT comparison_id AS id FROM queue_items WHERE queue_id = $id ORDER BY 1",
    },
    "file": {
        "read by": """SELECT run_id AS id FROM run_links
            WHERE kind = 'file' AND ref = $id AND direction = 'input' ORDER BY 1"""
    },
}


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
        return _grow(db, root, _UP if direction == "up" else _DOWN, depth, width, set())


def _grow(
    db: Connection,
    node: LineageNode,
    relations: dict[str, dict[str, str]],
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
    for relation, query in relations.get(node.kind, {}).items():
        rows = db.execute(f"SELECT id FROM ({query}) LIMIT {int(width) + 1}", {"id": node.id}).fetchall()
        if not rows:
            continue
        ids = [row[0] for row in rows[: int(width)]]
        total = len(rows) if len(rows) <= width else _count(db, query, node.id)
        described = _describe(db, ids)
        nodes = [
            _grow(db, LineageNode(ref, *described.get(ref, ("unknown", ""))), relations, depth - 1, width, seen)
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
    files = [ref for kind, those in by_kind.items() if kind != "file" for ref in those if ref not in described]
    return described | {ref: ("file", about) for ref, about in _lines(db, "file", files)}


def _lines(db: Connection, kind: str, refs: Sequence[str]) -> list[tuple[str, str]]:
    if not refs:
        return []
    values = {f"id{n}": ref for n, ref in enumerate(refs)}
    these = f"({', '.join(f'${name}' for name in values)})"
    rows = db.execute(_ABOUT[kind].format(these=these), values).fetchall()
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
