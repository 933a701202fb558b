"""The configuration `judgments` of Assay's Hugging Face export: one row for each judgment of a comparison.

Votes keep the names (pseudonyms for people) that the export gave them; confidence and the order shown are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from assay.data.conversation import prompt_turns, text_of
from assay.data.json_lines import RowError
from assay.domain import AnnotatorKind
from assay_pipelines.importers.formats.columns import label_of, optional_text, strength_of
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row


class JudgmentsLayout(RecordLayout):
    """Judgments that Assay exported."""

    title = "judgments that Assay exported"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"prompt", "response_a", "response_b", "annotator", "kind", "answer"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        annotator, kind = text_of(record.get("annotator"), "annotator"), record.get("kind")
        if kind not in get_args(AnnotatorKind):
            raise RowError(f"not one of {', '.join(get_args(AnnotatorKind))}", field="kind")
        label = label_of(record.get("answer"), "answer")
        if label is None:
            raise RowError("missing", field="answer")
        strength, rationale = strength_of(record.get("strength")), optional_text(record, "rationale")
        pair = PairRow(
            prompt_turns(record.get("prompt")),
            text_of(record.get("response_a"), "response_a"),
            text_of(record.get("response_b"), "response_b"),
            None,
            record_id=optional_text(record, "comparison_id"),
        )
        if kind == "source":
            pair.label, pair.strength, pair.rationale, pair.source = label, strength, rationale, annotator
        else:
            vote = {"kind": kind, "voter": annotator, "label": label, "strength": strength, "rationale": rationale}
            pair.votes = [vote]
        return [pair.check(("response_a", "response_b"))]
