"""Whether a pass makes labels better or worse, estimated on gold before it decides anything.

Covers: the count of what would become of the labels that gold knows, folds for cross-validation, the refusal. Leaves
out: the passes, which say what they would do with a gold pair that they have not seen (`loop.stage2`,
`loop.source_pass`, `loop.relabelling`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from assay.errors import BadInputError
from assay.ids import fraction
from assay.store.records import Decision

LEAST = 20  #: gold pairs with a source's label under which nothing is said
FOLDS = 5


@dataclass(frozen=True)
class LabelQuality:
    """Of gold pairs that their sources label A or B. `right`: before the pass. `kept` with the source's side and
    `changed` to the other would be used after it; the others would not. `used`, `turned`: the sum of the weights of all
    that are used, and of those that are changed; `used_right`, `turned_right`: of those that are right then."""

    pairs: int = 0
    right: int = 0
    kept: int = 0
    kept_right: int = 0
    changed: int = 0
    changed_right: int = 0
    used: float = 0.0
    used_right: float = 0.0
    turned: float = 0.0
    turned_right: float = 0.0

    @property
    def before(self) -> float:
        return self.right / self.pairs

    @property
    def after(self) -> float | None:
        """By weight: a label that hardly counts does hardly any harm."""
        return self.used_right / self.used if self.used else None

    @property
    def worse(self) -> bool:
        """Of what would be used a smaller share is right than before, or of what is changed less than half, both by
        weight. Of under LEAST pairs nothing is said."""
        if self.pairs < LEAST:
            return False
        return (self.after is not None and self.after < self.before) or 2 * self.turned_right < self.turned

    @property
    def text(self) -> str:
        if not self.pairs:
            return "no gold pair has a label of its source: whether labels get better is not known"
        after = "nothing is used" if self.after is None else f"{self.after:.1%} of their weight after"
        turned = f" ({self.turned_right / self.turned:.1%} of their weight)" if self.turned else ""
        few = f" (under {LEAST} pairs: not enough to tell)" if self.pairs < LEAST else ""
        return (
            f"on {self.pairs} gold pairs, cross-validated, {self.before:.1%} of the labels are right before, {after}; "
            f"right then: {self.kept_right} of {self.kept} kept, {self.changed_right} of {self.changed} changed{turned}"
            f"{few}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "before": self.before if self.pairs else None, "after": self.after}


#: (gold's label, the source's, the label after the pass; None: not used; what that weighs)
Outcome = tuple[Literal["A", "B"], Literal["A", "B"], Literal["A", "B"] | None, float]


def outcome(gold: Literal["A", "B"], source: Literal["A", "B"], decision: Decision | None) -> Outcome:
    """What a decision on a gold pair would make of it. A soft label of p pulls like a label of weight 2p - 1."""
    if decision is None or decision.pool == "discarded" or decision.label not in ("A", "B"):
        return gold, source, None, 0.0
    soft = 1.0 if decision.preference is None else 2 * decision.preference - 1
    return gold, source, decision.label, soft if decision.weight is None else decision.weight


def label_quality(outcomes: Iterable[Outcome]) -> LabelQuality:
    sums = dict.fromkeys(LabelQuality.__dataclass_fields__, 0.0)
    for gold, source, after, weight in outcomes:
        sums["pairs"] += 1
        sums["right"] += gold == source
        if after is None:
            continue
        right = after == gold
        side, part = ("kept", "used") if after == source else ("changed", "turned")
        for name in {part, "used"}:
            sums[name] += weight
            sums[f"{name}_right"] += weight * right
        sums[side] += 1
        sums[f"{side}_right"] += right
    weights = ("used", "used_right", "turned", "turned_right")
    return LabelQuality(**{name: value if name in weights else int(value) for name, value in sums.items()})  # type: ignore[arg-type]


def fold_of(comparison_id: str) -> int:
    """Its part of FOLDS, by a hash of the id."""
    return int(fraction("fold", comparison_id) * FOLDS)


def folds_of(comparison_ids: Sequence[str]) -> list[list[str]]:
    """FOLDS parts; empty ones are left out."""
    parts: list[list[str]] = [[] for _ in range(FOLDS)]
    for comparison in comparison_ids:
        parts[fold_of(comparison)].append(comparison)
    return [part for part in parts if part]


def refuse_worse(quality: LabelQuality, what: str, *, force: bool) -> None:
    """Raises BadInputError with the figures where the labels would get worse."""
    if quality.worse and not force:
        raise BadInputError(f"{what} would make labels worse: {quality.text}; --force decides anyway")
