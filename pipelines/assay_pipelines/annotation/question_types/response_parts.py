"""Labels of parts of one response: of its steps, each correct, neutral or wrong; or of spans that the annotator
marks."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.domain import ShownOrder
from assay.errors import BadInputError
from assay_pipelines.annotation.question_types.item_form import ItemForm, answered, list_in, passed_on
from assay_pipelines.annotation.question_types.pair import Option
from assay_pipelines.annotation.question_types.question_type import Submission, Terminal, TerminalForm, VoteRecord

STEP_VALUES: tuple[tuple[Option, int], ...] = (
    (Option("correct", "y", "Correct", "correct"), 1),
    (Option("neutral", "m", "Neutral, or not sure", "neutral"), 0),
    (Option("wrong", "n", "Wrong", "wrong"), -1),
)
MOST_SPANS = 200  #: of one answer


class StepLabels:
    """`settings.steps` of the item: [start, end] of each step in the response. The answer's `steps`: a value for each
    of the first so many of them; those after a wrong one may be left out."""

    component: ClassVar[str] = "StepLabels"

    def words(self) -> Mapping[str, Any]:
        return {
            "values": [{"name": o.name, "key": o.key, "label": o.label, "value": number} for o, number in STEP_VALUES]
        }

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm | None:
        return None if item is None else _StepForm(item)

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        if (skipped := passed_on(submission)) is not None:
            return skipped
        values, steps = list_in(submission, "steps"), item["settings"]["steps"]
        if any(isinstance(label, bool) or label not in (1, 0, -1) for label in values):
            raise BadInputError("a step is 1 (correct), 0 (neutral) or -1 (wrong)", field="response")
        if not values or len(values) > len(steps) or (len(values) < len(steps) and values[-1] != -1):
            raise BadInputError(
                f"{len(values)} labels for {len(steps)} steps: only those after a wrong one may be left out",
                field="response",
            )
        marks = [
            {
                "response_id": item["response_ids"][0],
                "step": number,
                "start": start,
                "end": end,
                "value": float(label),
                "low": -1.0,
                "high": 1.0,
            }
            for number, (label, (start, end)) in enumerate(zip(values, steps, strict=False))
        ]
        return answered(submission, marks=marks)


class SpanMarking:
    """`settings.labels` of the item: what a span can be. The answer's `spans`: start and end in characters of the
    response, a label, and a note where there is one; none is an answer too."""

    component: ClassVar[str] = "SpanMarking"

    def words(self) -> Mapping[str, Any]:
        return {"most": MOST_SPANS}

    def form(self, item: Mapping[str, Any] | None = None) -> TerminalForm | None:
        return None if item is None else _SpanForm(item)

    def record(
        self, submission: Submission, item: Mapping[str, Any], order: ShownOrder, vote: VoteRecord | None
    ) -> VoteRecord:
        if (skipped := passed_on(submission)) is not None:
            return skipped
        spans, text = list_in(submission, "spans"), item["responses"][0]
        if len(spans) > MOST_SPANS:
            raise BadInputError(f"at most {MOST_SPANS} spans, not {len(spans)}", field="response")
        marks: dict[tuple[int, int, Any], dict[str, Any]] = {}
        for span in spans:
            if not isinstance(span, dict):
                raise BadInputError("a span is an object", field="response")
            start, end, label = span.get("start"), span.get("end"), span.get("label")
            if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
                raise BadInputError("a span is from one character of the response to a later one", field="response")
            if label not in item["settings"]["labels"]:
                raise BadInputError(f"a span is one of {', '.join(item['settings']['labels'])}", field="response")
            note = span.get("note")
            if note is not None and not isinstance(note, str):
                raise BadInputError("a span's note is text", field="response")
            span_of = {"response_id": item["response_ids"][0], "start": start, "end": end, "label": label}
            marks[start, end, label] = span_of | ({"rationale": note} if note else {})
        return answered(submission, marks=[marks[key] for key in sorted(marks)])


class _StepForm(ItemForm):
    """One step after the other; the first wrong one may end it."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        super().__init__()
        self._steps = [item["responses"][0][start:end] for start, end in item["settings"]["steps"]]
        self._values: list[int] = []

    def own_keys(self) -> Sequence[tuple[str, str]]:
        ends = [("d", "done: the rest builds on an error")] if self._values and self._values[-1] == -1 else []
        return [*((option.key, option.short) for option, _ in STEP_VALUES), *ends]

    def own_notes(self) -> Sequence[str]:
        names = {number: option.name for option, number in STEP_VALUES}
        labelled = [f"step {n + 1}: {names[label]}" for n, label in enumerate(self._values)]
        number = len(self._values)
        return [*labelled, *([f"step {number + 1}? {self._steps[number]}"] if number < len(self._steps) else [])]

    def take(self, key: str, terminal: Terminal) -> bool:
        label = next((number for option, number in STEP_VALUES if option.key == key), None)
        if key == "z":
            self._values = self._values[:-1]
        elif key == "d" and self._values and self._values[-1] == -1:
            self.submit({"steps": list(self._values)})
        elif label is not None and len(self._values) < len(self._steps):
            self._values.append(label)
            if len(self._values) == len(self._steps):
                self.submit({"steps": list(self._values)})
                self._values = self._values[:-1]
        else:
            return False
        return True


class _SpanForm(ItemForm):
    """A key for each label, then the words, exactly as the response has them."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        super().__init__()
        self._text, self._labels = item["responses"][0], list(item["settings"]["labels"])
        self._spans: list[dict[str, Any]] = []
        self._problem = ""

    def own_keys(self) -> Sequence[tuple[str, str]]:
        return [*((str(number), label) for number, label in enumerate(self._labels[:9], 1)), ("d", "done")]

    def own_notes(self) -> Sequence[str]:
        marked = [f"{span['label']}: {self._text[span['start'] : span['end']]}" for span in self._spans]
        return [*marked, *([self._problem] if self._problem else [])]

    def take(self, key: str, terminal: Terminal) -> bool:
        self._problem = ""
        if key == "z":
            self._spans = self._spans[:-1]
        elif key == "d":
            self.submit({"spans": list(self._spans)})
        elif key.isdecimal() and 1 <= int(key) <= min(9, len(self._labels)):
            words = terminal.read_line("the words: ")
            after = max(
                (span["end"] for span in self._spans if self._text[span["start"] : span["end"]] == words), default=0
            )
            start = self._text.find(words, after) if words else -1
            if start < 0:
                self._problem = f"not in the response: {words}"
            else:
                self._spans.append({"start": start, "end": start + len(words), "label": self._labels[int(key) - 1]})
        else:
            return False
        return True
