"""Scoring JSON Lines: every input line gives one output line, and a broken line fails alone.

Covers: reading rows with `prompt` and `response`, `responses` (texts, or turns as messages) or `steps` (and `label`,
`rubric` and `references`, which composed and rubric rewards read), scoring them in bounded memory, the lines written, a
file of them that resumes where it was interrupted, counts of failures by reason. Leaves out: the scorer
(`model_loader`), storage (the command).
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns, response_form_of, row_turns
from assay.data.json_lines import Lines, RowError, parse_object
from assay.domain import prompt_of, response_of
from assay.errors import BackendError, BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay.system.plurals import counted
from assay_serving.rubrics.rubric import RUBRIC, with_rubric
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer, require_step_reader

ITEMS_AT_ONCE = 1024
#: Of the first round, which the next ones double: what a killed command loses is no more than what it has.
FIRST_ITEMS = 64


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One line of the input: what to score, or why it cannot be."""

    number: int  #: 1-based line
    items: tuple[ScoreItem, ...] = ()
    id: Any = None
    grouped: bool = False  #: `responses` and not `response`
    error: RowError | None = None


@dataclass
class ScoreReport:
    """Counts of one run. `failures`: responses without a score by code; broken lines count as one each."""

    rows: int = 0
    scored: int = 0
    tokens: int = 0
    truncated: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        return self.failures.total()

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "failures": dict(self.failures), "failed": self.failed}

    def text(self) -> str:
        why = f" ({', '.join(f'{code} {n}' for code, n in self.failures.most_common())})" if self.failures else ""
        cut = f", {self.truncated} truncated" if self.truncated else ""
        return f"{counted(self.rows, 'row')}: {counted(self.scored, 'response')} scored{cut}, {self.failed} failed{why}"


def read_rows(path: Path, principle: str | None = None, numbers: Container[int] | None = None) -> Iterator[ScoreRow]:
    """The file's lines, of these `numbers`; `principle` is for those that name none. Raises BadInputError when the file
    cannot be read; wrong lines are rows with an error."""
    for number, line in Lines(path):
        if numbers is not None and number not in numbers:
            continue
        fields: dict[str, Any] = {}
        try:
            fields = parse_object(line)
            yield _row(number, fields, principle)
        except RowError as error:
            yield ScoreRow(number, id=fields.get("id"), error=error)


class ScoreFile:
    """The file of result lines. Until all are there they are in `FILE.part`, beside `FILE.part.json`, which says of
    what they are: the same rows and scorer go on after its last line, anything else begins anew. What is no file
    (`/dev/stdout`) is written as it is."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """`identity`: JSON; what the lines depend on. `report`, `last_row`: counts and number of rows that are there.

        Raises BadInputError where the file cannot be written.
        """
        self.path, self.report, self.last_row = path, ScoreReport(), 0
        self._stored = path.is_file() or not path.exists()
        self._part = path.with_name(f"{path.name}.part") if self._stored else path
        self._about = path.with_name(f"{path.name}.part.json")
        try:
            if self._stored:
                self._begin(json.dumps(identity, sort_keys=True))
            self._stream = self._part.open("a", encoding="utf-8")
        except OSError as error:
            raise BadInputError(f"cannot be written: {error.strerror}", file=path) from error

    def _begin(self, about: str) -> None:
        if self._part.is_file() and self._about.is_file() and self._about.read_text(encoding="utf-8") == about:
            size = 0
            with self._part.open("rb") as lines:
                for line in lines:
                    try:
                        written = json.loads(line) if line.endswith(b"\n") else None
                    except ValueError:
                        written = None
                    if written is None:  # cut off, or damaged when the power failed: scored again from here
                        break
                    size += len(line)
                    self.last_row = _count_line(self.report, written)
            os.truncate(self._part, size)
        else:
            self._part.write_text("", encoding="utf-8")
            self._about.write_text(about, encoding="utf-8")

    def write(self, line: str) -> None:
        with self._disk():
            self._stream.write(line + "\n")

    def flush(self) -> None:
        with self._disk():
            self._stream.flush()

    def lines(self) -> Iterator[str]:
        """Those that are there."""
        with self._part.open(encoding="utf-8") as written:
            yield from map(str.rstrip, written)

    def close(self, *, complete: bool, keep: bool = True) -> None:
        """`complete`: all lines are there; without `keep` they have been read, and are removed."""
        with self._disk():
            self._stream.close()  # a full disk may show only now, when the buffer is written out
            if complete and self._stored:
                if keep:
                    self._part.replace(self.path)
                else:
                    self._part.unlink()
                self._about.unlink()

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackendError(f"{self._part}: {error.strerror}; lines written before are kept") from error


def score_rows(
    scorer: Scorer,
    rows: Iterable[ScoreRow],
    *,
    report: ScoreReport | None = None,
    write: Callable[[str], object],
    keep: Callable[[Sequence[ScoreItem], Sequence[ScoreResult]], object] = lambda items, results: None,
    complain: Callable[[str], object] = lambda text: None,
    on_progress: Advance = silent,
) -> ScoreReport:
    """Score all rows, about ITEMS_AT_ONCE responses at a time.

    `write` gets one JSON line a row, in order, with its `dtype` where that is not float32; `keep` the items and results
    of each round; `complain` one line for each row that has no score, or not all of them. `report`: of earlier rows,
    whose counts it goes on with.
    """
    report = ScoreReport() if report is None else report
    for chunk in _chunks(rows):
        items = [item for row in chunk for item in row.items]
        require_step_reader(scorer.info, items)
        results = scorer.score(items, on_progress)
        computed_in = {"dtype": other} if (other := other_format(scorer.info)) else {}
        keep(items, results)
        start = 0
        for row in chunk:
            row_results = results[start : start + len(row.items)]
            start += len(row.items)
            _count(report, row, row_results)
            write(json.dumps(_line(row, row_results) | computed_in, ensure_ascii=False))
            for reason in _reasons(row, row_results):
                complain(f"row {row.number}: {reason}")
    return report


def other_format(info: ModelInfo) -> str | None:
    """The number format of the model's scores; None for float32, and where it is not known."""
    return info.dtype if info.dtype not in ("", "unknown", "float32") else None


def _row(number: int, fields: dict[str, Any], default_principle: str | None) -> ScoreRow:
    if sum(name in fields for name in ("response", "responses", "steps")) != 1:
        raise RowError("give one of response, responses and steps", field="response")
    grouped = "responses" in fields
    responses = fields["responses"] if grouped else fields["steps"] if "steps" in fields else [fields["response"]]
    field_name = next(name for name in ("responses", "steps", "response") if name in fields)
    forms = str if field_name == "steps" else (str, list)  # a list of messages: a response in turns
    if not isinstance(responses, list) or not all(isinstance(r, forms) for r in responses):
        raise RowError("not a text" if field_name == "response" else "not a list of texts", field=field_name)
    if not responses:
        raise RowError("is empty", field=field_name)
    principle = fields.get("principle")
    if principle is not None and not isinstance(principle, str):
        raise RowError("not a text", field="principle")
    if principle is None:
        principle = default_principle
    if "prompt" not in fields:
        raise RowError("missing", field="prompt")
    messages = prompt_turns(fields["prompt"])
    in_turns = [response_form_of(r, field_name) for r in responses if not isinstance(r, str)]
    prompt = prompt_of(row_turns(fields, messages, *in_turns) if in_turns else messages)
    try:
        label = with_rubric(fields.get("label"), fields.get(RUBRIC))
    except BadInputError as error:
        raise RowError(str(error), field=RUBRIC) from error
    references = fields.get("references")
    if not isinstance(references, list) or not all(isinstance(r, str) for r in references):
        references = []  # an unrelated field of that name
    if "steps" in fields:
        item = replace(ScoreItem.of_steps(prompt, responses, principle), label=label)
        return ScoreRow(number, (item,), fields.get("id"))
    items = tuple(
        ScoreItem(
            prompt, response_of(response_form_of(r, field_name)), principle, label=label, references=tuple(references)
        )
        for r in responses
    )
    return ScoreRow(number, items, fields.get("id"), grouped)


def _chunks(rows: Iterable[ScoreRow]) -> Iterator[list[ScoreRow]]:
    chunk: list[ScoreRow] = []
    size, most = 0, min(FIRST_ITEMS, ITEMS_AT_ONCE)
    for row in rows:
        chunk.append(row)
        size += max(1, len(row.items))
        if size >= most:
            yield chunk
            chunk, size, most = [], 0, min(2 * most, ITEMS_AT_ONCE)
    if chunk:
        yield chunk


def _count(report: ScoreReport, row: ScoreRow, results: Sequence[ScoreResult]) -> None:
    report.rows += 1
    if row.error is not None:
        report.failures[row.error.code] += 1
    for result in results:
        if isinstance(result, Score):
            report.scored += 1
            report.tokens += result.tokens
            report.truncated += result.truncated
        else:
            report.failures[result.code] += 1


def _count_line(report: ScoreReport, line: Mapping[str, Any]) -> int:
    """As `_count`, of a line that was written; the number of its row."""
    report.rows += 1
    for payload in line.get("scores", [line.get("score", line)]):
        if (error := payload.get("error")) is not None:
            report.failures[error["code"]] += 1
        else:
            report.scored += 1
            report.tokens += payload["tokens"]
            report.truncated += payload["truncated"]
    return int(line["row"])


def _line(row: ScoreRow, results: Sequence[ScoreResult]) -> dict[str, Any]:
    line: dict[str, Any] = {"row": row.number}
    if row.id is not None:
        line["id"] = row.id
    if row.error is not None:
        return line | {"error": {"code": row.error.code, "message": str(row.error)}}
    if row.grouped:
        return line | {"scores": [result.to_dict() for result in results]}
    [only] = results
    return line | ({"score": only.to_dict()} if isinstance(only, Score) else only.to_dict())


def _reasons(row: ScoreRow, results: Sequence[ScoreResult]) -> list[str]:
    if row.error is not None:
        return [str(row.error)]
    failed = [result for result in results if isinstance(result, ScoreFailure)]
    if not failed:
        return []
    count = f"{len(failed)} of {len(results)} responses: " if row.grouped else ""
    return [f"{count}{failed[0].message}"]
