"""What checking a response against constraints concludes.

Covers: the verdict of one constraint, the verification of several, and its JSON form. Leaves out: the checks
themselves (the modules beside this one) and turning a verification into a reward or a judgment (the callers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import BackendError, BadInputError

if TYPE_CHECKING:
    from assay_serving.verifiers.constraint import Constraint


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one constraint holds, and what was measured, in one short line."""

    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdicts of all constraints of one prompt on one response, in the constraints' order."""

    constraints: tuple[Constraint, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """True when every constraint holds."""
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def fraction(self) -> float:
        """Share of constraints that hold, 0 to 1."""
        return sum(verdict.passed for verdict in self.verdicts) / len(self.verdicts)

    @property
    def failures(self) -> tuple[str, ...]:
        """`kind: detail` of each constraint that does not hold."""
        pairs = zip(self.constraints, self.verdicts, strict=True)
        return tuple(f"{constraint.kind}: {verdict.detail}" for constraint, verdict in pairs if not verdict.passed)

    def to_dict(self) -> dict[str, Any]:
        pairs = zip(self.constraints, self.verdicts, strict=True)
        return {
            "passed": self.passed,
            "fraction": self.fraction,
            "verdicts": [{"kind": c.kind, "passed": v.passed, "detail": v.detail} for c, v in pairs],
        }


def verify(constraints: Sequence[Constraint], response: str) -> Verification:
    """Check `response` against every constraint.

    Raises BadInputError when there is none to check; where kinds run in worker processes, BackendError when one did not
    come to a verdict. Who has many to check, or wants to go on after a failure, asks the pool (`processes`).
    """
    if not constraints:
        raise BadInputError("no constraints to verify: an unconstrained response neither passes nor fails")
    if any(constraint.foreign for constraint in constraints):
        from assay_serving.verifiers.sandbox.worker_pool import shared_pool

        outcome = shared_pool().verify([(constraints, response)])[0]
        if not isinstance(outcome, Verification):
            raise BackendError(f"{outcome.code}: {outcome.message}")
        return outcome
    return Verification(tuple(constraints), tuple(constraint.check(response) for constraint in constraints))
