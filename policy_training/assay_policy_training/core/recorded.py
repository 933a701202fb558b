"""Recorded responses: the data of methods that learn without generating.

Covers: a record (text, steps or tokens; optionally its reward, its sampler's log-probs, the values of its steps), where
a prompt's records are found (its own row's `responses`, or a JSON Lines file), the reward that was recorded. Leaves
out: rows made of records (`samplers.recorded`).

File format: one object a line with `prompt` (text or messages) and `responses`: a list of texts or of objects

    {"text": "..."}              or {"steps": ["...", "..."]} or {"tokens": [...]} (then `logprobs` may be given)
    "reward": 0.7                what the reward source `recorded` gives; missing stays missing
    "step_values": [.5, .6, .1]  probability of success, or value, before the first step, before the second, ...; one
                                 more than there are steps, the last after all of them, or without that one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns
from assay.data.json_lines import Lines, RowError, parse_object
from assay.domain import prompt_of
from assay.errors import BadInputError
from assay.ids import prompt_id
from assay_policy_training.core.prompt import PromptItem

RESPONSES = "responses"  #: entry of a prompt: its records
RECORD = "recorded"  #: entry of a row's prompt: the record the row was made of
PLACE = "place"  #: entry of a record: its place among the prompt's records


def checked_record(value: Any, index: int) -> dict[str, Any]:
    """A record as an object with `text` (or `tokens`) and `place`. Raises BadInputError naming the field."""
    record = {"text": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else None
    where = f"{RESPONSES}.{index}"
    if record is None:
        raise BadInputError("must be a text or an object", field=where)
    steps = record.get("steps")
    if steps is not None:
        if not _all(steps, str) or not steps or not all(steps):
            raise BadInputError("must be a list of texts, none empty", field=f"{where}.steps")
        record["text"] = "".join(steps)
    if not isinstance(record.get("text", ""), str):
        raise BadInputError("must be a text", field=f"{where}.text")
    tokens, logp = record.get("tokens"), record.get("logprobs")
    if tokens is not None and (not _all(tokens, int) or not tokens):
        raise BadInputError("must be a list of token ids", field=f"{where}.tokens")
    if tokens is None and not record.get("text"):
        raise BadInputError("needs text, steps or tokens", field=where)
    if logp is not None and (tokens is None or not _all(logp, float, int) or len(logp) != len(tokens)):
        raise BadInputError("must be a number for each of `tokens`", field=f"{where}.logprobs")
    _check_values(record, where)
    return {PLACE: index, **record}


def _check_values(record: Mapping[str, Any], where: str) -> None:
    values, reward = record.get("step_values"), record.get("reward")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        raise BadInputError("must be a number", field=f"{where}.reward")
    if values is not None:
        number = len(record.get("steps") or [0])
        if not _all(values, float, int) or len(values) not in (number, number + 1):
            raise BadInputError(f"must be {number} or {number + 1} numbers", field=f"{where}.step_values")


def _all(value: Any, *kinds: type) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, kinds) and not isinstance(v, bool) for v in value)


def records_of(item: PromptItem, by_prompt: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The prompt's records: of its row, else of a file read by `read_records`.

    Raises BadInputError for a prompt that has none, or a wrong one.
    """
    listed = item.meta.get(RESPONSES)
    records = listed if listed is not None else by_prompt.get(prompt_id(item.prompt))
    if not isinstance(records, list | tuple) or not records:
        raise BadInputError(f"no recorded response to the prompt {item.prompt[-1].content[:60]!r}", field=RESPONSES)
    return [checked_record(value, index) for index, value in enumerate(records)]


def read_records(path: Path) -> dict[str, list[Any]]:
    """Prompt's id -> records, in the file's order; a prompt may have several lines.

    Raises BadInputError naming file, row and field.
    """
    if not path.is_file():
        raise BadInputError("no such file of recorded responses", file=path, field="sampler.file")
    by_prompt: dict[str, list[Any]] = {}
    for row, line in Lines(path):
        try:
            record = parse_object(line)
            prompt = prompt_of(prompt_turns(record.get("prompt")))
            listed = record.get(RESPONSES)
            if not isinstance(listed, list):
                raise BadInputError("must be a list", field=RESPONSES)
            for index, value in enumerate(listed):
                checked_record(value, index)
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=row, field=error.field) from error
        except BadInputError as error:
            raise BadInputError(str(error), file=path, row=row) from error
        by_prompt.setdefault(prompt_id(prompt), []).extend(listed)
    return by_prompt


def record_of(item: PromptItem) -> Mapping[str, Any]:
    """The record a row was made of; empty for rows that the policy wrote."""
    record = item.meta.get(RECORD)
    return record if isinstance(record, Mapping) else {}
