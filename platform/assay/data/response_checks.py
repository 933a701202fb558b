"""Correctness checks of single responses, as the store has them.

Covers: the newest check of each response of a comparison. A check is a hint for annotators, not a judgment. Leaves out:
making checks (`assay_pipelines.attributes.preverification`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assay.workspace import Workspace

Verdict: TypeAlias = Literal["correct", "incorrect", "unsure"]


@dataclass(frozen=True, slots=True)
class SideCheck:
    """One annotator's verdict on one response."""

    verdict: Verdict
    reason: str
    annotator: str

    @property
    def summary(self) -> str:
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


@dataclass(frozen=True, slots=True)
class PairChecks:
    """The newest check of each side, in canonical order; None = not checked."""

    a: SideCheck | None
    b: SideCheck | None

    def payload(self) -> dict[str, str]:
        """As queues take it (`annotation.items.QueueItem.pre_verification`)."""
        return {letter: check.summary for letter, check in (("A", self.a), ("B", self.b)) if check is not None}


def load_response_checks(workspace: Workspace, comparison_ids: Sequence[str]) -> dict[str, PairChecks]:
    """Comparison id -> checks of its responses, for the comparisons that have any."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """WITH newest AS (
                   SELECT response_id, verdict, reason, name FROM response_checks JOIN annotators USING (annotator_id)
                   QUALIFY row_number() OVER (PARTITION BY response_id ORDER BY created_at DESC, annotator_id) = 1
               )
               SELECT c.comparison_id, a.verdict, a.reason, a.name, b.verdict, b.reason, b.name
               FROM comparisons c JOIN (SELECT DISTINCT unnest($ids) AS comparison_id) USING (comparison_id)
               LEFT JOIN newest a ON a.response_id = c.response_a
               LEFT JOIN newest b ON b.response_id = c.response_b
               WHERE a.verdict IS NOT NULL OR b.verdict IS NOT NULL""",
            {"ids": list(comparison_ids)},
        ).fetchall()
    return {comparison: PairChecks(_check(*sides[:3]), _check(*sides[3:])) for comparison, *sides in rows}


def _check(verdict: Verdict | None, reason: str | None, annotator: str | None) -> SideCheck | None:
    return None if verdict is None else SideCheck(verdict, reason or "", annotator or "")
