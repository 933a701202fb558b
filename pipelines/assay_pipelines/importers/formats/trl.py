"""TRL's preference forms, and any table that has been renamed to them by a column mapping.

Explicit and implicit prompts, plain and conversational; or `response_a`, `response_b` and `label`, or a score of each.
"""

import re
from collections.abc import Mapping
from typing import Any

from assay.data.conversation import (
    PART_COLUMNS,
    ResponseForm,
    prompt_turns,
    response_form_of,
    row_turns,
    split_pair,
    text_of,
    with_system,
)
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import (
    kind_of_annotator,
    label_of,
    label_of_scores,
    leftover_meta,
    optional_text,
    origin_of,
    required_number,
    strength_of,
    vote,
)
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

#: The columns that are read; `--map` gives one of these names to a column of another name.
TARGETS = frozenset(
    {
        *("prompt", "system", "chosen", "rejected", "response_a", "response_b", "label", "completion"),
        *("score_a", "score_b", "id", "source", "category", "license", "language", "lang"),
        *("rationale", "strength", "margin", "annotator"),
    }
)

#: One column a vote, as tables of annotators have them.
_WIDE_VOTE = re.compile(r"(?:annotator|rater|worker|judge|vote|label|expert|coder)[ _-]?\d+", re.IGNORECASE)

_JUDGE, _VERDICT = ("judge", "model", "annotator", "name"), ("verdict", "label", "winner", "answer", "value")

_PAIR = frozenset({"prompt", "chosen", "rejected", "response_a", "response_b", "label", "completion"})
_SCORES = ("score_a", "score_b")


class TrlLayout(RecordLayout):
    """TRL's explicit and implicit pairs, and two responses with a label."""

    mappable = True

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"chosen", "rejected"} <= record.keys() or {"prompt", "response_a", "response_b"} <= record.keys()

    def title_of(self, record: Mapping[str, Any]) -> str:
        if "response_a" in record and "label" not in record and "score_a" in record:
            return "pairs with scores (response_a, response_b, score_a, score_b)"
        if "response_a" in record:
            return "labelled pairs (response_a, response_b, label)"
        return f"TRL pairs with an {'explicit' if record.get('prompt') is not None else 'implicit'} prompt"

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        return parse_pair(record)


def parse_pair(record: Mapping[str, Any]) -> list[Row | RowError]:
    """The pair of one record in any of TRL's forms. Raises RowError for a record without one, or whose label cannot be
    read where it has no votes beside it."""
    unread: RowError | None = None
    first: ResponseForm
    second: ResponseForm
    label: str | None
    if "response_a" in record or "response_b" in record:
        turns = prompt_turns(record.get("prompt"))
        first = response_form_of(record.get("response_a"), "response_a")
        second = response_form_of(record.get("response_b"), "response_b")
        label, unread = _stated_label(record)
        if label is None and unread is None and all(name in record for name in _SCORES):
            label = label_of_scores(*(required_number(record[name], name) for name in _SCORES))
    else:
        turns, first, second = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
        label = "first"
    if not record.keys().isdisjoint(PART_COLUMNS):
        turns = row_turns(record, turns, first, second)
    pair = PairRow(turns, first, second, label)
    out: list[Row | RowError] = [pair]
    if not record.keys() <= _PAIR:
        _add_columns(pair, record)
        if "response_a" in record:
            out += _add_votes(pair, record)
    if unread is not None:
        if not pair.votes:
            raise unread
        if not any(isinstance(problem, RowError) and problem.field == "label" for problem in out):
            out.append(unread)
    pair.check()
    return out


def _stated_label(record: Mapping[str, Any]) -> tuple[str | None, RowError | None]:
    """The label of a pair, or why it cannot be read."""
    try:
        return label_of(record.get("label"), "label"), None
    except RowError as error:
        return None, error


def _add_votes(pair: PairRow, record: Mapping[str, Any]) -> list[RowError]:
    """The vote of the row's annotator, of each column `annotator_1`, and of recorded judges. Returns what is no
    vote."""
    votes: list[dict[str, Any]] = []
    problems: list[RowError] = []
    stated: list[tuple[str, object, object]] = [
        (name, name, value) for name, value in record.items() if _WIDE_VOTE.fullmatch(name)
    ]
    if pair.annotator is not None:
        stated.append(("label", pair.annotator, record.get("label")))
    judges = record.get("judges")
    if isinstance(judges, dict):
        stated += [("judges", name, value) for name, value in judges.items()]
    elif isinstance(judges, list):
        for entry in judges:
            columns = entry if isinstance(entry, dict) else {}
            judge, verdict = (next(filter(None, map(columns.get, names)), None) for names in (_JUDGE, _VERDICT))
            stated.append(("judges", judge, verdict))
    for field, name, value in stated:
        try:
            label = label_of(value, field)
            if label is not None:
                voter = text_of(name, field)
                kind = "llm" if field == "judges" else kind_of_annotator(voter)
                votes.append(vote(kind, voter, label, strength=pair.strength if field == "label" else None))
                pair.meta.pop(field, None)
            elif field == "judges":
                raise RowError("a judge without a verdict", field=field)
        except RowError as error:
            error.detail = str(name)
            problems.append(error)
    pair.votes = votes or None
    return problems


def _add_columns(pair: PairRow, record: Mapping[str, Any]) -> None:
    """The columns beside prompt, responses and label."""
    if (system := optional_text(record, "system")) is not None:
        pair.turns = with_system(pair.turns, system)
    pair.strength = strength_of(record.get("strength"))
    if pair.strength is None:
        pair.strength = strength_of(record.get("margin"))
    pair.meta = leftover_meta(record, TARGETS | PART_COLUMNS)
    if pair.strength is None:
        pair.meta |= {name: record[name] for name in ("strength", "margin") if record.get(name) not in (None, "")}
    if "response_a" in record:
        pair.meta |= {name: record[name] for name in _SCORES if name in record}
    pair.rationale, pair.annotator = optional_text(record, "rationale"), optional_text(record, "annotator")
    for name, value in origin_of(record).items():
        setattr(pair, name, value)
