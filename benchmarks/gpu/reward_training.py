"""Training a Bradley-Terry reward model on a GPU: tokens a second, MFU and memory, beside TRL's RewardTrainer.

Both train on the same made-up token ids of pairs that share their prompt, in bfloat16 products around float32 weights,
with fused AdamW, gradient checkpointing as asked, and low-rank adapters or none. Tokens are those of both sides in
full; MFU counts 6 operations a weight and token (with adapters 4): what is computed once for both sides counts as done.
TRL: ASSAY_TRL_PYTHON names its Python (trl==1.16.0, peft).
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from contenders import Clock, Contender, Row, parser, run, token_rows, weights_of

MEASURES = ("rm_training/assay_rm_training/training", "rm_training/assay_rm_training/methods", "platform/assay/models")


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    small = options.dry_run
    batch, steps = (2, 1) if small else (options.batch_size, options.steps or 10)
    prompts = token_rows(batch * (steps + 1), *((4, 8) if small else (200, 800)), 90 if small else 30000)
    sides = token_rows(2 * len(prompts), *((3, 6) if small else (100, 700)), 90 if small else 30000, seed=1)
    pairs = [(p + sides[2 * n], p + sides[2 * n + 1]) for n, p in enumerate(prompts)]
    return {
        "model": "tiny" if small else options.model,
        "pairs": pairs,
        "batch_size": batch,
        "lora": options.lora,
        "checkpointing": options.gradient_checkpointing,
        "micro_batch_rows": options.trl_rows,
    }


def ours(settings: dict[str, Any]) -> Row:
    import numpy as np

    from assay.models.attention.packing import common_prefix
    from assay.models.devices import float32_products, pick_device
    from assay_rm_training.data.pair_dataset import EncodedPair
    from assay_rm_training.methods.bradley_terry import BradleyTerry
    from assay_rm_training.training.loop import make_optimizer, train_step
    from assay_rm_training.training_config import LoraConfig, TrainingConfig

    config = TrainingConfig(
        base=settings["model"],
        batch_size=settings["batch_size"],
        gradient_checkpointing=settings["checkpointing"],
        lora=LoraConfig(settings["lora"]) if settings["lora"] else None,
    )
    method, device = BradleyTerry(), pick_device()
    trainable = method.load(config, device)
    task, optimizer = method.task(trainable, config), make_optimizer(trainable, config)
    items = []
    for pair in settings["pairs"]:
        sides = [np.asarray(side, dtype=np.int32) for side in pair]
        items.append(EncodedPair(sides[0], sides[1], 0.0, 1.0, common_prefix(sides)))
    clock, tokens, size = Clock(), 0, settings["batch_size"]
    with float32_products(device, "high"):
        for start in range(0, len(items), size):
            if start == size:  # the first compiles, allocates and reads files
                clock.start()
            step = train_step(trainable, task, items[start : start + size], config, optimizer)
            optimizer.step()
            tokens += step.tokens if start else 0
    return clock.row(tokens, flops=(4 if settings["lora"] else 6) * weights_of(trainable.model) * tokens)


def trl(settings: dict[str, Any]) -> Row:
    datasets, torch, transformers, trl = map(import_module, ("datasets", "torch", "transformers", "trl"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        settings["model"], num_labels=1, dtype=torch.float32
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    columns = ("chosen_ids", "rejected_ids")
    rows = [{**dict(zip(columns, p, strict=True)), "length": max(map(len, p))} for p in settings["pairs"]]
    count = settings["micro_batch_rows"]
    config = trl.RewardConfig(
        output_dir=settings["folder"],
        per_device_train_batch_size=count,
        gradient_accumulation_steps=max(1, settings["batch_size"] // count),
        num_train_epochs=1,
        max_length=None,
        weight_decay=0.0,
        lr_scheduler_type="constant",
        warmup_steps=0,
        optim="adamw_torch_fused",
        bf16=True,
        tf32=True,
        gradient_checkpointing=settings["checkpointing"],
        train_sampling_strategy="group_by_length",
        remove_unused_columns=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    clock = Clock()

    class Watch(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, arguments: Any, state: Any, *rest: Any, **more: Any) -> None:
            if state.global_step == 1:
                clock.start()

    peft = import_module("peft").LoraConfig(r=settings["lora"], task_type="SEQ_CLS") if settings["lora"] else None
    trainer = trl.RewardTrainer(
        model=model,
        args=config,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft,
        callbacks=[Watch()],
    )
    trainer.train()
    steps = len(rows) // settings["batch_size"]
    tokens = sum(map(len, (side for pair in settings["pairs"] for side in pair))) * (steps - 1) / steps
    return clock.row(tokens, flops=(4 if settings["lora"] else 6) * weights_of(model) * tokens, version=trl.__version__)


CONTENDERS = {"assay": Contender(ours), "TRL RewardTrainer": Contender(trl, "ASSAY_TRL_PYTHON")}


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    options = parser(__doc__)
    options.add_argument("--batch-size", type=int, default=32, help="pairs of an optimiser step")
    options.add_argument("--lora", type=int, default=0, help="rank of adapters; 0: all weights")
    options.add_argument("--gradient-checkpointing", action="store_true")
    options.add_argument("--trl-rows", type=int, default=4, help="pairs of one of TRL's passes")
    return run(__file__, CONTENDERS, options, settings_of, MEASURES, arguments)


if __name__ == "__main__":
    main()
