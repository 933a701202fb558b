"""The benchmarks by name. A new one is a module with `BENCHMARK`, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from assay.errors import BadInputError
from assay_rm_training.benchmarks.benchmark import Benchmark

#: name -> module of this package.
MODULES: Mapping[str, str] = {
    "rewardbench": "rewardbench",
    "rewardbench2": "rewardbench2",
    "rm-bench": "rm_bench",
    "judgebench": "judgebench",
    "rmb": "rmb",
    "ppe": "ppe",
    "principlebench": "principlebench",
    "pairs": "pair_file",
}


def benchmark(name: str) -> Benchmark:
    """The benchmark of this name; `_`, spaces and capitals do not matter. Raises BadInputError with the names."""
    plain = "".join(c for c in name.lower() if c.isalnum())
    for registered, module in MODULES.items():
        if registered.replace("-", "") == plain:
            loaded: Benchmark = import_module(f"assay_rm_training.benchmarks.protocols.{module}").BENCHMARK
            return loaded
    raise BadInputError(f"no benchmark named {name!r}; there are {', '.join(MODULES)}", field="--bench")
