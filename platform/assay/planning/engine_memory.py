"""How a GPU's memory is shared by a training and an inference engine on it (vLLM's `gpu_memory_utilization`).

Covers: what an engine needs for a model and the rows that it generates at once, the share of the card that it may take
beside a training that keeps something meanwhile. Leaves out: what the training keeps (its own plan, or the driver's
free memory), starting the engine.

An engine that sleeps between rollouts and the update take turns: what the training keeps is then weights, references
and the optimiser's state. Without sleep the engine holds its share for good, and the training keeps its peak.
"""

from dataclasses import dataclass

from assay.errors import BadInputError
from assay.planning.cards import FRAGMENTS, GIB

#: Of an engine beside weights and keys and values: its passes' activations, its captured graphs. From memory of vLLM's
#: start-up log, 8B on an H100; not measured here.
WORK = 3 * GIB // 2
#: The most of a card that an engine is given: vLLM's own default.
MOST = 0.9


@dataclass(frozen=True)
class EngineMemory:
    """Bytes: the engine's copy of the weights, and keys and values of one row as long as it may be."""

    weights: int
    row: int

    @classmethod
    def of(
        cls, *, parameters: int, layers: int, heads: int, head_size: int, tokens: int, itemsize: int
    ) -> "EngineMemory":
        """`heads`: of keys and values; `tokens`: of prompt and answer; `itemsize`: bytes of one number."""
        return cls(parameters * itemsize, 2 * layers * heads * head_size * tokens * itemsize)

    def needed(self, rows: int) -> int:
        """To generate `rows` at once; fewer are generated one after the other."""
        return self.weights + rows * self.row + WORK


def engine_share(engine: EngineMemory, rows: int, *, total: int, free: int, reserved: int, field: str) -> float:
    """Share of the card's `total` bytes for the engine: what `rows` rows need, or what there is.

    `free`: bytes that nobody has now; `reserved`: of them, those that the training takes later and keeps while the
    engine generates. Raises BadInputError, naming `field`, where not even one row would fit.
    """
    available = int((free - reserved) * (1 - FRAGMENTS))
    if (least := engine.needed(1)) > available:
        raise BadInputError(
            f"vLLM needs at least {least / GIB:.1f} GiB here (weights {engine.weights / GIB:.1f}, one row of keys and "
            f"values {engine.row / GIB:.2f}), and the training leaves {max(0, available) / GIB:.1f} of "
            f"{total / GIB:.1f}: sampler.kind=transformers, adapters (lora.rank), or vLLM on another card",
            field=field,
        )
    return int(min(engine.needed(rows), available, MOST * total) / total * 1000) / 1000
