"""What part registered benchmarks had in making a model, through all that it was made of: carried in its spec.

Covers: one record a benchmark and use, the union over ancestors. Leaves out: finding overlaps, and the gate before a
training (`assay.runs.contamination_gate`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from assay.errors import BadInputError

Use = Literal["training", "selection", "calibration"]
KEY = "contamination_lineage"  #: of a run's metrics: what its models carry
FILE = "contamination.json"  #: beside the weights of a model without a spec


@dataclass(frozen=True, slots=True)
class BenchmarkUse:
    """The state of `data` against a benchmark, where `model` used that data: to train, to select (a step, a penalty, a
    merge) or to calibrate. `state`: as of `BenchmarkState`; `waived`: the reason that was given.
    `check`: of the ledger, where there is one: its n-grams and its run."""

    benchmark: str
    content_hash: str
    use: Use
    state: str
    data: str
    model: str
    overlaps: int = 0
    waived: str | None = None
    check: str = ""

    @property
    def clean(self) -> bool:
        return self.state == "clean"

    def __str__(self) -> str:
        states = {"clean": "clean", "overlaps": f"{self.overlaps} overlaps", "not_checked": "not checked"}
        waived = f", waived: {self.waived}" if self.waived is not None else ""
        check = f" ({self.check})" if self.check else ""
        return f"{self.benchmark}: {self.use} data of {self.model}: {states.get(self.state, self.state)}{check}{waived}"


def union(*parts: Iterable[BenchmarkUse]) -> tuple[BenchmarkUse, ...]:
    """Every use once, in the order of the parts."""
    return tuple(dict.fromkeys(use for part in parts for use in part))


def write_uses(folder: Path, uses: Iterable[BenchmarkUse]) -> None:
    """Into the folder of a model without a spec, e.g. a policy; nothing for no uses."""
    if payload := [asdict(use) for use in uses]:
        (folder / FILE).write_text(json.dumps(payload, indent=2) + "\n", encoding="utf-8")


def read_uses(folder: Path) -> tuple[BenchmarkUse, ...]:
    """Those that `write_uses` wrote; () without such a file. Raises BadInputError for a file that is none."""
    path = folder / FILE
    if not path.is_file():
        return ()
    try:
        return uses_from(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise BadInputError(f"not a list of benchmark uses: {error}", file=path) from error


def uses_from(payload: Iterable[Mapping[str, Any]] | None) -> tuple[BenchmarkUse, ...]:
    """Inverse of `asdict` on each."""
    return tuple(BenchmarkUse(**use) for use in payload or ())
