"""`assay plan` beside what training really takes: planned peak bytes and the growth of resident memory, cell by cell.

Each cell is a training of SmolLM2-135M on the processor in a process of its own, of as many steps as show its peak
(the optimiser has its state from the second on), with the rows and the settings that were planned. Growth is the
process's highest resident memory less that before loading. It is measured with a malloc that gives freed blocks back
(`measured`) and, without `--quick`, with glibc's defaults, whose heap keeps more. Where an optimiser is on the host,
the processor's memory has both: bfloat16 weights, and float32 weights and moments. No peer: the ratio is plan /
measured; docs/plan.md claims that it is within 15 % of 1 where blocks are given back.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure import Report, arguments, run_child

MEASURES = (
    "platform/assay/planning",
    "rm_training/assay_rm_training/plan.py",
    "policy_training/assay_policy_training/training/plan.py",
    "rm_training/assay_rm_training/training",
    "platform/assay/models/offloaded.py",
    "platform/assay/models/four_bit.py",
)

#: method, settings of the training, tokens of prompts and of responses
CELLS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "bt-full": ("bt", {"micro_batch_tokens": 700, "batch_size": 4}, 64, 128),
    "bt-lora": ("bt", {"micro_batch_tokens": 700, "batch_size": 4, "lora": 16}, 64, 128),
    "grpo": ("grpo", {"micro_batch_rows": 4}, 64, 96),
    "bt-checkpointing": ("bt", {"micro_batch_tokens": 1400, "batch_size": 4, "gradient_checkpointing": True}, 64, 256),
    "bt-long": ("bt", {"micro_batch_tokens": 2048, "batch_size": 1}, 256, 640),
    "bt-8bit": ("bt", {"micro_batch_tokens": 700, "batch_size": 4, "optimizer": "adamw_8bit"}, 64, 128),
    "bt-offloaded": (
        "bt",
        {"micro_batch_tokens": 700, "batch_size": 4, "optimizer": "adamw_offloaded", "dtype": "bfloat16"},
        64,
        128,
    ),
    "bt-4bit": ("bt", {"micro_batch_tokens": 1400, "batch_size": 4, "lora": 16, "base_weights": "4bit"}, 64, 256),
    "dpo-full": ("dpo", {"micro_batch_tokens": 512, "batch_size": 2}, 64, 96),
}
QUICK = ("bt-lora", "grpo", "bt-offloaded")
#: glibc gives a freed block back at once where it is as large as this; else it keeps many, in holes of its heap.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "131072"}
WAYS: dict[str, dict[str, str]] = {"plan": {}, "measured": RETURNED, "glibc's heap": {}}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--cells", nargs="*", help=f"of {', '.join(CELLS)}")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--child", nargs=2, metavar=("CELL", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        cell, way = options.child
        print(json.dumps({"MiB": (planned if way == "plan" else resident_before)(options.model, cell) / 2**20}))
        return
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    for cell in options.cells or (QUICK if options.quick else CELLS):
        sizes = {}
        for way in list(WAYS)[: 2 if options.quick else 3]:
            words = [sys.executable, __file__, "--model", options.model, "--child", cell, way]
            child = run_child(words, timeout=1200, environment=WAYS[way])
            own = child.last_object()["MiB"]
            sizes[way] = own if way == "plan" else child.peak_mb - own
        ratios |= {f"{cell}, {way}": sizes["plan"] / size for way, size in sizes.items() if way != "plan"}
        figures |= {f"{cell} {way}, MiB": round(size) for way, size in sizes.items()}
        print(cell, *(f"{way} {size:.0f} MiB" for way, size in sizes.items()), flush=True)
    Report("plan_accuracy", dict(ratios), figures, measures=MEASURES).finish(options)


def training(model: str, cell: str) -> Any:
    """What is planned."""
    from assay.planning.cards import this_processor
    from assay.planning.request import PlanRequest
    from assay_policy_training.recipe.loading import load_recipe
    from assay_policy_training.trainer import new_plan
    from assay_policy_training.training.config import PolicyRunConfig
    from assay_policy_training.training.plan import PlannedPolicy
    from assay_rm_training.methods.method import method_of
    from assay_rm_training.plan import PlannedRewardModel
    from assay_rm_training.training_config import LoraConfig, TrainingConfig

    name, settings, prompt, response = CELLS[cell]
    settings, card = dict(settings), this_processor()
    request = PlanRequest(prompt_tokens=prompt, response_tokens=response)
    if name == "grpo":
        sizes = {"sampling.max_new_tokens": response, "sampling.group_size": 4, "sampling.prompts_per_step": 2}
        sizes |= {f"optimisation.{key}": value for key, value in settings.items()}
        recipe = load_recipe(name, [f"{key}={value}" for key, value in sizes.items()])
        return PlannedPolicy(new_plan(PolicyRunConfig(policy=model), recipe), model, card, request)
    lora = LoraConfig(settings.pop("lora")) if "lora" in settings else None
    config = TrainingConfig(base=model, lora=lora, device="cpu", **{"dtype": "float32", **settings})
    return PlannedRewardModel(method_of({"name": name}), config, card, request, None)


def planned(model: str, cell: str) -> int:
    of_cell = training(model, cell)
    measured = of_cell.measure(of_cell.sizes[1])
    return int(max(measured.cost.bytes, *(part.bytes for part in measured.other_parts), 0))


def resident_before(model: str, cell: str) -> int:
    """Trains, after the tiny model, by which all libraries are loaded; the bytes that were resident between them."""
    train("tiny", cell)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    train(model, cell)
    return before


def train(model: str, cell: str) -> None:
    """Two steps of the training itself."""
    of_cell = training(model, cell)
    if CELLS[cell][0] == "grpo":
        from assay_policy_training.trainer import PolicyTrainer

        recipe = replace(of_cell.recipe, steps=2)
        with tempfile.TemporaryDirectory() as folder:
            words: dict[str, Any] = {
                "prompts": [{"prompt": " the" * 48}] * 4,
                "workspace": folder,
                "policy": model,
                "device": "cpu",
            }
            trainer = PolicyTrainer.from_recipe("grpo", reward=parity_of_length, **words)
            trainer.plan = replace(trainer.plan, recipe=recipe)
            trainer.train()
        return
    import torch

    from assay.models.chat.renderer import Renderer
    from assay_rm_training.methods.method import PreparesData
    from assay_rm_training.plan import made_up
    from assay_rm_training.training.loop import train as loop

    method, config = of_cell.method, of_cell.config
    trainable = method.load(config, torch.device("cpu"))
    renderer = Renderer(trainable.tokenizer, max_length=4096)
    data = method.encode(made_up(method, renderer, of_cell.request)[: 2 * config.batch_size], renderer)
    if isinstance(method, PreparesData):
        data, _ = method.prepare(trainable, config, data, None)
    with tempfile.TemporaryDirectory() as folder:
        loop(trainable, method.task(trainable, config), data, config, Path(folder))


def parity_of_length(response: str) -> float:
    return float(len(response) % 2)


if __name__ == "__main__":
    main()
