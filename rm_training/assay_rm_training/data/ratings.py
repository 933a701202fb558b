"""Rated responses for multi-objective regression.

Covers: JSON Lines rows {prompt, response, ratings}, and the normalised form (`ratings.aspects`, `ratings.scores`; one
response, several with a rating each, or a whole conversation that was rated). Leaves out: ratings inside the store,
which keeps comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay.data.row_files import number_of, read_rows
from assay.domain import Prompt, prompt_of
from assay.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class RatedResponse:
    """One response; `ratings` by name, a missing name was not rated."""

    prompt: Prompt
    response: str
    ratings: Mapping[str, float]
    weight: float = 1.0
    source: str = ""
    category: str = ""


def load_ratings(data: str | Path, *, missing: float | None = None) -> list[RatedResponse]:
    """Rated responses of a file; `missing`: the number that stands for "not rated". Raises NotFoundError for no file,
    BadInputError naming file, row and field."""
    path = Path(data).expanduser()
    if not path.is_file():
        raise NotFoundError(f"no such file: {data} (ratings are read from files; a snapshot holds comparisons)")
    return read_rows(path, lambda record: _parse(record, missing), what="rated responses")


def _parse(record: dict[str, Any], missing: float | None) -> list[RatedResponse]:
    turns = prompt_turns(record.get("prompt"))
    responses = [record["response"]] if record.get("response") is not None else record.get("responses") or []
    if not isinstance(responses, list):
        raise RowError("not a list", field="responses")
    ratings = record.get("ratings") or {}
    if not isinstance(ratings, dict):
        raise RowError("not an object of numbers", field="ratings")
    aspects: Any = ratings.get("aspects", ratings.get("scores", ratings))
    each = aspects if isinstance(aspects, list) else [aspects]
    if not responses and len(each) == 1 and len(turns) > 1 and turns[-1]["role"] == "assistant":
        responses, turns = [turns[-1]["content"]], turns[:-1]  # the whole conversation was rated
    if not ratings or not responses:
        return []
    if len(each) != len(responses) or not all(isinstance(values, dict) for values in each):
        raise RowError("not one object of ratings for each response", field="ratings")
    prompt = prompt_of(turns)
    rows = []
    for text, values in zip(responses, each, strict=True):
        numbers = {
            str(name): number_of(value, f"ratings.{name}")
            for name, value in values.items()
            if value is not None and value != missing
        }
        if numbers:
            source, category = str(record.get("source") or ""), str(record.get("category") or "")
            field = "response" if record.get("response") is not None else "responses"
            rows.append(RatedResponse(prompt, text_of(text, field), numbers, source=source, category=category))
    return rows
