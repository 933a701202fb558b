"""UltraFeedback: openbmb's raw rows, four rated completions each, and the binarized forms made of them.

Completions are ranked by the mean of the aspect ratings that both of a pair have. Not by `overall_score`: it was parsed
from GPT-4's critiques and is known to be wrong in thousands of rows (a critique's 1 read as 10). Ratings are strings;
"N/A" counts as not rated. A row without ratings is ranked by `fine-grained_score`, the publisher's mean of the same.
`custom_system_prompt` differs between the completions of a row and is left out. Critiques become feedback.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from assay.data.conversation import Turns, check_unicode, prompt_turns, split_pair, text_of
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import (
    label_of_scores,
    leftover_meta,
    list_of,
    number_of,
    optional_text,
    rejecting,
    strength_of_margin,
)
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import FeedbackRow, PairRow, Row

ASPECTS = ("instruction_following", "honesty", "truthfulness", "helpfulness")
RATING_SPAN = 4.0  #: ratings go from 1 to 5
OVERALL_SPAN = 9.0  #: overall scores, which the binarized rows carry, from 1 to 10
JUDGE = "GPT-4"


class UltraFeedbackLayout(RecordLayout):
    """UltraFeedback, ranked by its aspect ratings."""

    source = "UltraFeedback"

    def matches(self, record: Mapping[str, Any]) -> bool:
        completions = record.get("completions")
        return (
            "instruction" in record
            and isinstance(completions, list)
            and all(isinstance(completion, dict) and "response" in completion for completion in completions)
        )

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """All pairs and critiques of one record; a pair that cannot be one comes as its RowError."""
        turns = prompt_turns(record.get("instruction"), "instruction")
        completions = list_of(record.get("completions"), "completions")
        if len(completions) < 2:
            raise RowError("no pair: fewer than two completions", field="completions")
        category = optional_text(record, "source")
        scores = [_Scores.of(completion) for completion in completions]
        out: list[Row | RowError] = []
        for i, j in combinations(range(len(completions)), 2):
            with rejecting(out, f"completions {i} and {j}"):
                out.append(_pair(turns, (completions[i], completions[j]), (scores[i], scores[j]), category))
        for completion in completions:
            if not isinstance(completion, dict):
                continue  # rejected with each of its pairs
            critique, response = completion.get("critique"), completion.get("response")
            if isinstance(critique, str) and critique.strip() and isinstance(response, str) and response:
                try:
                    check_unicode(critique, "critique")
                    out.append(
                        FeedbackRow(turns, text_of(response, "response"), critique, "llm", JUDGE, category=category)
                    )
                except RowError as error:
                    out.append(error)
        return out


class _Scores:
    """The numbers of one completion: a rating per rated aspect, and the publisher's mean."""

    def __init__(self, ratings: dict[str, float], fine_grained: float | None) -> None:
        self.ratings, self.fine_grained = ratings, fine_grained

    @classmethod
    def of(cls, completion: object) -> _Scores:
        if not isinstance(completion, dict):
            return cls({}, None)
        by_aspect = completion.get("annotations")
        annotations = by_aspect if isinstance(by_aspect, dict) else {}
        ratings = {}
        for aspect in ASPECTS:
            entry = annotations.get(aspect)
            if isinstance(entry, list):  # the publisher's own files: a list of one object
                entry = entry[0] if entry else None
            if isinstance(entry, dict) and (rating := number_of(entry.get("Rating"))) is not None:
                ratings[aspect] = rating
        return cls(ratings, number_of(completion.get("fine-grained_score")))

    def against(self, other: _Scores) -> tuple[float, float, str]:
        """Comparable scores of the two, and their name. Raises RowError where there are none."""
        shared = [aspect for aspect in ASPECTS if aspect in self.ratings and aspect in other.ratings]
        if shared:
            mine, theirs = (sum(s.ratings[a] for a in shared) / len(shared) for s in (self, other))
            return mine, theirs, f"mean of {', '.join(shared)}"
        if self.fine_grained is not None and other.fine_grained is not None and not (self.ratings or other.ratings):
            return self.fine_grained, other.fine_grained, "fine-grained_score"
        raise RowError("no rating that both completions have", field="annotations")


def _pair(turns: Turns, items: tuple[Any, Any], scores: tuple[_Scores, _Scores], category: str | None) -> PairRow:
    for completion in items:
        if not isinstance(completion, dict):
            raise RowError("a completion that is no object", field="completions")
    first, second = (text_of(completion.get("response"), "response") for completion in items)
    one, two, ranked_by = scores[0].against(scores[1])
    meta = {
        "models": [completion.get("model") for completion in items],
        "principles": [completion.get("principle") for completion in items],
        "scores": [one, two],
        "ranked_by": ranked_by,
    }
    pair = PairRow(
        turns,
        first,
        second,
        label_of_scores(one, two),
        strength=strength_of_margin(one - two, RATING_SPAN) if one != two else None,
        category=category,
        meta=meta,
        annotator=JUDGE,
    )
    return pair.check(("response", "response"))


_SCORES = (("score_chosen", "score_rejected", OVERALL_SPAN), ("chosen-rating", "rejected-rating", RATING_SPAN))
_KNOWN = frozenset({"prompt", "prompt_id", "chosen", "rejected", "messages", "source"})


class UltraFeedbackBinarizedLayout(RecordLayout):
    """UltraFeedback, binarized."""

    source = "UltraFeedback-binarized"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"chosen", "rejected"} <= record.keys() and any(c in record and r in record for c, r, _ in _SCORES)

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """One pair; equal scores are a tie, because its publisher chose between the sides at random."""
        turns, chosen, rejected = split_pair(record.get("prompt"), record.get("chosen"), record.get("rejected"))
        names = next((names for names in _SCORES if names[0] in record), _SCORES[0])
        better, worse = number_of(record.get(names[0])), number_of(record.get(names[1]))
        label, strength = "first", None
        if better is not None and worse is not None:
            if better < worse:
                raise RowError("the chosen side has the lower score", field=names[0])
            label = label_of_scores(better, worse)
            strength = strength_of_margin(better - worse, names[2]) if better != worse else None
        pair = PairRow(
            turns,
            chosen,
            rejected,
            label,
            strength=strength,
            record_id=optional_text(record, "prompt_id"),
            category=optional_text(record, "source"),
            meta=leftover_meta(record, _KNOWN),
            annotator=JUDGE,
        )
        return [pair.check()]
