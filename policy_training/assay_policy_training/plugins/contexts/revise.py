"""Improving an answer: every answer of a group once more, as what is to be written after each answer of the group.

Covers: the rows that SRPO's improving policy is fitted on: n answers give n plain rows and n x n rows whose context
shows one of them as the previous answer. They stay in the group; the prompt that rewards read is the original one. The
answers are recorded ones (sampler `recorded`) or the policy's own (sampler `self_revision`). Leaves out: drawing them.

Source: arXiv 2406.01660; the wording of the request is ours.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PLACE, RECORD, RESPONSES, PromptItem, record_of
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.protocols import ResampleRequest

PREVIOUS = "previous_answer"  #: entry of a row's prompt: place of the record it is to improve
REVISED = "revised"


class Revise(RecipeSettings, section="contexts"):
    """S1. `request`: the user's turn after the previous answer."""

    request: str = "Improve your answer."

    def __post_init__(self) -> None:
        if not self.request.strip():
            raise BadInputError("must say something", field="contexts.request")

    def revising(self, item: PromptItem, answer: str) -> PromptItem:
        """The prompt with an answer and the request to improve it as what is generated from and trained on."""
        context = (*item.prompt, Message("assistant", answer), Message("user", self.request))
        return replace(item, generate_from=context, train_on=context, source=REVISED)

    def first(self, items: Sequence[PromptItem]) -> list[PromptItem]:
        return list(items)

    def again(self, batch: RolloutBatch, round: int) -> list[ResampleRequest]:
        """Once. Raises BadInputError for rows that are no recorded responses."""
        if round > 1:
            return []
        groups: dict[str, list[int]] = {}
        for row, uid in enumerate(batch.uid):
            groups.setdefault(uid, []).append(row)
        redraws = []
        for uid, rows in groups.items():
            records = [record_of(batch.items[row]) for row in rows]
            if not all(records):
                raise BadInputError("answers to improve: sampler recorded or self_revision", field="contexts")
            for row, previous in zip(rows, records, strict=True):
                item = batch.items[row]
                meta = {**item.meta, RESPONSES: records, PREVIOUS: previous[PLACE]}
                del meta[RECORD]
                item = replace(self.revising(item, batch.responses[row]), meta=meta)
                redraws.append(ResampleRequest(uid, item, replace=False))
        return redraws
