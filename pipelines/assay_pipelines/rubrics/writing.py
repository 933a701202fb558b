"""Rubrics written by a language model: new ones from feedback and a reference, or mended ones from exploits.

Covers: rows of prompts in, the same rows with their `rubric` out; calls are recorded, and an answered one is not made
again. Leaves out: which items are exploited (`exploits`), grading.

Sources of the form: instance-specific rubrics from a reference answer, Rubrics as Rewards (arXiv 2507.17746); a rubric
against hacking written from rollouts and used as a veto, Rubric Anchors (arXiv 2508.12790). The wording is ours.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from assay.data.conversation import prompt_turns
from assay.data.json_lines import Lines, RowError, parse_object
from assay.domain import prompt_of
from assay.errors import BadInputError
from assay.ids import prompt_id
from assay.workspace import Workspace
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.calls import CallLog
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.endpoint import Answered, ModelCall, Outcome
from assay_pipelines.llm.prompted_model import PromptedModel
from assay_pipelines.llm.prompts import mark, turns
from assay_pipelines.llm.replies import StrictAnswer
from assay_pipelines.rubrics.exploits import Exploit
from assay_serving.rubrics.rubric import RUBRIC, rubric_items

TASK = "rubric"


class WrittenItem(StrictAnswer):
    """The reason comes first: a model that says what an item is for invents fewer."""

    reason: str
    text: str
    name: str
    weight: int = Field(ge=0, le=10)
    polarity: Literal["positive", "negative"]
    must_have: bool
    veto: bool


class WrittenRubric(StrictAnswer):
    items: list[WrittenItem]


@dataclass(frozen=True)
class PromptRow:
    """One line of prompts. `feedback`: what people said of responses to it; `reference`: an answer that is right."""

    fields: Mapping[str, Any]
    prompt_id: str
    feedback: tuple[str, ...] = ()
    reference: str | None = None


def read_prompt_rows(path: Path) -> list[PromptRow]:
    """Raises BadInputError naming file, row and field."""
    if not path.is_file():
        raise BadInputError("no such file", file=path)
    rows = []
    for number, line in Lines(path):
        try:
            fields = parse_object(line)
            prompt = prompt_of(prompt_turns(fields.get("prompt")))
            if fields.get(RUBRIC) is not None:
                rubric_items(fields[RUBRIC])
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
        except BadInputError as error:
            raise BadInputError(str(error), file=path, row=number) from error
        feedback = fields.get("feedback") or ()
        texts = (feedback,) if isinstance(feedback, str) else tuple(map(str, feedback))
        reference = fields.get("reference")
        rows.append(PromptRow(fields, prompt_id(prompt), texts, reference if isinstance(reference, str) else None))
    return rows


class RubricWriter(PromptedModel):
    """Asks a chat endpoint for the rubric of each row."""

    def __init__(
        self, endpoint: EndpointConfig, workspace: Workspace, *, prompts: Path | None = None, spending: Spending
    ) -> None:
        super().__init__(TASK, endpoint, prompts, prefix=f"{TASK}-")
        self.workspace, self.spending = workspace, spending

    def write(
        self, rows: Sequence[PromptRow], exploits: Mapping[str, Sequence[Exploit]], run_id: str | None
    ) -> tuple[list[list[dict[str, Any]] | str], str | None]:
        """Of each row its items, or why there are none; and why the pass ended early, if it did."""
        rubrics: list[list[dict[str, Any]] | str] = ["the pass ended before it"] * len(rows)

        def finish(index: int, outcomes: Sequence[Outcome[WrittenRubric]]) -> None:
            rubrics[index] = _rubric(outcomes[0], rows[index].fields.get(RUBRIC))

        with self.workspace.store.unit() as db:
            self.annotator.write(db)
        with CallLog(self.workspace, self.annotator.id) as log:
            calls = [[self.call(row, exploits.get(row.prompt_id, ()))] for row in rows]
            stopped = self.endpoint.ask_all(calls, finish, log=log, spending=self.spending, run_id=run_id)
        return rubrics, stopped

    def call(self, row: PromptRow, exploits: Sequence[Exploit]) -> ModelCall[WrittenRubric]:
        current = json.dumps(row.fields[RUBRIC], ensure_ascii=False, indent=1) if row.fields.get(RUBRIC) else None
        seen = [text for exploit in exploits for text in exploit.responses]
        return self.ask(
            row.prompt_id,
            WrittenRubric,
            turns=turns(prompt_of(prompt_turns(row.fields["prompt"]))),
            reference=row.reference,
            feedback=list(row.feedback),
            rubric=current,
            exploits=[{"item": e.item, "responses": list(e.responses)} for e in exploits],
            mark=mark(row.prompt_id, current or "", row.reference or "", *row.feedback, *seen),
        )


def _rubric(outcome: Outcome[WrittenRubric], current: Any) -> list[dict[str, Any]] | str:
    """The items as a row has them; a rubric that cannot be used is a reason, as a failed call is. Items of the
    `current` one that a program or a scorer of their own grades stay as they are: the model cannot write those."""
    if not isinstance(outcome, Answered):
        return f"{outcome.code}: {outcome.message}"
    fixed_items = [item for item in (rubric_items(current) if current else ()) if item.constraints or item.by]
    texts, names = {item.text for item in fixed_items}, {item.name for item in fixed_items}
    written = [item.model_dump(exclude={"reason"}) for item in outcome.value.items]
    unlike = [item for item in written if item["text"] not in texts and item["name"] not in names]
    try:
        items = rubric_items([item.to_dict() for item in fixed_items] + unlike)
    except BadInputError as error:
        return f"unusable: {error}"
    return [item.to_dict() for item in items]
