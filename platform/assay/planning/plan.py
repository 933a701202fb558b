"""The plan of a training: whether it fits a card, the largest micro-batch that does, its speed, and what would fit.

Covers: what a training gives to be planned, the plan from two sizes of its step, its text. Leaves out: running the step
(`fake_step`), which step (`rm_training`, `policy_training`).

A step's memory is what it holds whatever its micro-batch, and what grows with it in proportion: it is measured at two
sizes. Speed is a roofline: floating-point operations at a share of the card's rate, and what optimiser, decoding and
the exchange between processes read and write at its bandwidths; neither hides the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from assay.errors import BadInputError
from assay.planning.cards import HOST_BANDWIDTH, Card, memory_text
from assay.planning.fake_step import OPTIMISER, StepCost
from assay.runs.progress_bar import Advance, silent


class PlannedTraining(Protocol):
    """A training whose step can be measured."""

    @property
    def setting(self) -> str:
        """The option of its micro-batches."""
        ...

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest micro-batch, of one item, and that of the configuration."""
        ...

    @property
    def ranks(self) -> int: ...

    def measure(self, size: int) -> "MeasuredStep": ...

    def changes(self) -> Iterable[Iterable[tuple[str, "PlannedTraining"]]]:
        """How it could take less memory, in words, and the training with that. Of each of the ways, its steps."""
        ...


@dataclass(frozen=True)
class OtherPart:
    """Another part of a step that may hold more than the update: `fixed` bytes, and the rest by `size` of `setting`."""

    name: str
    bytes: int
    fixed: int
    setting: str
    size: int

    def largest(self, usable: int) -> int:
        return max(0, int((usable - self.fixed) * self.size / max(1, self.bytes - self.fixed)))


@dataclass(frozen=True)
class MeasuredStep:
    """A step with one size of micro-batches, on one process. `tokens`, `passes`: that it trains on, through the model.
    `batch`: tokens of a whole step of the run, of all processes. `weights`: bytes that processes gather for each
    pass. `decoding`: bytes read to generate the batch."""

    cost: StepCost
    tokens: int
    passes: int
    batch: int
    weights: int = 0
    decoding: float = 0.0
    other_parts: Sequence[OtherPart] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """`largest`: micro-batch whose update fits, 0 where not even one item does."""

    card: Card
    setting: str
    size: int
    measured: MeasuredStep
    largest: int
    seconds: Mapping[str, float]
    alternatives: Sequence[tuple[str, "MemoryPlan"]] = ()

    @property
    def bytes(self) -> int:
        return max(self.measured.cost.bytes, *(part.bytes for part in self.measured.other_parts), 0)

    @property
    def fits(self) -> bool:
        return self.bytes <= self.card.usable

    @property
    def tokens_per_s(self) -> float:
        return self.measured.batch / max(sum(self.seconds.values()), 1e-9)

    def to_dict(self) -> dict[str, Any]:
        usable = self.card.usable
        return {
            "card": self.card.name,
            "usable_bytes": usable,
            "fits": self.fits,
            "bytes": self.bytes,
            "peak": self.measured.cost.peak,
            "setting": self.setting,
            "size": self.size,
            "largest": self.largest,
            "host_bytes": self.measured.cost.host,
            "other_parts": [{**asdict(part), "largest": part.largest(usable)} for part in self.measured.other_parts],
            "tokens_per_step": self.measured.batch,
            "tokens_per_s": round(self.tokens_per_s, 1),
            "float32_share": round(self.measured.cost.float32_share, 4),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "assumed": self.card.assumptions,
            "alternatives": {change: plan.to_dict() for change, plan in self.alternatives},
        }

    @property
    def line(self) -> str:
        usable = self.card.usable
        parts = [("update", self.measured.cost.bytes, self.setting, self.size, self.largest)]
        parts += [(o.name, o.bytes, o.setting, o.size, o.largest(usable)) for o in self.measured.other_parts]
        texts = [
            f"{name} {memory_text(held)} with {setting_text(setting, size)} ({_most(largest)})"
            for name, held, setting, size, largest in parts
        ]
        if host := self.measured.cost.host:
            texts.append(f"{memory_text(host)} in the host's memory")
        verdict = "fits" if self.fits else "does not fit"
        return f"{verdict} {self.card.name}, {memory_text(usable)}: {'; '.join(texts)}"

    def __str__(self) -> str:
        peak = ", ".join(f"{kind} {memory_text(size)}" for kind, size in self.measured.cost.peak.items() if size)
        lines = [self.line, f"update at its peak: {peak}"]
        parts = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in self.seconds.items() if seconds)
        lines.append(f"at most {self.tokens_per_s:.3g} tokens/s ({self.measured.batch} a step: {parts})")
        if (share := self.measured.cost.float32_share) >= 0.005:
            lines.append(f"products: {share:.0%} of the operations are float32")
        lines.append(f"assumed: {self.card.assumptions}")
        if self.alternatives:
            lines.append("with changes:")
            lines += [f"  {change}: {plan.line}" for change, plan in self.alternatives]
        return "\n".join(lines)


def make_plan(training: PlannedTraining, card: Card, *, changes: bool, advance: Advance = silent) -> MemoryPlan:
    """Plans it; where it does not fit and `changes`, also its changes, each with what its largest micro-batch is: of
    each way the steps up to the first that fits. `advance`: called after each measurement."""
    smallest, size = training.sizes

    def measure(size: int) -> MeasuredStep:
        step = training.measure(size)
        advance(1)
        return step

    measured = measure(size)
    largest = _largest(measure, card, smallest, size, measured)

    def planned(size: int, measured: MeasuredStep) -> MemoryPlan:
        return MemoryPlan(card, training.setting, size, measured, largest, _seconds(measured, card, training.ranks))

    plan = planned(size, measured)
    if plan.fits or not changes:
        return plan
    alternatives = []
    while 0 < largest < size:  # the line is not exact: a pass is of whole items
        fewer = measure(largest)
        if fewer.cost.bytes <= card.usable:
            less = planned(largest, fewer)
            alternatives += [(setting_text(training.setting, largest), less)] if less.fits else []
            break
        largest = _largest(measure, card, smallest, largest, fewer)
    plan = planned(size, measured)
    for way in training.changes():
        for change, other in way:
            alternatives.append((change, make_plan(other, card, changes=False, advance=advance)))
            if alternatives[-1][1].fits:
                break
    return replace(plan, alternatives=alternatives)


def _largest(
    measure: Callable[[int], MeasuredStep], card: Card, smallest: int, size: int, measured: MeasuredStep
) -> int:
    """In steps of the smallest, by the line through two sizes; `size` where the step has no more to put into a pass,
    so that the line says nothing."""
    other = smallest if size >= 2 * smallest else 2 * smallest
    held, fewer = measured.cost.bytes, measure(other).cost.bytes
    growth = (held - fewer) / (size - other)
    if growth < 1:  # bytes: rounding, no token holds so little
        return size if held <= card.usable else 0
    return max(0, int((size + (card.usable - held) / growth) // smallest) * smallest)


def _seconds(measured: MeasuredStep, card: Card, ranks: int) -> dict[str, float]:
    """Of a whole step, by part."""
    share = measured.batch / (ranks * max(measured.tokens, 1))  # of the run's step for what was measured
    rates = {**card.flops, "float64": card.flops["float32"] / 2}
    compute = sum(count / rates.get(kind, card.flops["float32"]) for kind, count in measured.cost.flops.items())
    # AdamW reads weight, gradient and two moments and writes three of them; the moments are two of these seven.
    update = measured.cost.peak[OPTIMISER] * 7 / 2 / card.bandwidth
    seconds = {
        "compute": compute * share / card.share,
        "optimiser": update,
        "host": measured.cost.host * 7 / 4 / HOST_BANDWIDTH,  # of its four float32 numbers a weight, three are written
        "decoding": measured.decoding / card.bandwidth,
    }
    if ranks > 1 and card.link:  # gathered forward and backward, and as many bytes of gradients
        seconds["exchange"] = 3 * measured.weights * measured.passes * share / card.link
    return seconds


def setting_text(setting: str, size: int) -> str:
    """As it is given: an option, or a key of a recipe."""
    return f"{setting}{'=' if '.' in setting else ' '}{size}"


def _most(largest: int) -> str:
    return f"at most {largest}" if largest else "not with less either"


def check_format(card: Card, dtype: str) -> None:
    """Raises BadInputError for a number format that the card computes without hardware."""
    if dtype == "bfloat16" and not card.has_bfloat16:
        raise BadInputError(f"{card.name} has no bfloat16 products: several times slower than float32", field="dtype")
