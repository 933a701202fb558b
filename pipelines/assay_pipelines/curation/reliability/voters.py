"""Several noisy voters by the models of crowd-kit: who is right how often, from all their answers together.

Covers: answers of A or B as crowd-kit wants them, gold as known labels where the model takes any. Leaves out: the
models (Dawid and Skene 1979; MACE, Hovy et al. 2013; GLAD, Whitehill et al. 2009), which need the extra `voters`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from assay.errors import BackendError
from assay.workspace import Workspace

if TYPE_CHECKING:
    from assay_pipelines.judging.asking import StoredOpinion

VoterModel: TypeAlias = Literal["dawid-skene", "one-coin", "mace", "glad"]
_CLASSES = {"dawid-skene": "DawidSkene", "one-coin": "OneCoinDawidSkene", "mace": "MACE", "glad": "GLAD"}


def side_probabilities(
    model: VoterModel, workspace: Workspace, votes_on: "Mapping[str, Mapping[str, StoredOpinion]]"
) -> dict[str, float]:
    """comparison id -> P(A); those without an answer of A or B are left out. `votes_on`: comparison id -> voter -> what
    it said. The voters' answers on gold are counted too; dawid-skene takes its labels as known, the others none.

    Raises BackendError without the library.
    """
    from assay_pipelines.judging.asking import opinions

    voters = {voter for votes in votes_on.values() for voter in votes}
    gold = _gold(workspace)
    on_gold = opinions(workspace, list(gold), sorted(voters)) if gold else {}
    rows = [
        (comparison, voter, opinion.answer)
        for answered in (votes_on, on_gold)
        for comparison, votes in answered.items()
        for voter, opinion in votes.items()
        if opinion.answer in ("A", "B")
    ]
    if not rows:
        return {}
    probabilities = _fitted(model, rows, {c: label for c, label in gold.items() if c in on_gold})
    return {comparison: p for comparison, p in probabilities.items() if comparison in votes_on}


def _fitted(model: VoterModel, rows: Sequence[tuple[str, str, str]], gold: Mapping[str, str]) -> dict[str, float]:
    try:
        import crowdkit.aggregation as aggregation
        import pandas as pd
    except ImportError as error:
        raise BackendError(
            f"the voter model {model!r} needs crowd-kit: pip install 'assay[voters]' ({error})"
        ) from error
    answers = pd.DataFrame(rows, columns=["task", "worker", "label"])
    fitted: Any = getattr(aggregation, _CLASSES[model])()
    if model == "dawid-skene" and gold:
        table = fitted.fit_predict_proba(answers, true_labels=pd.Series(dict(gold)))
    else:
        table = fitted.fit_predict_proba(answers)
    if "A" not in table:
        return dict.fromkeys(table.index, 0.0)
    return {str(task): float(p) for task, p in table["A"].fillna(0.0).items()}


def _gold(workspace: Workspace) -> dict[str, str]:
    with workspace.store.unit() as db:
        rows = db.execute(
            "SELECT comparison_id, label FROM current_decisions WHERE pool = 'gold' AND label IN ('A', 'B')"
        ).fetchall()
    return dict(rows)
