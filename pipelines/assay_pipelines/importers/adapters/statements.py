"""What a record says of single responses, as an adapter's rules read it: feedback, principle judgments, ratings."""

from typing import Any

from assay.data.conversation import Turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.adapters.labels import name_of
from assay_pipelines.importers.adapters.pairs import Reader, Rows
from assay_pipelines.importers.adapters.paths import field_of, getter
from assay_pipelines.importers.adapters.prompts import response_of_value
from assay_pipelines.importers.adapters.schema import FeedbackRule, PrincipleRule, RatingRule, code_text
from assay_pipelines.importers.formats.columns import rejecting, required_number, text_or_none
from assay_pipelines.importers.rows import FeedbackRow, PrincipleJudgmentRow, RatedRow, rating

_ANSWERS = ("yes", "no", "partially")


def feedback_reader(rule: FeedbackRule) -> Reader:
    response, text = getter(rule.response), getter(rule.text)
    annotator = getter(rule.annotator) if rule.annotator else None

    def read(record: Any, turns: Turns | None) -> Rows:
        assert turns is not None
        texts, answer = text(record), response(record)
        if texts is None or texts == []:
            return []
        texts = texts if isinstance(texts, list) else [texts]
        answers = answer if isinstance(answer, list) else [answer] * len(texts)
        if len(answers) != len(texts):
            raise RowError("not one text for each response", field=rule.text)
        rows: Rows = []
        for position, (one, entry) in enumerate(zip(answers, texts, strict=True), start=1):
            if entry is None or entry == "":  # fewer were given
                continue
            with rejecting(rows, f"{rule.text} {position}"):
                content = response_of_value(one, rule.response)
                voter = None if rule.kind == "source" else f"position-{position}"
                if annotator is not None:
                    voter = name_of(annotator(record), rule.text)
                rows.append(FeedbackRow(turns, content, text_of(entry, rule.text), rule.kind, voter))
        return rows

    return read


def principle_reader(rule: PrincipleRule) -> Reader:
    response, principle, answer = (getter(path) for path in (rule.response, rule.principle, rule.answer))
    evidence = getter(rule.evidence) if rule.evidence else None

    def read(record: Any, turns: Turns | None) -> Rows:
        assert turns is not None
        verdict = code_text(answer(record))
        if verdict not in _ANSWERS:
            raise RowError("not Yes, No or Partially", field=field_of(rule.answer))
        judged = PrincipleJudgmentRow(
            turns,
            response_of_value(response(record), rule.response),
            text_of(principle(record), rule.principle),
            verdict,
            text_or_none(evidence(record), rule.evidence or "") if evidence else None,
            kind=rule.kind,
        )
        return [judged]

    return read


def rating_reader(rule: RatingRule) -> Reader:
    """The ratings of one response: an aspect's list of numbers is of as many annotators, who are known by position."""
    response, aspects = getter(rule.response), {name: getter(path) for name, path in rule.aspects.items()}
    annotator, rationale = (getter(path) if path else None for path in (rule.annotator, rule.rationale))
    scale = (rule.low, rule.high) if rule.low is not None and rule.high is not None else None

    def read(record: Any, turns: Turns | None) -> Rows:
        assert turns is not None
        rows: Rows = []
        rated = RatedRow(turns, response_of_value(response(record), field_of(rule.response)))
        voter = text_or_none(annotator(record), rule.annotator or "") if annotator else None
        reason = text_or_none(rationale(record), rule.rationale or "") if rationale else None
        for aspect, get in aspects.items():
            field = field_of(rule.aspects[aspect])
            numbers = get(record)
            values = numbers if isinstance(numbers, list) else [numbers]
            for position, value in enumerate(values, start=1):
                if value is None:
                    continue
                with rejecting(rows, aspect):
                    number = rating_value(value, rule, field)
                    who, kind = (f"position-{position}", rule.kind) if len(values) > 1 else (voter, rule.kind)
                    if who is None:
                        kind = "source"
                    rated.ratings.append(rating(aspect, number, scale=scale, voter=who, kind=kind, rationale=reason))
        if not (rated.ratings or rows):
            raise RowError("missing", field=field_of(next(iter(rule.aspects.values()))))
        return [rated, *rows] if rated.ratings else rows

    return read


def rating_value(value: object, rule: RatingRule, field: str) -> float:
    """A rating as a number; of several annotators' ratings the mean. Raises RowError for one off the scale."""
    if isinstance(value, list) and value:
        return sum(rating_value(entry, rule, field) for entry in value) / len(value)
    if rule.values is not None:
        code = code_text(value)
        if code not in rule.values:
            raise RowError("missing" if value is None else f"none of {', '.join(rule.values)}", field=field)
        return rule.values[code]
    number = required_number(value, field)
    if (rule.low is not None and number < rule.low) or (rule.high is not None and number > rule.high):
        raise RowError("not on the scale", field=field)
    return number
