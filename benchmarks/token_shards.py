"""Host memory and CPU of encoded reward-model data: mapped arrays against lists that every process holds.

The peer is how Assay kept them before: rows and items as Python objects in the first process, and pickled to the
others. A process each reads and encodes a file of synthetic pairs, and makes the batches of an epoch from what it was
sent, both ways. A token is a byte: CPU seconds are of all but the tokenizer, which is the same for both. Memory is the
growth of anonymous resident memory (the kernel's RssAnon) after the imports: pages of mapped files are the page
cache's, shared by all processes, and go when memory is short.

    python benchmarks/token_shards.py --pairs 20000,200000 --json
"""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from measure import Report, Spread, arguments, interleaved, ratio, run_child

MEASURES = ("rm_training/assay_rm_training/data",)

NAME = "token_shards"


def anonymous_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("RssAnon:"))


def encode(folder: Path, kind: str) -> dict[str, float]:
    """What the first process does."""
    from assay.data.pairs import open_pairs, read_pair_file
    from assay.domain import PreferencePair
    from assay_rm_training.data.encoded_dataset import tags_of
    from assay_rm_training.data.pair_dataset import EncodedPair
    from assay_rm_training.data.response_groups import encode_rows
    from assay_rm_training.data.token_shards import write_items

    def of_bytes(row: PreferencePair) -> tuple[EncodedPair, bool]:
        sides = (f"{row.prompt[0].content}{side}".encode() for side in (row.chosen, row.rejected))
        chosen, rejected = (np.frombuffer(side, np.uint8).astype(np.int32) for side in sides)
        prompt = len(row.prompt[0].content)
        return EncodedPair(chosen, rejected, 0.0, 1.0, prompt, starts=(prompt, prompt), tags=tags_of(row)), False

    before, started = anonymous_mb(), time.process_time()
    rows = open_pairs(None, folder / "pairs.jsonl") if kind == "mapped" else read_pair_file(folder / "pairs.jsonl")
    collect = partial(write_items, folder / "items") if kind == "mapped" else list
    data = encode_rows(rows, of_bytes, unit="pairs", collect=collect)
    seconds, growth = time.process_time() - started, anonymous_mb() - before
    with (folder / f"{kind}.pickle").open("wb") as file:
        pickle.dump(data, file)
    return {"mb": growth, "us_a_pair": seconds / len(data) * 1e6}


def train(folder: Path, kind: str) -> dict[str, float]:
    """What another process does, without the model: one epoch's batches."""
    importlib.import_module("assay_rm_training.data.pair_dataset")  # what is unpickled
    from assay_rm_training.training.batch_order import StepPlan
    from assay_rm_training.training_config import TrainingConfig

    before = anonymous_mb()
    with (folder / f"{kind}.pickle").open("rb") as file:
        data = pickle.load(file)
    plan, started = StepPlan(len(data), TrainingConfig("tiny", batch_size=64, epochs=1)), time.process_time()
    for step in range(1, plan.total + 1):
        [data.items[number].group for number in plan.batch(step)]
    seconds = time.process_time() - started
    return {"mb": anonymous_mb() - before, "us_a_pair": seconds / len(data) * 1e6}


def measured(folder: Path, phase: str, kind: str) -> dict[str, float]:
    return run_child([sys.executable, __file__, "--child", phase, kind, folder], timeout=3600).last_object()


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        _, _, phase, kind, path = sys.argv
        print(json.dumps((encode if phase == "encode" else train)(Path(path), kind)))
        return
    parser = arguments("Memory of encoded pairs, mapped and as lists.")
    parser.add_argument("--pairs", default="20000,200000", help="sizes")
    options = parser.parse_args()
    report = Report(NAME, measures=MEASURES)
    sizes = [5000] if options.quick else [int(size) for size in options.pairs.split(",")]
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with (folder / "pairs.jsonl").open("w") as file:
                for n in range(size):
                    row = {"prompt": f"question {n}", "chosen": f"good {n} " * 4, "rejected": f"bad {n} " * 4}
                    file.write(json.dumps(row) + "\n")
            figures: dict[str, dict[str, list[dict[str, float]]]] = {}
            for left, phase in ((2, "encode"), (1, "train")):
                turns = {kind: partial(measured, folder, phase, kind) for kind in ("lists", "mapped")}
                figures[phase] = interleaved(turns, 3, options, parts_left=left)
        titles = {"encode": "memory of the first", "train": "memory of another process"}
        for phase, by_kind in figures.items():
            mb = {kind: [each["mb"] for each in rounds] for kind, rounds in by_kind.items()}
            report.ratios[f"{titles[phase]}, lists / mapped, {size} pairs"] = ratio(mb["lists"], mb["mapped"])
            for kind, rounds in by_kind.items():
                spread = {key: str(Spread.of([each[key] for each in rounds])) for key in rounds[0]}
                report.figures[f"{size} pairs, {phase}, {kind}"] = spread
                print(size, phase, kind, json.dumps(spread), flush=True)
    report.finish(options)


if __name__ == "__main__":
    main()
