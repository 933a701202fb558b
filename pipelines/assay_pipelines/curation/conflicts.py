"""Contradictions between source, people and judges: how often, and on which comparisons.

A party's answer is the majority of its members' last answers, "split" without one. Simulated annotators that a loop
asks as its people are judges here: their votes are not people's.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.annotation.votes import MAJORITY, tally
from assay.errors import BadInputError
from assay.store.database import Connection, registered
from assay_pipelines.curation.shown_pairs import ShownPair, shown_pairs

#: Two parties that prefer different sides.
Between: TypeAlias = Literal["source_people", "source_judges", "people_judges"]
BETWEEN: dict[Between, tuple[str, str]] = {
    "source_people": ("source", "people"),
    "source_judges": ("source", "judges"),
    "people_judges": ("people", "judges"),
}


@dataclass(frozen=True, slots=True)
class PartyAgreement:
    """Comparisons on which both parties have an answer. `opposed`: they prefer different sides; `softened`: one sees a
    tie, or is split, where the other prefers a side; the others agree."""

    between: Between
    common: int
    agreed: int
    opposed: int
    softened: int


@dataclass(frozen=True, slots=True)
class PartyAnswer:
    """One annotator's last answer on a comparison."""

    party: str
    kind: str
    annotator: str
    answer: str
    confidence: float | None
    rationale: str | None


@dataclass(frozen=True, slots=True)
class ConflictPair:
    """A comparison and each party's answer: A, B, tie, split, or null."""

    pair: ShownPair
    source: str | None
    people: str | None
    judges: str | None
    answers: list[PartyAnswer]


_PARTY = "CASE kind WHEN 'source' THEN 'source' WHEN 'human' THEN 'people' ELSE 'judges' END"
_ANSWER = "CASE WHEN o.answer IN ('A', 'B') THEN o.answer ELSE 'tie' END"
# Only comparisons that somebody besides the source has answered: at millions of rows these are few.
_PARTY_COUNTS = f"""
    CREATE OR REPLACE TEMP TABLE party_counts AS
    WITH asked AS (
        SELECT DISTINCT comparison_id FROM opinions JOIN annotators USING (annotator_id) WHERE kind <> 'source'),
    latest AS (
        SELECT o.comparison_id, {_PARTY} AS party, {_ANSWER} AS answer
        FROM opinions o SEMI JOIN asked USING (comparison_id) JOIN annotators n USING (annotator_id)
        WHERE o.answer <> 'skip'
        QUALIFY row_number() OVER (
            PARTITION BY o.comparison_id, o.annotator_id ORDER BY o.created_at DESC, o.judgment_id) = 1)
    SELECT comparison_id, party, count(*) FILTER (answer = 'A') AS a, count(*) FILTER (answer = 'B') AS b,
           count(*) FILTER (answer = 'tie') AS tie
    FROM latest GROUP BY comparison_id, party"""
_PARTIES = """
    CREATE OR REPLACE TEMP TABLE parties AS
    SELECT comparison_id, max(answer) FILTER (party = 'source') AS source,
           max(answer) FILTER (party = 'people') AS people, max(answer) FILTER (party = 'judges') AS judges
    FROM party_counts JOIN party_answers USING (a, b, tie) GROUP BY comparison_id"""


def party_agreements(db: Connection) -> list[PartyAgreement]:
    """Of each two parties."""
    _count_parties(db)
    agreements = []
    for between, (one, other) in BETWEEN.items():
        row = db.execute(
            f"""SELECT count(*), count(*) FILTER ({one} = {other} AND {one} <> 'split'),
                       count(*) FILTER ({_opposed(between)})
                FROM parties WHERE {one} IS NOT NULL AND {other} IS NOT NULL"""
        ).fetchone()
        common, agreed, opposed = row or (0, 0, 0)
        agreements.append(PartyAgreement(between, common, agreed, opposed, common - agreed - opposed))
    return agreements


def conflicts_between(
    db: Connection, between: Between, *, limit: int, offset: int = 0
) -> tuple[list[ConflictPair], int]:
    """A page of the comparisons on which two parties prefer different sides, in the order of their ids, and how many
    there are. Raises BadInputError for an unknown pair of parties."""
    if between not in BETWEEN:
        raise BadInputError(f"unknown parties {between!r}; one of {', '.join(BETWEEN)}", field="between")
    _count_parties(db)
    rows = db.execute(
        f"""SELECT comparison_id, source, people, judges, count(*) OVER () FROM parties WHERE {_opposed(between)}
            ORDER BY comparison_id LIMIT $limit OFFSET $offset""",
        {"limit": limit, "offset": offset},
    ).fetchall()
    ids = [row[0] for row in rows]
    pairs, answers = shown_pairs(db, ids), _answers(db, ids)
    conflicts = [
        ConflictPair(pairs[c], source, people, judges, answers.get(c, [])) for c, source, people, judges, _ in rows
    ]
    return conflicts, int(rows[0][4]) if rows else 0


def _count_parties(db: Connection) -> None:
    """Fill the temporary table `parties`: the majority of each party on each comparison, "split" without one.

    The votes are counted in SQL; there are few different counts, and each is resolved once: A, A, B, tie is a split.
    """
    import pyarrow as pa

    db.execute(_PARTY_COUNTS)
    counts = db.execute("SELECT DISTINCT a, b, tie FROM party_counts").fetchall()
    answers = [tally(("A", "B", "tie"), weights=count, threshold=MAJORITY).winner or "split" for count in counts]
    columns = {name: [count[n] for count in counts] for n, name in enumerate(("a", "b", "tie"))}
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("tie", pa.int64()), ("answer", pa.string())])
    with registered(db, "party_answers", pa.table({**columns, "answer": answers}, schema=schema)):
        db.execute(_PARTIES)


def _opposed(between: Between) -> str:
    one, other = BETWEEN[between]
    return f"{one} IN ('A', 'B') AND {other} IN ('A', 'B') AND {one} <> {other}"


def _answers(db: Connection, comparison_ids: list[str]) -> dict[str, list[PartyAnswer]]:
    rows = db.execute(
        f"""SELECT o.comparison_id, {_PARTY}, n.kind, n.name, o.answer, o.confidence, o.rationale[:500]
            FROM opinions o JOIN annotators n USING (annotator_id) WHERE list_contains($ids, o.comparison_id)
            QUALIFY row_number() OVER (
                PARTITION BY o.comparison_id, o.annotator_id ORDER BY o.created_at DESC, o.judgment_id) = 1
            ORDER BY o.comparison_id, 2 DESC, n.name""",
        {"ids": comparison_ids},
    ).fetchall()
    by_comparison: dict[str, list[PartyAnswer]] = {}
    for comparison, *answer in rows:
        by_comparison.setdefault(comparison, []).append(PartyAnswer(*answer))
    return by_comparison
