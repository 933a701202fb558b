"""The YAML file of a rubric reward: its scorers, the items of every prompt, how grades become a reward.

Covers: the frozen description, strict reading, the digest of all that changes rewards. Leaves out: loading the scorers
(`loader`), grading (`grading`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import TypeAdapter

from assay.errors import BadInputError
from assay_serving.composition.description import STRICT, PartSpec, read_description, validated
from assay_serving.engines.ensemble import digest
from assay_serving.rubrics.aggregation import RubricAggregation
from assay_serving.rubrics.rubric import RubricItem, checked, standard_item

FILE = "rubric.yaml"
KIND = "rubric"


@dataclass(frozen=True)
class RubricSpec:
    """`scorers`: as the parts of a composed reward; a grade is the probability that the model gives, or what its
    `shaping` makes of the reward, in [0, 1]. `items`: before those of the item's own label. `programs`: whether labels
    may ask for tests of programs, which run a client's code here.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    scorers: tuple[PartSpec, ...] = ()
    items: tuple[RubricItem, ...] = ()
    aggregate: RubricAggregation = field(default_factory=RubricAggregation)
    programs: bool = False
    kind: Literal["rubric"] = "rubric"

    def __post_init__(self) -> None:
        names = [scorer.name for scorer in self.scorers]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"scorers: two are named {twice!r}")
        if relative := next((scorer.name for scorer in self.scorers if scorer.compares), None):
            raise ValueError(f"scorers: {relative!r} compares with references, and a grade is of one response")
        if conflicting := next((scorer.name for scorer in self.scorers if scorer.principle is not None), None):
            raise ValueError(f"scorers: {conflicting!r} has a principle, and the principle is the text of each item")
        for criterion in self.items:
            self.scorer_of(criterion)
        if self.items:
            checked(self.items, field="items")

    def scorer_of(self, criterion: RubricItem) -> str | None:
        """Name of the scorer; None = its own constraints. Raises BadInputError where there is no such scorer."""
        if criterion.constraints:
            return None
        if not self.scorers:
            raise BadInputError(f"item {criterion.name or criterion.text!r} has no constraints, and there is no scorer")
        name = criterion.by or self.scorers[0].name
        if name not in (scorer.name for scorer in self.scorers):
            names = ", ".join(scorer.name for scorer in self.scorers)
            which = criterion.name or criterion.text
            raise BadInputError(f"item {which!r}: no scorer {name!r}; there are {names}", field="by")
        return name

    def digest(self, versions: Mapping[str, str]) -> str:
        """Identity of this function with scorers of these versions, independent of their location."""
        scorers = [scorer.meaning(versions[scorer.name]) for scorer in self.scorers]
        return digest(asdict(self) | {"scorers": scorers, "code": versions[""]})

    @classmethod
    def read(cls, path: Path) -> "RubricSpec":
        """Raises NotFoundError where there is no such file, BadInputError naming the file and what is wrong."""
        file = path / FILE if path.is_dir() else path
        payload = read_description(file, KIND, "a rubric")
        return cls.from_dict(payload, file=file)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any], *, file: Path | None = None) -> "RubricSpec":
        """From a file's YAML content; errors as of `read`."""
        items = payload.get("items")
        if isinstance(items, list):
            payload = {**payload, "items": [standard_item(criterion) for criterion in items]}
        return validated(_ADAPTER, payload, "a rubric", file=file)


_ADAPTER = TypeAdapter(RubricSpec)
