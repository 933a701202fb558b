"""LLaMA-Factory's preference data in its two forms, with the entry of `dataset_info.json` that its loader needs.

alpaca: `instruction`, `history` and `system` are texts; a turn of a tool has no place. sharegpt: turns `human` and
`observation` alternate with `gpt` and `function_call`; ids of calls have no place, as a result follows its call. Both
have columns for tools (JSON text) and images (paths; `<image>` in a text is the place of one). The rows of either that
its converter would skip or change are left out.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from assay.conversation.message import Message, response_turns, stored_prompt, stored_response
from assay.conversation.parts import ImagePart, ToolCallPart, ToolDefinitionPart, ToolResultPart
from assay.errors import BadInputError
from assay.system.atomic_files import replacing
from assay_pipelines.exporters.job import PAIRS, ExportFormat, ExportJob, Written
from assay_pipelines.exporters.message_forms import (
    EVERYTHING,
    IMAGE_MARK,
    ImageCopies,
    MessageForm,
    UnwritableError,
    call_arguments,
    check_parts,
    definition,
    joined_text,
    left_out_notes,
)

ENDINGS = (".jsonl",)  #: its loader knows a file by its last ending
INFO = "dataset_info.json"
BATCH_PAIRS = 2_000
#: A row without its tools and images, of the prompt, the chosen and the rejected response. Raises UnwritableError.
RowOf: TypeAlias = Callable[[Sequence[Message], Sequence[Message], Sequence[Message]], dict[str, Any]]
_QUERY = f"""
    SELECT messages, conversation, chosen, chosen_typed, rejected, rejected_typed, comparison_id, source, category
    FROM {PAIRS} ORDER BY comparison_id"""
_ALPACA = MessageForm(frozenset({"image", "tool_definition"}), marks=True, turns=False)
_SHAREGPT = MessageForm(EVERYTHING - {"thinking"}, marks=True, turns=False)


def alpaca_row(prompt: Sequence[Message], chosen: Sequence[Message], rejected: Sequence[Message]) -> dict[str, Any]:
    """One pair in the alpaca form, without its tools and images. Raises UnwritableError."""
    system, turns = _turns(prompt)
    if any(role not in ("human", "gpt") for role, _ in turns):
        raise UnwritableError("turns of tools")
    texts = [text for _, text in turns]
    answers = [_answer(side) for side in (chosen, rejected)]
    history = [list(pair) for pair in zip(texts[:-1:2], texts[1::2], strict=True)]
    return {
        "instruction": texts[-1],
        "system": system,
        "history": history,
        "chosen": answers[0][1],
        "rejected": answers[1][1],
    }


def sharegpt_row(prompt: Sequence[Message], chosen: Sequence[Message], rejected: Sequence[Message]) -> dict[str, Any]:
    """One pair in the sharegpt form, without its tools and images. Raises UnwritableError."""
    system, turns = _turns(prompt)
    sides = [_answer(chosen), _answer(rejected)]
    conversation = [{"from": role, "value": text} for role, text in (*turns, *sides)]
    return {
        "conversations": conversation[:-2],
        "system": system,
        "chosen": conversation[-2],
        "rejected": conversation[-1],
    }


def _turns(prompt: Sequence[Message]) -> tuple[str, list[tuple[str, str]]]:
    """The system's text, and the turns as (role, text). They begin and end with one that the assistant answers."""
    system = ""
    if prompt and prompt[0].role == "system":
        if any(isinstance(part, ImagePart) for part in prompt[0].parts):
            raise UnwritableError("images of the system")
        system, prompt = joined_text(prompt[0].parts), prompt[1:]
    turns = [_turn(message) for message in prompt]
    answered = [role in ("human", "observation") for role, _ in turns]
    if answered != [number % 2 == 0 for number in range(len(turns))] or not len(turns) % 2:
        raise UnwritableError("turns that do not alternate")
    return system, turns


def _turn(message: Message) -> tuple[str, str]:
    parts = message.parts
    if message.role in ("system", "developer"):
        raise UnwritableError(f"a turn of the {message.role} after the first")
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    if calls:
        if len(calls) < len(parts):
            raise UnwritableError("text beside tool calls")
        written = [{"name": call.name, "arguments": call_arguments(call)} for call in calls]
        return "function_call", json.dumps(written[0] if len(written) == 1 else written, ensure_ascii=False)
    if message.role == "tool":
        if len(parts) > 1 or any(isinstance(part, ImagePart) for part in parts):
            raise UnwritableError("several results in one turn")
        text = parts[0].content if parts and isinstance(parts[0], ToolResultPart) else joined_text(parts)
        if IMAGE_MARK in text:
            raise UnwritableError(f"texts with {IMAGE_MARK}, the mark of an image")
        return "observation", text
    if any(isinstance(part, ToolResultPart) for part in parts):
        raise UnwritableError("tool results in a turn that is not a tool's")
    return ("gpt" if message.role == "assistant" else "human"), joined_text(parts)


def _answer(side: Sequence[Message]) -> tuple[str, str]:
    """A response, which `check_parts` has found to be one turn."""
    return _turn(side[0])


def _write(job: ExportJob, form: MessageForm, row_of: RowOf) -> Written:
    left_out: Counter[str] = Counter()
    first: dict[str, str] = {}
    rows = 0
    with job.target.open("w", encoding="utf-8") as stream:
        for batch in job.db.sql(_QUERY).to_arrow_reader(BATCH_PAIRS):
            for pair in batch.to_pylist():
                try:
                    written = _pair(pair, form, row_of, job.copies)
                except UnwritableError as error:
                    left_out[str(error)] += 1
                    first.setdefault(str(error), pair["comparison_id"])
                    continue
                stream.write(json.dumps(written, ensure_ascii=False) + "\n")
                rows += 1
    notes = left_out_notes((why, count, first[why]) for why, count in left_out.most_common())
    if not rows:
        raise BadInputError(f"nothing to export: {'; '.join(notes)}")
    return Written(rows, notes)


def _pair(pair: dict[str, Any], form: MessageForm, row_of: RowOf, copies: ImageCopies) -> dict[str, Any]:
    prompt = stored_prompt(pair["messages"], pair["conversation"])
    sides = [response_turns(stored_response(pair[side], pair[f"{side}_typed"])) for side in ("chosen", "rejected")]
    check_parts(prompt, form, response=False)
    for side in sides:
        check_parts(side, form, response=True)
    row = row_of(prompt, *sides)
    parts = [part for message in prompt for part in message.parts]
    tools = [definition(part)["function"] for part in parts if isinstance(part, ToolDefinitionPart)]
    row["tools"] = json.dumps(tools, ensure_ascii=False) if tools else ""
    row["images"] = [copies.path(part) for part in parts if isinstance(part, ImagePart)]
    return row | {name: pair[name] for name in ("comparison_id", "source", "category")}


def _register(path: Path, job: ExportJob, formatting: str, columns: dict[str, str]) -> None:
    """Name the file in the folder's `dataset_info.json`, whose other entries stay."""
    info = path.with_name(INFO)
    entries: Any = {}
    if info.exists():
        try:
            entries = json.loads(info.read_text(encoding="utf-8"))
        except ValueError as error:
            raise BadInputError(f"not JSON: {error}; the rows are written, their entry is not", file=info) from error
        if not isinstance(entries, dict):
            raise BadInputError("not a JSON object; the rows are written, their entry is not", file=info)
    named = ("system", "tools", "chosen", "rejected", *(["images"] if job.copies.written else []))
    entries[path.stem] = {
        "file_name": path.name,
        "formatting": formatting,
        "ranking": True,
        "columns": {name: name for name in named} | columns,
    }
    with replacing(info) as temporary:
        temporary.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


LLAMA_FACTORY = ExportFormat(
    ENDINGS,
    partial(_write, form=_SHAREGPT, row_of=sharegpt_row),
    form=_SHAREGPT,
    complete=partial(_register, formatting="sharegpt", columns={"messages": "conversations"}),
)
LLAMA_FACTORY_ALPACA = ExportFormat(
    ENDINGS,
    partial(_write, form=_ALPACA, row_of=alpaca_row),
    form=_ALPACA,
    complete=partial(_register, formatting="alpaca", columns={"prompt": "instruction", "history": "history"}),
)
