"""All pairs of a record's ranked or scored responses, with the rankings of several annotators as their votes."""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from assay.data.conversation import ResponseForm, Turns
from assay.data.json_lines import RowError
from assay_pipelines.importers.adapters.labels import name_of
from assay_pipelines.importers.adapters.pairs import Reader, Rows
from assay_pipelines.importers.adapters.paths import Getter, field_of, getter
from assay_pipelines.importers.adapters.prompts import response_of_value
from assay_pipelines.importers.adapters.schema import RankersRule, RankingRule
from assay_pipelines.importers.formats.columns import (
    label_of_scores,
    list_of,
    number_of,
    rejecting,
    required_number,
    strength_of_margin,
    text_or_none,
)
from assay_pipelines.importers.formats.ratings import ResponseOrder, votes_of
from assay_pipelines.importers.rows import PairRow


def ranking_reader(rule: RankingRule) -> Reader:
    responses, text, field = getter(rule.responses), getter(rule.text), field_of(rule.responses)
    described = getter(rule.annotator) if rule.annotator else None
    meta = {name: getter(path) for name, path in rule.meta.items()}
    aspects = {name: getter(path) for name, path in rule.aspects.items()}
    rankers = _rankers_reader(rule.by) if rule.by else None

    def read(record: Any, turns: Turns | None) -> Rows:
        assert turns is not None
        entries = list_of(responses(record), field)
        if len(entries) < 2:
            raise RowError("no pair: fewer than two responses", field=field)
        values = _values(rule, record, entries, optional=bool(aspects))
        shared = [_aspects(aspects, entry) for entry in entries] if aspects else None
        rankings = rankers(record, len(entries)) if rankers else []
        rows: Rows = [ranking for ranking in rankings if isinstance(ranking, RowError)]
        complete = [ranking for ranking in rankings if isinstance(ranking, ResponseOrder)]
        annotator = text_or_none(described(record), rule.annotator or "") if described else None
        about = {name: get(record) for name, get in meta.items()}
        sides = [_response(text(entry), field) for entry in entries]
        for i, j in combinations(range(len(entries)), 2):
            with rejecting(rows, f"responses {i} and {j}"):
                first, second = sides[i], sides[j]
                if isinstance(first, RowError) or isinstance(second, RowError):
                    broken = first if isinstance(first, RowError) else second
                    assert isinstance(broken, RowError)
                    raise RowError(broken.reason, field=broken.field)
                pair = PairRow(turns, first, second, None, annotator=annotator)
                if shared is not None:
                    one, two, by = _mean_of_shared(shared[i], shared[j], values, (i, j), field)
                    _label(pair, one, two, rule)
                    pair.meta["ranked_by"] = by
                elif values is not None:
                    _label(pair, values[i], values[j], rule)
                pair.meta = {"responses": [i, j], **pair.meta}
                for name, value in about.items():
                    listed = isinstance(value, list) and len(value) == len(entries)
                    pair.meta[name] = [value[i], value[j]] if listed else value
                pair.votes = votes_of(complete, i, j) or None
                rows.append(pair.check((field, field)))
        return rows

    return read


def _response(value: object, field: str) -> ResponseForm | RowError:
    try:
        return response_of_value(value, field)
    except RowError as error:
        return error


def _label(pair: PairRow, one: float | None, two: float | None, rule: RankingRule) -> None:
    if one is None or two is None:
        raise RowError("a response without a score or rank", field=field_of(rule.responses))
    pair.label = label_of_scores(one, two)
    pair.strength = strength_of_margin(one - two, rule.span) if rule.span and one != two else None
    if not rule.ordered:
        sign = -1 if rule.ranks or rule.rank else 1
        pair.meta = {"ranks" if sign < 0 else "scores": [sign * one, sign * two]}


def _aspects(aspects: Mapping[str, Getter], entry: Any) -> dict[str, float]:
    numbers = {name: number_of(get(entry)) for name, get in aspects.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _mean_of_shared(
    one: dict[str, float],
    two: dict[str, float],
    values: list[float | None] | None,
    places: tuple[int, int],
    field: str,
) -> tuple[float, float, str]:
    """Comparable numbers of two responses, and their name. Raises RowError where there are none."""
    shared = [aspect for aspect in one if aspect in two]
    if shared:
        means = [sum(rated[aspect] for aspect in shared) / len(shared) for rated in (one, two)]
        return means[0], means[1], f"mean of {', '.join(shared)}"
    own = [values[place] for place in places] if values is not None and not (one or two) else [None, None]
    if own[0] is None or own[1] is None:
        raise RowError("no rating that both responses have", field=field)
    return own[0], own[1], "score"


def _values(rule: RankingRule, record: Any, entries: list[Any], *, optional: bool = False) -> list[float | None] | None:
    """A number for each response, the higher the better; None for one without. None: only annotators rank."""
    if rule.ordered:
        return [float(-place) for place in range(len(entries))]
    listed, own = rule.scores or rule.ranks, rule.score or rule.rank
    sign = -1.0 if rule.ranks or rule.rank else 1.0
    if listed is not None:
        return _numbers(getter(listed)(record), len(entries), sign, listed)
    if own is not None:
        numbers = [getter(own)(entry) for entry in entries]
        return [number_of(n) for n in numbers] if optional else _numbers(numbers, len(entries), sign, own)
    return None


def _numbers(values: object, count: int, sign: float, field: str) -> list[float | None]:
    if not isinstance(values, list) or len(values) != count:
        raise RowError("not one number for each response", field=field)
    return [None if value is None else sign * required_number(value, field) for value in values]


def _rankers_reader(rule: RankersRule) -> Callable[[Any, int], list[ResponseOrder | RowError]]:
    each, numbers = getter(rule.each), rule.scores or rule.ranks or ""
    get, sign = getter(numbers), -1.0 if rule.ranks else 1.0
    annotator, rationale = (getter(path) if path else None for path in (rule.annotator, rule.rationale))

    def read(record: Any, count: int) -> list[ResponseOrder | RowError]:
        rankings: list[ResponseOrder | RowError] = []
        for position, entry in enumerate(list_of(each(record), rule.each), start=1):
            try:
                voter = name_of(annotator(entry), rule.each) if annotator else f"position-{position}"
                reason = text_or_none(rationale(entry), rule.each) if rationale else None
                rankings.append(ResponseOrder(rule.kind, voter, _numbers(get(entry), count, sign, rule.each), reason))
            except RowError as error:
                error.detail = f"ranking {position}"
                rankings.append(error)
        return rankings

    return read
