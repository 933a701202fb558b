"""Judged responses, the training rows of principle models: (prompt, ONE response, principle) and whether it is
fulfilled.

Covers: JSON Lines (also .gz, .zst) and Parquet in the fields of HelpSteer3-Principle and in Assay's own, and what a
filter run of the workspace kept; keys under which near-duplicates of a prompt or a principle are equal. Leaves out:
making such rows from feedback (`assay principles`), dividing them into training and held-out parts.

    {"context": [...], "response": "...", "principle": "clarity", "fulfilment": "Yes", "domain": "general"}
    {"prompt": "..." or [...], "response": "...", "principle": "clarity", "fulfilment": "yes", "source": "mine"}
"""

import json
import logging
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.conversation.message import response_form, stored_prompt, stored_response
from assay.data.conversation import prompt_turns, text_of, text_or_empty
from assay.data.json_lines import RowError
from assay.data.row_files import file_rows
from assay.domain import Prompt, Response, prompt_of
from assay.errors import BadInputError, NotFoundError
from assay.workspace import Workspace

log = logging.getLogger(__name__)

#: What `--data` takes for the rows that the workspace's latest filter run kept.
KEPT_ROWS = "principles"
_ANSWERS = {"yes": True, "no": False}
#: Words that do not change the meaning of a principle.
# fmt: off
_EMPTY = frozenset((
    "a", "an", "and", "answer", "are", "be", "does", "in", "is", "it", "its", "must", "of", "or", "response",
    "should", "that", "the", "this", "to", "with",
))
# fmt: on
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class PrincipleRow:
    """One judged response. `weight`: in the training loss."""

    prompt: Prompt
    response: Response
    principle: str
    fulfilled: bool
    source: str = ""
    category: str = ""
    weight: float = 1.0


def read_principle_file(path: str | Path) -> list[PrincipleRow]:
    """Every row of the file, in its order; `partially` is skipped and counted in a log warning, as RLBFF drops it.

    Raises BadInputError naming file, row and field at the first bad row.
    """
    path = Path(path)
    rows: list[PrincipleRow] = []
    partial = 0
    for number, record in file_rows(path):
        try:
            if str(record.get("fulfilment")).strip().lower() == "partially":
                partial += 1
                continue
            rows.append(principle_row_of(record))
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
    if not rows:
        raise BadInputError("holds no judged response", file=path)
    if partial:
        log.warning("%s: skipped %d rows judged partially", path, partial)
    return rows


def principle_row_of(record: dict[str, Any]) -> PrincipleRow:
    """One row; the conversation is `context` or `prompt`, text or messages. Raises RowError."""
    raw_prompt = record.get("context") if record.get("prompt") is None else record["prompt"]
    answer = record.get("fulfilment")
    fulfilled = answer if isinstance(answer, bool) else _ANSWERS.get(str(answer).strip().lower())
    if fulfilled is None:
        raise RowError("missing" if answer is None else "neither yes nor no", field="fulfilment")
    principle = text_of(record.get("principle"), "principle")
    if not principle.strip():
        raise RowError("empty", field="principle")
    weight = record.get("weight")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0):
        raise RowError("not a positive number", field="weight")
    return PrincipleRow(
        prompt_of(prompt_turns(raw_prompt)),
        text_or_empty(record.get("response"), "response"),
        " ".join(principle.split()),
        fulfilled,
        source=str(record.get("source") or ""),
        category=str(record.get("category") or record.get("domain") or ""),
        weight=1.0 if weight is None else float(weight),
    )


def to_record(row: PrincipleRow) -> dict[str, Any]:
    """Inverse of `principle_row_of`, in Assay's own fields."""
    return {
        "prompt": [message.to_dict() for message in row.prompt],
        "response": response_form(row.response),
        "principle": row.principle,
        "fulfilment": "yes" if row.fulfilled else "no",
        "source": row.source,
        "category": row.category,
        "weight": row.weight,
    }


def write_principle_rows(path: str | Path, rows: list[PrincipleRow]) -> None:
    """JSON Lines in Assay's own fields; whole or not at all."""
    from assay.system.atomic_files import replacing

    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(to_record(row), ensure_ascii=False) + "\n")


def filtered_rows(workspace: Workspace, run: str | None = None) -> list[PrincipleRow]:
    """Rows kept by the filter run (None: the latest finished one), ordered by response and principle.

    Raises NotFoundError without a filter run.
    """
    with workspace.store.unit() as db:
        if run is None:
            judgments = db.execute(
                """SELECT run_id FROM runs WHERE status = 'done' AND run_id IN (SELECT run_id FROM principle_outcomes)
                   ORDER BY ended_at DESC, run_id DESC LIMIT 1"""
            ).fetchone()
            if judgments is None:
                raise NotFoundError(f"{workspace.root} has no filtered principles yet: assay principles filter")
            run = str(judgments[0])
        training_rows = db.execute(
            """SELECT q.messages, q.conversation, r.content, r.turns, p.statement, j.answer,
                      coalesce(min(o.source), ''), coalesce(min(o.category), '')
               FROM principle_outcomes k JOIN standing_principle_judgments j USING (judgment_id)
               JOIN principles p USING (principle_id) JOIN responses r USING (response_id)
               JOIN prompts q USING (prompt_id) LEFT JOIN response_origins o ON o.response_id = r.response_id
               WHERE k.run_id = ? AND k.stage = 'kept' AND j.answer IN ('yes', 'no')
               GROUP BY q.messages, q.conversation, r.content, r.turns, p.statement, j.answer, r.response_id
               ORDER BY r.response_id, p.statement""",
            [run],
        ).fetchall()
    if not training_rows:
        raise NotFoundError(f"run {run} kept no principle: see assay principles report")
    return [
        PrincipleRow(
            stored_prompt(messages, conversation),
            stored_response(content, turns),
            principle,
            answer == "yes",
            source,
            category,
        )
        for messages, conversation, content, turns, principle, answer, source, category in training_rows
    ]


def load_rows_or_file(workspace: Workspace | None, data: str | Path) -> list[PrincipleRow]:
    """`data`: a file; `principles`, what the workspace's latest filter run kept; or a filter run's id.

    Raises NotFoundError for none of them.
    """
    name, path = str(data), Path(data).expanduser()
    if workspace is not None and name == KEPT_ROWS:
        return filtered_rows(workspace)
    if path.is_file():
        return read_principle_file(path)
    if workspace is not None and name.startswith("run-"):
        return filtered_rows(workspace, name)
    raise NotFoundError(
        f"no such file of judged responses: {data} (or: {KEPT_ROWS}, the rows that assay principles filter kept; "
        "snapshots hold pairs, which assay eval --bench pairs --principle TEXT takes)"
    )


def principle_key(principle: str) -> str:
    """A key that is equal for near-duplicate principles."""
    words = _WORD.findall(unicodedata.normalize("NFKC", principle).casefold())
    return " ".join(sorted(set(words) - _EMPTY) or sorted(set(words))) or principle


def prompt_key(prompt: Prompt) -> str:
    """A key that is equal for conversations that differ in case and white space only."""
    return "\x1e".join(f"{m.role}\x1f{' '.join(m.text.casefold().split())}" for m in prompt)
