"""Content-free rows: a negative test of judges, in which an answer without content must not win.

Covers: building such rows from judged ones, for evaluation and training: a pair becomes its better response against a
content-free one, a single response a content-free one with verdict No. Leaves out: the strings (`assay_serving`), the
evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.errors import BadInputError
from assay_rm_training.generative.judged_rows import JudgedRow
from assay_serving.generative.content_free import CONTENT_FREE
from assay_serving.generative.templates import JudgeFormat

#: The rationale of such a row in training, by number of responses.
REASONS = {1: "The response says nothing.", 2: "Response B says nothing."}


def content_free_rows(rows: Sequence[JudgedRow], form: JudgeFormat) -> list[JudgedRow]:
    """One row per prompt, with the strings in turn. Raises BadInputError for rating formats."""
    if len(form.labels) != 2:
        raise BadInputError(f"a {form.name} judge has no verdict that would be wrong", field="format")
    empty_rows: list[JudgedRow] = []
    seen = set()
    for row in rows:
        if row.prompt in seen:
            continue
        seen.add(row.prompt)
        empty = CONTENT_FREE[len(empty_rows) % len(CONTENT_FREE)]
        if form.responses == 1:
            empty_rows.append(replace(row, responses=(empty,), label="No", rationale=""))
        else:
            better = row.responses["AB".index(row.label)]
            empty_rows.append(replace(row, responses=(better, empty), label="A", rationale=""))
    return empty_rows
