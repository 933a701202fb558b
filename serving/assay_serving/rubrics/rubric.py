"""A rubric: the items by which the responses to one prompt are judged.

Covers: an item, the checks of a rubric, its written forms, the rubric of a label. Leaves out: grading items
(`grading`), the reward of the grades (`aggregation`).

Forms: a list of texts or of objects in our words (`RubricItem`), in HealthBench's (criterion, points, tags;
openai/simple-evals) or in those of Rubrics as Rewards (title, description, weight; arXiv 2507.17746). A negative number
of points is an item of negative polarity, as there.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le
from pydantic import TypeAdapter

from assay.errors import BadInputError
from assay_serving.composition.description import STRICT, validated
from assay_serving.verifiers import Constraint, constraint_from_dict

RUBRIC = "rubric"  #: the field of a label, of a row of prompts, of a request
MAX_ITEMS = 100
MAX_CHARACTERS = 4000  #: of one item's text
MAX_WEIGHT = 1e9
#: Names of fields elsewhere -> ours. `tags` say nothing of the reward.
_OTHER_NAMES = {"criterion": "text", "description": "text", "title": "name", "points": "weight"}
_IGNORED = ("tags",)


@dataclass(frozen=True)
class RubricItem:
    """One thing that a response does or has (polarity positive), or must not (negative).

    An item is satisfied where a positive one is met and where a negative one is not. `must_have`: unless it is
    satisfied the reward has a ceiling; `veto`: unless it is satisfied nothing else counts. `by`: the scorer of the
    rubric's file, by default its first one. `constraints`: a program grades it instead, by the share that hold.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    text: str
    name: str | None = None
    weight: Annotated[float, Ge(0), Le(MAX_WEIGHT)] = 1.0
    polarity: Literal["positive", "negative"] = "positive"
    must_have: bool = False
    veto: bool = False
    by: str | None = None
    constraints: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("text: is empty")
        if len(self.text) > MAX_CHARACTERS:
            raise ValueError(f"text: has {len(self.text)} characters, at most {MAX_CHARACTERS} are read")
        if self.must_have and self.veto:
            raise ValueError("is either must_have or veto, not both")
        if self.by is not None and self.constraints:
            raise ValueError("is graded by its constraints or `by` a model, not both")
        try:
            self.checks()
        except BadInputError as error:
            raise ValueError(f"constraints: {error}") from error

    def checks(self) -> tuple[Constraint, ...]:
        """Its constraints. They come with requests and rows, so they cannot name code."""
        return tuple(constraint_from_dict(payload) for payload in self.constraints)

    @property
    def signed_weight(self) -> float:
        """Negative for negative polarity."""
        return self.weight if self.polarity == "positive" else -self.weight

    def satisfied(self, grade: float) -> float:
        """How far the response is as it should be, 0 to 1."""
        return grade if self.polarity == "positive" else 1.0 - grade

    def to_dict(self) -> dict[str, Any]:
        """Without what has its default."""
        plain = RubricItem(self.text)
        return {name: value for name, value in asdict(self).items() if name == "text" or value != getattr(plain, name)}


_ITEMS = TypeAdapter(tuple[RubricItem, ...])


def rubric_items(payload: Any, *, field: str = RUBRIC) -> tuple[RubricItem, ...]:
    """The items of a written rubric.

    Raises BadInputError naming the item: no list, no item or more than MAX_ITEMS, an item without text, an unknown key,
    two of one name, weights that sum to 0.
    """
    if not isinstance(payload, Sequence) or isinstance(payload, str):
        raise BadInputError("must be a list of items", field=field)
    if not 1 <= len(payload) <= MAX_ITEMS:
        raise BadInputError(f"has {len(payload)} items; a rubric has 1 to {MAX_ITEMS}", field=field)
    items = validated(_ITEMS, [standard_item(criterion) for criterion in payload], "a rubric", within=field)
    checked(items, field=field)
    return items


def checked(items: Sequence[RubricItem], *, field: str = RUBRIC) -> tuple[RubricItem, ...]:
    """The items as one rubric; those without a name are item-1, item-2, ... by their place. Raises BadInputError as
    `rubric_items`."""
    rubric = tuple(replace(criterion, name=criterion.name or f"item-{n}") for n, criterion in enumerate(items, start=1))
    names = [criterion.name for criterion in rubric]
    if not 1 <= len(rubric) <= MAX_ITEMS:
        raise BadInputError(f"has {len(rubric)} items; a rubric has 1 to {MAX_ITEMS}", field=field)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInputError(f"two items are named {twice!r}", field=field)
    if not sum(criterion.weight for criterion in rubric) > 0:
        raise BadInputError("the weights of its items sum to 0", field=field)
    return rubric


def standard_item(criterion: Any) -> Any:
    """An item in our words; what is no item is left for the check to name."""
    if isinstance(criterion, str):
        return {"text": criterion}
    if not isinstance(criterion, Mapping):
        return criterion
    fields = {_OTHER_NAMES.get(name, name): value for name, value in criterion.items() if name not in _IGNORED}
    weight = fields.get("weight")
    if isinstance(weight, int | float) and not isinstance(weight, bool) and weight < 0 and "polarity" not in fields:
        fields |= {"weight": -weight, "polarity": "negative"}
    return fields


@lru_cache(maxsize=4096)
def rubric_of(label: str | None) -> tuple[RubricItem, ...]:
    """The items in a label's JSON object, under `rubric`; none where it has no rubric. Raises BadInputError."""
    if label is None:
        return ()
    try:
        payload: Any = json.loads(label)
    except (ValueError, RecursionError):
        return ()  # a reference answer, for others
    return rubric_items(payload[RUBRIC]) if isinstance(payload, Mapping) and payload.get(RUBRIC) is not None else ()


def with_rubric(label: Any, rubric: Any) -> str | None:
    """The JSON of a label that also holds this written rubric: `label` is the constraints, or an object. Raises
    BadInputError for a label that is text beside a rubric."""
    if rubric is None:
        return label if label is None or isinstance(label, str) else json.dumps(label, ensure_ascii=False)
    if isinstance(label, str | int | float):
        raise BadInputError("a rubric goes with constraints, or with an object, not with a plain label", field="label")
    parts = {"constraints": label} if isinstance(label, list) else dict(label or {})
    return json.dumps(parts | {RUBRIC: rubric}, ensure_ascii=False)
