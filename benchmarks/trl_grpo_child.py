"""One GRPO training by TRL's GRPOTrainer that does a step each time it is told to: run by `grpo_step.py`.

Covers: the same model, prompts, group, lengths and reward as ours; seconds by stage of each step, as a JSON line.
Leaves out: anything of Assay; this file imports none of it.

Stages: sample = TRL's `_generate`; reward = its `_calculate_rewards`; score = the rest of its
`_generate_and_score_completions` (log-probs of old, where it computes them; advantages); update = the rest of the step
(forward, backward, AdamW).
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any


def main() -> None:
    """`trl_grpo_child.py SETTINGS.json`; each line on standard input is one step."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings: dict[str, Any] = json.load(stream)
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not ours to answer with
    datasets, torch, transformers, trl = map(import_module, ("datasets", "torch", "transformers", "trl"))
    torch.set_num_threads(settings["threads"])
    rows, group = settings["prompts_per_step"], settings["group_size"]
    batch = rows * group
    config = trl.GRPOConfig(
        output_dir=settings["folder"],
        per_device_train_batch_size=settings["micro_batch_rows"],
        gradient_accumulation_steps=batch // settings["micro_batch_rows"],
        num_generations=group,
        max_completion_length=settings["max_new_tokens"],
        temperature=1.0,
        beta=0.0,  # no reference, as ours
        loss_type="dapo",
        max_steps=settings["steps"],
        learning_rate=settings["lr"],
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        bf16=settings["autocast"],
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        seed=settings["seed"],
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    policy = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    data = datasets.Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in settings["prompts"]])
    trainer = trl.GRPOTrainer(
        model=policy, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer
    )
    seconds: dict[str, float] = {}
    tokens = [0]

    def watched(name: str, stage: str) -> None:
        inner = getattr(trainer, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            output = inner(*args, **kwargs)
            seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started
            if stage == "collect":
                tokens[0] += int(output["completion_mask"].sum())
            return output

        setattr(trainer, name, outer)

    watched("_generate", "sample")
    watched("_calculate_rewards", "reward")
    watched("_generate_and_score_completions", "collect")

    class Paced(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        """A step begins when a line comes, and is answered with its seconds when it ends."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not sys.stdin.readline():
                sys.exit(0)
            seconds.clear()
            tokens[0] = 0
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            total = time.perf_counter() - self.started
            collect, sample, scored = (seconds.get(stage, 0.0) for stage in ("collect", "sample", "reward"))
            stages = {
                "sample": sample,
                "reward": scored,
                "score": max(0.0, collect - sample - scored),
                "update": total - collect,
                "whole": total,
            }
            print(json.dumps({"seconds": stages, "tokens": tokens[0]}), file=out, flush=True)

    trainer.add_callback(Paced())
    print(json.dumps({"ready": True, "trl": trl.__version__}), file=out, flush=True)
    trainer.train()


def reward(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
    """The share of lower-case letters: a verifier as cheap as ours."""
    return [share(message[0]["content"]) for message in completions]


def share(text: str) -> float:
    """Of the letters, those in lower case; 0 without letters."""
    letters = [c for c in text if c.isalpha()]
    return sum(c.islower() for c in letters) / len(letters) if letters else 0.0


if __name__ == "__main__":
    main()
