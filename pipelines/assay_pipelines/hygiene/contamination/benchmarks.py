"""Registered benchmarks: an immutable name, and the first-turn prompts of a file in its publisher's shape.

The first turn is the first user message. A row's prompt is its column `prompt`, else one of the usual names
(`COLUMNS`): a string, a list of role/content messages, or a list of strings (the turns). Without such a column, the
first human turn of `chosen` or `text` is taken where that is a conversation. Responses are what the columns
`RESPONSES` hold: a string, the last assistant's turn of a conversation, or a list of these.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay import ids
from assay.data.compression import decompressed
from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay.runs.contamination_gate import benchmark_prompt_id
from assay.store.database import registered
from assay.workspace import Workspace
from assay_pipelines.importers.containers.csv_file import Csv
from assay_pipelines.importers.containers.json_files import JsonArray, json_container
from assay_pipelines.importers.containers.parquet_file import Parquet

#: Columns that may hold the prompt, in this order.
COLUMNS = (
    "prompt",
    "question",
    "instruction",
    "context",
    "messages",
    "conversation",
    "conversations",
    "turns",
    "input",
)
#: Columns that may hold responses.
RESPONSES = (
    "chosen",
    "rejected",
    "responses",
    "response",
    "response_A",
    "response_B",
    "completion",
    "output",
    "answer",
    "solution",
)
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
_HUMAN = re.compile(r"^\s*Human: ?(.*?)(?=\n\nAssistant:|\Z)", re.DOTALL)
_ASSISTANT = "\n\nAssistant:"


@dataclass(frozen=True)
class RegisteredBenchmark:
    """`rows` of the file held `prompts` distinct first turns and `responses` distinct responses; `created` False: it
    was registered already with the same."""

    name: str
    content_hash: str
    prompts: int
    file: str
    rows: int = 0
    created: bool = False
    responses: int = 0


def add_benchmark(
    workspace: Workspace, name: str, path: Path, run_id: str | None, *, field: str | None = None
) -> RegisteredBenchmark:
    """Register the prompts of a file. Raises BadInputError for a bad name, a row without a prompt (it names the row),
    an empty file, and a name that holds other prompts already. A benchmark that an earlier version registered without
    its responses gets them; checks made before no longer count.
    """
    if not _NAME.fullmatch(name):
        raise BadInputError(f"{name!r} is not a benchmark name: letters, digits, and . _ + - after the first")
    path = path.expanduser()
    if not path.is_file():
        raise BadInputError("no such file", file=path)
    prompts: dict[str, str] = {}
    responses: dict[tuple[str, str], None] = {}
    rows = 0
    for row, text, answers in _prompts(path, field):
        rows += 1
        if not text.strip():
            raise BadInputError("the prompt has no text", file=path, row=row)
        prompt_id = benchmark_prompt_id(text)
        prompts.setdefault(prompt_id, text)
        responses.update({(prompt_id, answer): None for answer in answers if answer.strip()})
    if not prompts:
        raise BadInputError("holds no prompt", file=path)
    content = ids.rows_digest([[key] for key in sorted(prompts)] + [list(key) for key in sorted(responses)])
    file = str(path.resolve())
    benchmark = RegisteredBenchmark(name, content, len(prompts), file, rows, responses=len(responses))
    return _store(workspace, benchmark, prompts, list(responses), run_id)


def list_benchmarks(workspace: Workspace) -> list[RegisteredBenchmark]:
    """By name."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT benchmark, content_hash, prompts, file, count(r.prompt_id)
               FROM benchmarks b LEFT JOIN benchmark_responses r USING (benchmark) GROUP BY ALL ORDER BY benchmark"""
        ).fetchall()
    return [
        RegisteredBenchmark(name, digest, prompts, file, responses=responses)
        for name, digest, prompts, file, responses in rows
    ]


def _store(
    workspace: Workspace,
    benchmark: RegisteredBenchmark,
    prompts: dict[str, str],
    responses: list[tuple[str, str]],
    run_id: str | None,
) -> RegisteredBenchmark:
    import pyarrow as pa

    table = pa.table({"prompt_id": list(prompts), "content": list(prompts.values())})
    texts = pa.array([text for _, text in responses], pa.string())
    answers = pa.table({"prompt_id": pa.array([prompt for prompt, _ in responses], pa.string()), "content": texts})
    values = {"name": benchmark.name, "run": run_id}
    with workspace.store.unit() as db:
        registered_hash = db.execute(
            "SELECT content_hash FROM benchmarks WHERE benchmark = $name", {"name": benchmark.name}
        ).fetchone()
        if registered_hash is not None:
            if registered_hash[0] == benchmark.content_hash:
                return benchmark
            if not _only_prompts(registered_hash[0], prompts):
                raise BadInputError(
                    f"benchmark {benchmark.name!r} exists with other prompts, which checks refer to: choose a new name"
                )
            db.execute(
                "UPDATE benchmarks SET content_hash = ? WHERE benchmark = ?", [benchmark.content_hash, benchmark.name]
            )
        else:
            db.execute(
                "INSERT INTO benchmarks (benchmark, content_hash, prompts, file, run_id) VALUES (?, ?, ?, ?, ?)",
                [benchmark.name, benchmark.content_hash, benchmark.prompts, benchmark.file, run_id],
            )
            with registered(db, "incoming_prompts", table):
                db.execute(
                    """INSERT INTO benchmark_prompts (benchmark, prompt_id, content, run_id)
                       SELECT $name, prompt_id, content, $run FROM incoming_prompts""",
                    values,
                )
        with registered(db, "incoming_responses", answers):
            db.execute(
                """INSERT INTO benchmark_responses (benchmark, prompt_id, content, run_id)
                   SELECT $name, prompt_id, content, $run FROM incoming_responses""",
                values,
            )
    return replace(benchmark, created=True)


def _only_prompts(content_hash: str, prompts: dict[str, str]) -> bool:
    """Whether the hash is that of these prompts without any response."""
    return content_hash == ids.rows_digest([key] for key in sorted(prompts))


def _prompts(path: Path, field: str | None) -> Iterator[tuple[int, str, list[str]]]:
    """1-based row, prompt and responses of every row. Raises BadInputError at the first row without one."""
    for row, record in _records(path):
        if isinstance(record, RowError):
            raise BadInputError(record.reason, file=path, row=row, field=record.field)
        try:
            yield row, first_prompt(record, field), responses_of(record, field)
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=row, field=error.field) from error


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
    kind = suffixes[-1] if suffixes else ""
    if kind in (".parquet", ".pq"):
        yield from ((row, record) for row, record, _ in Parquet(path).records())
    elif kind in (".csv", ".tsv"):
        yield from ((row, record) for row, record, _ in Csv(path).records())
    elif kind == ".txt":
        with path.open("rb") as raw:
            lines = decompressed(raw).read().decode("utf-8", errors="strict").splitlines()
        yield from ((row, {"prompt": line}) for row, line in enumerate(lines, start=1) if line.strip())
    elif isinstance(container := json_container(path), JsonArray):
        yield from _array(path)
    else:
        yield from ((row, record) for row, record, _ in container.records())


def _array(path: Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    try:
        with path.open("rb") as raw:
            items = json.loads(decompressed(raw).read())
    except (OSError, EOFError, ValueError) as error:
        raise BadInputError(f"not a JSON array ({error})", file=path) from error
    for row, element in enumerate(items, start=1):
        yield row, element if isinstance(element, dict) else {"prompt": element}


def first_prompt(record: dict[str, Any], field: str | None = None) -> str:
    """The first user turn of a row. Raises RowError where there is none."""
    if field is not None:
        if field not in record:
            raise RowError(f"no such field; there are {', '.join(record)}", field=field)
        return _first(record[field], field)
    for name in COLUMNS:
        if record.get(name) not in (None, "", []):
            return _first(record[name], name)
    for name in ("chosen", "text"):
        column = record.get(name)
        if isinstance(column, str) and (match := _HUMAN.match(column)):
            return match[1]
        if isinstance(column, list) and column and isinstance(column[0], dict):
            return _first(column, name)
    raise RowError(f"no prompt among the fields {', '.join(record)}; name one with --field")


def responses_of(record: dict[str, Any], field: str | None = None) -> list[str]:
    """The responses that a row holds; `field`: the column of the prompt."""
    return [text for name in RESPONSES if name != field for text in _texts(record.get(name))]


def _texts(column: Any) -> list[str]:
    if isinstance(column, str):
        return [column.rpartition(_ASSISTANT)[2].strip()] if _HUMAN.match(column) else [column]
    if not isinstance(column, list) or not column:
        return []
    if not all(isinstance(message, dict) for message in column):
        return [text for one in column for text in _texts(one)]
    last = column[-1]
    text = last.get("content", last.get("value"))
    return [text] if isinstance(text, str) and last.get("role", last.get("from")) in ("assistant", "gpt") else []


def _first(column: Any, name: str) -> str:
    if isinstance(column, str):
        match = _HUMAN.match(column)
        return match[1] if match else column
    if isinstance(column, list) and column:
        if isinstance(column[0], str):
            return str(column[0])
        for message in column:
            if isinstance(message, dict):
                role = message.get("role", message.get("from"))
                text = message.get("content", message.get("value"))
                if role in ("user", "human") and isinstance(text, str):
                    return text
        raise RowError("no user turn", field=name)
    raise RowError(f"neither a text nor a list of messages: {column!r:.60}", field=name)
