"""Responses in steps: which step a piece of text or a token belongs to, and the values that a reward gave the steps.

Covers: steps cut at a separator, in text and in tokens alike; `segment` of a batch from it; step values as parts of a
score. Leaves out: the source of the values (`process_reward`), their use (`shaping.process`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from assay.errors import BadInputError
from assay.score import START, STEP, Score, ScorePart
from assay_policy_training.core.batch import RolloutBatch, group_moments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATOR = "\n\n"


def step_of_piece(text: str, separator: str = SEPARATOR) -> list[int]:
    """Step number of each piece between separators; a piece of white space belongs to the step before it."""
    numbers: list[int] = []
    step = -1
    for piece in text.split(separator):
        step += bool(piece.strip())
        numbers.append(max(step, 0))
    return numbers


def step_prefixes(text: str, separator: str = SEPARATOR) -> list[str]:
    """The text up to the end of each step, the last of them the whole text; at least one."""
    pieces, numbers = text.split(separator), step_of_piece(text, separator)
    ends = [i for i in range(len(pieces)) if i + 1 == len(pieces) or numbers[i + 1] > numbers[i]]
    return [separator.join(pieces[: end + 1]) for end in ends]


def split_steps(text: str, separator: str = SEPARATOR) -> list[str]:
    """The text cut after each step and its separator: joined, they are the text."""
    cuts = [len(prefix) + len(separator) for prefix in step_prefixes(text, separator)[:-1]]
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


def segments(tokenizer: "PreTrainedTokenizerBase", batch: RolloutBatch, separator: str = SEPARATOR) -> Tensor:
    """[B,T] int64: step number of each token that is there, 0 elsewhere. A token belongs to the step it begins in."""
    present = batch.present
    numbers = torch.zeros(present.shape, dtype=torch.long)
    pieces: dict[int, str] = {}
    for row in range(len(batch)):
        ids = batch.tokens[row][present[row]].tolist()
        for token in ids:
            if token not in pieces:
                pieces[token] = str(
                    tokenizer.decode([token], skip_special_tokens=True, clean_up_tokenization_spaces=False)
                )
        numbers[row, present[row]] = torch.tensor(_numbers([pieces[i] for i in ids], separator), dtype=torch.long)
    return numbers


def _numbers(pieces: Sequence[str], separator: str) -> list[int]:
    """Step number of each piece of a text. A separator is ASCII, so bytes of a split character cannot hide it."""
    text = "".join(pieces)
    ends, at = [], text.find(separator)
    while at >= 0:
        ends.append(at + len(separator))
        at = text.find(separator, ends[-1])
    numbers = step_of_piece(text, separator)
    out, start = [], 0
    for piece in pieces:
        out.append(numbers[bisect_right(ends, start)])
        start += len(piece)
    return out


def with_step_values(score: Score, values: Sequence[float], start: float | None = None) -> Score:
    """The score with a part for each step, and one for the value before the first; its reward is the last value."""
    by_name = [(f"{STEP}{number}", worth) for number, worth in enumerate(values, start=1)]
    by_name = by_name if start is None else [(START, start), *by_name]
    parts = tuple(ScorePart(name, value=worth, model=score.model, version=score.version) for name, worth in by_name)
    return replace(score, reward=values[-1], parts=parts)


def step_values(batch: RolloutBatch, part: str) -> list[list[float] | None]:
    """Per row, the values that the reward `part` gave its steps; None where it gave none."""
    per_row: list[list[float] | None] = []
    for row in batch.scores:
        score = row.get(part)
        per_row.append(list(score.steps) or None if score is not None else None)
    return per_row or [None] * len(batch)


def start_values(batch: RolloutBatch, part: str) -> Tensor:
    """[B] float64: the value before the first step, as the reward `part` gave it. Of rows without one the mean value
    after the first step over the group's rows that have values; NaN where there is none."""
    values = step_values(batch, part)
    first = torch.tensor([row[0] if row else torch.nan for row in values], dtype=torch.float64)
    starts = []
    for row in batch.scores or [{}] * len(batch):
        score = row.get(part)
        start = next((p.value for p in score.parts if p.name == START), None) if score is not None else None
        starts.append(torch.nan if start is None else start)
    start_of_part = torch.tensor(starts, dtype=torch.float64)
    if batch.reward is not None:
        first = torch.where(batch.valid, first, torch.nan)
    count, mean, _, _ = group_moments(first, batch.group, ddof=0)
    return torch.where(start_of_part.isnan(), torch.where(count > 0, mean, torch.nan), start_of_part)


def segments_of(tokenizer: "PreTrainedTokenizerBase | None", batch: RolloutBatch, separator: str) -> Tensor:
    """The batch's own segments, else those of the text."""
    if batch.segment is not None:
        return batch.segment
    assert tokenizer is not None  # attached before the first step
    return segments(tokenizer, batch, separator)


def by_token(by_step: Sequence[float], steps: Tensor, *, field: str) -> Tensor:
    """[n] float32 of the step numbers [n] of tokens. Raises BadInputError for more steps than there are values: the
    reward cut the text elsewhere, so that no value belongs to these tokens."""
    if len(steps) and (number := int(steps.max()) + 1) > len(by_step):
        raise BadInputError(
            f"{number} steps, and {len(by_step)} values from the reward: it must end steps where this does", field=field
        )
    return torch.tensor(by_step, dtype=torch.float32)[steps]


def last_token_of_step(segment: Tensor, present: Tensor, step: int) -> int | None:
    """Position in a row ([T] each) of the last token at or before the end of the step; None where there is none."""
    before = (present & (segment <= step)).nonzero()
    return int(before[-1]) if len(before) else None
