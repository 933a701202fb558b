"""What a label source is: it answers which of two responses is better, at once or when it can.

Covers: the registered kind, a pair that is asked about, an answer. Leaves out: which pairs (selectors), the budget and
the record of what was asked (`labelling`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from assay.domain import Prompt
from assay.registry import Kind

if TYPE_CHECKING:
    from assay.runs.record import Run

_HERE = "assay_pipelines.online.label_sources."


@dataclass(frozen=True)
class AskedPair:
    """One pair, in the store already. `responses`: A and B of the comparison. `why`: the selector's numbers."""

    comparison_id: str
    prompt: Prompt
    responses: tuple[str, str]
    why: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """`label` None: no answer will come, for the reason in `problem`, whatever it cost. `judgments`: ids of those it
    rests on."""

    comparison_id: str
    label: Literal["A", "B", "tie"] | None
    judgments: tuple[str, ...] = ()
    cost: float = 0.0
    problem: str = ""
    contradicts: bool = False  #: others, or others of those asked, said the opposite of this pair


class LabelSource(Protocol):
    """`name`: for the record. `waits`: answers come later, by `collect`; what each will cost is `price_of_pair`, where
    the source has that. Raises AssayError where it cannot be reached.

    The same pair again is no second question: what was answered before is found by its content."""

    @property
    def name(self) -> str: ...
    @property
    def waits(self) -> bool: ...

    def ask(self, pairs: Sequence[AskedPair], run: "Run", *, money: float | None) -> list[Answer]:
        """An answer for each pair, or none yet. `money`: what the answers may cost at most."""
        ...

    def collect(self, waiting: Sequence[str], run: "Run") -> list[Answer]:
        """The answers that have come, to comparisons that were asked about."""
        ...


def affordable_pairs(pairs: int, price: float, money: float | None) -> int:
    """How many of the pairs the money pays for at this price each."""
    return pairs if money is None or price <= 0 else min(pairs, int(money / price + 1e-9))


#: A member is called with its settings and, where it has such parameters, with `workspace` and `loop` (its name); it
#: returns a label source.
LABEL_SOURCES: Kind[type] = Kind(
    "label_source",
    "Labels pairs of rollouts while a policy is trained (`assay loop`).",
    {
        "verifier": _HERE + "judges:verifier_labels",
        "judge": _HERE + "judges:judge_labels",
        "reward": _HERE + "judges:reward_labels",
        "simulated": _HERE + "judges:simulated_labels",
        "people": _HERE + "people:PeoplesQueue",
    },
    makes=("name", "waits", "ask", "collect"),
    option="labels.source",
)
