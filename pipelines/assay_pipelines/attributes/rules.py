"""Attributes without a model: from a file, or by rules from the category that the source gives.

Each is a separate annotator: a file's is a person, whom `load_attributes` prefers; the rules' is of kind `source`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from assay.data.json_lines import Lines, RowError, parse_object
from assay.data.pair_attributes import Controversiality, Objectivity, PairAttributes, store_attributes
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.llm.annotators import Annotator, versioned

#: The first rule whose pattern matches the category decides: objectivity, controversiality, guideline.
RULES: tuple[tuple[str, Objectivity, Controversiality, str], ...] = (
    (
        r"math|arithmetic|algebra|gsm|code|coding|program|sql|logic|reason|science|stem|fact|trivia|qa\b|extract",
        "objective",
        "low",
        "Check whether each response is correct, step by step; a wrong result loses.",
    ),
    (
        r"translat|summar|instruction|constraint|format|ifeval",
        "objective",
        "medium",
        "Check what was asked for point by point; what is left out or changed counts against a response.",
    ),
    (
        r"safe|harm|toxic|bias|politic|debate|argument|convinc|ethic",
        "subjective",
        "high",
        "Weigh what people of different views would hold against each response.",
    ),
)
_OTHERWISE: tuple[Objectivity, Controversiality, str] = (
    "subjective",
    "medium",
    "Prefer the response that serves this user better as a whole.",
)
_DESIRED = "A response that does what was asked for."


def describe_by_rules(workspace: Workspace, comparison_ids: Sequence[str], run_id: str | None) -> int:
    """Store attributes by each comparison's category; returns how many comparisons are new. One without a category gets
    the general rule and the category 'general'."""
    annotator = versioned("source", "attribute-rules", {"rules": RULES, "otherwise": _OTHERWISE, "desired": _DESIRED})
    with workspace.store.unit() as db:
        annotator.write(db)
        rows = db.execute(
            """SELECT i.comparison_id, min(o.category)
               FROM (SELECT DISTINCT unnest($ids) AS comparison_id) i LEFT JOIN origins o USING (comparison_id)
               GROUP BY 1""",
            {"ids": list(comparison_ids)},
        ).fetchall()
    described = {comparison: by_rules(category) for comparison, category in rows}
    return store_attributes(workspace, annotator.id, described, run_id)


def by_rules(category: str | None) -> PairAttributes:
    task_category = (category or "").strip() or "general"
    for pattern, objectivity, controversiality, guideline in RULES:
        if re.search(pattern, task_category, re.IGNORECASE):
            return PairAttributes(task_category, objectivity, controversiality, _DESIRED, guideline)
    objectivity, controversiality, guideline = _OTHERWISE
    return PairAttributes(task_category, objectivity, controversiality, _DESIRED, guideline)


def describe_from_file(workspace: Workspace, path: Path, run_id: str | None, *, person: str) -> int:
    """Store attributes from JSON lines with `comparison_id` and the five fields, as the `person`'s; returns how many
    comparisons are new. Raises BadInputError naming row and field; then nothing is stored."""
    described: dict[str, PairAttributes] = {}
    for number, line in Lines(path):
        try:
            row = parse_object(line)
            comparison = row.pop("comparison_id", None)
            if not isinstance(comparison, str):
                raise BadInputError("must be a comparison's id", field="comparison_id")
            described[comparison] = PairAttributes.of(row)
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number) from error
        except BadInputError as error:
            message = str(error).removeprefix(f"field {error.field!r}: ")
            raise BadInputError(message, file=path, row=number, field=error.field) from error
    annotator = Annotator("human", person, {})
    with workspace.store.unit() as db:
        annotator.write(db)
        rows = db.execute(
            "SELECT comparison_id FROM comparisons WHERE list_contains($ids, comparison_id)",
            {"ids": list(described)},
        ).fetchall()
    if unknown := sorted(described.keys() - {row[0] for row in rows}):
        raise BadInputError(f"{unknown[0]} is no comparison of this workspace ({len(unknown)} such)", file=path)
    return store_attributes(workspace, annotator.id, described, run_id)
