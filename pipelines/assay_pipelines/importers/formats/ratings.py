"""What a record's `ratings` object says: numbers of single responses, votes, rankings of several annotators.

Covers, for n responses: one value for each of them (a number, true/false, or an object by aspect); an object by aspect
or by annotator; a matrix of responses and raters; explanations beside scores; `votes` with a value, scores or ranks
each. What cannot be read is a RowError that names its key; nothing is passed over. Leaves out: the pairs that follow
from rankings (`assay_pipelines.importers.formats.ranking_pairs`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from assay.data.conversation import check_unicode
from assay.data.json_lines import RowError
from assay_pipelines.importers.formats.columns import (
    kind_of_annotator,
    label_of,
    label_of_scores,
    optional_text,
    rated_value,
    vote,
)
from assay_pipelines.importers.rows import ACCEPTABLE, SCORE, rating

#: Keys whose inner names are annotators; all other objects are by aspect.
BY_ANNOTATOR = {
    **dict.fromkeys(("raters", "annotators", "by_annotator", "by_rater", "rankings", "workers"), None),
    **dict.fromkeys(("rm_scores", "reward_models", "rewards_by_model"), "reward_model"),
    "judges": "llm",
}
#: Lists of one text a response that explain its numbers.
EXPLANATIONS = frozenset({"critiques", "explanations", "rationales", "reasons", "justifications"})
#: Ranks, the lowest the best; all other lists hold scores. Of several responses they are an order and no ratings.
RANKS = frozenset({"ranking", "rankings", "ranks", "rank"})
_UNNAMED = {
    **dict.fromkeys(("scores", "score", "ratings", "rating", "rewards", "reward"), SCORE),
    **dict.fromkeys(RANKS, "rank"),
    "label": ACCEPTABLE,
}
_PLAIN = frozenset({"aspects", "attributes", "propositions", "likert", "rubric", "annotations", *_UNNAMED})


@dataclass(frozen=True, slots=True)
class ResponseOrder:
    """One annotator's order of all responses: `values`, the highest the best; None: not ranked."""

    kind: str
    voter: str
    values: list[float | None]
    rationale: str | None = None

    def vote(self, first: int, second: int) -> dict[str, Any] | None:
        """On two of the responses, if both are ranked."""
        one, two = self.values[first], self.values[second]
        if one is None or two is None:
            return None
        return vote(self.kind, self.voter, label_of_scores(one, two), rationale=self.rationale) | {"origin": "ranking"}


def votes_of(rankings: Sequence[ResponseOrder], first: int, second: int) -> list[dict[str, Any]]:
    """Each annotator's vote on two of the responses, of those who ranked both."""
    return [said for ranking in rankings if (said := ranking.vote(first, second)) is not None]


class StatedRatings:
    """What the object `ratings` of a record says. `ratings`: of each response, as `assay_pipelines.importers.rows` has
    them. `votes`: on the two responses. `gold` is left to the caller: it is the label of the pair."""

    def __init__(
        self,
        stated: Mapping[str, Any],
        responses: int,
        by: tuple[str, str | None] = ("source", None),
        aspect: str = ACCEPTABLE,
    ) -> None:
        """`by`: the kind and name of who rates where no name is given. `aspect`: what a vote without an aspect of its
        own is about."""
        self._responses, self._by_default, self._aspect = responses, by, aspect
        self.ratings: list[list[dict[str, Any]]] = [[] for _ in range(responses)]
        self.votes: list[dict[str, Any]] = []
        self.rankings: list[ResponseOrder] = []
        self.problems: list[RowError] = []
        explanations: list[Any] = []
        for key, cell in stated.items():
            if key == "gold" or cell is None or cell in ([], {}, ""):
                continue
            self._key, self._where = key, f"ratings.{key}"
            with self._noting(self._where):
                if key == "votes":
                    self._read_votes(cell)
                elif key in EXPLANATIONS and isinstance(cell, list) and all(isinstance(v, str) for v in cell):
                    explanations = self._of_each(cell)
                elif isinstance(cell, list | tuple):
                    self._read_list(list(cell))
                elif isinstance(cell, dict):
                    self._read_object(cell)
                else:
                    self._rate_only(_UNNAMED.get(key, key), cell)
        for text, ratings in zip(explanations, self.ratings, strict=False):
            for rated in ratings:
                if text and rated["rationale"] is None and rated["kind"] == by[0]:
                    check_unicode(text, "ratings")
                    rated["rationale"] = text

    @property
    def empty(self) -> bool:
        return not (any(self.ratings) or self.votes or self.rankings)

    @property
    def _ordered(self) -> bool:
        """Whether the values of the key are an order of several responses."""
        return self._key in RANKS and self._responses > 1

    def _read_list(self, values: list[Any]) -> None:
        key, aspect = self._key, _UNNAMED.get(self._key, self._key)
        if all(isinstance(cell, list | tuple) for cell in values):
            self._read_matrix(values, aspect)
        elif self._responses == 1 and all(isinstance(cell, str) for cell in values):
            for name in values:  # kinds of fault, tags
                self._rate_only(f"{key}/{name}", True)
        elif self._responses == 1 and len(values) > 1:
            for number, cell in enumerate(values, 1):
                self._rate_only(aspect, cell, ("human", f"rater {number}"))
        elif self._ordered:
            self._rank(self._of_each(values), (self._by_default[0], self._by_default[1] or key), ranks=True)
        else:
            for index, cell in enumerate(self._of_each(values)):
                for name, inner in cell.items() if isinstance(cell, dict) else ((aspect, cell),):
                    self._rate(index, name, inner)

    def _read_matrix(self, rows: list[Any], aspect: str) -> None:
        """A row for each response; where there are not as many, a row for each rater."""
        if len(rows) != self._responses and all(len(row) == self._responses for row in rows):
            rows = [list(column) for column in zip(*rows, strict=True)]
        raters = {len(row) for row in self._of_each(rows)}
        if len(raters) != 1:
            raise RowError("not as many values for each response", field=self._where)
        for rater in range(raters.pop()):
            self._rate_all(aspect, [row[rater] for row in rows], ("human", f"rater {rater + 1}"), ranked=True)

    def _read_object(self, entries: dict[str, Any]) -> None:
        for name, entry in entries.items():
            with self._noting(f"{self._where}.{name}", always=True):
                if self._key in BY_ANNOTATOR:
                    self._read_by((BY_ANNOTATOR[self._key] or kind_of_annotator(name), name), entry)
                else:
                    self._read_about(name if self._key in _PLAIN else f"{self._key}/{name}", entry)

    def _read_by(self, by: tuple[str, str], entry: Any) -> None:
        if isinstance(entry, dict):
            for aspect, cell in entry.items():
                self._rate_only(aspect, cell, by)
        elif isinstance(entry, list | tuple):
            self._rate_all(_UNNAMED.get(self._key, SCORE), list(entry), by, ranked=True)
        elif self._responses == 2 and isinstance(entry, str):
            self._vote(by, entry, "not a label")
        else:
            self._rate_only(ACCEPTABLE if isinstance(entry, bool) else _UNNAMED.get(self._key, SCORE), entry, by)

    def _read_about(self, aspect: str, entry: Any) -> None:
        if isinstance(entry, dict):
            for name, cell in entry.items():
                self._rate_only(aspect, cell, (kind_of_annotator(name), name))
        elif not isinstance(entry, list | tuple):
            self._rate_only(aspect, entry)
        elif entry:
            self._rate_all(aspect, list(entry))

    def _read_votes(self, votes: object) -> None:
        if not isinstance(votes, list) or not all(isinstance(cast, dict) for cast in votes):
            raise RowError("wrong type: not a list of objects", field=self._where)
        nothing = "a vote without annotator or value"
        for cast in votes:
            voter, reason = optional_text(cast, "annotator"), optional_text(cast, "reason")
            if voter is None:
                raise RowError(nothing, field=self._where)
            kind = self._by_default[0]
            by = (kind if kind != "source" else kind_of_annotator(voter), voter)
            listed = next((key for key in (*RANKS, "scores", "values") if isinstance(cast.get(key), list)), None)
            if listed in RANKS:
                self._rank(self._of_each(cast[listed]), by, ranks=True)
            elif listed is not None:
                self._rate_all(self._aspect, cast[listed], by, reason, ranked=True)
            elif self._responses == 2:
                self._vote(by, cast.get("value"), nothing, reason)
            elif cast.get("value") is None:
                raise RowError(nothing, field=self._where)
            else:
                self._rate_only(optional_text(cast, "aspect") or self._aspect, cast["value"], by, reason)

    def _vote(self, by: tuple[str, str], value: object, nothing: str, reason: str | None = None) -> None:
        label = label_of(value, self._where)
        if label is None:
            raise RowError(nothing, field=self._where)
        self.votes.append(vote(*by, label, rationale=reason))

    def _of_each(self, values: list[Any]) -> list[Any]:
        if len(values) != self._responses:
            raise RowError(f"{len(values)} values for {self._responses} responses", field=self._where)
        return values

    def _rate_all(
        self,
        aspect: str,
        values: list[Any],
        by: tuple[str, str] | None = None,
        reason: str | None = None,
        *,
        ranked: bool = False,
    ) -> None:
        """A value for each response, which are in the order of the values, if `ranked`."""
        self._of_each(values)
        if not self._ordered:
            for index, cell in enumerate(values):
                self._rate(index, aspect, cell, by, reason)
        if ranked and by is not None:
            self._rank(values, by, ranks=self._ordered)

    def _rate_only(
        self, aspect: str, cell: object, by: tuple[str, str] | None = None, reason: str | None = None
    ) -> None:
        if self._responses != 1:
            what = "a vote with one value" if self._key == "votes" else "one value"
            raise RowError(f"{what} for {self._responses} responses", field=self._where)
        self._rate(0, aspect, cell, by, reason)

    def _rate(
        self, index: int, aspect: str, cell: object, by: tuple[str, str] | None = None, reason: str | None = None
    ) -> None:
        """One rating; its own problem if it is none."""
        kind, voter = by or self._by_default
        with self._noting(f"{self._where}, response {index + 1}"):
            number = rated_value(cell, self._where)
            if number is not None:
                check_unicode(aspect, self._where)
                self.ratings[index].append(rating(aspect, number, rationale=reason, kind=kind, voter=voter))

    def _rank(self, values: list[Any], by: tuple[str, str], *, ranks: bool) -> None:
        numbers: list[float | None] = []
        for index, cell in enumerate(values):
            number: float | None = None
            # the rating of a score is a problem already
            with self._noting(f"{self._where}, response {index + 1}") if ranks else suppress(RowError):
                number = rated_value(cell, self._where)
            numbers.append(None if number is None else -float(number) if ranks else float(number))
        if sum(number is not None for number in numbers) > 1:
            self.rankings.append(ResponseOrder(*by, numbers))

    @contextmanager
    def _noting(self, detail: str, *, always: bool = False) -> Iterator[None]:
        """What the block raises is one of the problems."""
        try:
            yield
        except RowError as error:
            error.detail = detail if always or not error.detail else error.detail
            self.problems.append(error)
