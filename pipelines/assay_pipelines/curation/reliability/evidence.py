"""The posterior of a comparison's label: every answer by its annotator's reliability, and what a reward model adds.

Covers: log odds by comparison, in SQL; the label and the worth that follow. Leaves out: the model
(`loop.cross_fitted`), deciding (`loop.source_pass`).

P(A) = s(sum of +-log(r / (1 - r)) + m) with r the annotator's reliability and m the log odds of A by a model: exact
where annotators and model err independently of each other (Nitzan and Paroush 1982), which sources of one make do not.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.data.snapshots import Selection
from assay.domain import AnnotatorKind
from assay.store.database import Connection, registered
from assay.workspace import Workspace
from assay_pipelines.curation.reliability.estimates import Reliabilities, SourceReliability, log_odds

NEGLIGIBLE = 1e-9  #: log odds that tell nothing
CHANCE = "source_at_chance"  #: the rule that discards what tells nothing


@dataclass(frozen=True, slots=True)
class CountedAnswer:
    """One annotator's last A/B answer on a comparison, and what it is worth (None: never measured on gold)."""

    annotator_id: str
    kind: AnnotatorKind
    answer: Literal["A", "B"]
    judgment_id: str
    reliability: SourceReliability | None


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """All that is counted of a comparison. `log_odds`: of A against B; `model_log_odds`: the part that a reward model
    adds, None without one. `source_label`: where its sources agree."""

    comparison_id: str
    answers: tuple[CountedAnswer, ...]
    model_log_odds: float | None = None

    @property
    def log_odds(self) -> float:
        return sum(_signed(answer) for answer in self.answers) + (self.model_log_odds or 0.0)

    @property
    def source_label(self) -> Literal["A", "B"] | None:
        preferred = {answer.answer for answer in self.answers if answer.kind == "source"}
        return preferred.pop() if len(preferred) == 1 else None

    @property
    def measured(self) -> bool:
        """Whether any of those who answered has met enough gold to be judged by it."""
        return any(a.reliability is not None and a.reliability.worth != "unmeasured" for a in self.answers)

    @property
    def label(self) -> Literal["A", "B"] | None:
        """The likelier side; None where the answers tell nothing."""
        odds = self.log_odds
        return None if abs(odds) < NEGLIGIBLE else "A" if odds > 0 else "B"

    @property
    def p_right(self) -> float:
        """P(`label` is right), 1/2 where there is none."""
        return expit(abs(self.log_odds))

    @property
    def text(self) -> str:
        """For a person: who said what, and how often they are right."""
        words = [
            f"{a.reliability.name if a.reliability else a.annotator_id} {a.answer}, "
            + (a.reliability.text if a.reliability else "never measured on gold")
            for a in self.answers
        ]
        if self.model_log_odds is not None:
            words.append(f"the model gives A p = {expit(self.model_log_odds):.3f}")
        return "; ".join(words)


def expit(log_odds: float) -> float:
    """The probability of log odds; those of a model may be too large for exp."""
    return 0.5 + 0.5 * math.tanh(log_odds / 2)


def _signed(answer: CountedAnswer) -> float:
    if answer.reliability is None:
        return 0.0
    odds = log_odds(answer.reliability.cautious)
    return odds if answer.answer == "A" else -odds


# The last answer of each source, and of each of the judges; of a page of comparisons.
_ANSWERS = """
    SELECT o.comparison_id, o.annotator_id, n.kind, o.answer, o.judgment_id, g.category
    FROM opinions o JOIN page USING (comparison_id) JOIN annotators n USING (annotator_id)
    LEFT JOIN (SELECT comparison_id, min(category) AS category FROM origins JOIN page USING (comparison_id)
               GROUP BY comparison_id) g USING (comparison_id)
    WHERE o.answer IN ('A', 'B') AND (n.kind = 'source' OR list_contains($judges, o.annotator_id))
    QUALIFY row_number() OVER (
        PARTITION BY o.comparison_id, o.annotator_id ORDER BY o.created_at DESC, o.judgment_id) = 1
    ORDER BY o.comparison_id, n.kind <> 'source', o.annotator_id"""


def evidence_of(
    db: Connection, comparison_ids: Sequence[str], reliabilities: Reliabilities, judges: Sequence[str] = ()
) -> list[PairEvidence]:
    """Of those that a source or one of `judges` (annotator ids) answered with A or B, in the order of their ids."""
    import pyarrow as pa

    with registered(db, "page", pa.table({"comparison_id": pa.array(list(comparison_ids), pa.string())})):
        rows = db.execute(_ANSWERS, {"judges": list(judges)}).fetchall()
    answers: dict[str, list[CountedAnswer]] = {}
    for comparison, annotator, kind, answer, judgment, category in rows:
        reliability = reliabilities.of(annotator, category)
        answers.setdefault(comparison, []).append(CountedAnswer(annotator, kind, answer, judgment, reliability))
    return [PairEvidence(comparison, tuple(preferred)) for comparison, preferred in answers.items()]


def still_in(db: Connection, selection: Selection, ids: Sequence[str]) -> set[str]:
    """Those of the ids that the selection has now."""
    condition, values = selection.where()
    rows = db.execute(
        f"SELECT p.comparison_id FROM pools p WHERE {condition} AND p.comparison_id IN (SELECT unnest($ids))",
        {**values, "ids": list(ids)},
    ).fetchall()
    return {row[0] for row in rows}


def id_pages(workspace: Workspace, selection: Selection, size: int) -> Iterator[list[str]]:
    """The comparison ids of a selection in their order, as they are when a page is reached."""
    condition, values = selection.where()
    query = f"""SELECT p.comparison_id FROM pools p WHERE {condition} AND p.comparison_id > $after
                ORDER BY p.comparison_id LIMIT {int(size)}"""
    after = ""
    while True:
        with workspace.store.unit() as db:
            ids = [row[0] for row in db.execute(query, {**values, "after": after}).fetchall()]
        if not ids:
            return
        yield ids
        after = ids[-1]
