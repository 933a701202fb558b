"""Encoding of judged responses: questions about one response in one item, their common prefix once.

Covers: encoding by the principle renderer, the reasons a row is left out, questions per item. Leaves
out: reading and dividing rows (`assay_rm_training.data.principle_rows`, `principle_split.py`), the loss
(`principle.py`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.conversation.message import identity_of
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.principle_renderer import PrincipleRenderer
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.principle_rows import PrincipleRow
from assay_rm_training.data.response_groups import encode_rows, is_empty


class JudgedResponse(NamedTuple):
    """Questions about one response: `group` has a branch for each; `labels` are the answer tokens."""

    group: TokenGroup
    labels: tuple[int, ...]
    weights: tuple[float, ...]


class EncodedQuestion(NamedTuple):
    """One question about one response; `response`: number of the response, by first occurrence among all rows."""

    tokens: npt.NDArray[np.int32]
    response: int
    label: int
    weight: float


def encode_judgments(
    rows: Collection[PrincipleRow],
    renderer: PrincipleRenderer,
    *,
    together: int = 8,
    collect: Collect = list,
    advance: Advance = silent,
) -> EncodedDataset[JudgedResponse]:
    """Items of at most `together` questions about one response, in order of first occurrence.

    A row is left out, and counted, where the response and the question do not fit or cannot be rendered, and where the
    same question about the same response has both answers. Raises BadInputError when none remains.
    """
    both_ways = _contradicted(rows)
    numbers: dict[Any, int] = {}

    def encode(row: PrincipleRow) -> tuple[EncodedQuestion, bool] | str:
        if _question(row) in both_ways:
            return "judged both ways"
        return _encode(row, renderer, numbers.setdefault((row.prompt, row.response), len(numbers)))

    encoded: EncodedDataset[EncodedQuestion] = encode_rows(
        rows,
        encode,
        unit="rows",
        identity=_identity,
        name_of=lambda row: f"{ids.response_id(ids.prompt_id(row.prompt), row.response)}, {row.principle}",
        collect=collect,
        advance=advance,
    )
    questions: dict[int, list[int]] = defaultdict(list)
    for number, question in enumerate(encoded.items):
        questions[question.response].append(number)

    def judged_responses() -> Iterator[JudgedResponse]:
        for of_one in questions.values():
            for start in range(0, len(of_one), together):
                some = [encoded.items[number] for number in of_one[start : start + together]]
                labels, weights = tuple(one.label for one in some), tuple(one.weight for one in some)
                yield JudgedResponse(group_of([one.tokens for one in some]), labels, weights)

    return encoded.with_items(judged_responses())


def _encode(row: PrincipleRow, renderer: PrincipleRenderer, response: int) -> tuple[EncodedQuestion, bool] | str:
    """The question and whether it was cut, or why not: 'reason' or 'reason: detail'."""
    if is_empty(row.response):
        return "the response is empty"
    try:
        encoded = renderer.encode(row.prompt, row.response, row.principle)
    except BadInputError as error:
        return f"cannot be rendered: {error}"
    if encoded.response_cut:
        return f"does not fit: the response and the question pass {renderer.max_length} tokens (max_length)"
    label = renderer.answers.yes if row.fulfilled else renderer.answers.no
    return EncodedQuestion(np.asarray(encoded.ids, np.int32), response, label, row.weight), encoded.truncated


def _identity(row: PrincipleRow) -> tuple[Any, ...]:
    """The fields of a row that the digest is of."""
    return ids.prompt_id(row.prompt), identity_of(row.response), row.principle, row.fulfilled, row.weight


def _question(row: PrincipleRow) -> tuple[Any, Any, str]:
    return row.prompt, row.response, row.principle


def _contradicted(rows: Collection[PrincipleRow]) -> set[tuple[Any, Any, str]]:
    answers: dict[tuple[Any, str, str], set[bool]] = defaultdict(set)
    for row in rows:
        answers[_question(row)].add(row.fulfilled)
    return {question for question, labels in answers.items() if len(labels) > 1}
