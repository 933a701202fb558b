"""Where curation stands: pools, the rules that filled them, and how far annotators agree with the gold labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.workspace import Workspace


@dataclass(frozen=True)
class AnnotatorQuality:
    """Agreement of one annotator with the gold labels that other annotators made, over A/B answers only."""

    kind: str
    name: str
    compared: int
    agreed: int


@dataclass(frozen=True)
class CurationStatus:
    """`pools`: name -> comparisons, every comparison once. `rules`: (pool, rule) -> comparisons, decisions in force."""

    pools: dict[str, int]
    rules: dict[tuple[str, str], int]
    annotators: tuple[AnnotatorQuality, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "pools": self.pools,
            "rules": [{"pool": p, "rule": r, "comparisons": n} for (p, r), n in self.rules.items()],
            "annotators": [
                {"kind": a.kind, "name": a.name, "compared": a.compared, "agreed": a.agreed} for a in self.annotators
            ],
        }


def curation_status(workspace: Workspace) -> CurationStatus:
    with workspace.store.unit() as db:
        pools = dict(db.execute("SELECT pool, count(*) FROM pools GROUP BY pool ORDER BY pool").fetchall())
        rules = {
            (pool, rule): number
            for pool, rule, number in db.execute(
                "SELECT pool, rule, count(*) FROM current_decisions GROUP BY pool, rule ORDER BY 3 DESC, 1, 2"
            ).fetchall()
        }
        quality = db.execute(
            """SELECT n.kind, n.name, count(*), count(*) FILTER (j.answer = d.label)
               FROM judgments j JOIN annotators n USING (annotator_id)
               JOIN current_decisions d USING (comparison_id)
               WHERE d.pool = 'gold' AND d.label IN ('A', 'B') AND j.answer IN ('A', 'B')
                 AND NOT (d.rule = 'verifier' AND n.kind = 'verifier')
               GROUP BY n.kind, n.name ORDER BY n.kind, n.name"""
        ).fetchall()
    return CurationStatus(pools, rules, tuple(AnnotatorQuality(*row) for row in quality))
