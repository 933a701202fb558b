"""The normalised JSON Lines form: prompt, responses, chosen/rejected, ratings, annotator, provenance.

`ratings`: see `ratings`; `gold` (A/B/tie) is the label of the pair. `scores` (numbers, or objects with `overall`),
`correct` (true/false) and each annotator's ranking become all pairs of the responses, beside the ratings themselves. A
record without responses whose prompt ends with the assistant's turn is a rating of that turn.

Published sets keep labels of parts of a response in `meta`: FActScore's sentences with their facts (`facts`),
HaluEval's hallucinated passages (`spans`), Fine-Grained RLHF's errors, missing facts and corrected answer
(`feedback_on_prediction_1`). A passage that is not in the response word for word has the whole response as its span.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from assay.data.conversation import (
    ResponseForm,
    prompt_turns,
    response_columns,
    response_form_of,
    row_turns,
    text_of,
)
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import (
    label_of,
    label_of_scores,
    leftover_meta,
    optional_text,
    origin_of,
    rejecting,
)
from assay_pipelines.importers.formats.ratings import StatedRatings, votes_of
from assay_pipelines.importers.layout import RecordLayout
from assay_pipelines.importers.rows import ACCEPTABLE, FeedbackRow, PairRow, RatedRow, Row, mark, not_empty, rating


@dataclass
class SpanLabels:
    """What `meta` says of the first response. `corrected`: what an annotator made of it."""

    marks: list[dict[str, Any]] = field(default_factory=list)
    ratings: list[dict[str, Any]] = field(default_factory=list)
    corrected: str | None = None
    problems: list[RowError] = field(default_factory=list)


def span_labels(meta: Mapping[str, Any], response: str, *, kind: str, voter: str | None) -> SpanLabels:
    """`kind`, `voter`: the record's annotator."""
    out = SpanLabels()
    who = (kind, voter)
    for sentence in _objects(meta.get("facts")):
        characters = _characters_of(sentence.get("sentence"), response)
        for fact in _objects(sentence.get("facts")):
            _mark(out, characters, fact.get("label"), fact.get("text"), who, "meta.facts")
        if sentence.get("relevant") is False:
            _mark(out, characters, "irrelevant", None, who, "meta.facts")
    passages = meta.get("spans")
    for passage in passages if isinstance(passages, list) else ():
        _mark(out, _characters_of(passage, response), "hallucination", passage, who, "meta.spans")
    feedback = meta.get("feedback_on_prediction_1")
    if isinstance(feedback, dict):
        where = "meta.feedback_on_prediction_1"
        for error in _objects(feedback.get("errors")):
            place_of_error = (error.get("start"), error.get("end"))
            _mark(out, place_of_error, error.get("error type"), error.get("explanation"), who, where)
        for missing in _objects(feedback.get("missing-info")):
            passage = f"passage {missing.get('passage_id')}, sentences {missing.get('sentence_id')}"
            aspect = f"missing-info/{missing.get('error type')}"
            out.ratings.append(rating(aspect, True, rationale=passage, kind=kind, voter=voter))
        corrected = feedback.get("corrected-prediction")
        out.corrected = corrected if isinstance(corrected, str) and corrected.strip() else None
    return out


def _mark(
    out: SpanLabels,
    characters: tuple[Any, Any],
    label: object,
    rationale: object,
    who: tuple[str, str | None],
    where: str,
) -> None:
    start, end = characters
    if isinstance(label, str) and label and type(start) is int and type(end) is int and 0 <= start <= end:
        text = rationale if isinstance(rationale, str) and rationale else None
        out.marks.append(mark(start, end, label=label, rationale=text, kind=who[0], voter=who[1]))
    else:
        out.problems.append(RowError("a span without a label, or without its characters", field=where))


def _characters_of(passage: object, response: str) -> tuple[int, int]:
    start = response.find(passage) if isinstance(passage, str) and passage else -1
    return (start, start + len(str(passage))) if start >= 0 else (0, len(response))


def _objects(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


_KINDS = {"human": "human", "model": "llm", "verified": "verifier"}


class NormalisedLayout(RecordLayout):
    """The normalised form."""

    title = "the normalised form"

    def matches(self, record: Mapping[str, Any]) -> bool:
        return {"prompt", "responses", "label_type"} <= record.keys()

    def parse(self, record: Mapping[str, Any]) -> list[Row | RowError]:
        """The pairs and ratings of one record; what cannot be one (an identical pair, a rating that is no number) comes
        as its RowError."""
        return parse_responses(record)


def parse_responses(record: Mapping[str, Any]) -> list[Row | RowError]:
    """As `NormalisedLayout.parse`, for any record with `prompt`, `responses` and `ratings`."""
    return _RecordReader(record).rows()


class _RecordReader:
    """What one record says. Raises RowError where it holds no responses, or nothing of them."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record, self.meta = record, _object(record.get("meta"))
        self.turns = row_turns(record, prompt_turns(record.get("prompt")))
        self.responses, self.ratings = record.get("responses") or [], record.get("ratings") or {}
        if not isinstance(self.responses, list):
            raise RowError("wrong type: not a list", field="responses")
        if not isinstance(self.ratings, dict):
            raise RowError("wrong type: not an object", field="ratings")
        if not self.responses and self.ratings and len(self.turns) > 1 and self.turns[-1]["role"] == "assistant":
            self.responses, self.turns = [self.turns[-1]["content"]], self.turns[:-1]
        self.decided = record.get("chosen") is not None or record.get("rejected") is not None
        if not self.responses and not self.decided:
            raise RowError("no response" + (" for the ratings" if self.ratings else ""), field="responses")
        self.voter, self.rationale = optional_text(record, "annotator"), optional_text(record, "rationale")
        self.kind = _KINDS.get(str(record.get("label_type")), "source")
        self.origin = origin_of(record)
        self.statements = StatedRatings(self.ratings, len(self.responses), (self.kind, self.voter), self._aspect())
        self.spans = SpanLabels()
        if self.responses and isinstance(self.responses[0], str):
            self.spans = span_labels(self.meta, self.responses[0], kind=self.kind, voter=self.voter)
        #: Of the metadata what is short: it is repeated with every row.
        self.short = leftover_meta(self.meta, frozenset())
        self.out: list[Row | RowError] = [*self.statements.problems, *self.spans.problems]

    def rows(self) -> list[Row | RowError]:
        number, spans = len(self.responses), self.spans
        values = self._values() if number > 2 else None
        if values is not None or (self.statements.rankings and number > 2):
            self._add_ranked(values)
        elif self.decided or number == 2:
            with rejecting(self.out, "the pair"):
                self.out.append(self._pair())
        elif self.statements.empty and not (spans.marks or spans.ratings) and not self.out:
            few, many = "one response without a rating", "more than two responses without a ranking or ratings"
            raise RowError(few if number < 2 else many, field="ratings")
        self._add_rated()
        if spans.corrected is not None and self.responses[0] != spans.corrected:
            with rejecting(self.out, "the corrected response"):
                sides = text_of(spans.corrected, "meta"), self._response(0)
                meta = {**self.short, "edited": True}
                pair = PairRow(self.turns, *sides, "first", annotator=self.voter, meta=meta, **self.origin)
                self.out.append(pair.check())
        if self.rationale is not None and number == 1 and not self.decided:
            with rejecting(self.out, "the rationale"):
                about = (self._response(0), self.rationale, self.kind, self.voter)
                self.out.append(FeedbackRow(self.turns, *about, **self.origin))
        return self.out

    def _response(self, index: int) -> ResponseForm:
        return not_empty(response_form_of(self.responses[index], "responses"), "responses")

    def _pair(self) -> PairRow:
        """Of the sides that the record names, else of its two responses."""
        label: str | None
        if self.decided:
            first, second = (response_form_of(self.record.get(side), side) for side in ("chosen", "rejected"))
            label, responses = "first", [_form(response) for response in self.responses]
            if responses == [second, first]:
                first, second, label = second, first, "second"
        else:
            first, second = self._response(0), self._response(1)
            responses, label = [first, second], self._undecided_label()
        votes = None
        if len(responses) == 2 and [first, second] == responses:
            votes = [*self.statements.votes, *votes_of(self.statements.rankings, 0, 1)] or None
        meta = dict(self.meta)
        if self.record.get("label_type"):
            meta["label_type"] = self.record["label_type"]
        if self.ratings:  # reasons are kept with the judgments
            meta["ratings"] = {key: value for key, value in self.ratings.items() if key != "votes"}
            if votes is not None and isinstance(listed := self.ratings.get("votes"), list):
                meta["ratings"]["votes"] = [{k: v for k, v in cast.items() if k != "reason"} for cast in listed]
        return self._judged((first, second), label, votes, meta)

    def _judged(
        self,
        sides: tuple[ResponseForm, ResponseForm],
        label: str | None,
        votes: list[dict[str, Any]] | None,
        meta: dict[str, Any],
    ) -> PairRow:
        about: dict[str, Any] = {"rationale": self.rationale, "annotator": self.voter, **self.origin}
        return PairRow(self.turns, *sides, label, votes=votes, meta=meta, **about).check(("responses", "responses"))

    def _add_ranked(self, values: list[float] | None) -> None:
        """All pairs of the responses."""
        flags = "correct" in self.ratings and "scores" not in self.ratings
        for i, j in combinations(range(len(self.responses)), 2):
            with rejecting(self.out, f"responses {i} and {j}"):
                sides = self._response(i), self._response(j)
                votes = votes_of(self.statements.rankings, i, j)
                meta = {**self.short, "responses": [i, j]}
                if values is None:
                    label = _majority_label(votes)
                else:
                    meta["values"] = [values[i], values[j]]
                    label = label_of_scores(values[i], values[j])
                    if flags and label == "tie":
                        label = "both_good" if values[i] else "both_bad"
                self.out.append(self._judged(sides, label, votes or None, meta))

    def _add_rated(self) -> None:
        """Each response with its ratings, and the first with what `meta` says of its parts."""
        texts: Counter[str] = Counter()
        for index, ratings in enumerate(self.statements.ratings):
            marks = self.spans.marks if index == 0 else []
            ratings = [*ratings, *self.spans.ratings] if index == 0 else ratings
            if not (ratings or marks):
                continue
            with rejecting(self.out, f"response {index}"):
                own = {
                    name: entries[index]
                    for name, entries in self.meta.items()
                    if isinstance(entries, list)
                    and len(entries) == len(self.responses)
                    and isinstance(entries[index], str)
                }
                meta = {**self.short, **own}
                row = RatedRow(self.turns, self._response(index), ratings, marks, meta=meta, **self.origin)
                said = response_columns(row.response)[0]
                texts[said] += 1
                if texts[said] > 1:  # several systems wrote the same
                    row.occasion = f"response {index}"
                self.out.append(row)

    def _aspect(self) -> str:
        """What the votes on a single response are about: the question of the record's test, where it names one."""
        for holder in (self.record, self.meta, _object(self.meta.get("test"))):
            for name in ("aspect", "criterion", "question"):
                if isinstance(text := holder.get(name), str) and text.strip():
                    return text
        return ACCEPTABLE

    def _undecided_label(self) -> str | None:
        if (gold := self.ratings.get("gold")) is not None:
            return label_of(gold, "ratings")
        scores = self._values()
        return _majority_label(votes_of(self.statements.rankings, 0, 1)) if scores is None else label_of_scores(*scores)

    def _values(self) -> list[float] | None:
        """One number per response, or None where the ratings do not rank the responses."""
        scores = self.ratings.get("scores", self.ratings.get("correct"))
        if not isinstance(scores, list) or len(scores) != len(self.responses):
            return None
        values = [entry.get("overall") if isinstance(entry, dict) else entry for entry in scores]
        numbers = [float(score) for score in values if isinstance(score, int | float) and score == score]
        return numbers if len(numbers) == len(self.responses) else None


def _form(response: object) -> object:
    """In the form of the sides, so that they can be found among the responses; a broken one as it is."""
    try:
        return response_form_of(response, "responses") if isinstance(response, list) else response
    except RowError:
        return response


def _majority_label(votes: list[dict[str, Any]]) -> str | None:
    """What more of the annotators say than anything else; a tie where two are statements as often."""
    if not votes:
        return None
    lead = sum((vote["label"] == "first") - (vote["label"] == "second") for vote in votes)
    return "tie" if lead == 0 else "first" if lead > 0 else "second"


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
