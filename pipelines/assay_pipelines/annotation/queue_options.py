"""What may be set of a queue at any time, beside its guideline: description, order, suggestions, gold-check rules.

Leaves out: what a queue is made with and keeps (`recording.Queue`), what its settings do (`assignment`, `admission`).
"""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Le

from assay.settings import Help, check_settings

#: When an annotator sees what judges and reward models say of an item.
SuggestionTime: TypeAlias = Literal["never", "before", "after"]


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """`suggestions`: of those in `suggested_by`; empty: of every judge and reward model that was asked when it was
    queued. "never": annotators see none; who may read records sees them after their own vote."""

    description: Annotated[str, Help("What the queue is for, in the list of queues.")] = ""
    priority: Annotated[int, Ge(-1000), Le(1000), Help("Queues of a higher one stand first.")] = 0
    suggestions: Annotated[SuggestionTime, Help("When annotators see what judges say.")] = "never"
    suggested_by: Annotated[tuple[str, ...], Help("Judges by name; none: all.")] = ()
    qualify_checks: Annotated[int, Ge(0), Le(100), Help("Gold checks asked first; 0: nobody has to qualify.")] = 0
    qualify_share: Annotated[float, Ge(0), Le(1), Help("Least share of them right.")] = 0.8
    gate_checks: Annotated[int, Ge(0), Le(1000), Help("Checks after which the least share holds; 0: never.")] = 0
    gate_share: Annotated[float, Ge(0), Le(1), Help("Least share of checks right, later too.")] = 0.6

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    @lru_cache(256)  # read with every vote
    def of(cls, stored: str) -> "QueueOptions":
        values: dict[str, Any] = json.loads(stored)
        return cls(**values | {"suggested_by": tuple(values.get("suggested_by", ()))})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
