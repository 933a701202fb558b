"""Pairs of a record, as an adapter's rules read them."""

from collections.abc import Callable
from typing import Any, TypeAlias

from assay.data.conversation import Turns
from assay.data.json_lines import RowError
from assay_pipelines.importers.adapters.labels import Vote, label_reader, vote_reader
from assay_pipelines.importers.adapters.paths import field_of, getter
from assay_pipelines.importers.adapters.prompts import sides_reader
from assay_pipelines.importers.adapters.schema import ComparisonRule
from assay_pipelines.importers.formats.columns import strength_of, text_or_none
from assay_pipelines.importers.rows import PairRow, Row

Rows: TypeAlias = "list[Row | RowError]"
#: From a record and the turns of its prompt (None: the adapter has no prompt) to rows. Raises RowError.
Reader: TypeAlias = Callable[[Any, "Turns | None"], Rows]


def pair_reader(rule: ComparisonRule) -> Reader:
    fields, sides = (field_of(rule.first), field_of(rule.second)), sides_reader(rule)
    label, votes = label_reader(rule.label), [vote_reader(vote) for vote in rule.votes]
    when, strength, rationale, annotator = (
        getter(path) if path else None for path in (rule.when, rule.strength, rule.rationale, rule.annotator)
    )
    meta = {name: getter(path) for name, path in rule.meta.items()}

    def read(record: Any, turns: Turns | None) -> Rows:
        if when is not None and not when(record):
            return []
        rows: Rows = []
        accepted: list[Vote] = []
        for vote in (vote for read_votes in votes for vote in read_votes(record)):
            if isinstance(vote, RowError):
                rows.append(vote)
            else:
                accepted.append(vote)
        answer, how_much = label(record, accepted)
        if strength is not None:
            how_much = strength_of(strength(record))
        pair = PairRow(*sides(record, turns), answer, how_much, votes=accepted or None)
        pair.rationale = text_or_none(rationale(record), rule.rationale or "") if rationale else None
        pair.annotator = text_or_none(annotator(record), rule.annotator or "") if annotator else None
        pair.meta = {name: value for name, get in meta.items() if (value := get(record)) is not None}
        return [pair.check(fields), *rows]

    return read
