"""The scores that a job of `assay score` wrote, a page of lines at a time, beside the responses that they are of.

Reads the job's output: no form has --out. Each line is checked once, and its place remembered, so that a page reads its
own lines. Damaged lines are left out and counted; files outside the workspace are not read. Leaves out: what a line
holds (`assay_serving.score_files`), scores in the store.
"""

import json
from array import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import BaseModel

from assay.domain import response_text
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_serving.score_files import read_rows
from assay_web.jobs.job import Job
from assay_web.processes.log import OUTPUT_FILE, tail

BEGINS = b'{"row": '
#: Outputs whose places are remembered, at 16 bytes a line.
MOST_INDEXES = 8


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
    """Scores of the lines from `offset` on; `lines`: of all, without those that are `damaged`."""

    scores: list[ScoredResponse]
    offset: int
    lines: int
    damaged: int


class ScoreIndex:
    """Where the lines of an output stand that hold scores; `damaged`: lines that should, and do not."""

    def __init__(self, file: Path) -> None:
        self.file, self.damaged = file, 0
        self._starts, self._lengths = array("Q"), array("Q")
        self._end, self._lock = 0, Lock()

    def __len__(self) -> int:
        return len(self._starts)

    def read_on(self) -> None:
        """Check the lines that were written since; the last one only when it is complete."""
        with self._lock, self.file.open("rb") as stream:
            stream.seek(self._end)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                if (start := line.find(BEGINS)) >= 0:
                    if is_whole(line[start:-1]):
                        self._starts.append(self._end + start)
                        self._lengths.append(len(line) - 1 - start)
                    else:  # cut when the disk was full
                        self.damaged += 1
                self._end += len(line)

    def lines(self, begin: int, end: int) -> Iterator[bytes]:
        """The JSON of these lines, without line ends."""
        with self._lock:  # `read_on` of another request appends to one, then to the other
            parts = list(zip(self._starts[begin:end], self._lengths[begin:end], strict=True))
        with self.file.open("rb") as stream:
            for start, length in parts:
                stream.seek(start)
                yield stream.read(length)


@lru_cache(maxsize=MOST_INDEXES)
def _index(file: Path) -> ScoreIndex:
    return ScoreIndex(file)


def index_of(job: Job) -> ScoreIndex | None:
    """Of all that it has written so far; None where it is no job that scores, or has written nothing."""
    file = job.folder / OUTPUT_FILE
    if job.kind != "score" or not file.is_file():
        return None
    index = _index(file)
    index.read_on()
    return index


def scores_of(workspace: Workspace, job: Job, offset: int, limit: int) -> JobScores:
    if (index := index_of(job)) is None:
        return JobScores(scores=[], offset=offset, lines=0, damaged=0)
    lines = [json.loads(text) for text in index.lines(offset, offset + limit)]
    texts = _responses(workspace, job, {line["row"] for line in lines})
    usual = "float32" if " in float32" in tail(job.folder, 400) else None
    scores = [score for line in lines for score in _scored(line, texts.get(line["row"], []), usual)]
    return JobScores(scores=scores, offset=offset, lines=len(index), damaged=index.damaged)


def is_whole(text: bytes) -> bool:
    """Whether a line is what `assay score` writes."""
    try:
        line = json.loads(text)
        return isinstance(line["row"], int) and all(True for _ in _scored(line, [], None))
    except (ValueError, TypeError, LookupError, AttributeError):
        return False


def _responses(workspace: Workspace, job: Job, rows: set[int]) -> dict[int, list[str]]:
    """By line of the input."""
    file = _inside(workspace, job.settings.get("file"))
    if file is None or not file.is_file() or not rows:
        return {}
    texts: dict[int, list[str]] = {}
    try:
        for row in read_rows(file, numbers=rows):
            texts[row.number] = [response_text(item.response) for item in row.items]
            if row.number >= max(rows):
                break
    except BadInputError:  # changed since
        return {}
    return texts


def _inside(workspace: Workspace, path_text: object) -> Path | None:
    path = (workspace.root / str(path_text or "")).resolve()
    return path if path.is_relative_to(workspace.root.resolve()) else None


def _scored(line: dict[str, Any], texts: list[str], usual: str | None) -> Iterator[ScoredResponse]:
    results = line["scores"] if "scores" in line else [line.get("score", line)]
    for number, result in enumerate(results):
        error = result.get("error")
        yield ScoredResponse(
            row=line["row"],
            id=None if line.get("id") is None else str(line["id"]),
            response=texts[number] if number < len(texts) else None,
            reward=result["reward"] if error is None else None,
            probability=result.get("probability"),
            uncertainty=result.get("uncertainty"),
            truncated=bool(result.get("truncated")),
            dtype=None if error is not None else line.get("dtype", usual),
            error=None if error is None else f"{error['code']}: {error['message']}",
        )
