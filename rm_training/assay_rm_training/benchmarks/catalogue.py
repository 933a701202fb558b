"""The registered benchmarks, which `--bench` names."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_rm_training.benchmarks.benchmark import Benchmark

_PROTOCOLS = "assay_rm_training.benchmarks.protocols"

BENCHMARKS: Kind[Any] = Kind(
    "benchmark",
    "A benchmark of reward models: a subclass of `Benchmark`, or an instance of one.",
    {
        "rewardbench": f"{_PROTOCOLS}.rewardbench:BENCHMARK",
        "rewardbench2": f"{_PROTOCOLS}.rewardbench2:BENCHMARK",
        "rm-bench": f"{_PROTOCOLS}.rm_bench:BENCHMARK",
        "judgebench": f"{_PROTOCOLS}.judgebench:BENCHMARK",
        "rmb": f"{_PROTOCOLS}.rmb:BENCHMARK",
        "ppe": f"{_PROTOCOLS}.ppe:BENCHMARK",
        "principlebench": f"{_PROTOCOLS}.principlebench:BENCHMARK",
        "pairs": f"{_PROTOCOLS}.pair_file:BENCHMARK",
    },
    requires=("name", "title", "source", "read", "credit", "measure", "statement"),
    option="--bench",
)


def benchmark(name: str, *, folder: Path | None = None) -> "Benchmark":
    """The benchmark of this name; in a registered name `_`, spaces and capitals do not matter.

    Raises BadInputError with the nearest names.
    """
    plain = _plain(name)
    registered = next((member for member in BENCHMARKS.names() if _plain(member) == plain), name)
    member = BENCHMARKS.find(registered, folder=folder)
    instance: Benchmark = member() if isinstance(member, type) else member
    return instance


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
