"""One training by TRL's RewardTrainer, in its own environment: run by `rm_training.py`, which says how.

Covers: token ids from a file, a full fine-tuning with AdamW, seconds of the training loop alone on the last line of
output. Leaves out: anything of Assay; this file imports none of it.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any


def main() -> None:
    """`trl_reward.py SETTINGS.json`: see `rm_training.settings`."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings: dict[str, Any] = json.load(stream)
    datasets, torch, transformers, trl = map(import_module, ("datasets", "torch", "transformers", "trl"))
    torch.set_num_threads(settings["threads"])
    cuda = torch.cuda.is_available()

    rows = [
        {"chosen_ids": chosen, "rejected_ids": rejected, "length": max(len(chosen), len(rejected))}
        for chosen, rejected in settings["pairs"]
    ]
    data = datasets.Dataset.from_list(rows)
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        settings["model"], num_labels=1, dtype=torch.float32
    )
    model.config.pad_token_id = tokenizer.pad_token_id
    peer = settings["peer"]
    config = trl.RewardConfig(
        output_dir=settings["folder"],
        per_device_train_batch_size=peer["rows"],
        gradient_accumulation_steps=settings["batch_size"] // peer["rows"],
        num_train_epochs=settings["epochs"],
        max_length=settings["max_length"],
        learning_rate=settings["lr"],
        weight_decay=0.0,
        max_grad_norm=1.0,
        lr_scheduler_type="constant",
        warmup_steps=0,
        optim="adamw_torch_fused",
        bf16=settings["bfloat16"],
        gradient_checkpointing=False,
        train_sampling_strategy=peer["sampling"],
        remove_unused_columns=False,  # else the lengths that are grouped by are dropped
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
        seed=settings["seed"],
    )
    computed: list[int] = []
    seconds: list[float] = []
    cpu_s: list[float] = []

    class Watch(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.perf_counter())
            cpu_s.append(time.process_time())

        on_train_end = on_train_begin

    class Counting(trl.RewardTrainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            computed.append(inputs["input_ids"].numel())
            return super().compute_loss(model, inputs, *args, **kwargs)

    trainer = Counting(model=model, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[Watch()])
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    print(
        json.dumps(
            {
                "seconds": seconds[-1] - seconds[0],
                "cpu_s": cpu_s[-1] - cpu_s[0],
                "pairs": len(rows) * settings["epochs"],
                "computed": sum(computed),
                "losses": [losses[0], losses[-1]],
                "version": trl.__version__,
                "transformers": transformers.__version__,
                "torch": torch.__version__,
                "device_memory_mb": torch.cuda.max_memory_allocated() / 1e6 if cuda else None,
            }
        )
    )


if __name__ == "__main__":
    main()
