"""Where a policy run's prompts come from: rows of a table, or the generator of constrained prompts.

Covers: reading and naming the source, endless shuffled epochs whose position is in every checkpoint. Leaves out: the
generator (`constrained`), curricula (another `PromptSource`).

A row has `prompt` (text, or messages; else the first of `PROMPT_COLUMNS`) and may have `constraints` (as
`Constraint.to_dict` writes them) for the verifier. Short forms: `answer`, the right answer to a problem, is a
`math_answer`; `answers`, a list or a text with one a line, of which a response must be one, an `exact_answer`;
`tests`, statements as a list or a text, are `python_tests`, with the row's `entry_point` where it names one. All stay
readable in the row (`PromptItem.meta`), and are added to the listed constraints, unless one is of that kind. A row of
verl states its answer as `reward_model.ground_truth`, unless its `ability` is something else than maths.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.conversation import prompt_turns
from assay.data.json_lines import RowError
from assay.domain import prompt_of
from assay.errors import BadInputError
from assay.ids import rows_digest
from assay.workspace import Workspace
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.plugins.prompts import PROMPT_SOURCES
from assay_policy_training.plugins.prompts.constrained import Split
from assay_policy_training.plugins.prompts.tables import table_rows
from assay_policy_training.plugins.protocols import StepReport
from assay_serving.verifiers import Constraint, MathAnswer, PythonTests, constraint_from_dict
from assay_serving.verifiers.constraints.answers import ExactAnswer

#: Where a row's prompt is, in this order.
PROMPT_COLUMNS = ("prompt", "messages", "question", "problem", "instruction")


class ShuffledPrompts:
    """S0: every prompt once per epoch, in an order drawn from the seed and the epoch's number."""

    def __init__(self, items: Sequence[PromptItem], *, seed: int) -> None:
        if not items:
            raise BadInputError("there are no prompts", field="prompts")
        self.items = list(items)
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._order = self._shuffled()

    def next(self, n: int) -> list[PromptItem]:
        drawn: list[PromptItem] = []
        while len(drawn) < n:
            if self.position == len(self.items):
                self.epoch, self.position = self.epoch + 1, 0
                self._order = self._shuffled()
            drawn.append(self.items[self._order[self.position]])
            self.position += 1
        return drawn

    def observe(self, report: StepReport) -> None:
        """This source does not adapt."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position, "prompts": prompts_digest(self.items)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInputError when the prompts are not those that the state is about."""
        if state["prompts"] != prompts_digest(self.items):
            raise BadInputError("these are not the prompts that the interrupted run used", field="prompts")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._order = self._shuffled()

    def _shuffled(self) -> list[int]:
        order = list(range(len(self.items)))
        random.Random(f"{self.seed}/{self.epoch}").shuffle(order)
        return order


class Shuffled(RecipeSettings, section="source"):
    """S0: the default order."""

    def open(self, items: Sequence[PromptItem], *, seed: int, policy: object = None) -> ShuffledPrompts:
        return ShuffledPrompts(items, seed=seed)


def prompts_digest(items: Sequence[PromptItem]) -> str:
    """Identity of a list of prompts: their tasks, order and constraints."""
    return rows_digest([(i.task_id, *(c.to_dict() for c in i.constraints)) for i in items])


def load_prompts(
    source: str,
    *,
    seed: int,
    split: Split | None = "train",
    columns: Mapping[str, str] | None = None,
    workspace: Workspace | None = None,
) -> list[PromptItem]:
    """Prompts named by `source`: a table (`tables`), or a member of `PROMPT_SOURCES` such as `constrained:N`, which
    generates N of a split.

    `columns`: field -> the column of a table that has it (`reward_model.ground_truth` is a field of a column). Raises
    BadInputError naming file, row and field.
    """
    name, _, argument = source.partition(":")
    path = Path(source).expanduser()
    if name in PROMPT_SOURCES.names() and not path.is_file():
        return list(PROMPT_SOURCES.find(name)(argument, seed=seed, split=split))
    rows = table_rows(source, workspace)
    if rows is None:
        if not argument or argument[0].isdigit():  # NAME:8 is a misspelt source, no module
            raise BadInputError(
                f"no such file or snapshot, and no prompt source ({PROMPT_SOURCES.help()})", file=path, field="prompts"
            )
        return list(PROMPT_SOURCES.find(source, field="prompts")("", seed=seed, split=split))
    items = [_read_item(source, row, record, columns or {}) for row, record in rows]
    if not items:
        raise BadInputError("the file holds no prompts", file=path)
    return items


def short_forms(record: Mapping[str, Any], listed: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """`listed`, and what the row's `answer` and `tests` state. Raises BadInputError naming the field."""
    constraints, kinds = list(listed), {constraint.kind for constraint in listed}
    answer, tests = record.get("answer"), record.get("tests")
    if answer is None and str(record.get("ability", "math")).lower().startswith("math"):  # verl's rows of problems
        stated = record.get("reward_model")
        answer = stated.get("ground_truth") if isinstance(stated, Mapping) else None
    if answer is not None and MathAnswer.kind not in kinds:
        if isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise BadInputError(f"must be text or a number, not {answer!r}", field="answer")
        constraints.append(MathAnswer(str(answer)))
    answers = record.get("answers")
    if answers is not None and ExactAnswer.kind not in kinds:
        answers = [line for line in answers.splitlines() if line.strip()] if isinstance(answers, str) else answers
        if not isinstance(answers, list):
            raise BadInputError("must be a list of texts, or a text with one a line", field="answers")
        constraints.append(ExactAnswer(tuple(answers)))
    if tests is not None and PythonTests.kind not in kinds:
        tests = [tests] if isinstance(tests, str) else tests
        if not isinstance(tests, list):
            raise BadInputError("must be a list of Python statements, each as text", field="tests")
        constraints.append(PythonTests(tuple(tests), entry_point=record.get("entry_point") or ""))
    return tuple(constraints)


def _read_item(source: str, row: int, record: dict[str, Any], columns: Mapping[str, str]) -> PromptItem:
    try:
        record = {**record, **{field: _entry(record, column) for field, column in columns.items()}}
        column = next((name for name in PROMPT_COLUMNS if record.get(name) is not None), "prompt")
        if column not in record:
            raise RowError(f"missing; there are {', '.join(map(str, record))} (--column prompt=NAME)", field=column)
        prompt = prompt_of(prompt_turns(record[column], column))
        if prompt[-1].role == "assistant":
            raise RowError("ends with the assistant's turn; the policy answers what comes before it", field=column)
        listed = record.get("constraints") or []
        if not isinstance(listed, list) or not all(isinstance(c, dict) for c in listed):
            raise BadInputError("must be a list of objects", field="constraints")
        constraints = short_forms(record, tuple(constraint_from_dict(c) for c in listed))
    except RowError as error:
        raise BadInputError(error.reason, file=Path(source), row=row, field=error.field) from error
    except BadInputError as error:
        raise BadInputError(str(error), file=Path(source), row=row) from error
    meta = {key: value for key, value in record.items() if key not in ("prompt", "constraints")}
    return PromptItem(prompt, constraints, meta, as_text=isinstance(record[column], str))


def _entry(record: Mapping[str, Any], column: str) -> Any:
    """The entry of a row that `column` names, with dots for the fields inside it. Raises RowError."""
    if column in record:
        return record[column]
    value: Any = record
    for name in column.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise RowError(f"there is no such column; there are {', '.join(map(str, record))}", field=column)
        value = value[name]
    return value
