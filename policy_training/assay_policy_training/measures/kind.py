"""What a measure is: a plug-in that turns samples, evaluations or choices of several policies into one table.

Covers: the registered kind with its built-in members, the table that a measure returns. Leaves out: where the inputs
come from (`inputs`). Imports nothing heavy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from assay.errors import BadInputError
from assay.registry import Kind

#: What a measure reads of each policy: samples with their verdicts (`samples.PolicySample`), contents of
#: `evaluation.json` files, or `tilted.Choices`, the responses of enumerable tasks with their probabilities.
Reads = Literal["samples", "evaluations", "choices"]


@dataclass(frozen=True)
class Measured:
    """`table`: rows of equal columns, None = undetermined or not measured. `facts`: what is said once."""

    table: list[dict[str, Any]]
    facts: dict[str, Any] = field(default_factory=dict)


class Measure(Protocol):
    """`policies`: label -> its inputs, in the order of the command line; the first one is the base."""

    reads: ClassVar[Reads]

    def measure(self, policies: Mapping[str, Sequence[Any]]) -> Measured: ...


_HERE = "assay_policy_training.measures"
MEASURES: Kind[type[Measure]] = Kind(
    "measure",
    "Turns samples or evaluations of policies into a table of figures (`assay measure`).",
    members={
        "pass_at_k": f"{_HERE}.capability:PassAtKMeasure",
        "support": f"{_HERE}.capability:Support",
        "cot_pass_at_k": f"{_HERE}.comparisons:ChainPassAtK",
        "distillation": f"{_HERE}.comparisons:DistillationTable",
        "ceiling": f"{_HERE}.comparisons:RewardMatrix",
        "formats": f"{_HERE}.formats:FormatShares",
        "seeds": f"{_HERE}.evaluations:Seeds",
        "transfer": f"{_HERE}.evaluations:TransferMatrix",
        "episodes": f"{_HERE}.episodes:EpisodeMeasure",
        "tilted": f"{_HERE}.tilted:TiltedDistance",
    },
    requires=("reads", "measure"),
    option="NAME",
)


def require_pair(policies: Mapping[str, Any], measure: str) -> str:
    """The base's label, where there is a policy to compare with it. Raises BadInputError."""
    if len(policies) < 2:
        raise BadInputError(f"{measure} compares policies: give the base first, then the others", field="POLICIES")
    return next(iter(policies))
