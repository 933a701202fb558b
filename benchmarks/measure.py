"""The common frame of the benchmarks: interleaved rounds, ratios with their spread, peak memory, baselines, output.

Covers: `interleaved` (contenders take turns, so that a busy machine slows all of them), `ratio` (round by round,
then the median), `run_child` (one command in a process of its own, with its peak RSS), `machine`, `arguments` and
`Report`, which every script ends with. Leaves out: what is measured. A script is run as
`python benchmarks/NAME.py [--quick] [--json] [--save-baseline]` and imports this file with `from measure import ...`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BASELINES = Path(__file__).resolve().parent / "baselines"
POLL_S = 0.02  #: the kernel keeps a high-water mark, so that only the last 20 ms of a process can be missed


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing: their median, lowest and highest, and how many."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("no measurements")
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g}, {self.rounds} rounds)"


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work()` took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each contender once a round, in turn, every second round in reverse order. A contender returns its own
    measurement (a rate, or seconds: `lambda: timed(work)`); the lists are in the order of the rounds.
    """
    timings: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        order = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in order:
            timings[name].append(contenders[name]())
    return timings


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Spread:
    """ours / peer, round by round: what both had to bear in a round cancels. Give rates, so that more is better."""
    return Spread.of([a / b for a, b in zip(ours, peer, strict=True)])


@dataclass(frozen=True)
class ChildResult:
    """One command in its own process. `peak_mb`: highest resident memory of that process (not of its children)."""

    seconds: float
    peak_mb: float
    output: str

    def last_object(self) -> dict[str, Any]:
        """The JSON object on the command's last line of output."""
        value: dict[str, Any] = json.loads(self.output.strip().splitlines()[-1])
        return value


def run_child(
    command: Sequence[str | Path], *, timeout: float, environment: Mapping[str, str] | None = None
) -> ChildResult:
    """Run `command` to its end; standard error passes through. Raises RuntimeError if it fails or takes too long.

    Peak memory is the kernel's own mark (VmHWM), read while the process lives: unlike `ru_maxrss` it does not
    count what the parent held when it forked.
    """
    started = time.perf_counter()
    argv = [str(part) for part in command]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL
    ) as process:
        peak, pieces = 0.0, []
        while True:
            peak = max(peak, peak_rss_mb(process.pid))
            try:
                output, _ = process.communicate(timeout=POLL_S)
                pieces.append(output)
                break
            except subprocess.TimeoutExpired:
                if time.perf_counter() - started > timeout:
                    process.kill()
                    raise RuntimeError(f"{argv[0]}: no end after {timeout:g} s") from None
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)[:200]}: exit status {process.returncode}")
    return ChildResult(seconds, peak, "".join(pieces))


def peak_rss_mb(pid: int | str = "self") -> float:
    """Highest resident memory of a living process in MB (10^6 bytes); 0 where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def machine() -> dict[str, Any]:
    """What the figures were measured on; no host name, no paths."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory, 1),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the peers measured."""
    from importlib.metadata import version

    return {package: version(package) for package in packages}


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share: --quick, --json, --save-baseline."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--json", action="store_true", help="last line of output: one JSON object")
    parser.add_argument("--save-baseline", action="store_true", help="store this result in benchmarks/baselines/")
    return parser


@dataclass
class Report:
    """What a benchmark found. `ratios`: ours to a named peer, the headline first; `figures`: everything else."""

    name: str
    ratios: dict[str, Spread | float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=machine)

    def to_dict(self) -> dict[str, Any]:
        """`ratios` are medians; their spread is in `figures.spread`."""
        spread = {name: asdict(value) for name, value in self.ratios.items() if isinstance(value, Spread)}
        return {
            "ratios": {k: round(v.median if isinstance(v, Spread) else v, 4) for k, v in self.ratios.items()},
            "figures": {**self.figures, **({"spread": spread} if spread else {})},
            "machine": self.machine,
        }

    def finish(self, options: argparse.Namespace) -> None:
        """Print the ratios beside the stored baseline, store them if asked, and end with the JSON line if asked."""
        path = BASELINES / f"{self.name}{'.quick' if options.quick else ''}.json"
        stored = json.loads(path.read_text())["ratios"] if path.is_file() else {}
        for name, value in self.ratios.items():
            before = f"; baseline {stored[name]:.3g}" if name in stored else ""
            print(f"{name}: {value if isinstance(value, Spread) else f'{value:.3g}'}{before}")
        if options.save_baseline:
            BASELINES.mkdir(exist_ok=True)
            path.write_text(json.dumps(self.to_dict(), indent=2) + "\n")
            print(f"stored {path.relative_to(BASELINES.parent)}", file=sys.stderr)
        if options.json:
            print(json.dumps(self.to_dict()))
