"""Which comparisons are put to judges; the one rule of the loop (`stage1`) and of the pass by sources (`source_pass`).

uncertain      the posterior of the label, by sources, judges and model together, is nearest to 1/2
contradiction  the model gives the label of the sources less than 1/2, the least first
random         any

Covers: the choice, page by page, and the posteriors it rests on; where a loop begins, a small part of the pool, spread
over its categories by a hash. Leaves out: asking (`labelling`).
"""

import heapq
from collections.abc import Sequence, Set
from dataclasses import replace

from assay.browsing.candidates import candidates_by_id
from assay.data.snapshots import CATEGORIES, Selection
from assay.ids import fraction
from assay.workspace import Workspace
from assay_pipelines.curation.loop.cross_fitted import PairModel
from assay_pipelines.curation.loop.parts import Neighbour
from assay_pipelines.curation.loop.pass_config import Spend
from assay_pipelines.curation.reliability.estimates import Reliabilities
from assay_pipelines.curation.reliability.evidence import PairEvidence, evidence_of, expit, id_pages

PAGE = 4_000


def choose_for_judges(
    workspace: Workspace,
    pool: Selection,
    limit: int,
    rule: Spend,
    worth: Reliabilities,
    *,
    model: PairModel | None = None,
    judges: Sequence[str] = (),
    exclude: Set[str] = frozenset(),
    seed: int = 0,
) -> list[Neighbour]:
    """At most `limit` comparisons that a source or one of `judges` has answered, the most worth asking first; equals by
    hash."""
    held: list[tuple[float, float, PairEvidence]] = []
    for ids in id_pages(workspace, pool, PAGE):
        for pair in posteriors(workspace, [c for c in ids if c not in exclude], worth, judges, model):
            if (urgency := _urgency(pair, rule)) is not None:
                held.append((urgency, fraction(seed, "judged", pair.comparison_id), pair))
        held = heapq.nsmallest(limit, held, key=lambda entry: entry[:2])
    return [Neighbour(pair.comparison_id, _why(pair, rule)) for _, _, pair in held]


def posteriors(
    workspace: Workspace, ids: Sequence[str], worth: Reliabilities, judges: Sequence[str], model: PairModel | None
) -> list[PairEvidence]:
    """Of those that somebody answered; what the model cannot score is left to the answers."""
    with workspace.store.unit() as db:
        answered = evidence_of(db, ids, worth, judges)
    if model is None:
        return answered
    read = model.log_odds(candidates_by_id(workspace, [pair.comparison_id for pair in answered]))
    return [replace(pair, model_log_odds=read.get(pair.comparison_id)) for pair in answered]


def _urgency(pair: PairEvidence, rule: Spend) -> float | None:
    """Least first; None: not to be asked about."""
    if rule == "uncertain":
        return abs(pair.log_odds)
    if rule == "random":
        return 0.0
    if pair.source_label is None or pair.model_log_odds is None:
        return None
    of_source = pair.model_log_odds if pair.source_label == "A" else -pair.model_log_odds
    return of_source if of_source < 0 else None


def _why(pair: PairEvidence, rule: Spend) -> dict[str, float]:
    if rule == "contradiction" and pair.model_log_odds is not None:
        return {"contradicts": round(expit(-abs(pair.model_log_odds)), 4)}
    return {"posterior": round(pair.p_right, 4)}


def choose_seed(workspace: Workspace, selection: Selection, size: int, *, seed: int) -> list[str]:
    """Up to `size` comparison ids: the categories take turns, and so do the prompts of one category."""
    condition, values = selection.where()
    with workspace.store.unit() as db:
        rows = db.execute(
            f"""WITH pool AS (
                    SELECT p.comparison_id, p.prompt_id, coalesce(g.category, '') AS category,
                           sha256($seed || chr(31) || p.comparison_id) AS draw
                    FROM pools p LEFT JOIN {CATEGORIES} g ON g.prompt_id = p.prompt_id WHERE {condition}
                ), turns AS (
                    SELECT *, row_number() OVER (PARTITION BY category, prompt_id ORDER BY draw) AS of_prompt FROM pool
                )
                SELECT comparison_id FROM (
                    SELECT comparison_id, draw,
                           row_number() OVER (PARTITION BY category ORDER BY of_prompt, draw) AS turn FROM turns
                ) ORDER BY turn, draw LIMIT $size""",
            {**values, "seed": str(seed), "size": size},
        ).fetchall()
    return [row[0] for row in rows]
