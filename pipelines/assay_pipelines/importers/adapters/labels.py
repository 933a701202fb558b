"""Labels and votes of a record, as an adapter's rules read them.

A reader takes a record (or an entry of it) and gives a label relative to the order of the pair, and a strength from 0
to 3 or None. All complaints are RowError.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

from assay.data.json_lines import RowError
from assay.domain import AnnotatorKind
from assay_pipelines.importers.adapters.paths import field_of, getter
from assay_pipelines.importers.adapters.schema import LabelRule, VoteRule, code_text
from assay_pipelines.importers.formats.columns import (
    label_of,
    label_of_scores,
    number_of,
    required_number,
    strength_of,
    strength_of_margin,
    text_or_none,
    vote,
)

Answer: TypeAlias = tuple[str | None, int | None]
Vote: TypeAlias = dict[str, Any]
LabelReader: TypeAlias = Callable[[Any, Sequence[Vote]], Answer]
KINDS: tuple[str, ...] = get_args(AnnotatorKind)
_OTHER_SIDE = {"first": "second", "second": "first"}


def label_reader(rule: LabelRule | str | None) -> LabelReader:
    """`rule` as text: the label itself. The reader's second argument are the pair's votes."""
    if rule is None or isinstance(rule, str):
        return lambda record, votes: (rule, None)
    if rule.value is not None:
        return _by_value(rule, rule.value)
    if rule.scores is not None:
        return _by_scores(rule, *rule.scores)
    if rule.number is not None:
        return _by_number(rule, rule.number)
    if rule.flags is not None:
        return _by_flags(rule)
    return lambda record, votes: (majority(votes), None)


def majority(votes: Sequence[Vote]) -> str | None:
    """The label of more than half of the votes; None where no label has that."""
    if not votes:
        return None
    label, count = Counter(vote["label"] for vote in votes).most_common(1)[0]
    return label if 2 * count > len(votes) else None


def vote_reader(rule: VoteRule) -> Callable[[Any], list[Vote | RowError]]:
    """The votes that the rule finds in a record; one that cannot be read comes as its RowError."""
    label, each = label_reader(rule.label), getter(rule.each) if rule.each else None
    annotator = getter(rule.annotator) if rule.annotator else None
    strength, rationale = (getter(path) if path else None for path in (rule.strength, rule.rationale))
    when, kind_from = (getter(path) if path else None for path in (rule.when, rule.kind_from))
    code = getter(rule.label.value or rule.label.number or "@")
    ignored = {code_text(value) for value in rule.ignore}
    field = field_of(rule.each or rule.label.value or rule.label.number or "votes")

    def read(record: Any) -> list[Vote | RowError]:
        entries = [record] if each is None else each(record)
        if entries is None:
            return []
        if not isinstance(entries, list):
            return [RowError("wrong type: not a list", field=field)]
        votes: list[Vote | RowError] = []
        for position, entry in enumerate(entries, start=1):
            try:
                if when is not None and not when(entry):
                    continue
                if (ignored and code_text(code(entry)) in ignored) or (each is None and code(entry) is None):
                    continue
                answer, how_much = label(entry, ())
                if answer is None:
                    continue
                if strength is not None:
                    how_much = strength_of(strength(entry))
                voter = name_of(annotator(entry), field) if annotator else f"position-{position}"
                reason = text_or_none(rationale(entry), field) if rationale else None
                kind = rule.kind if kind_from is None else kind_from(entry)
                if kind not in KINDS:
                    raise RowError(f"an annotator that is not one of {', '.join(KINDS)}")
                votes.append(vote(kind, voter, answer, strength=how_much, rationale=reason))
            except RowError as error:
                unread = RowError(error.reason, field=field)
                unread.detail = f"vote {position}"
                votes.append(unread)
        return votes

    return read


def name_of(value: object, field: str) -> str:
    """An annotator's name. Raises RowError where there is none."""
    name = text_or_none(value, field)
    if name is None:
        raise RowError("a vote without its annotator", field=field)
    return name


def _by_value(rule: LabelRule, path: str) -> LabelReader:
    get, field = getter(path), field_of(path)
    if rule.values is None:
        return lambda record, votes: (label_of(get(record), field), None)
    labels = rule.values

    def read(record: Any, votes: Sequence[Vote]) -> Answer:
        value = get(record)
        code = code_text(value)
        if code not in labels:
            raise RowError("missing" if value is None else f"none of {', '.join(labels)}", field=field)
        return labels[code], None

    return read


def _by_scores(rule: LabelRule, first: str, second: str) -> LabelReader:
    one, two, fields = getter(first), getter(second), (field_of(first), field_of(second))

    def read(record: Any, votes: Sequence[Vote]) -> Answer:
        scores = required_number(one(record), fields[0]), required_number(two(record), fields[1])
        if rule.lower_is_better:
            scores = -scores[0], -scores[1]
        return label_of_scores(*scores), _strength(scores[0] - scores[1], rule.span)

    return read


def _by_number(rule: LabelRule, path: str) -> LabelReader:
    get, field = getter(path), field_of(path)
    expected = "a whole number" if rule.whole else "a number"
    if rule.span is not None:
        expected += f" from {rule.zero - rule.span:g} to {rule.zero + rule.span:g}"

    def read(record: Any, votes: Sequence[Vote]) -> Answer:
        value = get(record)
        number = number_of(value)
        if number is None or (rule.whole and not number.is_integer()):
            raise RowError("missing" if value is None else f"not {expected}", field=field)
        margin = number - rule.zero
        if rule.span is not None and abs(margin) > rule.span:
            raise RowError(f"not {expected}", field=field)
        if margin == 0:
            return "tie", None
        side = rule.positive if margin > 0 else _OTHER_SIDE[rule.positive]
        return side, _strength(margin, rule.span)

    return read


def _by_flags(rule: LabelRule) -> LabelReader:
    flags = {label: getter(path) for label, path in (rule.flags or {}).items()}
    names = ", ".join((rule.flags or {}).values())

    def read(record: Any, votes: Sequence[Vote]) -> Answer:
        holding = [label for label, get in flags.items() if code_text(get(record)) in ("1", "true")]
        if len(holding) != 1:
            raise RowError(f"not exactly one of {names} is 1", field=names.partition(",")[0])
        return holding[0], None

    return read


def _strength(margin: float, span: float | None) -> int | None:
    return strength_of_margin(margin, span) if span is not None and margin else None
