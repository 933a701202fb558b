"""Encoding of judged responses: questions about one response in one item, their common prefix once.

Covers: encoding by the principle renderer, the reasons a row is left out, questions per item. Leaves
out: reading and dividing rows (`assay_rm_training.data.principle_rows`, `principle_split.py`), the loss
(`principle.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay import ids
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.principle_renderer import PrincipleRenderer
from assay.runs.progress_bar import Advance, silent
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.principle_rows import PrincipleRow


class JudgedResponse(NamedTuple):
    """Questions about one response: `group` has a branch for each; `labels` are the answer tokens."""

    group: TokenGroup
    labels: tuple[int, ...]
    weights: tuple[float, ...]


def encode_rows(
    rows: Sequence[PrincipleRow], renderer: PrincipleRenderer, *, together: int = 8, advance: Advance = silent
) -> EncodedDataset[JudgedResponse]:
    """Items of at most `together` questions about one response, in order of first occurrence.

    A row is left out, and counted, where the response and the question do not fit or cannot be rendered, and where the
    same question about the same response has both answers. Raises BadInputError when none remains.
    """
    left_out: Counter[str] = Counter()
    first_fault, truncated = "", 0
    both_ways = _contradicted(rows)
    responses: dict[Any, list[tuple[tuple[int, ...], int, float]]] = defaultdict(list)
    for number, row in enumerate(rows, start=1):
        outcome = "judged both ways" if _question(row) in both_ways else _encode(row, renderer)
        if isinstance(outcome, str):
            left_out[outcome.partition(": ")[0]] += 1
            first_fault = first_fault or f"row {number}: {outcome}"
        else:
            label = renderer.answers.yes if row.fulfilled else renderer.answers.no
            responses[row.prompt, row.response].append((outcome[0], label, row.weight))
            truncated += outcome[1]
        advance(1)
    if not responses:
        what = f"none of the {len(rows)} rows can be used; {first_fault}" if rows else "there are no rows"
        raise BadInputError(what)
    items = []
    for questions in responses.values():
        for start in range(0, len(questions), together):
            sequences, labels, weights = zip(*questions[start : start + together], strict=True)
            items.append(JudgedResponse(group_of(sequences), labels, weights))
    digest = ids.rows_digest((ids.prompt_id(r.prompt), r.response, r.principle, r.fulfilled, r.weight) for r in rows)
    return EncodedDataset(items, dict(left_out), truncated, digest, first_fault=first_fault)


def _encode(row: PrincipleRow, renderer: PrincipleRenderer) -> tuple[tuple[int, ...], bool] | str:
    """Token ids and whether they were cut, or why not: 'reason' or 'reason: detail'."""
    try:
        encoded = renderer.encode(row.prompt, row.response, row.principle)
    except BadInputError as error:
        return f"cannot be rendered: {error}"
    if encoded.response_cut:
        return f"does not fit: the response and the question pass {renderer.max_length} tokens (max_length)"
    return encoded.ids, encoded.truncated


def _question(row: PrincipleRow) -> tuple[Any, str, str]:
    return row.prompt, row.response, row.principle


def _contradicted(rows: Sequence[PrincipleRow]) -> set[tuple[Any, str, str]]:
    answers: dict[tuple[Any, str, str], set[bool]] = defaultdict(set)
    for row in rows:
        answers[_question(row)].add(row.fulfilled)
    return {question for question, labels in answers.items() if len(labels) > 1}
