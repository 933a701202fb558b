"""Step labels in their publishers' own forms: ProcessBench, PRM800K, Math-Shepherd.

ProcessBench names the first wrong step: those before it are correct, those after it are not labelled. PRM800K's people
rate alternatives for each next step: each alternative is a response of its own, the chosen steps before it and itself,
and the chosen steps together are one. Math-Shepherd marks the end of each step with `ки`, which its label replaces by +
or -.
"""

import re
from collections.abc import Mapping
from typing import Any

from assay.data.conversation import Turns, prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import leftover_meta, list_of, optional_text
from assay_pipelines.importers.formats.stepwise import SIGNED, SolutionSteps
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import RatedRow, Row, mark, rating

PARAGRAPHS, LINES = "\n\n", "\n"
STEP_TAG = "ки"
_STEP_ONE = re.compile(r"\bStep 1\s*:")


class ProcessBenchLayout(RecordLayout):
    """ProcessBench: the first wrong step of each solution."""

    title = "ProcessBench solutions"
    source = "ProcessBench"
    note = "a benchmark: do not train on it"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"problem", "steps", "label", "final_answer_correct"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        steps = [text_of(step, "steps") for step in list_of(record.get("steps"), "steps")]
        first = record.get("label")
        if not isinstance(first, int) or isinstance(first, bool) or not -1 <= first < len(steps):
            raise RowError("not the number of a step, or -1 for none", field="label")
        labels = [1] * len(steps) if first == -1 else [*[1] * first, -1]
        solution = SolutionSteps.joined(steps, PARAGRAPHS)
        marks = solution.marks(labels, field="label", kind="human", voter="experts", signed=True)
        row = RatedRow(prompt_turns(record.get("problem"), "problem"), solution.response, marks=marks)
        if isinstance(correct := record.get("final_answer_correct"), bool):
            row.ratings.append(rating("final answer correct", correct, kind="verifier", voter="answer"))
        row.record_id = optional_text(record, "id")
        row.meta = leftover_meta(record, frozenset({"id", "problem", "steps", "label", "final_answer_correct"}))
        return [row]


class Prm800kLayout(RecordLayout):
    """PRM800K: people's ratings of the steps of solutions."""

    title = "PRM800K solutions"
    source = "PRM800K"

    def matches(self, record: Mapping[str, Any]) -> bool:
        label = record.get("label")
        return isinstance(record.get("question"), dict) and isinstance(label, dict) and "steps" in label

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        question, label = record.get("question"), record.get("label")
        if not isinstance(question, dict) or not isinstance(label, dict):
            raise RowError("wrong type: not an object", field="label")
        turns = prompt_turns(question.get("problem"), "question.problem")
        voter = optional_text(record, "labeler")
        finish = label.get("finish_reason")
        meta = {"finish_reason": finish, **leftover_meta(record, frozenset({"question", "label", "labeler"}))}
        out: list[Row | RowError] = []
        chosen: list[tuple[str, object]] = []
        for number, step in enumerate(list_of(label.get("steps"), "label.steps")):
            if not isinstance(step, dict):
                raise RowError("a step that is no object", field="label.steps")
            options = _options(step)
            chosen_index = step.get("chosen_completion")
            taken = chosen_index if isinstance(chosen_index, int) and 0 <= chosen_index < len(options) else None
            if isinstance(written := step.get("human_completion"), dict) and taken is None:
                options.append((text_of(written.get("text"), "label.steps"), written.get("rating")))
                taken = len(options) - 1
            if taken is None and len(options) == 1:
                taken = 0
            for other, (text, value) in enumerate(options):
                if other != taken and value is not None:
                    out.append(_alternative(turns, [text for text, _ in chosen], text, value, voter, number, meta))
            if taken is None:
                break
            chosen.append(options[taken])
        if chosen:
            texts, values = zip(*chosen, strict=True)
            solution = SolutionSteps.joined(texts, LINES)
            signs = [_signed(value) for value in values]
            marks = solution.marks(signs, field="label.steps", kind="human", voter=voter, signed=True)
            out.append(RatedRow(turns, solution.response, marks=marks, meta=meta))
        return out


class MathShepherdLayout(RecordLayout):
    """Math-Shepherd: automatic labels of the steps of solutions."""

    title = "Math-Shepherd solutions"
    source = "Math-Shepherd"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"input", "label"} <= record.keys() and STEP_TAG in str(record["input"])

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        text, label = text_of(record.get("input"), "input"), text_of(record.get("label"), "label")
        pieces = text.split(STEP_TAG)
        signs, at = [], 0
        for piece in pieces[:-1]:
            at += len(piece)
            sign = label[at : at + 1]
            if label[at - len(piece) : at] != piece or sign not in ("+", "-"):
                raise RowError("not the input with + or - at the end of each step", field="label")
            signs.append(sign)
            at += 1
        start = _STEP_ONE.search(pieces[0])
        if start is None or not signs:
            raise RowError("no step", field="input")
        problem, steps = pieces[0][: start.start()].strip(), [pieces[0][start.start() :], *pieces[1:-1]]
        steps = [text_of(step.strip(), "input") for step in steps]
        labels = [1 if sign == "+" else -1 for sign in signs]
        solution = SolutionSteps.joined(steps, LINES)
        marks = solution.marks(labels, field="label", kind="verifier", voter="completions", signed=True)
        row = RatedRow(prompt_turns(problem, "input"), solution.response, marks=marks)
        row.category = optional_text(record, "task")
        return [row]


def _options(step: Mapping[str, Any]) -> list[tuple[str, object]]:
    options: list[tuple[str, object]] = []
    completions = step.get("completions")
    for completion in () if completions in (None, []) else list_of(completions, "label.steps"):
        if not isinstance(completion, dict):
            raise RowError("a completion that is no object", field="label.steps")
        options.append((text_of(completion.get("text"), "label.steps"), completion.get("rating")))
    return options


def _alternative(
    turns: Turns, before: list[str], text: str, value: object, voter: str | None, number: int, meta: dict[str, Any]
) -> RatedRow:
    response = LINES.join([*before, text])
    start = len(response) - len(text)
    rated = mark(start, len(response), step=number, value=_signed(value), scale=SIGNED, kind="human", voter=voter)
    return RatedRow(turns, response, marks=[rated], meta=meta)


def _signed(value: object) -> float | None:
    """1, 0 or -1, as PRM800K writes them; None: not rated."""
    if value is None or value in (-1, 0, 1):
        return None if value is None else float(value)
    raise RowError("a rating that is not -1, 0 or 1", field="label.steps")
