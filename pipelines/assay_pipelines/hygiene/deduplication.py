"""Deduplication: one of each group of equal pairs is kept; pairs that sources label oppositely are discarded or listed.

Equal: after normalising Unicode form, case and white space of prompt and both responses. Exact duplicates never occur:
ids are content hashes, and imports merge them (`exact_repeats`). Contradictions are discarded first, so that the pair
kept of a group has the label on which all members agree. The gold pool is never discarded and preferred as the pair
kept. Running twice changes nothing. Memory is bounded, time linear; the store is open for short units only.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.browsing.pair_pages import pair_pages
from assay.compute.scratch_store import Scratch, row_pages, scratch
from assay.runs.progress_bar import Advance, silent
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.hygiene.discarding import discard
from assay_pipelines.hygiene.pair_keys import make_pair_keys

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 200_000
CONTRADICTION, DUPLICATE = "contradiction", "duplicate"


@dataclass(frozen=True)
class DedupCounts:
    """`exact_repeats`: imported rows whose comparison was stored already. The others: discarded now."""

    exact_repeats: int
    contradictions: int
    duplicates: int


@dataclass(frozen=True)
class Statement:
    """`prefers`: response 1 or 2 of the contradiction; 0 = a tie or a skip."""

    annotator: str
    kind: str
    answer: str
    prefers: int
    comparison_id: str


@dataclass(frozen=True)
class LabelContradiction:
    """A pair that sources label oppositely. `exact`: one comparison; else several that differ in case or white space.

    `comparisons`: id -> pool. `statements`: of all its annotators, sources first.
    """

    prompt: tuple[tuple[str, str], ...]
    response_1: str
    response_2: str
    exact: bool
    comparisons: dict[str, str]
    statements: tuple[Statement, ...]


_REASONS = """
    SELECT p.comparison_id, e.reason, k.pair_key::VARCHAR AS pair_key
    FROM pair_keys k JOIN pair_places p USING (item) JOIN (
        SELECT pair_key, 'opposite labels: ' || array_to_string((list_sort(list(DISTINCT
                   name || ' prefers ' || answer || ' of ' || comparison_id)))[:6], '; ') AS reason
        FROM preferences WHERE pair_key IN (SELECT pair_key FROM opposed) GROUP BY pair_key
    ) e USING (pair_key) ORDER BY p.comparison_id"""
# The statements that are opposite, of all members of a group.
_CONTRADICTING = """
    WITH checked AS (
        SELECT pair_key, list_transform(list_sort(list(DISTINCT judgment_id)),
                                        lambda j: {'relation': 'checked', 'ref': j}) AS basis
        FROM incoming_reasons JOIN judgments USING (comparison_id) JOIN annotators USING (annotator_id)
        WHERE kind = 'source' AND answer IN ('A', 'B') GROUP BY pair_key)
    SELECT comparison_id, reason, coalesce(basis, []) AS basis
    FROM incoming_reasons LEFT JOIN checked USING (pair_key) ORDER BY comparison_id"""
# Members of groups of several; what is decided of them now, contradictions included, comes from the store.
_MEMBERS = """
    SELECT p.comparison_id, k.pair_key::VARCHAR AS pair_key FROM pair_keys k JOIN pair_places p USING (item)
    WHERE k.pair_key IN (SELECT pair_key FROM pair_keys GROUP BY pair_key HAVING count(*) > 1)"""
_STATES = """
    SELECT m.comparison_id, m.pair_key, coalesce(d.pool, 'unverified') AS pool, coalesce(d.decided, false) AS decided,
           if(d.pool IS NULL, s.answers = 1, d.label IS NOT NULL) AS labelled
    FROM incoming_members m
    LEFT JOIN (
        SELECT comparison_id, arg_max(pool, "position") AS pool, arg_max_null(label, "position") AS label,
               bool_or(rule = 'duplicate') AS decided
        FROM decisions WHERE comparison_id IN (SELECT comparison_id FROM incoming_members) GROUP BY comparison_id
    ) d ON d.comparison_id = m.comparison_id
    LEFT JOIN (
        SELECT comparison_id, count(DISTINCT if(answer IN ('A', 'B'), answer, 'tie')) AS answers
        FROM judgments JOIN annotators USING (annotator_id)
        WHERE kind = 'source' AND answer <> 'skip'
          AND comparison_id IN (SELECT comparison_id FROM incoming_members) GROUP BY comparison_id
    ) s ON s.comparison_id = m.comparison_id"""
_DUPLICATES = """
    SELECT comparison_id, 'same as ' || kept || ' but for case or white space' AS reason,
           [{'relation': 'duplicate of', 'ref': kept}] AS basis FROM (
        SELECT comparison_id, pool, first_value(comparison_id) OVER preferred AS kept,
               row_number() OVER preferred AS place
        FROM states WHERE pool <> 'discarded' AND NOT decided
        WINDOW preferred AS (PARTITION BY pair_key ORDER BY
            CASE pool WHEN 'gold' THEN 0 WHEN 'silver' THEN 1 ELSE 2 END, NOT coalesce(labelled, false), comparison_id)
    ) WHERE place > 1 AND pool <> 'gold' ORDER BY comparison_id"""


def dedup(workspace: Workspace, run_id: str | None, *, advance: Advance = silent) -> DedupCounts:
    """Write the decisions. `advance` by comparisons read."""
    with scratch(workspace) as scratch_db:
        make_pair_keys(scratch_db, pair_pages(workspace, scratch_db), advance=advance)
        reasons = scratch_db.db.sql(_REASONS).to_arrow_table()
        with workspace.store.unit() as db, registered(db, "incoming_reasons", reasons):
            reasons = db.sql(_CONTRADICTING).to_arrow_table()
        contradictions = discard(workspace, reasons, CONTRADICTION, run_id, leave=("gold", "silver"))
        duplicates = discard(workspace, _duplicates(workspace, scratch_db), DUPLICATE, run_id)
        return DedupCounts(_exact_repeats(workspace, scratch_db), contradictions, duplicates)


def find_contradictions(
    workspace: Workspace, *, limit: int | None = None, advance: Advance = silent
) -> tuple[int, list[LabelContradiction]]:
    """The number of contradictions, and the first `limit` of them with texts and votes. Discards nothing; includes
    those that `dedup` has discarded, but no pairs discarded for other reasons."""
    with scratch(workspace) as scratch_db:
        make_pair_keys(scratch_db, pair_pages(workspace, scratch_db, but_discarded_by=CONTRADICTION), advance=advance)
        total = scratch_db.number("SELECT count(*) FROM opposed")
        limit_clause = "" if limit is None else f" LIMIT {limit}"
        members = scratch_db.db.sql(
            f"""SELECT p.comparison_id, k.pair_key::VARCHAR AS pair_key, k.a_key <= k.b_key AS straight
                FROM pair_keys k JOIN pair_places p USING (item)
                WHERE k.pair_key IN (SELECT pair_key FROM opposed ORDER BY pair_key{limit_clause})
                ORDER BY k.pair_key, p.item"""
        ).to_arrow_table()
    return total, _described(workspace, members)


def _duplicates(workspace: Workspace, scratch_db: Scratch) -> "pa.Table":
    members = scratch_db.db.sql(_MEMBERS).to_arrow_table()
    scratch_db.db.execute(
        "CREATE TABLE states (comparison_id VARCHAR, pair_key VARCHAR, pool VARCHAR, decided BOOLEAN, labelled BOOLEAN)"
    )
    for low in range(0, members.num_rows, _ROWS):
        with workspace.store.unit() as db, registered(db, "incoming_members", members.slice(low, _ROWS)):
            states = db.sql(_STATES).to_arrow_table()
        scratch_db.append("states", states)
    return scratch_db.db.sql(_DUPLICATES).to_arrow_table()


def _exact_repeats(workspace: Workspace, scratch_db: Scratch) -> int:
    scratch_db.db.execute("CREATE TABLE origin_hashes (comparison UBIGINT)")
    query = "SELECT hash(comparison_id) AS comparison FROM origins WHERE rowid BETWEEN $low AND $high"
    for page in row_pages(workspace, "origins", query, page=_ROWS):
        scratch_db.append("origin_hashes", page)
    return scratch_db.number("SELECT count(*) - count(DISTINCT comparison) FROM origin_hashes")


def _described(workspace: Workspace, members: "pa.Table") -> list[LabelContradiction]:
    with workspace.store.unit() as db, registered(db, "incoming_members", members):
        texts = db.execute(
            """SELECT m.pair_key, m.comparison_id, m.straight, p.messages, a.content, b.content,
                      coalesce(d.pool, 'unverified')
               FROM incoming_members m JOIN comparisons c USING (comparison_id) JOIN prompts p USING (prompt_id)
               JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
               LEFT JOIN current_decisions d ON d.comparison_id = m.comparison_id
               ORDER BY m.pair_key, m.comparison_id"""
        ).fetchall()
        votes = db.execute(
            """SELECT m.pair_key, n.name, n.kind, j.answer, m.straight, m.comparison_id
               FROM incoming_members m JOIN opinions j USING (comparison_id) JOIN annotators n USING (annotator_id)
               ORDER BY m.pair_key, n.kind <> 'source', n.name, j.answer, m.comparison_id"""
        ).fetchall()
    statements: dict[str, list[Statement]] = {}
    for key, name, kind, answer, straight, comparison in votes:
        prefers = {"A": 1, "B": 2}.get(answer, 0)
        prefers = prefers if straight or not prefers else 3 - prefers
        statements.setdefault(key, []).append(Statement(name, kind, answer, prefers, comparison))
    groups: dict[str, list[tuple[object, ...]]] = {}
    for key, *columns in texts:
        groups.setdefault(key, []).append(tuple(columns))
    contradictions = []
    for key, group in groups.items():
        comparison, straight, messages, a, b, _ = group[0]
        assert isinstance(messages, list)
        assert isinstance(comparison, str)
        contradictions.append(
            LabelContradiction(
                tuple((m["role"], m["content"]) for m in messages),
                str(a if straight else b),
                str(b if straight else a),
                len(group) == 1,
                {str(row[0]): str(row[5]) for row in group},
                tuple(statements.get(key, ())),
            )
        )
    return contradictions
