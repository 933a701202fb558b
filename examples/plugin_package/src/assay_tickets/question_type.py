"""The question type `reasoned`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.domain import ShownOrder
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.pair import PairPreference
from assay_pipelines.annotation.question_types.question_type import Submission, VoteRecord


class ReasonedPair(PairPreference):
    """A pair vote that needs a rationale of at least three words."""

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        if submission.choice and len((submission.rationale or "").split()) < 3:
            raise BadInputError("say why, in three words or more", field="rationale")
        return super().record(submission, item, order, vote)
