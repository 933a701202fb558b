"""What is a label worth when a policy is trained against a reward model that learns? Gold reward by labels bought.

The experiment of docs/policy-training/gold-per-label.md, cell by cell. A cell is an arm, a budget of labels, a share of
wrong labels and a seed: one training of a policy on prompts that state constraints a program checks. The program is
the gold: it labels pairs where a label is bought, and is what is reported; only the arm `rlvr` trains on it. A finished
cell is one line of --cells and is not run again, so that the grid can be run over days, by several processes.

    python benchmarks/gold_per_label.py                          # tiny, 3 seeds: 45 cells of half a minute
    python benchmarks/gold_per_label.py --policy smollm2         # about ten core minutes a cell without a GPU
    python benchmarks/gold_per_label.py --report --plot docs/policy-training/gold-per-label.svg
    python benchmarks/gold_per_label.py --full --jobs 8          # 11 arms, 5 budgets, 2 shares of wrong labels, 8 seeds
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from measure import BASELINES, Report, arguments, picture

MEASURES = (
    "pipelines/assay_pipelines/online",
    "policy_training/assay_policy_training/training",
)

FIRST = 64  #: labels on responses of the untrained policy that every arm but `rlvr` begins with
PURCHASES = 10  #: of an arm that buys during training
COLLAPSE = 0.10  #: by how much the held-out pass rate lies below the base's
WITHIN = 0.05  #: of the ceiling: the target
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}
CEILING = "rlvr"
CURVES = (
    *("reward_mean", "held_out_reward_mean", "held_out_reward_std", "held_out_rows", "kl_k3", "length_mean", "entropy"),
    *("labels_spent", "ensemble_spread", "ensemble_agreement", "verifier_pass_rate", "repeated_trigrams"),
)


@dataclass(frozen=True)
class Arm:
    """`selector`: None buys everything before training; `diverse`: of what it picks, no two pairs alike. `combine`,
    `recipe`, `set`: see `assay loop`."""

    selector: str | None = None
    diverse: bool = False
    combine: str = "mean"
    recipe: str = "dr_grpo"
    set: Mapping[str, Any] | None = None
    budgets: tuple[int, ...] = (50, 200)


KL = {"kl.coefficient": 0.05}
ARMS: dict[str, Arm] = {
    "static": Arm(budgets=(0, 50, 200)),
    "static + KL": Arm(set=KL, budgets=(0, 50, 200)),
    "random": Arm("random"),
    "disagreement": Arm("disagreement"),
    "diverse disagreement": Arm("disagreement", diverse=True),
    "posterior": Arm("posterior"),
    CEILING: Arm(budgets=(0,)),
}
MORE_BUDGETS = (25, 50, 100, 200, 800)
MORE_ARMS: dict[str, Arm] = {
    "static + PAR": Arm(set={"shaping": [{"kind": "par", "references": "group"}]}, budgets=(0,)),
    "static, uncertainty-weighted": Arm(combine="uwo", budgets=(0,)),
    "margin": Arm("margin"),
    "information gain": Arm("information_gain"),
    "online DPO": Arm("random", recipe="online_dpo"),
}


@dataclass(frozen=True)
class Scale:
    """What differs between policies. `kinds`: of the constraints; None: all that the generator has."""

    lr: float
    prompts: int
    group: int
    kinds: tuple[str, ...] | None = None


SCALES = {
    "smollm2": Scale(4e-5, 3, 6),
    "tiny": Scale(3e-3, 8, 6, ("all_lowercase", "contains_number", "no_commas", "min_words", "max_words")),
}


@dataclass(frozen=True, order=True)
class Key:
    """`labels`: bought beside the first ones. `wrong`: share of labels that are flipped."""

    seed: int
    labels: int
    arm: str
    wrong: float = 0.0


def grid(full: bool, seeds: int) -> list[Key]:
    """Seeds outermost, so that a grid cut short holds whole seeds."""
    arms = ARMS | MORE_ARMS if full else ARMS
    keys = []
    for wrong, seed in itertools.product((0.0, 0.25) if full else (0.0,), range(seeds)):
        for name, arm in arms.items():
            budgets = MORE_BUDGETS if full and arm.selector else arm.budgets
            if name != CEILING or not wrong:
                keys += [Key(seed, labels, name, wrong) for labels in budgets]
    return keys


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--cells", type=Path, default=BASELINES / "gold_per_label.tiny.jsonl")
    parser.add_argument("--report", action="store_true", help="of what is in --cells; runs nothing")
    parser.add_argument("--full", action="store_true", help="every arm, budget and share of wrong labels, 8 seeds")
    parser.add_argument("--only", nargs="*", default=None, metavar="ARM", help="these arms")
    parser.add_argument("--seeds", type=int, default=None, help="default: 3; --full: 8; --quick: 1")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, each in a process of its own")
    parser.add_argument("--policy", default="tiny", choices=SCALES)
    parser.add_argument("--steps", type=int, default=None, help="default: 40; --quick: 4")
    parser.add_argument("--lr", type=float, default=None, help="default: the scale's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16, where the processor has them")
    parser.add_argument("--minutes", type=float, default=None, help="begin no cell after so many")
    parser.add_argument("--plot", type=picture, default=None, help="draw the figures (needs matplotlib)")
    options = parser.parse_args()
    options.seeds = options.seeds or (1 if options.quick else 8 if options.full else 3)
    options.steps = options.steps or (4 if options.quick else 40)
    options.lr = options.lr or SCALES[options.policy].lr
    if options.quick:
        options.cells = Path(tempfile.mkdtemp()) / "cells.jsonl"
    keys = [key for key in grid(options.full, options.seeds) if options.only is None or key.arm in options.only]
    if not options.report:
        run(options, keys)
    report = Report("gold_per_label", measures=MEASURES)
    cells = [cell for cell in done(options) if Key(**cell["key"]) in set(keys)]
    figures(report, cells, len(keys))
    if options.plot:
        draw(cells, options.plot)
    report.finish(options)


def same_for_all(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of a cell that its key does not have."""
    return {name: getattr(options, name) for name in ("policy", "steps", "lr", "autocast")}


def done(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The finished cells of these settings; a line cut off by a kill is none."""
    cells = []
    for line in options.cells.read_text(encoding="utf-8").splitlines() if options.cells.exists() else ():
        try:
            cells.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [cell for cell in cells if cell["settings"] == same_for_all(options)]


def run(options: argparse.Namespace, keys: Sequence[Key]) -> None:
    """What is missing, each cell appended as it ends."""
    finished = {Key(**cell["key"]) for cell in done(options)}
    missing = [key for key in keys if key not in finished]
    began = time.monotonic()
    options.cells.parent.mkdir(parents=True, exist_ok=True)

    def late() -> bool:
        return options.minutes is not None and time.monotonic() - began > 60 * options.minutes

    def keep(cell: dict[str, Any]) -> None:
        with options.cells.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(cell) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        print(f"{len(done(options))} of {len(keys)}: {summary(cell)}", file=sys.stderr, flush=True)

    if options.jobs == 1:
        for key in itertools.takewhile(lambda _: not late(), missing):
            keep(train(options, key))
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = iter(missing)
        running = {pool.submit(train, options, key) for key in itertools.islice(waiting, options.jobs)}
        while running:
            ended = next(as_completed(running))
            running.discard(ended)
            if (error := ended.exception()) is not None:
                print(f"a cell failed, and is tried again by the next call: {error}", file=sys.stderr, flush=True)
            else:
                keep(ended.result())
            running |= {pool.submit(train, options, key) for key in itertools.islice(waiting, 0 if late() else 1)}


def summary(cell: Mapping[str, Any]) -> str:
    key = Key(**cell["key"])
    return (
        f"{key.arm}, {key.labels} labels, seed {key.seed}: pass rate {cell['before']['pass']:.3f} -> "
        f"{cell['after']['pass']:.3f}, {cell['seconds']:.0f} s"
    )


def train(options: argparse.Namespace, key: Key) -> dict[str, Any]:
    """One cell: a training in a workspace of its own, its held-out figures before and after, its curves."""
    from assay.workspace import Workspace
    from assay_pipelines.online.config import loop_of
    from assay_pipelines.online.run import run_loop
    from assay_policy_training.trainer import PolicyTrainer

    arm, scale, began = (ARMS | MORE_ARMS)[key.arm], SCALES[options.policy], time.perf_counter()
    settings: dict[str, Any] = {
        "seed": key.seed,
        "steps": options.steps,
        "checkpoint_every": 0,
        "report_kl": True,
        "optimisation.lr": options.lr,
        "optimisation.micro_batch_rows": scale.prompts * scale.group,
        "optimisation.autocast": options.autocast,
        "sampling.prompts_per_step": scale.prompts,
        "sampling.group_size": scale.group,
        "sampling.max_new_tokens": 24,
        **(arm.set or {}),
    }
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Workspace.create(Path(scratch) / "workspace")
        held_out_prompts = 8 if options.quick else 48
        of_run: dict[str, Any] = {
            "prompts": [prompts_file(Path(scratch) / "train.jsonl", 512, key.seed, scale, "train")],
            "evaluation_prompts": [
                prompts_file(Path(scratch) / "test.jsonl", held_out_prompts, 1000, scale, "heldout")
            ],
            "watch": ["verifier"],
            "watch_share": 1.0,
            "evaluate": held_out_prompts,
            "device": options.device,
        }
        if key.arm == CEILING:
            of_run["prompts"], of_run["eval_prompts"] = of_run["prompts"][0], of_run.pop("evaluation_prompts")[0]
            run_settings = {name: value for name, value in settings.items() if name not in ("seed", "steps")}
            trainer = PolicyTrainer.from_recipe(
                arm.recipe,
                reward="verifier",
                policy=options.policy,
                workspace=workspace,
                settings=run_settings,
                seed=key.seed,
                steps=options.steps,
                **of_run,
            )
            trained = trainer.train()
        else:
            during = key.labels if arm.selector else 0
            selector: dict[str, Any] = {"kind": arm.selector or "random"}
            if arm.diverse:
                selector = {"kind": "diversity", "selector": arm.selector}
            source = {"kind": "simulated", "accuracy": 1 - key.wrong} if key.wrong else {"kind": "verifier"}
            config = loop_of(
                {
                    "name": "cell",
                    "policy": options.policy,
                    "recipe": arm.recipe,
                    "set": settings,
                    "training": of_run,
                    "reward": {
                        "labels": FIRST + key.labels - during,
                        "members": 8,
                        "uncertainty": "bootstrap",
                        "combine": arm.combine,
                    },
                    "labels": {
                        "selector": selector,
                        "source": source,
                        "every": max(1, options.steps // PURCHASES),
                        "count": max(1, during // PURCHASES),
                        "held_out": 0.0,
                    },
                    "budget": {"labels": FIRST + key.labels},
                    "alarm": {"action": "ignore"},
                }
            )
            trained = run_loop(workspace, config)
    assert trained.before is not None
    assert trained.after is not None
    rows = trained.steps
    return {
        "key": asdict(key),
        "before": held_out(trained.before),
        "after": held_out(trained.after),
        "curves": {name: [_rounded(row.get(name)) for row in rows] for name in CURVES if name in rows[-1]},
        "settings": same_for_all(options),
        "labels": (rows[-1].get("labels_spent") or 0.0) if key.arm != CEILING else None,
        "seconds": round(time.perf_counter() - began, 1),
    }


def prompts_file(path: Path, n: int, seed: int, scale: Scale, split: Any) -> str:
    from assay_policy_training.plugins.prompts.constrained import generate_prompts

    rows = [
        {"prompt": [message.to_dict() for message in each.prompt], **each.to_meta()}
        for each in generate_prompts(n, seed, kinds=scale.kinds, split=split)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def held_out(evaluation: Any) -> dict[str, Any]:
    """`pass`: share of responses that meet every constraint; by prompt as well."""
    return {
        "pass": evaluation.verifier.share,
        "by_prompt": [_rounded(value) for value in evaluation.prompt_pass_rates],
        "length": evaluation.length_mean,
        "kl": evaluation.kl_k3,
    }


def _rounded(value: Any) -> float | None:
    return round(float(value), 4) if isinstance(value, int | float) and np.isfinite(value) else None


def figures(report: Report, cells: Sequence[Mapping[str, Any]], wanted: int) -> None:
    """Means over seeds with Student's t; differences are of the same seed."""
    report.figures["cells"] = {"done": len(cells), "of": wanted}
    if not cells:
        return
    base = statistics.mean(cell["before"]["pass"] for cell in cells)
    report.figures["base"] = round(base, 4)
    groups = grouped(cells)
    for (arm, labels, wrong), of_seed in groups.items():
        after = {seed: cell["after"]["pass"] for seed, cell in of_seed.items()}
        figure: dict[str, Any] = {
            "seeds": len(after),
            "pass": interval(list(after.values())),
            "collapsed": sum(cell["after"]["pass"] < cell["before"]["pass"] - COLLAPSE for cell in of_seed.values()),
            "length": round(statistics.mean(cell["after"]["length"] for cell in of_seed.values()), 1),
        }
        ceiling = groups.get((CEILING, 0, 0.0), {})
        if arm != CEILING and (same := sorted(after.keys() & ceiling.keys())):
            figure["less the ceiling"] = interval([after[s] - ceiling[s]["after"]["pass"] for s in same])
        report.figures[f"{arm}, {labels} labels" + (f", {wrong:.0%} wrong" if wrong else "")] = figure
        print(f"{arm:28} {labels:4d} labels  {wrong:4.0%} wrong  {figure}")
    for (arm, labels, wrong), of_seed in groups.items():
        for more in {other for name, other, share in groups if (name, share) == ("random", wrong) and other >= labels}:
            random = groups["random", more, wrong]
            same = sorted(of_seed.keys() & random.keys())
            if arm in (CEILING, "random") or not labels or not same:
                continue
            gaps = [of_seed[s]["after"]["pass"] - random[s]["after"]["pass"] for s in same]
            name = f"{arm} with {labels} less random with {more}" + (f", {wrong:.0%} wrong" if wrong else "")
            report.figures[name] = interval(gaps)
            print(f"{name}: {report.figures[name]}")


def grouped(cells: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int, float], dict[int, Mapping[str, Any]]]:
    """(arm, labels, wrong) -> seed -> cell, in the order of the arms."""
    order = [*ARMS, *MORE_ARMS]
    keyed = sorted(((Key(**cell["key"]), cell) for cell in cells), key=lambda each: (order.index(each[0].arm), each[0]))
    groups: dict[tuple[str, int, float], dict[int, Mapping[str, Any]]] = {}
    for key, cell in sorted(keyed, key=lambda each: (order.index(each[0].arm), each[0].wrong, each[0].labels)):
        groups.setdefault((key.arm, key.labels, key.wrong), {})[key.seed] = cell
    return groups


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean, and the 95 % interval over seeds where there are several."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return {"mean": round(mean, 4)}
    half = T95[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return {"mean": round(mean, 4), "interval": [round(mean - half, 4), round(mean + half, 4)]}


def _moving(values: Sequence[float | None], window: int = 5) -> Iterator[float]:
    for end in range(1, len(values) + 1):
        part = [value for value in values[max(0, end - window) : end] if value is not None]
        yield statistics.mean(part) if part else float("nan")


def draw(cells: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Held-out gold by labels, and the gold of rollouts by KL to the base."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (by_labels, by_kl) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    groups = grouped(cell for cell in cells if not cell["key"]["wrong"])
    arms = list(dict.fromkeys(arm for arm, _, _ in groups))
    for arm in arms:
        colour = f"C{arms.index(arm)}"
        points = {labels: of_seed for (name, labels, _), of_seed in groups.items() if name == arm}
        means = [statistics.mean(c["after"]["pass"] for c in of_seed.values()) for of_seed in points.values()]
        if arm == CEILING:
            by_labels.axhline(means[0], color=colour, linestyle="--", label=arm)
        else:
            by_labels.plot(list(points), means, color=colour, marker="o", markersize=3, label=arm)
            for labels, of_seed in points.items():
                values = [c["after"]["pass"] for c in of_seed.values()]
                by_labels.plot([labels] * len(values), values, ".", color=colour, markersize=2)
        for cell in points[max(points)].values():
            kl, gold = cell["curves"].get("kl_k3"), cell["curves"].get("held_out_reward_mean")
            if kl and gold:
                by_kl.plot(list(_moving(kl)), list(_moving(gold)), color=colour, linewidth=0.8)
    by_labels.axhline(statistics.mean(c["before"]["pass"] for c in cells), color="grey", linewidth=0.8, label="base")
    by_labels.set_xlabel(f"labels bought beside the first {FIRST}")
    by_labels.set_ylabel("held-out pass rate after training")
    by_labels.legend(frameon=False, fontsize=8)
    by_kl.set_xlabel("KL to the base a token (k3); most labels of each arm")
    by_kl.set_ylabel("constraints met in rollouts (mean of 5 steps)")
    by_kl.set_xscale("symlog", linthresh=0.01)
    for axes in (by_labels, by_kl):
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
