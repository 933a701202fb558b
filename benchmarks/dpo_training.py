"""Direct preference optimisation: `assay train dpo` beside TRL's DPOTrainer, on the same real HH pairs, interleaved.

Both fine-tune the whole model (float32 weights; bfloat16 products where the processor has them) with fused AdamW at the
same batch size, length and rate, get the same token ids, and measure the reference's log-probabilities once before
training, which is part of the time. Each training is a process of its own; loading and encoding are not counted. Ratios
are of pairs a second, ours to TRL's, and of peak memory, TRL's to ours.

TRL is in the extra `bench`, or in another environment: --trl-python PATH. It runs a pair a forward pass;
--tune measures its other settings. padding_free is not available in TRL 1.16. --parity trains both in the same order,
with the same optimiser, and prints how far losses, margins and ranking accuracies are apart at the most.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

MEASURES = (
    "rm_training/assay_rm_training/preference",
    "rm_training/assay_rm_training/training",
    "rm_training/assay_rm_training/data",
    "platform/assay/models",
)

HERE = Path(__file__).resolve().parent
#: Pairs of one forward pass and the order of pairs, as TRL names it.
TUNED = {"rows": 1, "sampling": "random"}
#: More pairs a pass are padded to the longest: only together with pairs of their length.
TO_TUNE: list[dict[str, Any]] = [TUNED, *({"rows": rows, "sampling": "group_by_length"} for rows in (2, 4))]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        settings = json.loads(Path(sys.argv[3]).read_text(encoding="utf-8"))
        print(json.dumps({"assay": train_ours, "TRL": train_trl}[sys.argv[2]](settings)))
        return
    from measure import arguments

    parser = arguments(__doc__ or "")
    parser.add_argument("--trl-python", default=os.environ.get("ASSAY_TRL_PYTHON", sys.executable))
    parser.add_argument("--model", default="smollm2", help="base model: smollm2, tiny, a folder or a hub id")
    parser.add_argument("--pairs", type=int, default=None, help="pairs of one training (default: 32; quick: 6)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds (default: 3)")
    parser.add_argument("--batch-size", type=int, default=None, help="pairs of one step (default: 8; quick: 3)")
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto", help="of products")
    # Where others use the cores too, waiting threads spin: with 2, 3.5 times the CPU seconds were seen.
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tune", action="store_true", help="measure TRL's settings instead, once each")
    parser.add_argument("--parity", action="store_true", help="compare the curves of one training each instead")
    parser.add_argument("--lr", type=float, default=1e-6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(options, Path(scratch))


def run(options: argparse.Namespace, scratch: Path) -> None:
    from measure import ChildResult, Cost, Report, compare, ratio, run_child, versions

    number, batch = (6, 3) if options.quick else (32, 8)
    options.batch_size = options.batch_size or batch
    settings = training_settings(options, options.pairs or number, scratch)
    results: dict[str, list[ChildResult]] = {"assay": [], "TRL": []}

    def contender(name: str, peer: dict[str, Any] | None = None) -> Cost:
        path = scratch / "settings.json"
        path.write_text(json.dumps({**settings, "peer": peer or TUNED}), encoding="utf-8")
        python = sys.executable if name == "assay" else options.trl_python
        threads = {"OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "false"}
        child = run_child([python, HERE / "dpo_training.py", "--child", name, path], timeout=3600, environment=threads)
        results[name].append(child)
        row = child.last_object()
        parts = ", ".join(f"{part} {row[part]:.1f}" for part in ("seconds", "reference_s", "cpu_s"))
        print(f"{name}: {parts}, {child.peak_mb:.0f} MB {peer or ''}", flush=True)
        return Cost(row["seconds"], row["cpu_s"], len(settings["pairs"]))

    if options.parity:
        ours, theirs = both(settings)
        for name in ("losses", "margins", "accuracies"):
            differences = [abs(one - other) for one, other in zip(ours[name], theirs[name], strict=True)]
            print(f"{name}: {len(differences)} steps, {max(differences):.2g} apart at most, last {ours[name][-3:]}")
        return
    if options.tune:
        print(f"best: {min(TO_TUNE, key=lambda peer: contender('TRL', peer).cpu_s)}")
        return
    contenders = {"assay": lambda: contender("assay"), "TRL": lambda: contender("TRL")}
    rounds = compare(contenders, options, rounds=options.rounds or 3)
    rows = {name: [child.last_object() for child in children] for name, children in results.items()}
    report = Report("dpo_training", measures=MEASURES)
    report.ratios["assay / TRL DPOTrainer"] = rounds.ratio("assay", "TRL")
    peaks = {name: [child.peak_mb for child in children] for name, children in results.items()}
    report.ratios["peak memory, TRL / assay"] = ratio(peaks["TRL"], peaks["assay"])
    tokens = sum(len(side) for pair in settings["pairs"] for side in pair[:2])
    report.figures = {
        "pairs": len(settings["pairs"]),
        "batch_size": settings["batch_size"],
        "tokens": tokens,
        "precision": settings["precision"],
        "pairs_per_s": {name: str(rounds.per_second(name)) for name in contenders},
        "cpu_s": {name: [round(row["cpu_s"], 1) for row in of_one] for name, of_one in rows.items()},
        "reference_s": {name: [round(row["reference_s"], 1) for row in of_one] for name, of_one in rows.items()},
        "positions_computed": {name: of_one[0]["computed"] for name, of_one in rows.items()},
        "peak_mb": {name: round(max(child.peak_mb for child in children)) for name, children in results.items()},
        "losses": {name: of_one[0]["losses"] for name, of_one in rows.items()},
        "peer": TUNED,
        "versions": {"trl": rows["TRL"][0]["version"], **versions("torch", "transformers")},
        "threads": options.threads,
    }
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


def training_settings(options: argparse.Namespace, number: int, scratch: Path) -> dict[str, Any]:
    """What both train on and how, JSON-ready; `pairs`: token ids of chosen and rejected, where each response starts."""
    from assay.models.chat.renderer import Renderer
    from assay.models.devices import pick_device, pick_dtype
    from assay.models.loading import load_tokenizer, resolve_model
    from assay_rm_training.data.pair_dataset import encode_pairs
    from hh_pairs import hh_pairs

    data = encode_pairs(hh_pairs(number), Renderer(load_tokenizer(options.model), max_length=1024))
    return {
        "model": resolve_model(options.model),
        # TRL has one prompt a pair: not where it was cut for one side.
        "pairs": [
            (item.chosen.tolist(), item.rejected.tolist(), list(item.starts))
            for item in data.items
            if item.starts[0] == item.starts[1] <= item.common
        ],
        "batch_size": options.batch_size,
        "max_length": 1024,
        "lr": options.lr,
        "precision": str(pick_dtype(pick_device("cpu"), options.precision)).removeprefix("torch."),
        "betas": (0.9, 0.98),
        "eps": 1e-12,
        "beta": 0.1,
        "threads": options.threads,
        "folder": str(scratch / "out"),
    }


def both(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One training each, in our order of the pairs."""
    from assay_rm_training.training.batch_order import StepPlan
    from assay_rm_training.training_config import TrainingConfig

    pairs, size = settings["pairs"], settings["batch_size"]
    plan = StepPlan(len(pairs), TrainingConfig(settings["model"], batch_size=size))
    ordered = [pairs[index] for step in range(1, plan.total + 1) for index in plan.batch(step)]
    ours = train_ours(settings)
    return ours, train_trl(settings | {"pairs": ordered, "peer": {"rows": 1, "sampling": "sequential"}})


def train_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """One training by Assay's loop on the settings' token ids."""
    import numpy as np
    import torch

    from assay.models.attention.packing import common_prefix
    from assay.runs.json_log import read_metrics
    from assay_rm_training.data.encoded_dataset import EncodedDataset
    from assay_rm_training.data.pair_dataset import EncodedPair
    from assay_rm_training.preference.pairs import Dpo
    from assay_rm_training.training.loop import train
    from assay_rm_training.training_config import TrainingConfig

    torch.set_num_threads(settings["threads"])
    config = TrainingConfig(
        base=settings["model"],
        lr=settings["lr"],
        betas=tuple(settings["betas"]),
        eps=settings["eps"],
        batch_size=settings["batch_size"],
        schedule="constant",
        warmup_ratio=0.0,
        max_length=settings["max_length"],
        dtype=settings["precision"],
        device="cpu",
        save_every=0,
    )
    method = Dpo(settings["beta"])
    trainable = method.load(config, torch.device("cpu"))
    items = []
    for chosen, rejected, starts in settings["pairs"]:
        sides = [np.asarray(side, dtype=np.int32) for side in (chosen, rejected)]
        items.append(EncodedPair(sides[0], sides[1], 0.0, 1.0, common_prefix(sides), starts=tuple(starts)))
    folder = Path(settings["folder"])
    folder.mkdir(exist_ok=True)
    began, cpu_began = time.perf_counter(), time.process_time()
    data, _ = method.prepare(trainable, config, EncodedDataset(items, {}, 0, digest="benchmark"), None)
    measured = time.perf_counter()
    summary = train(trainable, method.task(trainable, config), data, config, folder)
    ended, cpu_ended = time.perf_counter(), time.process_time()
    logged = [row for row in read_metrics(folder) if row["kind"] == "train"]
    return {
        "seconds": ended - began,
        "reference_s": measured - began,
        "cpu_s": cpu_ended - cpu_began,
        "computed": summary.computed_tokens,
        "losses": [row["loss"] for row in logged],
        "margins": [row["margin"] for row in logged],
        "accuracies": [row["accuracy"] for row in logged],
    }


def train_trl(settings: dict[str, Any]) -> dict[str, Any]:
    """One training by TRL's DPOTrainer on the settings' token ids; imports nothing of Assay."""
    datasets, torch, transformers, trl = map(import_module, ("datasets", "torch", "transformers", "trl"))
    torch.set_num_threads(settings["threads"])
    rows = []
    for chosen, rejected, (start, _) in settings["pairs"]:
        prompt, sides = chosen[:start], (chosen[start:], rejected[start:])
        length = max(len(chosen), len(rejected))
        rows.append({"prompt_ids": prompt, "chosen_ids": sides[0], "rejected_ids": sides[1], "length": length})
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    model = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    peer = settings["peer"]
    config = trl.DPOConfig(
        output_dir=settings["folder"],
        beta=settings["beta"],
        precompute_ref_log_probs=True,
        precompute_ref_batch_size=peer["rows"],
        per_device_train_batch_size=peer["rows"],
        gradient_accumulation_steps=settings["batch_size"] // peer["rows"],
        num_train_epochs=1,
        max_length=settings["max_length"],
        learning_rate=settings["lr"],
        adam_beta1=settings["betas"][0],
        adam_beta2=settings["betas"][1],
        adam_epsilon=settings["eps"],
        weight_decay=0.0,
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
        warmup_steps=0,
        optim="adamw_torch_fused",
        bf16=settings["precision"] == "bfloat16",
        gradient_checkpointing=False,
        train_sampling_strategy=peer["sampling"],
        remove_unused_columns=False,  # else the lengths that are grouped by are dropped
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    reference = {"seconds": 0.0, "cpu_s": 0.0}
    computed: list[int] = []

    class OnTokens(trl.DPOTrainer):  # type: ignore[misc, name-defined]
        """Takes token ids as they are, and times the pass of the reference."""

        def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            return dataset

        def _precompute_ref_logps(self, *args: Any, **kwargs: Any) -> Any:
            began, cpu_began = time.perf_counter(), time.process_time()
            result = super()._precompute_ref_logps(*args, **kwargs)
            reference.update(seconds=time.perf_counter() - began, cpu_s=time.process_time() - cpu_began)
            return result

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            computed.append(inputs["input_ids"].numel())
            return super().compute_loss(model, inputs, *args, **kwargs)

    with tempfile.TemporaryDirectory() as cache:  # so that no round finds the reference of an earlier one
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        data = datasets.Dataset.from_list(rows)
        trainer = OnTokens(model=model, args=config, train_dataset=data, processing_class=tokenizer)
        began, cpu_began = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    logged = [row for row in trainer.state.log_history if "loss" in row]
    return {
        "seconds": seconds + reference["seconds"],
        "reference_s": reference["seconds"],
        "cpu_s": cpu + reference["cpu_s"],
        "computed": sum(computed),
        "losses": [row["loss"] for row in logged],
        "margins": [row["rewards/margins"] for row in logged],
        "accuracies": [row["rewards/accuracies"] for row in logged],
        "version": trl.__version__,
    }


if __name__ == "__main__":
    main()
