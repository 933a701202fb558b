"""Training a reward model: Assay beside TRL's RewardTrainer, on the same real HH pairs, in the same run.

Both fine-tune the whole model with fused AdamW at the same batch size, epochs, length and precision (float32 weights;
bfloat16 products where the processor has them), and get the same token ids. Each training is a process of its own;
its costs are those of the loop, without loading and encoding. Ratios are of pairs a second, ours to the peer's, and of
peak memory, the peer's to ours. With --quick there are two steps of 4 pairs, the second with the optimiser's state.

TRL needs an environment of its own (pip install trl==1.16.0): --trl-python PATH or $ASSAY_TRL_PYTHON. It runs in the
best of its own settings that were found (--tune tries them again): which rows a forward pass, lengths grouped or not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hh_pairs import hh_pairs
from measure import ChildResult, Cost, Report, Spread, arguments, compare, ratio, run_child, versions

MEASURES = (
    "rm_training/assay_rm_training/training",
    "rm_training/assay_rm_training/methods",
    "rm_training/assay_rm_training/data",
    "platform/assay/models",
)

HERE = Path(__file__).resolve().parent
#: Dense bfloat16 TFLOP/s of cards, by a part of their name (the makers' data sheets).
PEAK_TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "RTX 4090": 165, "A10": 125}
#: Rows (pairs) of one forward pass and sampling, as TRL names it.
TUNED = {"rows": 2, "sampling": "group_by_length"}
TO_TUNE = [{"rows": rows, "sampling": how} for rows in (1, 2, 4, 8, 16) for how in ("random", "group_by_length")]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--trl-python", default=os.environ.get("ASSAY_TRL_PYTHON"), help="Python that has TRL")
    parser.add_argument("--model", default="smollm2", help="base model: smollm2, tiny, a folder or a hub id")
    parser.add_argument("--pairs", type=int, default=None, help="pairs of one training (default: 64; quick: 8)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds (default: 3)")
    parser.add_argument("--batch-size", type=int, default=None, help="pairs of one step (default: 16; quick: 4)")
    # Where others use the cores too, waiting threads spin and CPU seconds say nothing.
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--peak-tflops", type=float, default=None, help="of the card, where its name is not known here")
    parser.add_argument("--tune", action="store_true", help="measure TRL's settings instead, once each")
    parser.add_argument("--ours", metavar="SETTINGS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        train_ours(Path(options.ours))
        return
    if not options.trl_python:
        sys.exit("no TRL: make an environment with trl and name its Python by --trl-python or ASSAY_TRL_PYTHON")
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch))


def run(options: argparse.Namespace, scratch: Path) -> None:
    number, batch = (8, 4) if options.quick else (64, 16)
    options.batch_size = options.batch_size or batch
    run_settings = settings(options, options.pairs or number, scratch)
    results: dict[str, list[ChildResult]] = {"assay": [], "TRL": []}

    def contender(name: str, peer: dict[str, Any] | None = None) -> Cost:
        path = scratch / "settings.json"
        path.write_text(json.dumps({**run_settings, "peer": peer or TUNED}), encoding="utf-8")
        python = [sys.executable, HERE / "rm_training.py", "--ours"]
        command = python if name == "assay" else [options.trl_python, HERE / "trl_reward.py"]
        threads = {"OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "false"}
        child = run_child([*command, path], timeout=3600, environment=threads)
        results[name].append(child)
        row = child.last_object()
        cost = Cost(row["seconds"], row["cpu_s"], row["pairs"])
        print(f"{name}: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} CPU s, {child.peak_mb:.0f} MB {peer or ''}", flush=True)
        return cost

    if options.tune:
        best = min(TO_TUNE, key=lambda peer: contender("TRL", peer).cpu_s)
        print(f"best: {best}")
        return
    contenders = {"assay": lambda: contender("assay"), "TRL": lambda: contender("TRL")}
    rounds = compare(contenders, options, rounds=options.rounds or 3)
    report = Report("rm_training", measures=MEASURES)
    report.ratios["assay / TRL RewardTrainer"] = rounds.ratio("assay", "TRL")
    peaks = {name: [child.peak_mb for child in runs] for name, runs in results.items()}
    report.ratios["peak memory, TRL / assay"] = ratio(peaks["TRL"], peaks["assay"])
    report.limits["peak memory, TRL / assay"] = 1.0
    report.figures = figures(options, run_settings, results)
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def settings(options: argparse.Namespace, number: int, scratch: Path) -> dict[str, Any]:
    """What both train on and how, JSON-ready; `pairs` are token ids of (chosen, rejected)."""
    import torch

    from assay.models.chat.renderer import Renderer
    from assay.models.devices import pick_device, pick_dtype
    from assay.models.loading import load_tokenizer, resolve_model
    from assay_rm_training.data.pair_dataset import encode_pairs

    max_length = 1024
    data = encode_pairs(hh_pairs(number), Renderer(load_tokenizer(options.model), max_length=max_length))
    dtype = pick_dtype(pick_device(), options.precision)
    return {
        "model": resolve_model(options.model),
        "pairs": [(item.chosen.tolist(), item.rejected.tolist()) for item in data.items],
        "batch_size": options.batch_size,
        "epochs": 1,
        "max_length": max_length,
        "lr": 1e-5,
        "bfloat16": dtype == torch.bfloat16,
        "threads": options.threads,
        "seed": 0,
        "folder": str(scratch / "out"),
    }


def figures(
    options: argparse.Namespace, run_settings: dict[str, Any], results: dict[str, list[ChildResult]]
) -> dict[str, Any]:
    """Rates, memory, and where the gain comes from."""
    from assay.models.attention.packing import group_of

    tokens = sum(len(side) for pair in run_settings["pairs"] for side in pair)
    shared = tokens - sum(group_of(pair).computed for pair in run_settings["pairs"])
    rows = {name: [result.last_object() for result in runs] for name, runs in results.items()}
    first = {name: runs[0] for name, runs in rows.items()}
    summary: dict[str, Any] = {
        "pairs": len(run_settings["pairs"]),
        "batch_size": run_settings["batch_size"],
        "precision": "bfloat16 products, float32 weights" if run_settings["bfloat16"] else "float32",
        "tokens_a_side": round(tokens / 2 / len(run_settings["pairs"]), 1),
        "pairs_per_s": {name: _rate(runs, len(run_settings["pairs"])) for name, runs in rows.items()},
        "tokens_per_s": {name: _rate(runs, tokens) for name, runs in rows.items()},
        "cpu_s_per_pair": {
            name: round(min(row["cpu_s"] for row in runs) / len(run_settings["pairs"]), 3)
            for name, runs in rows.items()
        },
        "peak_mb": {name: round(max(result.peak_mb for result in runs)) for name, runs in results.items()},
        "padded_share": {
            "assay": round(first["assay"]["padding"] / first["assay"]["computed"], 3),
            "TRL": round(1 - tokens / first["TRL"]["computed"], 3),
        },
        "shared_prefix_share": round(shared / tokens, 3),
        "positions_computed": {name: row["computed"] for name, row in first.items()},
        "losses": {name: row["losses"] for name, row in first.items()},
        "peer": TUNED,
        "versions": {"trl": first["TRL"]["version"], **versions("torch", "transformers")},
        "threads": options.threads,
    }
    if card := first["assay"].get("card"):
        peak = options.peak_tflops or next((v for name, v in PEAK_TFLOPS.items() if name in card), None)
        summary["card"] = card
        summary["device_memory_mb"] = {name: row["device_memory_mb"] for name, row in first.items()}
        if peak:
            parameters = first["assay"]["parameters"]
            summary["mfu"] = {
                # 6 operations a weight and position (forward 2, backward 4); padding is not work done.
                name: round(
                    6
                    * parameters
                    * (row["computed"] - row.get("padding", row["computed"] - tokens))
                    / row["seconds"]
                    / (peak * 1e12),
                    4,
                )
                for name, row in first.items()
            }
    else:
        summary["card"] = "none at hand: measured on the CPU"
    return summary


def _rate(rows: list[dict[str, Any]], amount: int) -> str:
    return str(Spread.of([amount / row["seconds"] for row in rows]))


def train_ours(path: Path) -> None:
    """One training by Assay's loop on the settings' token ids; its figures as the last line."""
    import time

    import numpy as np
    import torch

    from assay.models.attention.packing import common_prefix
    from assay.models.devices import pick_device
    from assay.runs.json_log import read_metrics
    from assay_rm_training.data.encoded_dataset import EncodedDataset
    from assay_rm_training.data.pair_dataset import EncodedPair
    from assay_rm_training.methods.bradley_terry import BradleyTerry
    from assay_rm_training.training.loop import train
    from assay_rm_training.training_config import TrainingConfig

    run_settings = json.loads(path.read_text(encoding="utf-8"))
    torch.set_num_threads(run_settings["threads"])
    device = pick_device()
    config = TrainingConfig(
        base=run_settings["model"],
        lr=run_settings["lr"],
        head_lr=run_settings["lr"],
        batch_size=run_settings["batch_size"],
        epochs=run_settings["epochs"],
        schedule="constant",
        warmup_ratio=0.0,
        max_length=run_settings["max_length"],
        dtype="bfloat16" if run_settings["bfloat16"] else "float32",
        seed=run_settings["seed"],
        save_every=0,
    )
    method = BradleyTerry()
    trainable = method.load(config, device)
    items = []
    for chosen, rejected in run_settings["pairs"]:
        sides = [np.asarray(side, dtype=np.int32) for side in (chosen, rejected)]
        items.append(EncodedPair(sides[0], sides[1], 0.0, 1.0, common_prefix(sides)))
    data = EncodedDataset(items, {}, 0, digest="benchmark")
    folder = path.parent / "ours"
    folder.mkdir(exist_ok=True)
    began = time.process_time()
    summary = train(trainable, method.task(trainable, config), data, config, folder)
    cpu_s = time.process_time() - began
    losses = [row["loss"] for row in read_metrics(folder) if row["kind"] == "train"]
    weights = sum(p.numel() for name, p in trainable.model.named_parameters() if "embed" not in name)
    print(
        json.dumps(
            {
                "seconds": summary.seconds,
                "cpu_s": cpu_s,
                "pairs": summary.items,
                "computed": summary.computed_tokens,
                "padding": round(summary.padded_share * summary.computed_tokens),
                "losses": [losses[0], losses[-1]],
                "parameters": weights,
                "card": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
                "device_memory_mb": torch.cuda.max_memory_allocated() / 1e6 if device.type == "cuda" else None,
            }
        )
    )


if __name__ == "__main__":
    main()
