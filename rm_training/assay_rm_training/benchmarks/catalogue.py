"""The registered benchmarks, which `--bench` names, and those that a YAML file declares."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.registry import Kind

if TYPE_CHECKING:
    from assay_rm_training.benchmarks.benchmark import Benchmark

_PROTOCOLS = "assay_rm_training.benchmarks.protocols"

_DECLARED = "assay_rm_training.benchmarks.declared"
YAML = (".yaml", ".yml")


def _declared_names() -> list[str]:
    folder = resources.files("assay_rm_training") / "benchmarks" / "declared" / "published"
    return sorted(e.name.removesuffix(".yaml") for e in folder.iterdir() if e.name.endswith(".yaml"))


BENCHMARKS: Kind[Any] = Kind(
    "benchmark",
    "A benchmark of reward models: a subclass of `Benchmark`, an instance of one, or a YAML file.",
    {
        "rewardbench": f"{_PROTOCOLS}.rewardbench:BENCHMARK",
        "rewardbench2": f"{_PROTOCOLS}.rewardbench2:BENCHMARK",
        "rm-bench": f"{_PROTOCOLS}.rm_bench:BENCHMARK",
        "judgebench": f"{_PROTOCOLS}.judgebench:BENCHMARK",
        "rmb": f"{_PROTOCOLS}.rmb:BENCHMARK",
        "ppe": f"{_PROTOCOLS}.ppe:BENCHMARK",
        "principlebench": f"{_PROTOCOLS}.principlebench:BENCHMARK",
        "pairs": f"{_PROTOCOLS}.pair_file:BENCHMARK",
        "processbench": f"{_PROTOCOLS}.processbench:BENCHMARK",
        "process-best-of-n": f"{_PROTOCOLS}.processbench:BEST_OF_N",
        **{name: f"{_DECLARED}.loading:{name}" for name in _declared_names()},
    },
    requires=("name", "title", "source", "read", "credit", "measure", "statement"),
    option="--bench",
)


def benchmark(name: str, *, folder: Path | None = None) -> "Benchmark":
    """The benchmark of this name, or of this YAML file; in a registered name `_`, spaces and capitals do not matter.

    Raises BadInputError with the nearest names.
    """
    if name.endswith(YAML):
        from assay_rm_training.benchmarks.declared.loading import declared_in

        return declared_in((folder or Path()) / name)
    plain = _plain(name)
    registered = next((member for member in BENCHMARKS.names() if _plain(member) == plain), name)
    member = BENCHMARKS.find(registered, folder=folder)
    instance: Benchmark = member() if isinstance(member, type) else member
    return instance


def absolute_benchmark(name: str) -> str:
    """The name with the path of a file made absolute, as a record that outlives the folder has it."""
    return str(Path(name).expanduser().resolve()) if name.endswith(YAML) else BENCHMARKS.absolute(name)


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
