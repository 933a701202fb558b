"""The normalised JSON Lines form: prompt, responses, chosen/rejected, ratings, annotator, provenance.

`ratings` in use: `votes` (annotator, value A/B/tie for responses[0]/[1], reason), `gold` (A/B/tie), and for ranking
`scores` (numbers, or objects with `overall`) or `correct` (true/false), one per response, which become all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from assay.data.conversation import Turns, check_unicode, prompt_turns, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import label_of, leftover_meta, optional_text, rejecting
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import PairRow, Row

_VOTER_KINDS = {"human": "human", "model": "llm", "verified": "verifier"}


class NormalisedLayout(RecordLayout):
    """The normalised form."""

    title = "the normalised form"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"prompt", "responses", "label_type"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """All pairs of one record; a pair that cannot be one (identical or empty sides) comes as its RowError."""
        turns = prompt_turns(record.get("prompt"))
        responses = record.get("responses") or []
        if not isinstance(responses, list):
            raise RowError("wrong type: not a list", field="responses")
        ratings = record.get("ratings") or {}
        if not isinstance(ratings, dict):
            raise RowError("wrong type: not an object", field="ratings")
        if len(responses) > 2 and (values := _values(ratings, len(responses))) is not None:
            return _ranked(record, turns, responses, values, ratings)
        return [_single(record, turns, responses, ratings)]


def _single(record: Mapping[str, Any], turns: Turns, responses: list[Any], ratings: dict[str, Any]) -> PairRow:
    chosen, rejected = record.get("chosen"), record.get("rejected")
    label: str | None
    if chosen is not None or rejected is not None:
        chosen, rejected = text_of(chosen, "chosen"), text_of(rejected, "rejected")
        if responses == [rejected, chosen]:
            first, second, label = rejected, chosen, "second"
        else:
            first, second, label = chosen, rejected, "first"
    elif len(responses) == 2:
        first, second = (text_of(response, "responses") for response in responses)
        label = _undecided_label(ratings)
    elif len(responses) < 2:
        raise RowError("no pair: fewer than two responses", field="responses")
    else:
        raise RowError("more than two responses without a ranking", field="ratings")
    ordered = len(responses) == 2
    votes = _votes(ratings, record.get("label_type")) if ordered and [first, second] == responses else None
    return _pair(record, turns, (first, second), label, ratings, votes).check(("responses", "responses"))


def _ranked(
    record: Mapping[str, Any], turns: Turns, responses: list[Any], values: list[float], ratings: dict[str, Any]
) -> list[Row | RowError]:
    texts = [text if isinstance(text, str) else None for text in responses]
    flags = "correct" in ratings and "scores" not in ratings
    meta = record.get("meta")
    short = leftover_meta(meta, frozenset()) if isinstance(meta, dict) else {}  # it is repeated with every pair
    out: list[Row | RowError] = []
    for i, j in combinations(range(len(texts)), 2):
        with rejecting(out, f"responses {i} and {j}"):
            first, second = text_of(texts[i], "responses"), text_of(texts[j], "responses")
            if values[i] == values[j]:
                label = ("both_good" if values[i] else "both_bad") if flags else "tie"
            else:
                label = "first" if values[i] > values[j] else "second"
            pair = _pair(record, turns, (first, second), label, {}, None).check(("responses", "responses"))
            pair.meta = {**short, "responses": [i, j], "values": [values[i], values[j]]}
            out.append(pair)
    return out


def _pair(
    record: Mapping[str, Any],
    turns: Turns,
    sides: tuple[str, str],
    label: str | None,
    ratings: dict[str, Any],
    votes: list[dict[str, Any]] | None,
) -> PairRow:
    meta = dict(record.get("meta") or {}) if isinstance(record.get("meta"), dict) else {}
    if record.get("label_type"):
        meta["label_type"] = record["label_type"]
    if ratings:  # reasons are kept with the judgments
        rating_meta = {key: value for key, value in ratings.items() if key != "votes"}
        if votes is not None:
            rating_meta["votes"] = [{k: v for k, v in vote.items() if k != "reason"} for vote in ratings["votes"]]
        meta["ratings"] = rating_meta
    rationale = optional_text(record, "rationale")
    return PairRow(
        turns,
        *sides,
        label,
        rationale=rationale,
        votes=votes,
        source=optional_text(record, "source"),
        record_id=optional_text(record, "id"),
        category=optional_text(record, "category"),
        license=optional_text(record, "license"),
        language=optional_text(record, "lang"),
        meta=meta,
        annotator=optional_text(record, "annotator"),
    )


def _undecided_label(ratings: dict[str, Any]) -> str | None:
    if (gold := ratings.get("gold")) is not None:
        return label_of(gold, "ratings")
    scores = _values(ratings, 2)
    if scores is None:
        return None
    if scores[0] == scores[1]:
        return "tie"
    return "first" if scores[0] > scores[1] else "second"


def _values(ratings: dict[str, Any], number: int) -> list[float] | None:
    """One number per response, or None where the ratings do not rank the responses."""
    scores = ratings.get("scores", ratings.get("correct"))
    if not isinstance(scores, list) or len(scores) != number:
        return None
    values = [entry.get("overall") if isinstance(entry, dict) else entry for entry in scores]
    numbers = [float(score) for score in values if isinstance(score, int | float)]
    return numbers if len(numbers) == number else None


def _votes(ratings: dict[str, Any], label_type: object) -> list[dict[str, Any]] | None:
    votes = ratings.get("votes")
    if not votes:
        return None
    if not isinstance(votes, list) or not all(isinstance(vote, dict) for vote in votes):
        raise RowError("wrong type: not a list of objects", field="ratings.votes")
    out = []
    for vote in votes:
        voter = optional_text(vote, "annotator")
        label = label_of(vote.get("value"), "ratings.votes")
        if voter is None or label is None:
            raise RowError("a vote without annotator or value", field="ratings.votes")
        if (reason := vote.get("reason")) is not None:
            reason = str(reason)
            check_unicode(reason, "ratings.votes")
        kind = _VOTER_KINDS.get(str(label_type), "human")
        out.append({"kind": kind, "voter": voter, "label": label, "strength": None, "rationale": reason or None})
    return out
