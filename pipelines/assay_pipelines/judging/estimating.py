"""Estimates of calls, tokens and cost before a judge is asked, for a dry run.

Covers: language models, whose calls cost something. Leaves out: other judges, which cost nothing, and retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.workspace import Workspace
from assay_pipelines.judging.asking import answered
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.openai_compatible import LlmJudge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.endpoint import most_tokens
from assay_pipelines.llm.questions import Question


@dataclass(frozen=True, slots=True)
class AskingEstimate:
    """`questions`: not answered yet. `tokens`: at most, in and out, counted as the budget reserves them; real use is
    often well below. `cost`: of these, None where no prices are given."""

    judge: str
    questions: int
    calls: int = 0
    tokens: int = 0
    cost: float | None = None


def estimate(
    workspace: Workspace, judge: Judge, questions: Sequence[Question], *, occasion: str = ""
) -> AskingEstimate:
    """The calls that `ask` would make; writes nothing but the annotator's name."""
    annotator = annotator_of(judge)
    answered_before = answered(workspace, annotator, [q.comparison_id for q in questions], occasion=occasion)
    todo = list({q.comparison_id: q for q in questions if q.comparison_id not in answered_before}.values())
    if not isinstance(judge, LlmJudge):
        return AskingEstimate(annotator.name, len(todo))
    config = judge.settings.endpoint
    calls = read = 0
    for question in todo:
        for call in judge.calls(question):
            calls += 1
            read += most_tokens(call.messages)
    written = calls * config.max_tokens
    return AskingEstimate(annotator.name, len(todo), calls, read + written, config.cost(read, written))
