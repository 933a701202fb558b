"""The filter over comparisons, and its conditions as SQL over a few candidates.

Covers: conditions by origin, pool, label, conflict, reward and text, each written so that a candidate costs one look
and the large tables are read by one narrow column; and, for a condition that few rows meet, the query that names them.
Leaves out: which candidates are looked at (`assay.browsing.walk`).
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from assay.data.snapshots import POOLS
from assay.errors import BadInputError
from assay.runs.lineage import PREFIXES

#: any: somebody prefers A, somebody B. sources: sources do. annotators: others than sources do. against_source: one
#: that is no source prefers the other side than a source.
Conflict = Literal["any", "sources", "annotators", "against_source"]
Label = Literal["A", "B", "tie", "none"]
Parameters = dict[str, Any]

#: The decision in force of each candidate in {table} that has one.
DECIDED = """SELECT comparison_id, arg_max({{'pool': pool, 'label': label, 'rule': rule}}, position) AS decided
    FROM decisions SEMI JOIN {table} USING (comparison_id) GROUP BY comparison_id"""
#: What was said of each candidate in {table}, as the views `source_labels` and `opinions` have it. Judgments are long:
#: their rows are found by one column, then read.
SAID = """SELECT comparison_id,
        min(answer) FILTER (source) AS lowest, max(answer) FILTER (source) AS highest,
        if(lowest = highest, lowest, NULL) AS source_label,
        coalesce(bool_or(source AND answer = 'A'), false) AS source_a,
        coalesce(bool_or(source AND answer = 'B'), false) AS source_b,
        coalesce(bool_or(NOT source AND answer = 'A'), false) AS other_a,
        coalesce(bool_or(NOT source AND answer = 'B'), false) AS other_b,
        count(*) FILTER (NOT source) AS opinions
    FROM (SELECT comparison_id, kind = 'source' AS source,
                 CASE WHEN answer IN ('A', 'B') THEN answer WHEN answer <> 'skip' THEN 'tie' END AS answer
          FROM (SELECT * FROM judgments
                WHERE rowid IN (SELECT rowid FROM judgments SEMI JOIN {table} USING (comparison_id))) j
          JOIN annotators USING (annotator_id)
          WHERE kind = 'source' OR (NOT starts_with(origin, 'vote/')
              AND NOT EXISTS (SELECT 1 FROM withdrawn_judgments w WHERE w.judgment_id = j.judgment_id)))
    GROUP BY comparison_id"""
CONFLICTS: dict[str, str] = {
    "any": "(source_a OR other_a) AND (source_b OR other_b)",
    "sources": "source_a AND source_b",
    "annotators": "other_a AND other_b",
    "against_source": "(source_a AND other_b) OR (source_b AND other_a)",
}
_LABELS = "if(decided IS NULL, source_label, decided.label)"
_OTHERS = "annotator_id IN (SELECT annotator_id FROM annotators WHERE kind <> 'source')"


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """The candidates that a condition names: `query` gives one column `key`, "comparison_id" or "response_id", of a
    comparison or of one of its responses.

    `meets`: the condition that all of them meet, as `Filter.conditions` calls it; None where they only may.
    """

    key: str
    query: str
    values: Parameters
    meets: str | None = None


@dataclass(frozen=True)
class Filter:
    """Which comparisons; an empty field asks nothing. Of several values any may match; a comparison of several origins
    matches by any, as in a snapshot's selection.

    `scored_by`: a model that scored one of the two responses, its reward from `reward_low` to `reward_high`. `text`:
    occurs in the prompt or a response, in any case. `id`: of a comparison, prompt, response or judgment, or of a
    source's record.
    """

    pools: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    conflict: Conflict | None = None
    scored_by: str | None = None
    reward_low: float | None = None
    reward_high: float | None = None
    text: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        if unknown := [pool for pool in self.pools if pool not in POOLS]:
            raise BadInputError(f"unknown pool {unknown[0]!r}; one of {', '.join(POOLS)}", field="pool")
        if unknown := [label for label in self.labels if label not in get_args(Label)]:
            raise BadInputError(f"unknown label {unknown[0]!r}; one of {', '.join(get_args(Label))}", field="label")
        if self.conflict is not None and self.conflict not in CONFLICTS:
            raise BadInputError(f"unknown conflict {self.conflict!r}; one of {', '.join(CONFLICTS)}", field="conflict")
        bounds = [bound for bound in (self.reward_low, self.reward_high) if bound is not None]
        if bounds and self.scored_by is None:
            raise BadInputError("rewards of different models do not compare: name the model", field="scored_by")
        if any(math.isnan(bound) for bound in bounds):
            raise BadInputError("a reward's bounds are numbers", field="reward_low")

    @property
    def pattern(self) -> str:
        """`text` as a regular expression of DuckDB's (RE2), which is its fastest search in any case."""
        return f"(?is){re.escape(self.text)}"

    def conditions(self, table: str, met: str | None = None) -> Iterator[tuple[str, Parameters]]:
        """Queries of the comparison ids of `table` that meet each condition but `text`, the cheaper ones first; not of
        the condition `met`.

        `table`: a temporary table of candidates: comparison_id, prompt_id, response_a, response_b. Parameters of all
        conditions go together.
        """
        if self.id and met != "id":
            yield (
                f"SELECT comparison_id FROM {table} SEMI JOIN ({_BY_ID[_kind(self.id)]}) USING (comparison_id)",
                {"id": self.id},
            )
        for column, accepted in self._origins():
            if column == met:
                continue
            yield (
                f"""SELECT comparison_id FROM origins SEMI JOIN {table} USING (comparison_id)
                    WHERE list_contains(${column}, {column})""",
                {column: list(accepted)},
            )
        if self.pools and not self.labels:
            yield (
                f"""SELECT comparison_id FROM {table} LEFT JOIN ({DECIDED.format(table=table)}) USING (comparison_id)
                    WHERE list_contains($pools, coalesce(decided.pool, 'unverified'))""",
                {"pools": list(self.pools)},
            )
        if self.labels or self.conflict:
            yield self._judged(table)
        if self.scored_by is not None and met != "scored_by":
            yield (
                f"""SELECT comparison_id FROM (
                      SELECT comparison_id, unnest([response_a, response_b]) AS response_id FROM {table})
                    SEMI JOIN ({self._scores()}) USING (response_id)""",
                self._bounds(),
            )

    def _judged(self, table: str) -> tuple[str, Parameters]:
        """By label and conflict, and by pool with them: they read the same rows."""
        parts, values = ["true"], Parameters()
        if self.pools:
            parts.append("list_contains($pools, coalesce(decided.pool, 'unverified'))")
            values["pools"] = list(self.pools)
        if self.labels:
            parts.append(f"list_contains($labels, coalesce({_LABELS}, 'none'))")
            values["labels"] = list(self.labels)
        if self.conflict:
            parts.append(f"({CONFLICTS[self.conflict]})")
        decided = f"LEFT JOIN ({DECIDED.format(table=table)}) USING (comparison_id)"
        return (
            f"""SELECT comparison_id FROM {table} LEFT JOIN ({SAID.format(table=table)}) USING (comparison_id)
                {decided if self.pools or self.labels else ""} WHERE {" AND ".join(parts)}""",
            values,
        )

    def few(self) -> Iterator[CandidateQuery]:
        """Of each condition that few rows may meet, candidates among which every match is."""
        if self.id:
            yield CandidateQuery("comparison_id", _BY_ID[_kind(self.id)], {"id": self.id}, meets="id")
        for column, accepted in self._origins():
            query = f"SELECT comparison_id FROM origins WHERE list_contains($wanted, {column})"
            yield CandidateQuery("comparison_id", query, {"wanted": list(accepted)}, meets=column)
        if self.pools and "unverified" not in self.pools:
            query = "SELECT comparison_id FROM decisions WHERE list_contains($wanted, pool)"
            yield CandidateQuery("comparison_id", query, {"wanted": list(self.pools)})
        if self.labels == ("tie",):
            query = """SELECT comparison_id FROM judgments WHERE answer IN ('tie', 'both_good', 'both_bad')
                       UNION ALL SELECT comparison_id FROM decisions WHERE label = 'tie'"""
            yield CandidateQuery("comparison_id", query, {})
        if self.conflict in ("annotators", "against_source"):
            yield CandidateQuery("comparison_id", f"SELECT comparison_id FROM judgments WHERE {_OTHERS}", {})
        if self.scored_by is not None:
            yield CandidateQuery("response_id", self._scores(), self._bounds(), meets="scored_by")

    def _scores(self) -> str:
        return """SELECT response_id FROM scores
            WHERE model = $model AND reward >= $low AND reward <= $high"""

    def _bounds(self) -> Parameters:
        low = -math.inf if self.reward_low is None else self.reward_low
        high = math.inf if self.reward_high is None else self.reward_high
        return {"model": self.scored_by, "low": low, "high": high}

    def _origins(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        columns = (("source", self.sources), ("category", self.categories), ("language", self.languages))
        return ((column, accepted) for column, accepted in columns if accepted)


_BY_ID: dict[str, str] = {
    "comparison": "SELECT comparison_id FROM comparisons WHERE comparison_id = $id",
    "prompt": "SELECT comparison_id FROM comparisons WHERE prompt_id = $id",
    "response": "SELECT comparison_id FROM comparisons WHERE response_a = $id OR response_b = $id",
    "judgment": "SELECT comparison_id FROM judgments WHERE judgment_id = $id",
    "record": "SELECT comparison_id FROM origins WHERE record_id = $id",
}
_ID = re.compile(r"[a-z]-[0-9a-f]{32}")


def _kind(name: str) -> str:
    """What an id is of. Sources may call their records anything, also what looks like an id of ours."""
    kind = next((kind for prefix, kind in PREFIXES.items() if name.startswith(prefix)), "")
    return kind if kind in _BY_ID and _ID.fullmatch(name) else "record"
