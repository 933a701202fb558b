"""Contenders on one GPU: each turn is a process of its own, so that it has the whole card; rates, MFU, memory, ratios.

Covers: the options that all scripts of this folder share, a contender's process (in the environment that it needs),
`--dry-run`, which runs the code of ours on the tiny model on a processor and names no ratio. Leaves out: what is
measured. A child reads settings, warms up, measures, and gives one row: `seconds`, `tokens` (or scores), `memory_mb`,
and `flops` where the model's share of the card's rate (MFU) is asked for.

Nothing here needs Assay: a peer's environment has none.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
#: Dense bfloat16 TFLOP/s of cards, by a part of their name (the makers' data sheets).
PEAK_TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "RTX 4090": 165, "A10": 125}
Row = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """`work`: from the settings to a row. `environment`: variable that names the Python it needs; None: this one."""

    work: Callable[[dict[str, Any]], Row]
    environment: str | None = None


def parser(doc: str | None) -> argparse.ArgumentParser:
    from measure import arguments

    options = arguments(doc or "")
    options.add_argument("--dry-run", action="store_true", help="our code on the tiny model, here and now, no ratio")
    options.add_argument("--model", default=None, help="folder or hub id of a language model; not with --dry-run")
    options.add_argument("--steps", type=int, default=None, help="measured, after one that is not (default: 10)")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--peak-tflops", type=float, default=None, help="of the card, where its name is not known here"
    )
    options.add_argument("--turn-timeout", type=float, default=3600, help="seconds of one turn")
    return options


def run(
    script: str,
    contenders: Mapping[str, Contender],
    options: argparse.ArgumentParser,
    settings_of: Callable[[argparse.Namespace], dict[str, Any]],
    measures: tuple[str, ...],
    arguments: list[str] | None = None,
) -> dict[str, list[Row]]:
    """The whole of a script; the first contender is ours. Returns each one's rows."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["--child"]:
        settings = json.loads(Path(words[2]).read_text())
        print(json.dumps(contenders[words[1]].work(settings)))
        return {}
    chosen = options.parse_args(words)
    if not chosen.dry_run and not (chosen.model and import_module("torch").cuda.is_available()):
        sys.exit("needs a GPU and --model; --dry-run runs our code without both")
    from measure import Cost, Report, Spread, compare, run_child

    settings = {"steps": 1 if chosen.dry_run else chosen.steps or 10, "dry_run": chosen.dry_run}
    settings |= settings_of(chosen)
    rows: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "settings.json"
        path.write_text(json.dumps({**settings, "folder": scratch}))

        def turn(name: str, python: str) -> Cost:
            if chosen.dry_run:
                row = contenders[name].work(json.loads(path.read_text()))
            else:
                child = run_child([python, script, "--child", name, path], timeout=chosen.turn_timeout)
                row = child.last_object()
            rows.setdefault(name, []).append(row)
            print(f"{name}: {described(row, chosen.peak_tflops)}", flush=True)
            return Cost(row["seconds"], row["cpu_s"], row["tokens"])

        turns: dict[str, Callable[[], Cost]] = {}
        for name, contender in contenders.items():
            python = os.environ.get(contender.environment) if contender.environment else sys.executable
            if python is None or (chosen.dry_run and contender.environment):
                print(f"{name}: skipped: {contender.environment} names no Python" if not python else f"{name}: dry run")
                continue

            turns[name] = partial(turn, name, python)
        if chosen.dry_run:
            for work in turns.values():
                work()
            return rows
        rounds = compare(turns, chosen, rounds=chosen.rounds)
    ours, *peers = turns
    report = Report(f"gpu_{Path(script).stem}", measures=measures)
    report.ratios = {f"{ours} / {peer}": rounds.ratio(ours, peer) for peer in peers}
    report.figures = {
        name: {"per_s": str(Spread.of([r["tokens"] / r["seconds"] for r in rs]))} for name, rs in rows.items()
    }
    report.figures |= {
        "rows": rows,
        "settings": {k: v for k, v in settings.items() if isinstance(v, (int, float, str))},
    }
    report.finish(chosen)
    return rows


def described(row: Row, peak_tflops: float | None) -> str:
    text = f"{row['tokens'] / row['seconds']:,.0f} a second, {row['memory_mb']:,.0f} MB"
    peak = peak_tflops or next((rate for name, rate in PEAK_TFLOPS.items() if name in str(row.get("card"))), None)
    if peak and row.get("flops"):
        row["mfu"] = row["flops"] / row["seconds"] / (peak * 1e12)
        text += f", {100 * row['mfu']:.1f} % of {peak:g} TFLOP/s"
    return text


class Clock:
    """Of what is measured: `started` after the warm-up, then `row`. The device has done all that it was given."""

    def __init__(self) -> None:
        self.torch = import_module("torch")
        self.cuda = self.torch.cuda.is_available()

    def start(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize()
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def row(self, tokens: float, **more: Any) -> Row:
        if self.cuda:
            self.torch.cuda.synchronize()
        row = {"seconds": time.perf_counter() - self.began, "cpu_s": time.process_time() - self.cpu, "tokens": tokens}
        row["memory_mb"] = self.torch.cuda.max_memory_allocated() / 1e6 if self.cuda else 0.0
        return {**row, "card": self.torch.cuda.get_device_name() if self.cuda else None, **more}


def token_rows(number: int, shortest: int, longest: int, vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Made-up token ids, their lengths spread evenly: what is timed does not depend on what they say."""
    import random

    draw = random.Random(seed)
    return [[draw.randrange(5, vocabulary) for _ in range(draw.randint(shortest, longest))] for _ in range(number)]


def weights_of(model: Any) -> int:
    """Numbers that take part in products: all but those of embeddings."""
    return sum(p.numel() for name, p in model.named_parameters() if "embed" not in name)
