"""Encoding of judged responses: questions about one response in one item, their common prefix once.

Covers: encoding by the principle renderer, the reasons a row is left out, questions per item. Leaves
out: reading and dividing rows (`assay_rm_training.data.principle_rows`, `principle_split.py`), the loss
(`principle.py`).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay import ids
from assay.conversation.message import identity_of
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.principle_renderer import PrincipleRenderer
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.principle_rows import PrincipleRow
from assay_rm_training.data.response_groups import encode_rows


class JudgedResponse(NamedTuple):
    """Questions about one response: `group` has a branch for each; `labels` are the answer tokens."""

    group: TokenGroup
    labels: tuple[int, ...]
    weights: tuple[float, ...]


def encode_judgments(
    rows: Sequence[PrincipleRow], renderer: PrincipleRenderer, *, together: int = 8, advance: Advance = silent
) -> EncodedDataset[JudgedResponse]:
    """Items of at most `together` questions about one response, in order of first occurrence.

    A row is left out, and counted, where the response and the question do not fit or cannot be rendered, and where the
    same question about the same response has both answers. Raises BadInputError when none remains.
    """
    both_ways = _contradicted(rows)
    encoded = encode_rows(
        rows,
        lambda row: "judged both ways" if _question(row) in both_ways else _encode(row, renderer),
        unit="rows",
        identity=_identity,
        name_of=lambda row: f"{ids.response_id(ids.prompt_id(row.prompt), row.response)}, {row.principle}",
        advance=advance,
    )
    responses: dict[Any, list[tuple[tuple[int, ...], int, float]]] = defaultdict(list)
    for row, tokens in encoded.items:
        label = renderer.answers.yes if row.fulfilled else renderer.answers.no
        responses[row.prompt, row.response].append((tokens, label, row.weight))
    items = []
    for questions in responses.values():
        for start in range(0, len(questions), together):
            sequences, labels, weights = zip(*questions[start : start + together], strict=True)
            items.append(JudgedResponse(group_of(sequences), labels, weights))
    return EncodedDataset(items, encoded.left_out, encoded.truncated, encoded.digest, encoded.first_fault)


def _encode(row: PrincipleRow, renderer: PrincipleRenderer) -> tuple[tuple[PrincipleRow, tuple[int, ...]], bool] | str:
    """The row with its token ids and whether they were cut, or why not: 'reason' or 'reason: detail'."""
    try:
        encoded = renderer.encode(row.prompt, row.response, row.principle)
    except BadInputError as error:
        return f"cannot be rendered: {error}"
    if encoded.response_cut:
        return f"does not fit: the response and the question pass {renderer.max_length} tokens (max_length)"
    return (row, encoded.ids), encoded.truncated


def _identity(row: PrincipleRow) -> tuple[Any, ...]:
    """The fields of a row that the digest is of."""
    return ids.prompt_id(row.prompt), identity_of(row.response), row.principle, row.fulfilled, row.weight


def _question(row: PrincipleRow) -> tuple[Any, Any, str]:
    return row.prompt, row.response, row.principle


def _contradicted(rows: Sequence[PrincipleRow]) -> set[tuple[Any, Any, str]]:
    answers: dict[tuple[Any, str, str], set[bool]] = defaultdict(set)
    for row in rows:
        answers[_question(row)].add(row.fulfilled)
    return {question for question, labels in answers.items() if len(labels) > 1}
