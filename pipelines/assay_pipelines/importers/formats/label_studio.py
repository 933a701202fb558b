"""Label Studio's export: JSON (tasks with annotations and predictions) and JSON_MIN (one flat row per annotation).

Every annotation becomes a vote of its annotator (`completed_by`), every prediction one of its model (`model_version`).
Two interfaces are read. `Pairwise` answers left or right; without a result nobody can tell a tie from a skip, so it is
read as a skip with that reason. The other is a `Choices` with the values `A>>B` (strength 3), `A>B` (2), `A>=B` (1),
their mirror images, `tie`, `both good`, `both bad` and `skip`, as Assay's projects have it. A `TextArea` beside either
is the vote's rationale. Rankers and ratings are not read.
"""

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import Turns, check_unicode, prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.annotation.label_studio import config as label_studio_config
from assay_pipelines.importers.formats.columns import optional_text, rejecting, vote
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

SIDES = (("answer1", "answer2"), ("response_a", "response_b"), ("response1", "response2"))
UNDECIDED = "no side was selected: a tie or a skip, which Label Studio's Pairwise does not tell apart"
CANCELLED = "skipped by the annotator"


def _spelled(choice: str) -> str:
    """Case, spaces, `-` and `_` do not count."""
    return choice.lower().replace(" ", "").replace("_", "").replace("-", "")


#: What a choice may say, spelled by `_spelled`: our label and its strength.
CHOICES: dict[str, tuple[str, int | None]] = {
    _spelled(value): ({"A": "first", "B": "second"}.get(answer, answer), strength)
    for value, (answer, strength) in label_studio_config.CHOICES.items()
}


class LabelStudioLayout(RecordLayout):
    """A Label Studio export (JSON)."""

    title = "a Label Studio export (JSON)"

    def matches(self, record: Mapping[str, Any]) -> bool:
        task = record.get("data")
        answered = "annotations" in record or "predictions" in record
        return answered and isinstance(task, dict) and _sides(task) is not None

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """The task's pair with its votes; an annotation that cannot be read comes as its RowError beside it."""
        task = record.get("data")
        if not isinstance(task, dict):
            raise RowError("missing or no object", field="data")
        out: list[Row | RowError] = []
        votes, about = [], []
        for kind, entries in (("annotations", record.get("annotations")), ("predictions", record.get("predictions"))):
            for position, entry in enumerate(entries if isinstance(entries, list) else [], start=1):
                with rejecting(out, f"{kind} {position}"):
                    if not isinstance(entry, dict):
                        raise RowError("an entry that is no object", field=kind)
                    votes.append(_vote(entry, kind))
                    copied_fields = ("id", "lead_time", "created_at", "ground_truth", "score")
                    about.append({name: entry[name] for name in copied_fields if entry.get(name) not in (None, False)})
        pair = _pair(task, votes, optional_text(record, "id"))
        pair.meta = {"votes": about} if any(about) else {}
        return [pair, *out]


class LabelStudioMinLayout(RecordLayout):
    """A Label Studio export (JSON_MIN)."""

    title = "a Label Studio export (JSON_MIN)"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"annotator", "annotation_id"} <= record.keys() and _sides(record) is not None

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """One annotation: control names are columns, a value is text or (Pairwise) an object with `selected`."""
        results: list[dict[str, Any]] = []
        sides = _sides(record) or SIDES[0]
        for name, value in record.items():
            if name in ("prompt", *sides):
                continue
            if isinstance(value, dict) and "selected" in value:
                results.append({"type": "pairwise", "value": value})
            elif isinstance(value, str) and (value in ("left", "right") or _spelled(value) in CHOICES):
                plain = {"selected": value} if value in ("left", "right") else {"choices": [value]}
                results.append({"type": "pairwise" if "selected" in plain else "choices", "value": plain})
            elif name == "rationale" and isinstance(value, str | list):
                results.append({"type": "textarea", "value": {"text": value}})
        said = _vote({"result": results, "completed_by": record.get("annotator")}, "annotations")
        return [_pair(record, [said], optional_text(record, "id"))]


def _pair(data: Mapping[str, Any], votes: list[dict[str, Any]], task: str | None) -> PairRow:
    names = _sides(data)
    if names is None:
        raise RowError("no two answers (answer1 and answer2)", field="data")
    first, second = (text_of(data.get(name), name) for name in names)
    pair = PairRow(
        _turns(data),
        first,
        second,
        None,
        votes=votes or None,
        source=optional_text(data, "source"),
        record_id=optional_text(data, "comparison_id") or (f"task-{task}" if task else None),
        category=optional_text(data, "category"),
    )
    return pair.check(names)


def _turns(task: Mapping[str, Any]) -> Turns:
    """The prompt; `messages` takes precedence, because `prompt` may hold a conversation rendered as one text."""
    messages = task.get("messages")
    return prompt_turns(messages if isinstance(messages, list) and messages else task.get("prompt"))


def _sides(task: Mapping[str, Any]) -> tuple[str, str] | None:
    return next((names for names in SIDES if names[0] in task and names[1] in task), None)


def _vote(entry: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "annotations":
        by = entry.get("completed_by")
        by = by.get("id") if isinstance(by, dict) else by
        voter = optional_text({"completed_by": by}, "completed_by") or "unknown"
        who = ("human", voter)
    else:
        who = ("llm", optional_text(entry, "model_version") or "unknown")
    results = entry.get("result") or []
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise RowError("a result that is no list of objects", field=kind)
    label: tuple[str, int | None] | None = None
    reasons: list[str] = []
    for result in results:
        value = result.get("value")
        if not isinstance(value, dict):
            continue
        if result.get("type") == "textarea":
            text = value.get("text")
            reasons += [part for part in (text if isinstance(text, list) else [text]) if isinstance(part, str) and part]
        elif (choice := _choice_of(str(result.get("type")), value, kind)) is not None:
            label = choice
    if entry.get("was_cancelled"):
        if label is None and not reasons:
            reasons = [CANCELLED]
        label = ("skip", None)
    if label is None:
        label = ("skip", None)
        reasons.append(UNDECIDED)
    rationale = "\n".join(reasons)
    check_unicode(rationale, kind)
    return vote(who[0], who[1], label[0], strength=label[1], rationale=rationale or None)


def _choice_of(type_: str, value: dict[str, Any], kind: str) -> tuple[str, int | None] | None:
    """The label that one result gives, None where it is no label. Raises RowError for an unknown choice."""
    if type_ == "pairwise":
        selected = value.get("selected")
        if selected not in ("left", "right"):
            raise RowError("a Pairwise result that is neither left nor right", field=kind)
        return ("first" if selected == "left" else "second"), None
    if type_ != "choices":
        return None
    chosen = value.get("choices")
    if not isinstance(chosen, list) or len(chosen) != 1:
        raise RowError("not exactly one choice", field=kind)
    if (spelled := _spelled(str(chosen[0]))) not in CHOICES:
        raise RowError(
            "an unknown choice (known: A>>B, A>B, A>=B, tie, both good, both bad, skip, B>=A, B>A, B>>A)", field=kind
        )
    return CHOICES[spelled]
