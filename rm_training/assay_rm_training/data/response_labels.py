"""Labels of single responses: named ratings, labels of steps.

Rated responses for multi-objective regression. Covers: JSON Lines rows {prompt, response, ratings}, and the normalised
form (`ratings.aspects`, `ratings.scores`; one response, several with a rating each, or a whole conversation that was
rated). Leaves out: ratings inside the store, which keeps comparisons.

Desirable and undesirable responses, the rows of KTO and supervised fine-tuning. Covers: TRL's unpaired form (prompt,
completion, label), prompts with a completion, conversations as `messages`, and pairs, of files or of a snapshot.

Responses split into labelled steps, the training rows of process reward models. Covers: JSON Lines rows {prompt, steps,
labels} (TRL's stepwise form says `completions` for the steps), or {prompt, response, labels} of a response in turns
with a label for each of the assistant's, with Monte-Carlo labels as the counts they come from
(Math-Shepherd, arXiv 2312.08935, from memory). Leaves out: other formats, sampling continuations.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.conversation.message import response_turns
from assay.data.conversation import prompt_turns, response_form_of, row_turns, text_of, text_or_empty, turns_of
from assay.data.json_lines import RowError
from assay.data.pairs import from_snapshot_or_file, pair_of
from assay.data.row_files import RowFile, number_of
from assay.data.snapshots import load_pairs
from assay.domain import Message, PreferencePair, Prompt, Response, prompt_of, response_of
from assay.errors import NotFoundError
from assay.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RatedResponse:
    """One response; `ratings` by name, a missing name was not rated."""

    prompt: Prompt
    response: str
    ratings: Mapping[str, float]
    weight: float = 1.0
    source: str = ""
    category: str = ""


def load_ratings(data: str | Path, *, missing: float | None = None) -> Collection[RatedResponse]:
    """Rated responses of a file; `missing`: the number that stands for "not rated". Raises NotFoundError for no file,
    BadInputError naming file, row and field."""
    path = Path(data).expanduser()
    if not path.is_file():
        raise NotFoundError(f"no such file: {data} (ratings are read from files; a snapshot holds comparisons)")
    return RowFile(path, lambda record: _rated(record, missing), what="rated responses")


def _rated(record: dict[str, Any], missing: float | None) -> list[RatedResponse]:
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
            rows.append(RatedResponse(prompt, text_or_empty(text, field), numbers, source=source, category=category))
    return rows


@dataclass(frozen=True, slots=True)
class UnpairedResponse:
    """One response that is desirable or not."""

    prompt: Prompt
    response: Response
    desirable: bool = True
    weight: float = 1.0
    source: str = ""
    category: str = ""


def load_unpaired(workspace: Workspace | None, data: str | Path) -> Collection[UnpairedResponse]:
    """Both sides of a snapshot's pairs, or the rows of a file. Raises NotFoundError for neither, BadInputError naming
    file, row and field."""
    return from_snapshot_or_file(
        workspace,
        data,
        lambda here, name: [row for pair in load_pairs(here, name) for row in _sides(pair)],
        lambda path: RowFile(path, _unpaired, what="responses"),
    )


def _sides(pair: PreferencePair) -> list[UnpairedResponse]:
    sides = ((pair.chosen, True), (pair.rejected, False))
    return [UnpairedResponse(pair.prompt, text, good, pair.weight, pair.source, pair.category) for text, good in sides]


def _unpaired(record: dict[str, Any]) -> list[UnpairedResponse]:
    if "chosen" in record:
        return [] if record["chosen"] is None and record.get("rejected") is None else _sides(pair_of(record))
    if record.get("messages") is not None:
        turns = turns_of(record["messages"], "messages")
        turns, response = turns[:-1], response_form_of(turns[-1:], "messages")
    else:
        field = "completion" if "completion" in record else "response"
        turns, response = prompt_turns(record.get("prompt")), response_form_of(record.get(field), field)
    label = record.get("label", True)
    if not isinstance(label, bool):
        raise RowError("not true or false", field="label")
    source, category = str(record.get("source") or ""), str(record.get("category") or "")
    prompt = prompt_of(row_turns(record, turns, response))
    return [UnpairedResponse(prompt, response_of(response), label, source=source, category=category)]


@dataclass(frozen=True, slots=True)
class SteppedResponse:
    """`labels`: P(step is right), 0 to 1, None where it was not labelled; one for each step. `turns`: of a response
    that is no text; its steps are then the texts of the assistant's turns."""

    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    weight: float = 1.0
    source: str = ""
    category: str = ""
    turns: tuple[Message, ...] = ()


def load_steps(data: str | Path) -> Collection[SteppedResponse]:
    """Rows of a file. Raises NotFoundError for no file, BadInputError naming file, row and field."""
    path = Path(data).expanduser()
    if not path.is_file():
        raise NotFoundError(f"no such file: {data} (step labels are read from files; a snapshot holds comparisons)")
    return RowFile(path, _stepped, what="labelled steps")


def _stepped(record: dict[str, Any]) -> list[SteppedResponse]:
    field = "completions" if "completions" in record else "steps"
    steps, labels = record.get(field), record.get("labels")
    turns: tuple[Message, ...] = ()
    messages = prompt_turns(record.get("prompt"))
    if steps is None and isinstance(record.get("response"), list):
        form = response_form_of(record["response"], "response")
        turns, messages = response_turns(response_of(form)), row_turns(record, messages, form)
        field, steps = "response", [turn.text for turn in turns if turn.role == "assistant"]
    if not isinstance(steps, list):
        raise RowError("not a list of steps", field=field)
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise RowError("not one label for each step", field="labels")
    values = tuple(_label(label) for label in labels)
    if all(value is None for value in values):
        return []
    texts = tuple(text_of(step, field) for step in steps)
    if not turns and any(not text.strip() for text in texts):
        raise RowError("a step of white space only", field=field)
    return [
        SteppedResponse(
            prompt_of(messages),
            texts,
            values,
            source=str(record.get("source") or ""),
            category=str(record.get("category") or ""),
            turns=turns,
        )
    ]


def _label(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return _share_right(value)
    number = float(value) if isinstance(value, bool) else number_of(value, "labels")
    if not 0 <= number <= 1:
        raise RowError("a label is true, false, null, a number from 0 to 1, or {correct, tried}", field="labels")
    return number


def _share_right(counts: dict[str, Any]) -> float:
    """Soft label of a step: the share of `correct` among `tried` sampled continuations."""
    correct, tried = counts.get("correct"), counts.get("tried")
    if type(correct) is not int or type(tried) is not int or not 0 <= correct <= tried or tried == 0:
        raise RowError("not {correct, tried}: counts with 0 <= correct <= tried and tried > 0", field="labels")
    return correct / tried
