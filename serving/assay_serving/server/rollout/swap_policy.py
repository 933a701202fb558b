"""How one model replaces another: at once, after shadow scoring, or after a canary.

Covers: the policy as plain data, the conditions for promotion, whether they hold. Leaves out: applying it (`swap`,
`lifecycle`).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le

from assay.errors import BadInputError
from assay.settings import Help, check_settings

if TYPE_CHECKING:
    from assay_serving.server.rollout.agreement import ModelAgreement

Mode = Literal["now", "shadow", "canary"]

AT_LEAST = ("order_agreement", "kendall_within", "spearman_within")
AT_MOST = ("drift_psi", "drift_ks", "failed", "truncated")
CONDITIONS = (*AT_LEAST, *AT_MOST)


@dataclass(frozen=True)
class SwapPolicy:
    """`now`: requests after loading get the new model. `shadow`: it scores a share of the prompts in the background.
    `canary`: that share gets its scores. The last two end by promote or abort, or automatically:

    - promoted when at least `min_items` items were scored by both and every condition of `promote_when` holds. Of
      `order_agreement` the low end of its interval counts. Drift is after aligning the scales. Empty: by hand only.
    - aborted when its share of failures is above the old model's by more than `max_failure_rate`.
    """

    mode: Annotated[
        Mode,
        Help(
            "now: it is live once loaded; shadow: it scores a share of the prompts in the background; canary: that "
            "share gets its scores."
        ),
    ] = "shadow"
    share: Annotated[float, Gt(0), Le(1), Help("Of all prompts.")] = 0.1
    min_items: Annotated[int, Ge(1), Help("Scored by both before it is promoted automatically.")] = 500
    promote_when: Mapping[str, float] = field(default_factory=dict)
    max_failure_rate: Annotated[
        float, Ge(0), Le(1), Help("Aborted when it fails on more than this share of items beyond the old one.")
    ] = 0.05

    def __post_init__(self) -> None:
        check_settings(self)
        for name, bound in self.promote_when.items():
            if name not in CONDITIONS:
                raise BadInputError(f"no such condition; there are {', '.join(CONDITIONS)}", field=name[:40])
            if not math.isfinite(bound):
                raise BadInputError(f"must be finite, not {bound}", field=name)
        if self.mode == "now" and self.promote_when:
            raise BadInputError("conditions are for shadow and canary; now promotes at once", field="promote_when")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Raises BadInputError for what is no field, and for a value of another type."""
        unknown = sorted(set(payload) - set(cls.__dataclass_fields__))
        if unknown:
            raise BadInputError(f"no such field; there are {', '.join(cls.__dataclass_fields__)}", field=unknown[0])
        try:
            return cls(**payload)
        except (TypeError, AttributeError) as error:
            raise BadInputError(f"the swap policy is malformed: {error}") from None


@dataclass(frozen=True)
class Condition:
    """One condition for promotion. `measured`: None while not known."""

    name: str
    bound: float
    measured: float | None

    @property
    def met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.name in AT_LEAST else self.measured <= self.bound

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bound": self.bound,
            "found": self.measured,
            "must_be": "at least" if self.name in AT_LEAST else "at most",
            "met": self.met,
        }


def check_conditions(
    promote_when: Mapping[str, float], measured: "ModelAgreement | None", *, failed: float, truncated: float
) -> list[Condition]:
    """What holds now. `failed`, `truncated`: shares of the new model's items."""
    from assay.statistics.intervals import bounds  # imports numpy, which `assay --help` does not need

    values: dict[str, float | None] = {"failed": failed, "truncated": truncated}
    if measured is not None:
        aligned = measured.drift_aligned
        values |= {
            "order_agreement": bounds(measured.order.interval)[0] if measured.order is not None else None,
            "kendall_within": measured.kendall_within,
            "spearman_within": measured.spearman_within,
            "drift_psi": aligned.psi if aligned is not None else None,
            "drift_ks": aligned.ks if aligned is not None else None,
        }
    return [Condition(name, bound, values.get(name)) for name, bound in promote_when.items()]
