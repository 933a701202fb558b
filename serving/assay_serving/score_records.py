"""Storing scores in the workspace: their responses, the scores, the run."""

from collections.abc import Sequence

from assay.errors import BadInputError
from assay.runs.record import Run
from assay.score import ScoreResult
from assay.store.records import insert_responses, insert_scores
from assay.store.scored_models import stored_version
from assay_serving.scorer import READS_LABEL, ModelInfo, ScoreItem


def save_scores(
    run: Run, items: Sequence[ScoreItem], results: Sequence[ScoreResult], info: ModelInfo, *, by_label: bool = False
) -> int:
    """Write prompts, responses and their scores in one unit of work; returns how many scores were new.

    Failures are stored too, with their reason. Scoring the same response with the same model again adds nothing,
    in another number format a score beside the first.

    `by_label`: a model whose scores depend on an item's label, as a composed reward's may. Raises BadInputError for
    labels or references then: a stored score is found by its prompt and response, so it would stand for every other
    label too.
    """
    if (by_label or info.kind in READS_LABEL) and any(item.label is not None or item.references for item in items):
        raise BadInputError(
            f"the scores of {info.name} may depend on labels or references, which the workspace does not keep with a "
            "response: score without --save"
        )
    with run.workspace.store.unit() as db:
        response_ids = insert_responses(db, [(item.prompt, item.response) for item in items], run.id)
        return insert_scores(
            db,
            zip(response_ids, results, strict=True),
            model=info.name,
            version=stored_version(info.version, info.dtype),
            template_hash=info.template_hash,
            run_id=run.id,
            principles=[item.principle for item in items],
        )
