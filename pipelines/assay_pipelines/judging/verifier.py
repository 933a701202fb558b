"""The constraint verifier as judge: the response that satisfies more of a prompt's `meta.constraints` wins.

A comparison without checkable constraints is a failure (`no_answer`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.conversation.message import final_text
from assay.domain import AnnotatorKind, Answer, Response
from assay.errors import BackendError, BadInputError
from assay.workspace import Workspace
from assay_pipelines.judging.judge import JudgeFailure, OnResult, Opinion, Vote
from assay_pipelines.llm.questions import Question
from assay_serving.verifiers import Verification, constraint_from_dict, verify

ANNOTATOR = "constraints"


class ConstraintJudge:
    """Reads the constraints from the store. Its annotator is the one of `assay curate verify`."""

    kind: AnnotatorKind = "verifier"
    name = ANNOTATOR

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    @property
    def config(self) -> Mapping[str, Any]:
        return {}

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        metas = metas_of(self.workspace, questions)
        for index, question in enumerate(questions):
            meta = metas.get(question.comparison_id, {})
            try:
                judged = judge_constraints(meta, question.response_a, question.response_b, question.comparison_id)
            except BackendError as error:
                on_result(index, JudgeFailure("backend", str(error)))
                continue
            if judged is None:
                on_result(index, JudgeFailure("no_answer", "the prompt has no checkable constraint"))
            else:
                answer, rationale = judged
                on_result(index, Opinion(answer, 1.0, (Vote(answer, confidence=1.0, rationale=rationale),), rationale))


def metas_of(workspace: Workspace, questions: Sequence[Question]) -> dict[str, Any]:
    """Comparison -> the `meta` that it was imported with, where it has one."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT comparison_id, min(meta::VARCHAR)
               FROM origins JOIN (SELECT unnest($ids) AS comparison_id) USING (comparison_id)
               WHERE meta IS NOT NULL GROUP BY comparison_id""",
            {"ids": [q.comparison_id for q in questions]},
        ).fetchall()
    return {comparison: json.loads(meta) for comparison, meta in rows}


def judge_constraints(
    meta: Any, response_a: Response, response_b: Response, comparison_id: str
) -> tuple[Answer, str] | None:
    """Answer and reason; None where there is nothing to check. Of a response of several turns the last one is checked.

    Raises BadInputError for constraints that are wrong, BackendError where a check came to no verdict.
    """
    described = meta.get("constraints") if isinstance(meta, Mapping) else None
    if not described or not isinstance(described, list):
        return None  # a column of that name with other content
    try:
        constraints = [constraint_from_dict(entry) for entry in described]
    except (BadInputError, TypeError, AttributeError) as error:
        raise BadInputError(f"comparison {comparison_id}: {error}", field="meta.constraints") from error
    a, b = (verify(constraints, final_text(response)) for response in (response_a, response_b))
    return compare(a, b), f"A: {_verification_words(a)}; B: {_verification_words(b)}"


def compare(first: Verification, second: Verification) -> Answer:
    """The better response is the one that satisfies more constraints."""
    if first.fraction != second.fraction:
        return "A" if first.fraction > second.fraction else "B"
    if first.passed:
        return "both_good"
    return "both_bad" if first.fraction == 0 else "tie"


def _verification_words(verification: Verification) -> str:
    return "satisfies all" if verification.passed else "fails " + ", ".join(verification.failures)
