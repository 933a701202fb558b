"""Ranking the responses to a prompt, the best first; equal ranks are ties. The judgments are those of all pairs."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, ClassVar

from assay.annotation.item_answers import comparison_of
from assay.domain import ShownOrder
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.item_form import ItemForm, answered, list_in, passed_on
from assay_pipelines.annotation.question_types.question_type import Submission, Terminal, TerminalForm, VoteRecord

MOST_RANKED = 9  #: responses of one item
LETTERS = "abcdefghi"


class ResponseRanking:
    """The answer's `ranks`: of each response in the order shown, 1 the best; 1, 2, 2, 4 and 1, 2, 2, 3 are the same."""

    component: ClassVar[str] = "ResponseRanking"

    def words(self) -> Mapping[str, Any]:
        return {"most": MOST_RANKED}

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm | None:
        return None if item is None else _RankingForm(len(item["responses"]))

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        if (skipped := passed_on(submission)) is not None:
            return skipped
        ranks, responses = list_in(submission, "ranks"), item["response_ids"]
        if len(ranks) != len(responses) or any(type(rank) is not int or rank < 1 for rank in ranks):
            raise BadInputError(f"a rank from 1 for each of the {len(responses)} responses", field="response")
        if order == "BA":
            ranks = ranks[::-1]
        judgments = []
        for (first, one), (second, other) in combinations(zip(responses, ranks, strict=True), 2):
            keys, first_is_b = comparison_of(item["prompt_id"], first, second)
            answer = "tie" if one == other else "A" if (one < other) != first_is_b else "B"
            judgments.append({**keys, "answer": answer})
        return answered(submission, judgments=judgments)


class _RankingForm(ItemForm):
    """The letters of the responses, best first; `=` before a letter ties it with the one before."""

    def __init__(self, responses: int) -> None:
        super().__init__()
        self._responses = responses
        self._groups: list[list[int]] = []
        self._tie = False

    def own_keys(self) -> Sequence[tuple[str, str]]:
        return [(f"a-{LETTERS[self._responses - 1]}", "the next best"), ("=", "as good as the last")]

    def own_notes(self) -> Sequence[str]:
        groups = [" = ".join(LETTERS[index].upper() for index in group) for group in self._groups]
        return [" > ".join(groups) + (" = ?" if self._tie else "")] if groups else []

    def take(self, key: str, terminal: Terminal) -> bool:
        index = LETTERS[: self._responses].find(key) if key else -1
        if key == "=" and self._groups:
            self._tie = not self._tie
        elif key == "z":
            self._tie = False
            if self._groups:
                self._groups[-1].pop()
                self._groups = [group for group in self._groups if group]
        elif index >= 0 and not any(index in group for group in self._groups):
            if self._tie:
                self._groups[-1].append(index)
            else:
                self._groups.append([index])
            self._tie = False
            if sum(map(len, self._groups)) == self._responses:
                ranks = {index: rank for rank, group in enumerate(self._groups, 1) for index in group}
                self.submit({"ranks": [ranks[index] for index in range(self._responses)]})
        else:
            return False
        return True
