"""What the YAML of an adapter may say: its keys, checked when it is loaded.

Every `Path` is a path expression (`paths`). Leaves out: what the rules do with a record (`labels`, `prompts`,
`layout`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from assay.errors import BadInputError
from assay_pipelines.importers.adapters.paths import getter

Label: TypeAlias = Literal["first", "second", "tie", "both_good", "both_bad", "skip"]
Side: TypeAlias = Literal["first", "second"]
TEMPLATE_FIELD = re.compile(r"\{([^{}]+)\}")


class RecordPath(str):
    """A path that begins in the record."""


def _compiled(path: str) -> str:
    try:
        getter(path)
    except BadInputError as error:
        raise ValueError(str(error)) from error
    return path


Path: TypeAlias = Annotated[str, AfterValidator(_compiled), AfterValidator(RecordPath)]
EntryPath: TypeAlias = Annotated[str, AfterValidator(_compiled)]  #: begins in an entry of a list


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _codes_as_text(cls, rule: object) -> object:
        """The keys of `values` are codes."""
        if isinstance(rule, dict) and isinstance(rule.get("values"), dict):
            return {**rule, "values": {code_text(code): meaning for code, meaning in rule["values"].items()}}
        return rule


class LabelRule(_Rule):
    """Which response is better; exactly one of the first five keys.

    `value`: a code or word, read by `values` (code -> label), or as a common spelling of a label where there are none.
    `scores`: a number for each response, the higher the better (`lower_is_better`: the other way round). `number`: one
    number (`whole`: without a fraction), on the other side of `zero` for each response; `positive` says whose side is
    above. `flags`: label -> a path that is 1 or true for the label that holds. `votes`: "majority" of the rule's own
    votes; no label where there is none. `span`: the largest difference that is possible, for the strength. `values` may
    map to null: not judged.
    """

    value: Path | None = None
    values: dict[str, Label | None] | None = None
    scores: tuple[Path, Path] | None = None
    lower_is_better: bool = False
    number: Path | None = None
    zero: float = 0.0
    positive: Side = "first"
    whole: bool = False
    flags: dict[Label, Path] | None = None
    votes: Literal["majority"] | None = None
    span: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_way(self) -> LabelRule:
        if sum(way is not None for way in (self.value, self.scores, self.number, self.flags, self.votes)) != 1:
            raise ValueError("a label has exactly one of value, scores, number, flags, votes")
        if self.values is not None and self.value is None:
            raise ValueError("values are the codes of a value")
        return self


class VoteRule(_Rule):
    """One annotator's vote; with `each` (a path to a list), one for each entry, whose paths begin in the entry.

    `annotator`: a path to the name; without it "position-1", "position-2", ... A vote without a label is left out, and
    one for which `when` is false. `ignore`: codes of the label that are no vote. `kind_from`: a path to the kind.
    """

    label: LabelRule
    each: Path | None = None
    annotator: Path | None = None
    kind: Literal["human", "llm", "verifier"] = "human"
    kind_from: Path | None = None
    strength: Path | None = None
    rationale: Path | None = None
    ignore: tuple[str | int, ...] = ()
    when: EntryPath | None = None


class DialogueRule(_Rule):
    """A conversation in one text: `user` and `assistant` are the marks before each turn, whose leading white space may
    lack at the beginning."""

    user: str = Field(min_length=1)
    assistant: str = Field(min_length=1)


class ComparisonRule(_Rule):
    """One pair: texts, messages, or whole conversations, whose common beginning is the prompt or ends it.

    `dialogue`: both sides are whole conversations in one text. `last_turn_only`: rejects conversations that part before
    their last turns; otherwise what each says from there on is a response of several turns.
    """

    first: Path
    second: Path
    dialogue: DialogueRule | None = None
    last_turn_only: bool = False
    label: Label | LabelRule | None
    strength: Path | None = None
    rationale: Path | None = None
    votes: tuple[VoteRule, ...] = ()
    annotator: Path | None = None
    meta: dict[str, Path] = {}
    when: Path | None = None


class RankingRule(_Rule):
    """All pairs of several responses to one prompt, by a score or a rank of each; equal ones are ties.

    `responses`: a path to the list. `text`: in each entry. Exactly one of `score`, `rank` (the lowest is the best; both
    in the entry), `scores`, `ranks` (lists beside `responses`) and `ordered` (the list begins with the best).
    `aspects` (name: path in each entry): a pair is ranked by the mean of the numbers that both have; where neither has
    any, by `score`.
    `by`: rankings by several annotators: a path to a list whose entries have `annotator` and `ranks` or `scores`. Their
    votes stand beside a label, if there is one. `span`: the largest difference of two scores.
    """

    responses: Path
    text: EntryPath = "@"
    score: EntryPath | None = None
    rank: EntryPath | None = None
    aspects: dict[str, EntryPath] = {}
    scores: Path | None = None
    ranks: Path | None = None
    ordered: bool = False
    by: RankersRule | None = None
    span: float | None = Field(default=None, gt=0)
    annotator: Path | None = None
    meta: dict[str, Path] = {}

    @model_validator(mode="after")
    def _one_way(self) -> RankingRule:
        ways = sum(way is not None for way in (self.score, self.rank, self.scores, self.ranks)) + self.ordered
        if ways > 1 or not (ways or self.by or self.aspects):
            raise ValueError("a ranking has exactly one of score, rank, scores, ranks, ordered; or by")
        return self


class RankersRule(_Rule):
    """Several annotators' rankings of the same responses."""

    each: Path
    annotator: EntryPath | None = None
    kind: Literal["human", "llm", "verifier"] = "human"
    scores: EntryPath | None = None
    ranks: EntryPath | None = None
    rationale: EntryPath | None = None

    @model_validator(mode="after")
    def _one_way(self) -> RankersRule:
        if (self.scores is None) == (self.ranks is None):
            raise ValueError("rankings have exactly one of scores and ranks")
        return self


class RatingRule(_Rule):
    """Labels of one response. `aspects`: name -> a number, a list of numbers (one an annotator), or a truth value.

    `pairs_by`: the aspect that makes pairs of all rows of a prompt, better against worse; rows that are equal in it
    make none. `low`, `high`: the ends of the scale. `values`: code -> number.
    """

    response: Path
    aspects: dict[str, Path]
    pairs_by: str | None = None
    low: float | None = None
    high: float | None = None
    values: dict[str, float] | None = None
    annotator: Path | None = None
    kind: Literal["source", "human", "llm", "verifier"] = "source"
    rationale: Path | None = None

    @model_validator(mode="after")
    def _pairing(self) -> RatingRule:
        if self.pairs_by is not None and self.pairs_by not in self.aspects:
            raise ValueError(f"pairs_by is no aspect: {', '.join(self.aspects)}")
        return self


class FeedbackRule(_Rule):
    """Texts on one response: a text, or a list of texts by annotators who are known by their positions.

    Where `response` is a list, `text` is a list with one text for each.
    """

    response: Path
    text: Path
    annotator: Path | None = None
    kind: Literal["source", "human", "llm", "verifier"] = "human"


class PrincipleRule(_Rule):
    response: Path
    principle: Path
    answer: Path
    kind: Literal["source", "human", "llm", "verifier"] = "source"
    evidence: Path | None = None


class PromptRule(_Rule):
    """The prompt. `text`: a path to text or messages; or `join`: several, joined by `separator`, absent ones left out;
    or `template`: texts with `{path}`, of which the first applies whose paths are all there.

    `system`: a path to the system's message. `history`: a path to pairs of earlier questions and answers.
    `dialogue`: how the text is divided into turns. A list of texts are turns that alternate, the user's first.
    """

    text: Path | None = None
    join: tuple[Path, ...] = ()
    separator: str = "\n"
    template: tuple[str, ...] = ()
    system: Path | None = None
    history: Path | None = None
    dialogue: DialogueRule | None = None

    @model_validator(mode="after")
    def _one_way(self) -> PromptRule:
        if sum((self.text is not None, bool(self.join), bool(self.template))) != 1:
            raise ValueError("a prompt has exactly one of text, join, template")
        return self


class RejectRule(_Rule):
    """Rows that are rejected: where `when` is true, with that reason."""

    when: Path
    reason: str
    field: str | None = None


class AdapterSpec(_Rule):
    """An adapter. `requires`: paths that a record of this layout has (with a value or null, if it is a column).
    `matches`: a condition on them besides. `exactly`: the record has no other columns than those required.
    `json_columns`: columns whose text is JSON. `each`: a path to a list whose entries, with the record's columns beside
    their own, are records of their own.
    """

    title: str
    names: str = ""  #: where the names of its fields were read
    source: str | None = None
    note: str = ""
    mappable: bool = False
    requires: tuple[Path, ...] = Field(min_length=1)
    exactly: bool = False
    matches: Path | None = None
    json_columns: tuple[str, ...] = ()
    reject: tuple[RejectRule, ...] = ()
    each: Path | None = None
    prompt: Path | PromptRule | None = None
    pairs: tuple[ComparisonRule, ...] = ()
    ranking: RankingRule | None = None
    rating: RatingRule | None = None
    feedback: tuple[FeedbackRule, ...] = ()
    principle: PrincipleRule | None = None
    id: Path | None = None
    row_source: Path | None = None
    category: Path | None = None
    license: str | None = None
    row_license: Path | None = None
    language: Path | None = None
    meta: bool = True  #: whether the other columns are kept as metadata, if they are single values

    @model_validator(mode="after")
    def _says_something(self) -> AdapterSpec:
        if not (self.pairs or self.ranking or self.rating or self.feedback or self.principle or self.reject):
            raise ValueError("an adapter has pairs, a ranking, a rating, feedback, a principle or a reject")
        if self.prompt is None and (self.ranking or self.rating or self.feedback or self.principle):
            raise ValueError("only pairs of whole conversations go without a prompt")
        return self


def record_paths(rule: BaseModel) -> Iterator[str]:
    """The paths of a rule and of the rules in it whose values are read, and that begin in the record."""
    if isinstance(rule, VoteRule) and rule.each is not None:
        yield rule.each
        return
    if isinstance(rule, PromptRule):
        yield from (path for text in rule.template for path in TEMPLATE_FIELD.findall(text))
    for name in type(rule).model_fields.keys() - {"requires", "matches", "when"}:
        yield from _paths_in(getattr(rule, name))


def _paths_in(value: object) -> Iterator[str]:
    if isinstance(value, RecordPath):
        yield value
    elif isinstance(value, BaseModel):
        yield from record_paths(value)
    elif isinstance(value, dict):
        yield from (path for inner in value.values() for path in _paths_in(inner))
    elif isinstance(value, tuple):
        yield from (path for inner in value for path in _paths_in(inner))


def code_text(code: object) -> str:
    """A code as text, equal for 1, 1.0 and "1"; case and spaces do not count."""
    if isinstance(code, bool):
        return str(code).lower()
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    return "".join(str(code).lower().split())
