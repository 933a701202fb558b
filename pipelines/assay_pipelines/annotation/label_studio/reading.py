"""An annotation as Label Studio gives it, over its API, its export or a webhook, read as a vote.

The `Pairwise` control writes `{"type": "pairwise", "value": {"selected": "left" | "right"}}`, and a second click
removes it: without a result the person found them equal or did not want to answer, and nobody can tell which, unless
the annotation was cancelled. It is read as a skip with a note, or as a tie where the project says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from assay import ids
from assay.domain import Answer, Judgment, ShownOrder, swap_answer
from assay.errors import BadInputError
from assay_pipelines.annotation.label_studio.config import CHOICES, CONTROL, RATIONALE, ProjectConfig

NO_CHOICE = "no choice: tie or skip"
COPIED = "copied from a prediction in bulk: no person voted"
STARTED_FROM_PREDICTION = "started from a prediction, which the person saw as chosen already"


@dataclass(frozen=True, slots=True)
class Revision:
    """One state of one annotation. `answer` is as shown (A = left); None: it cannot be a vote, `note` says why."""

    annotation_id: int
    task_id: int
    project_id: int
    revision: datetime  #: the server's updated_at, UTC
    user_id: int | None
    answer: Answer | None
    strength: int | None = None
    rationale: str | None = None
    seconds: float | None = None
    note: str | None = None


def read_annotation(annotation: Mapping[str, Any], config: ProjectConfig) -> Revision:
    """Raises BadInputError where something is missing, so that no half of an annotation is taken for a whole."""
    if not isinstance(annotation.get("result"), list) or not isinstance(annotation.get("was_cancelled"), bool):
        raise BadInputError("an annotation of Label Studio has a list and a flag here", field="result, was_cancelled")
    user = annotation.get("completed_by")
    if isinstance(user, Mapping):  # some routes give the whole user
        user = user.get("id")
    answer, strength, note = _answer(annotation, config)
    if annotation.get("parent_prediction") is not None:
        if annotation.get("lead_time") is None:  # nobody had it open: the action "create annotations from predictions"
            answer, strength, note = None, None, COPIED
        else:
            note = note or STARTED_FROM_PREDICTION
    return Revision(
        annotation_id=_number(annotation, "id"),
        task_id=_number(annotation, "task"),
        project_id=_number(annotation, "project"),
        revision=_time(annotation),
        user_id=user if isinstance(user, int) else None,
        answer=answer,
        strength=strength,
        rationale=_rationale(_results(annotation)),
        seconds=_seconds(annotation.get("lead_time")),
        note=note,
    )


def annotator_name(server: str, user_id: int | None) -> str:
    """A pseudonym: the server's host and the number of the user there."""
    return f"label-studio/{urlsplit(server).netloc}/{'unknown' if user_id is None else user_id}"


def as_judgment(revision: Revision, server: str, comparison_id: str, shown_order: ShownOrder) -> Judgment | None:
    """In canonical order. Each revision is a judgment of its own, so an edit never overwrites an earlier answer.

    The API's lists carry no `unique_id`; the annotation's number, which the server never uses twice, stands for it.
    """
    if revision.answer is None:
        return None
    return Judgment(
        comparison_id,
        ids.annotator_id("human", annotator_name(server, revision.user_id)),
        revision.answer if shown_order == "AB" else swap_answer(revision.answer),
        strength=revision.strength,
        rationale=revision.rationale,
        shown_order=shown_order,
        seconds=revision.seconds,
        origin=f"label-studio/{urlsplit(server).netloc}/{revision.annotation_id}@{revision.revision.isoformat()}",
    )


def _answer(annotation: Mapping[str, Any], config: ProjectConfig) -> tuple[Answer | None, int | None, str | None]:
    if annotation.get("was_cancelled"):
        return "skip", None, "skipped"
    control = CONTROL[config.template]
    values = [r["value"] for r in _results(annotation) if r.get("from_name") == control]
    if config.template == "pairwise":
        sides = {value.get("selected") for value in values} - {None}
        if not sides:
            return ("tie", None, "no choice") if config.empty_means_tie else ("skip", None, NO_CHOICE)
        if sides not in ({"left"}, {"right"}):
            return None, None, f"not a choice of this template: {_quoted(sides)}"
        return ("A" if sides == {"left"} else "B"), None, None
    chosen: list[Any] = []
    for value in values:
        choices = value.get("choices")
        chosen += choices if isinstance(choices, list) else [choices]
    if not chosen:
        return "skip", None, "no choice"
    if len(chosen) > 1 or not isinstance(chosen[0], str) or chosen[0] not in CHOICES:
        return None, None, f"not a choice of this template: {_quoted(chosen)}"
    answer, strength = CHOICES[chosen[0]]
    return answer, strength, None


def _results(annotation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    results = annotation.get("result")
    if not isinstance(results, list):
        return []
    return [r for r in results if isinstance(r, Mapping) and isinstance(r.get("value"), Mapping)]


def _rationale(results: Sequence[Mapping[str, Any]]) -> str | None:
    texts: list[str] = []
    for result in results:
        if result.get("from_name") == RATIONALE:
            text = result["value"].get("text")
            texts += [t for t in (text if isinstance(text, list) else [text]) if isinstance(t, str) and t.strip()]
    return "\n".join(texts) or None


def _number(annotation: Mapping[str, Any], name: str) -> int:
    value = annotation.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInputError(f"an annotation of Label Studio has a number here, not {value!r}", field=name)
    return value


def _time(annotation: Mapping[str, Any]) -> datetime:
    value = annotation.get("updated_at")
    try:
        timestamp = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise BadInputError(f"not a time: {value!r}", field="updated_at") from error
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _quoted(values: Any) -> str:
    return ", ".join(sorted(repr(v)[:80] for v in values))
