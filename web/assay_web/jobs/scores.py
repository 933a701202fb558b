"""The scores that a job of `assay score` wrote, a page of lines at a time, beside the responses that they are of.

Reads the job's output: no form has --out. Damaged lines are left out; files outside the workspace are not read. Leaves
out: what a line holds (`assay_serving.score_files`), scores in the store.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from assay.domain import response_text
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_serving.score_files import read_rows
from assay_web.jobs.job import Job
from assay_web.processes.log import OUTPUT_FILE, tail

BEGINS = '{"row": '


class ScoredResponse(BaseModel):
    """`row`: the line of the input; `response`: null where its file is not in the workspace, or the line is broken.
    `dtype`: the number format; null before the summary says that it is float32. `error`: why there is no score."""

    row: int
    id: str | None
    response: str | None
    reward: float | None
    probability: float | None
    uncertainty: float | None
    truncated: bool
    dtype: str | None
    error: str | None


class JobScores(BaseModel):
    """Scores of the lines from `offset` on; `lines`: of all."""

    scores: list[ScoredResponse]
    offset: int
    lines: int


def scores_of(workspace: Workspace, job: Job, offset: int, limit: int) -> JobScores:
    lines: list[dict[str, Any]] = []
    total = 0
    for _, line in score_lines(job):
        if offset <= total < offset + limit:
            lines.append(line)
        total += 1
    texts = _responses(workspace, job, {line["row"] for line in lines})
    usual = "float32" if " in float32" in tail(job.folder, 400) else None
    scores = [score for line in lines for score in _scored(line, texts.get(line["row"], []), usual)]
    return JobScores(scores=scores, offset=offset, lines=total)


def score_lines(job: Job) -> Iterator[tuple[str, dict[str, Any]]]:
    """JSON without its line end, and what it says."""
    file = job.folder / OUTPUT_FILE
    if job.kind != "score" or not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if (start := line.find(BEGINS)) < 0 or not line.endswith("}\n"):
                continue
            with suppress(ValueError):  # damaged when the disk was full
                parsed = json.loads(text := line[start:-1])
                if isinstance(parsed["row"], int):
                    yield text, parsed


def _responses(workspace: Workspace, job: Job, rows: set[int]) -> dict[int, list[str]]:
    """By line of the input."""
    file = _inside(workspace, job.settings.get("file"))
    if file is None or not file.is_file() or not rows:
        return {}
    try:
        read = islice(read_rows(file), max(rows))
        return {row.number: [response_text(item.response) for item in row.items] for row in read if row.number in rows}
    except BadInputError:  # changed since
        return {}


def _inside(workspace: Workspace, path_text: object) -> Path | None:
    path = (workspace.root / str(path_text or "")).resolve()
    return path if path.is_relative_to(workspace.root.resolve()) else None


def _scored(line: dict[str, Any], texts: list[str], usual: str | None) -> Iterator[ScoredResponse]:
    results = line.get("scores") or [line.get("score") or line]
    for number, result in enumerate(results):
        error = result.get("error")
        yield ScoredResponse(
            row=line["row"],
            id=None if line.get("id") is None else str(line["id"]),
            response=texts[number] if number < len(texts) else None,
            reward=result.get("reward"),
            probability=result.get("probability"),
            uncertainty=result.get("uncertainty"),
            truncated=bool(result.get("truncated")),
            dtype=None if error is not None else line.get("dtype", usual),
            error=None if error is None else f"{error['code']}: {error['message']}",
        )
