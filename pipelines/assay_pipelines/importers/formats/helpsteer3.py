"""NVIDIA's HelpSteer3 in its five configurations; field names and scales as on its data card (CC-BY-4.0).

`overall_preference` is NEGATIVE where response 1 is better, 0 is a tie; the field is spelled `fulfilment`; a "good"
edit is one that does what the feedback asked, which need not make the response better. Annotators are not identified:
`position-1` to `position-3` are positions in each row's list, not three people. An edit is better than its
original in `edit`, a good one than a bad one in `edit_quality`; `feedback` gives pairs without a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.data.conversation import Turns, check_unicode, prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import optional_text, rejecting
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import FeedbackRow, PairRow, PrincipleJudgmentRow, Row

LICENSE = "CC-BY-4.0"
_ANSWERS = {"yes": "yes", "no": "no", "partially": "partially"}


class PreferenceLayout(RecordLayout):
    """HelpSteer3 preferences."""

    source = "HelpSteer3-preference"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"context", "response1", "response2", "overall_preference"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        label, strength = _side(record.get("overall_preference"), "overall_preference")
        votes: list[dict[str, Any]] = []
        out: list[Row | RowError] = []
        individual_votes = record.get("individual_preference") or []
        if not isinstance(individual_votes, list) or not all(isinstance(vote, dict) for vote in individual_votes):
            raise RowError("wrong type: not a list of objects", field="individual_preference")
        for position, vote in enumerate(individual_votes, start=1):
            with rejecting(out, f"vote {position}"):
                answer, how_much = _side(vote.get("score"), "individual_preference")
                reason = optional_text(vote, "reasoning")
                voter = {"kind": "human", "voter": f"position-{position}", "label": answer}
                votes.append({**voter, "strength": how_much, "rationale": reason})
        return [_pair(record, ("response1", "response2"), label, strength, votes or None), *out]


class FeedbackLayout(RecordLayout):
    """HelpSteer3 feedback."""

    source = "HelpSteer3-feedback"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"context", "response1", "response2", "feedback1", "feedback2"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """The pair, which this configuration does not label, and what was written on either response."""
        pair = _pair(record, ("response1", "response2"), None)
        return [
            pair,
            *_texts(record, pair.turns, pair.first, "feedback1"),
            *_texts(record, pair.turns, pair.second, "feedback2"),
        ]


class EditLayout(RecordLayout):
    """HelpSteer3 edits."""

    source = "HelpSteer3-edit"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"context", "original_response", "edited_response"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        pair = _pair(record, ("edited_response", "original_response"), "first")
        pair.rationale = optional_text(record, "change_summary")
        return [pair, *_texts(record, pair.turns, pair.second, "feedback")]


class EditQualityLayout(RecordLayout):
    """HelpSteer3 good and bad edits."""

    source = "HelpSteer3-edit-quality"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"context", "good_edited_response", "bad_edited_response"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        pair = _pair(record, ("good_edited_response", "bad_edited_response"), "first")
        pair.meta = {"better_at": "doing what the feedback asked"}
        original = record.get("original_response")
        if not isinstance(original, str) or not original:
            return [pair]
        return [pair, *_texts(record, pair.turns, text_of(original, "original_response"), "feedback")]


class PrincipleLayout(RecordLayout):
    """HelpSteer3 principle judgments."""

    source = "HelpSteer3-principle"

    def matches(self, record: Mapping[str, Any]) -> bool:
        spelled = bool({"fulfilment", "fulfillment"} & record.keys())
        return spelled and {"context", "response", "principle"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        field = "fulfillment" if "fulfillment" in record else "fulfilment"  # copies spell it so
        answer = _ANSWERS.get(str(record.get(field)).strip().lower())
        if answer is None:
            raise RowError("not Yes, No or Partially", field=field)
        return [
            PrincipleJudgmentRow(
                _turns(record),
                text_of(record.get("response"), "response"),
                text_of(record.get("principle"), "principle"),
                answer,
                kind="source",
                category=optional_text(record, "domain"),
                license=LICENSE,
                language=optional_text(record, "language"),
            )
        ]


def _pair(
    record: Mapping[str, Any],
    sides: tuple[str, str],
    label: str | None,
    strength: int | None = None,
    votes: list[dict[str, Any]] | None = None,
) -> PairRow:
    first, second = (text_of(record.get(side), side) for side in sides)
    pair = PairRow(
        _turns(record),
        first,
        second,
        label,
        strength=strength,
        votes=votes,
        category=optional_text(record, "domain"),
        license=LICENSE,
        language=optional_text(record, "language"),
    )
    return pair.check(sides)


def _turns(record: Mapping[str, Any]) -> Turns:
    return prompt_turns(record.get("context"), "context")


def _side(value: object, field: str) -> tuple[str, int | None]:
    """-3..3 as a label and a strength. Negative: response 1 is better. Raises RowError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -3 <= value <= 3:
        raise RowError("not a whole number from -3 to 3", field=field)
    if value == 0:
        return "tie", None
    return ("first" if value < 0 else "second"), abs(value)


def _texts(record: Mapping[str, Any], turns: Turns, response: str, field: str) -> list[Row | RowError]:
    """The feedback texts on one response; one that is no text comes as its RowError."""
    texts = record.get(field) or []
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list):
        return [RowError("wrong type: not a list of texts", field=field)]
    out: list[Row | RowError] = []
    for position, text in enumerate(texts, start=1):
        if text is None or text == "":  # fewer than three were given
            continue
        with rejecting(out, f"{field} {position}"):
            content = text_of(text, field)
            check_unicode(content, field)
            out.append(
                FeedbackRow(
                    turns,
                    response,
                    content,
                    voter=f"position-{position}",
                    category=optional_text(record, "domain"),
                    license=LICENSE,
                    language=optional_text(record, "language"),
                )
            )
    return out
