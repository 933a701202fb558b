"""The common frame of the benchmarks: interleaved rounds, ratios with their spread, peak memory, baselines, output.

Covers: `compare` (contenders take turns, so that a busy machine slows all of them; wall and CPU seconds of each turn;
ratios round by round, or why there is none), `spent` and `run_child` (what a turn costs), `cpu_seconds` (a process
with its children, a server for instance), `arguments` and `Report`, which every script ends with. Leaves out: what is
measured. A script is run as `python benchmarks/NAME.py [--quick] [--json] [--save-baseline]`, declares the code that
it measures in MEASURES, and imports this file:

    rounds = compare({"assay": lambda: spent(ours, amount=ROWS), "peer": lambda: spent(theirs, amount=ROWS)}, options)
    report = Report("import_scale", measures=MEASURES, peers=("datasets",))
    report.ratios["import / datasets"] = rounds.ratio("assay", "peer")
    report.finish(options)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from measured_code import CORE_PACKAGES, state

BASELINES = Path(__file__).resolve().parent / "baselines"
POLL_S = 0.02  #: the kernel keeps a high-water mark, so that only the last 20 ms of a process can be missed
LEAST_ROUNDS = 3
LEAST_S = 0.2  #: a turn of less is too short to time
QUICK_S = 180.0
STARTED = time.perf_counter()

Turn = TypeVar("Turn")


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

    @property
    def undecided(self) -> bool:
        """Of ratios: 1 lies within. Equals are on one side of 1 in a quarter of three rounds, in a 16th of five."""
        return self.low <= 1 <= self.high

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g}, {self.rounds} rounds)"


@dataclass(frozen=True)
class Refusal:
    """There is no ratio, and why."""

    why: str


@dataclass(frozen=True)
class Ratio:
    """One comparison, by wall and by CPU seconds."""

    wall: Spread | Refusal
    cpu: Spread | Refusal


@dataclass(frozen=True)
class Cost:
    """One turn of a contender: wall and CPU seconds for `amount` units of work (rows, tokens, requests)."""

    wall_s: float
    cpu_s: float
    amount: float = 1.0


def spent(work: Callable[[], object], *, amount: float = 1.0, least_s: float = 0.0, pid: int | None = None) -> Cost:
    """What `work()` costs; again and again for `least_s` CPU seconds (ten times that of wall seconds), if it is short.

    CPU seconds are those of this process and its children, or of the process `pid` and its children (a server).
    """
    children, times = _children_s(pid), 0
    own, wall = time.process_time(), time.perf_counter()
    while True:
        work()
        times += 1
        took, used = time.perf_counter() - wall, time.process_time() - own
        if max(used, took / 10) >= least_s:
            break
    return Cost(took, (used if pid is None else 0.0) + _children_s(pid) - children, amount * times)


def cpu_seconds(pid: int | None = None) -> float:
    """User and system seconds so far of a process and its descendants, living and waited for; of this one if None.

    Other processes are read from /proc in ticks of 10 ms. A child that is killed and not waited for is lost.
    """
    return (time.process_time() if pid is None else 0.0) + _children_s(pid)


def _children_s(pid: int | None) -> float:
    return _ended_children_s() + _of_children(os.getpid()) if pid is None else _of_children(pid, itself=True)


def _of_children(pid: int, *, itself: bool = False) -> float:
    parents: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(number)
        seconds[number] = sum(int(field) for field in fields[11:15]) / tick
    total, waiting = (seconds.get(pid, 0.0) if itself else 0.0), [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        total += sum(seconds[child] for child in children)
        waiting += children
    return total


@dataclass(frozen=True)
class Rounds:
    """What `compare` measured: each contender's turns, in the order of the rounds, all of one length."""

    costs: dict[str, list[Cost]]
    least_s: float = LEAST_S
    budget_s: float | None = None

    def ratio(self, ours: str, peer: str) -> Ratio:
        """Work a second of ours to the peer's (more is better), round by round: what both had to bear cancels."""
        return Ratio(self._ratio(ours, peer, "wall_s", "wall"), self._ratio(ours, peer, "cpu_s", "CPU"))

    def _ratio(self, ours: str, peer: str, seconds: str, word: str) -> Spread | Refusal:
        if len(self.costs[ours]) < LEAST_ROUNDS:
            return decided([1.0] * len(self.costs[ours]), self.budget_s)
        for name in (ours, peer):
            shortest: float = min(getattr(cost, seconds) for cost in self.costs[name])
            if shortest < self.least_s:
                return Refusal(f"a turn of {name} took {shortest:.2g} s ({word}), less than {self.least_s:g} s")
        turns = zip(self.costs[ours], self.costs[peer], strict=True)
        ratios = [a.amount / getattr(a, seconds) / (b.amount / getattr(b, seconds)) for a, b in turns]
        return decided(ratios, self.budget_s)

    def per_second(self, name: str) -> Spread:
        """Units of work a wall second."""
        return Spread.of([cost.amount / max(cost.wall_s, 1e-9) for cost in self.costs[name]])

    def per_cpu_second(self, name: str) -> Spread:
        return Spread.of([cost.amount / max(cost.cpu_s, 1e-9) for cost in self.costs[name]])


def compare(
    contenders: Mapping[str, Callable[[], Cost]],
    options: argparse.Namespace,
    *,
    rounds: int = 5,
    least_s: float = LEAST_S,
    parts_left: int = 1,
) -> Rounds:
    """Each contender once a round, in turn (`interleaved`).

    Ratios of fewer than three rounds, or with a turn under `least_s` seconds, are refused.
    """
    return Rounds(interleaved(contenders, rounds, options, parts_left=parts_left), least_s, _budget(options))


def interleaved(
    contenders: Mapping[str, Callable[[], Turn]],
    rounds: int,
    options: argparse.Namespace | None = None,
    *,
    parts_left: int = 1,
) -> dict[str, list[Turn]]:
    """What each contender returns, once a round, in turn, every second round in reverse order.

    With `--quick`, or a `--budget` in seconds since the script began, no round begins that would not end in time, if it
    took as long as the longest before; of what is left, this comparison takes one of `parts_left` parts. Raises
    ValueError for `rounds` under three.
    """
    if rounds < LEAST_ROUNDS:
        raise ValueError(f"{rounds} rounds decide nothing: at least {LEAST_ROUNDS}")
    budget, began = _budget(options), time.perf_counter()
    end = None if budget is None else began + max(0.0, STARTED + budget - began) / parts_left
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    longest = 0.0
    for number in range(rounds):
        started = time.perf_counter()
        if number and end is not None and started + longest > end:
            break
        order = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in order:
            turns[name].append(contenders[name]())
        longest = max(longest, time.perf_counter() - started)
    return turns


def _budget(options: argparse.Namespace | None) -> float | None:
    if options is None:
        return None
    seconds: float | None = options.budget if options.budget is not None else QUICK_S if options.quick else None
    return seconds


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Spread | Refusal:
    """ours / peer, round by round, of what is no time (bytes, a rate that a server reports). More should be better."""
    return decided([a / b for a, b in zip(ours, peer, strict=True)])


def decided(ratios: Sequence[float], budget_s: float | None = None) -> Spread | Refusal:
    """The spread of one ratio a round, of a limit to what was measured for instance; refused under three rounds."""
    if len(ratios) >= LEAST_ROUNDS:
        return Spread.of(ratios)
    within = "" if budget_s is None else f" within {budget_s:.0f} s"
    return Refusal(f"{len(ratios)} round{'' if len(ratios) == 1 else 's'}{within}, it takes {LEAST_ROUNDS}")


@dataclass(frozen=True)
class ChildResult:
    """One command in its own process. `peak_mb`: highest resident memory of that process (not of its children);
    `cpu_s`: of both, from start to end.
    """

    seconds: float
    peak_mb: float
    output: str
    cpu_s: float = 0.0

    def cost(self, amount: float = 1.0) -> Cost:
        """The whole process, its imports included."""
        return Cost(self.seconds, self.cpu_s, amount)

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
    started, before = time.perf_counter(), _ended_children_s()
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
    return ChildResult(seconds, peak, "".join(pieces), _ended_children_s() - before)


def _ended_children_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


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
    """Installed versions of the peers measured; those that are not installed are left out."""
    from importlib.metadata import PackageNotFoundError, version

    installed = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share: --quick, --budget, --json, --save-baseline."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, at most three minutes")
    parser.add_argument("--budget", type=float, help="seconds after which no round begins; 180 with --quick")
    parser.add_argument("--json", action="store_true", help="last line of output: one JSON object")
    parser.add_argument("--save-baseline", action="store_true", help="store this result in benchmarks/baselines/")
    return parser


def picture(path: str) -> Path:
    """The type of an option that names a picture, drawn when all is measured: refused at once where it could not be."""
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("a picture needs matplotlib: pip install matplotlib")
    if not Path(path).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"no such folder: {Path(path).parent}")
    return Path(path)


@dataclass
class Report:
    """What a benchmark found. `ratios`: ours to a named peer, the headline first, each by wall and by CPU seconds if it
    is a `Ratio`; `figures`: everything else; `measures`: the paths of the code measured; `peers`: their packages;
    `limits`: what a ratio must be at least, by its name, where something requires it: by CPU seconds where there are
    any, but for those `by_wall`, whose point is waiting less.
    """

    name: str
    ratios: dict[str, Ratio | Spread | Refusal | float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=machine)
    measures: Sequence[str] = ()
    peers: Sequence[str] = ()
    limits: dict[str, float] = field(default_factory=dict)
    by_wall: Sequence[str] = ()

    def lines(self) -> dict[str, Spread | Refusal | float]:
        """Each ratio by wall seconds under its name, and by CPU seconds under its name with ", CPU"."""
        flat: dict[str, Spread | Refusal | float] = {}
        for name, value in self.ratios.items():
            if isinstance(value, Ratio):
                flat |= {name: value.wall, f"{name}, CPU": value.cpu}
            else:
                flat[name] = value
        return flat

    def to_dict(self) -> dict[str, Any]:
        """`ratios` are medians, those refused are missing; `spread` has their rounds, and "undecided" if 1 is in it."""
        lines = self.lines()
        spread = {name: value for name, value in lines.items() if isinstance(value, Spread)}
        named = {name: value for name, value in lines.items() if not isinstance(value, Refusal)}
        return {
            "ratios": {k: round(v.median if isinstance(v, Spread) else v, 4) for k, v in named.items()},
            "figures": self.figures,
            "machine": {**self.machine, "load_at_end": round(os.getloadavg()[0], 2)},
            "spread": {name: {**asdict(value), "undecided": value.undecided} for name, value in spread.items()},
            "refused": {name: value.why for name, value in lines.items() if isinstance(value, Refusal)},
            "limits": self.limits,
            "by_wall": list(self.by_wall),
            "packages": versions(*dict.fromkeys((*CORE_PACKAGES, *self.peers))),
            "code": asdict(state(self.measures)),
            "date": datetime.now(UTC).date().isoformat(),
        }

    def finish(self, options: argparse.Namespace) -> None:
        """Print the ratios beside the stored baseline, store them if asked, with the table of docs/performance.md, and
        end with the JSON line if asked.
        """
        from table import main as write_table  # which imports this module

        path = BASELINES / f"{self.name}{'.quick' if options.quick else ''}.json"
        stored = json.loads(path.read_text())["ratios"] if path.is_file() else {}
        for name, value in self.lines().items():
            print(f"{name}: {_sentence(value)}" + (f"; baseline {stored[name]:.3g}" if name in stored else ""))
        if options.save_baseline and self.ratios and all(isinstance(v, Refusal) for v in self.lines().values()):
            print("nothing stored: every ratio was refused", file=sys.stderr)
        elif options.save_baseline:
            BASELINES.mkdir(exist_ok=True)
            path.write_text(json.dumps(self.to_dict(), indent=2) + "\n")
            write_table()
            print(f"stored {path.relative_to(BASELINES.parent)}", file=sys.stderr)
        if options.json:
            print(json.dumps(self.to_dict()))


def _sentence(value: Spread | Refusal | float) -> str:
    if isinstance(value, Refusal):
        return f"no ratio: {value.why}"
    if isinstance(value, Spread):
        return f"{value}{': undecided, 1 lies within' if value.undecided else ''}"
    return f"{value:.3g}"
