"""Outcomes of benchmark items by a model: through the serving engine, a reward server, or a pairwise judge.

An item with a response that could not be scored fails, with the code of the first such response. A process reward model
reads the solutions of an item in steps once each; another model scores their beginnings. Leaves out:
loading models (`assay_serving.model_loader`), recorded scores (`recorded.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_serving.scorer import TAKES_NO_PRINCIPLE, ScoreItem, Scorer

if TYPE_CHECKING:
    from assay_serving.generative.pairwise import PairwiseJudge
    from assay_serving.generative.profiles.recognition import UnreadReplies

_VERDICTS = {"A": "A>B", "B": "B>A", "tie": "A=B"}


def score_items(
    scorer: Scorer, items: Sequence[BenchmarkItem], *, principle: str | None = None, advance: Advance = silent
) -> list[Outcome]:
    """One outcome per item. `principle`: for items that name none. `advance` counts responses.

    Raises BadInputError for a `principle` with a scalar model.
    """
    asks = scorer.info.kind not in TAKES_NO_PRINCIPLE  # a scalar model scores an item that names a principle without it
    if principle is not None and not asks:
        raise BadInputError(
            f"{scorer.info.name} is a reward model of kind {scorer.info.kind} and takes no principle", field="principle"
        )
    by_steps = scorer.info.stepwise
    flat = [
        scored
        for item in items
        for scored in (
            [ScoreItem.of_steps(item.prompt, steps) for steps in item.steps]
            if by_steps and item.steps
            else [
                ScoreItem(item.prompt, text, (item.principle if asks else None) or principle) for text in item.responses
            ]
        )
    ]
    results = iter(scorer.score(flat, advance))
    outcomes = []
    for item in items:
        read_by_steps = by_steps and bool(item.steps)
        mine = [next(results) for _ in (item.steps if read_by_steps else item.responses)]
        failed = next((result.code for result in mine if isinstance(result, ScoreFailure)), None)
        scores = [result for result in mine if isinstance(result, Score)]
        outcomes.append(
            Outcome(
                scores=None
                if failed
                else tuple(r for score in scores for r in (score.steps if read_by_steps else (score.reward,))),
                failure=failed,
                truncated=any(score.truncated for score in scores),
            )
        )
    return outcomes


def judge_items(
    judge: "PairwiseJudge", items: Sequence[BenchmarkItem], *, advance: Advance = silent
) -> tuple[list[Outcome], "UnreadReplies"]:
    """Two games per item, the second with the responses exchanged; decisions in the item's A and B; and the replies
    that could not be read. One of them is a null decision, an item without any readable reply a failure
    (`unparsable`). `advance` counts games."""
    from assay_serving.generative.pairwise import PairQuestion
    from assay_serving.generative.profiles.recognition import UnreadReplies

    pairs = [PairQuestion(item.prompt, item.responses[0], item.responses[1], item.principle) for item in items]
    outcomes, replies = [], UnreadReplies()
    for outcome in judge.compare(pairs, on_progress=advance):
        if isinstance(outcome, ScoreFailure):
            outcomes.append(Outcome(failure=outcome.code))
            continue
        replies.add(answer for order in outcome.orders for answer in order.answers)
        if not any(outcome.decisions):
            outcomes.append(Outcome(failure="unparsable"))
        else:
            decisions = tuple(_VERDICTS.get(decision or "") for decision in outcome.decisions)
            outcomes.append(Outcome(decisions=decisions, truncated=outcome.truncated))
    return outcomes, replies
