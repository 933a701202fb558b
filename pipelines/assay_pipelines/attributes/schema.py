"""The 5-tuple of attributes of one comparison (Skywork-Reward-V2, section on preference attributes).

Covers: the type, its checks, its JSON form, the text that is embedded for retrieval. Leaves out: asking for it
(`assay_pipelines.attributes` beside this module).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from assay.errors import BadInputError

Objectivity: TypeAlias = Literal["objective", "subjective"]
Controversiality: TypeAlias = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class PairAttributes:
    """`task_category`, `objectivity` and `controversiality` balance and prioritise; `desired` (what the user wants of a
    good answer) and `guideline` (criteria for this instance) steer labels."""

    task_category: str
    objectivity: Objectivity
    controversiality: Controversiality
    desired: str
    guideline: str

    def __post_init__(self) -> None:
        for name, literal in (("objectivity", Objectivity), ("controversiality", Controversiality)):
            if getattr(self, name) not in get_args(literal):
                raise BadInputError(f"{getattr(self, name)!r} is not one of {', '.join(get_args(literal))}", field=name)
        for name in ("task_category", "desired", "guideline"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise BadInputError("must be a text", field=name)

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> PairAttributes:
        """From its JSON form; raises BadInputError naming the field that is missing, unknown or wrong."""
        names = [field.name for field in fields(cls)]
        for name in names:
            if name not in payload:
                raise BadInputError("is missing", field=name)
        if unknown := sorted(set(payload) - set(names)):
            raise BadInputError("is not an attribute", field=unknown[0])
        return cls(**payload)

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @property
    def easy_for_people(self) -> bool:
        """Objective and of low controversiality: what people are asked first."""
        return self.objectivity == "objective" and self.controversiality == "low"
