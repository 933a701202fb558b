"""Steps of GRPO on a GPU: tokens drawn and learnt from a second, beside TRL's GRPOTrainer and verl.

The same model, prompts, group, lengths and reward (share of lower-case letters); no reference, one update a batch,
bfloat16 products around float32 weights, vLLM in the process for rollouts (`--sampler transformers`: our own). Tokens
are those of the responses. ASSAY_TRL_PYTHON names a Python with trl==1.16.0 and vllm, ASSAY_VERL_PYTHON one with verl,
whose options are written from memory and have not been run here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from contenders import Clock, Contender, Row, parser, run

MEASURES = (
    "policy_training/assay_policy_training/training",
    "policy_training/assay_policy_training/plugins/samplers",
    "policy_training/assay_policy_training/core",
    "platform/assay/models",
)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    small = options.dry_run
    prompts = [f"Write a short note about the number {n}." for n in range(4 if small else 512)]
    return {
        "model": "tiny" if small else options.model,
        "prompts": prompts,
        "prompts_per_step": 2 if small else options.prompts_per_step,
        "group_size": 2 if small else options.group_size,
        "max_new_tokens": 6 if small else options.max_new_tokens,
        "lora": options.lora,
        "sampler": "transformers" if small else options.sampler,
        "rows": options.peer_rows,
    }


def share(text: str) -> float:
    letters = [letter for letter in text if letter.isalpha()]
    return sum(letter.islower() for letter in letters) / max(1, len(letters))


def ours(settings: dict[str, Any]) -> Row:
    import torch

    from assay.domain import Message
    from assay.models.devices import pick_device
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.prompt import PromptItem
    from assay_policy_training.plugins.protocols import Rewards
    from assay_policy_training.recipe.loading import recipe_from_dict
    from assay_policy_training.training.loop import PolicyLoop

    class LowerCase:
        def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
            part = torch.tensor([share(response) for response in responses], dtype=torch.float64)
            return Rewards({"lower_case": part}, [() for _ in items], [{} for _ in items])

    recipe = recipe_from_dict(
        {
            "name": "gpu_grpo",
            "estimator": {"kind": "grpo", "eps": 1e-4},
            "objective": {"kind": "ppo_clip", "dual_clip": None},
            "aggregation": {"mode": "token-mean"},
            "sampling": {key: settings[key] for key in ("prompts_per_step", "group_size", "max_new_tokens")},
            "sampler": {"kind": settings["sampler"]},
            "lora": {"rank": settings["lora"]},
            "report_kl": False,
            "steps": settings["steps"] + 1,
            "checkpoint_every": 0,
        }
    )
    device = pick_device()
    policy = Policy(
        settings["model"],
        device=device,
        max_prompt_tokens=recipe.sampling.max_prompt_tokens,
        autocast=recipe.optimisation.autocasts(device),
        lora=recipe.lora,
    )
    items = [PromptItem((Message("user", prompt),)) for prompt in settings["prompts"]]
    source = recipe.source.open(items, seed=0, policy=policy)
    loop = PolicyLoop(recipe, policy, source, [LowerCase()], Path(settings["folder"]))
    loop.train(1)
    clock = Clock()
    clock.start()
    rows = loop.train(settings["steps"] + 1)
    loop.close()
    seconds = {name: sum(row.get(name, 0.0) for row in rows) for name in ("seconds_sample", "seconds_update")}
    return clock.row(sum(round(row["length_mean"] * row["rollouts"]) for row in rows), **seconds)


def trl(settings: dict[str, Any]) -> Row:
    datasets, transformers, trl = map(import_module, ("datasets", "transformers", "trl"))
    batch = settings["prompts_per_step"] * settings["group_size"]
    config = trl.GRPOConfig(
        output_dir=settings["folder"],
        per_device_train_batch_size=settings["rows"],
        gradient_accumulation_steps=max(1, batch // settings["rows"]),
        num_generations=settings["group_size"],
        max_completion_length=settings["max_new_tokens"],
        temperature=1.0,
        beta=0.0,
        loss_type="dapo",
        use_vllm=settings["sampler"] != "transformers",
        vllm_mode="colocate",
        vllm_enable_sleep_mode=True,
        max_steps=settings["steps"] + 1,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        bf16=True,
        tf32=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    clock, drawn = Clock(), [0]

    def reward(completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        drawn[0] += sum(map(len, completion_ids))
        return [share(each if isinstance(each, str) else each[-1]["content"]) for each in completions]

    class Watch(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, arguments: Any, state: Any, *rest: Any, **more: Any) -> None:
            if state.global_step == 1:
                drawn[0] = 0
                clock.start()

    rows = [{"prompt": [{"role": "user", "content": prompt}]} for prompt in settings["prompts"]]
    peft = import_module("peft").LoraConfig(r=settings["lora"], task_type="CAUSAL_LM") if settings["lora"] else None
    trl.GRPOTrainer(
        model=settings["model"],
        reward_funcs=reward,
        args=config,
        train_dataset=datasets.Dataset.from_list(rows),
        peft_config=peft,
        callbacks=[Watch()],
    ).train()
    return clock.row(drawn[0], version=trl.__version__)


def verl(settings: dict[str, Any]) -> Row:
    """A run of its command; seconds and tokens of the steps after the first, from its console's lines."""
    folder, datasets = Path(settings["folder"]), import_module("datasets")
    rows = [
        {
            "data_source": "made_up",
            "prompt": [{"role": "user", "content": prompt}],
            "reward_model": {"style": "rule", "ground_truth": ""},
        }
        for prompt in settings["prompts"]
    ]
    datasets.Dataset.from_list(rows).to_parquet(str(folder / "prompts.parquet"))
    reward = folder / "reward.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):\n"
        "    letters = [c for c in solution_str if c.isalpha()]\n"
        "    return sum(c.islower() for c in letters) / max(1, len(letters))\n"
    )
    size, length = settings["prompts_per_step"], settings["max_new_tokens"]
    options = {
        "algorithm.adv_estimator": "grpo",
        "algorithm.use_kl_in_reward": False,
        "data.train_files": folder / "prompts.parquet",
        "data.val_files": folder / "prompts.parquet",
        "data.train_batch_size": size,
        "data.max_prompt_length": 512,
        "data.max_response_length": length,
        "actor_rollout_ref.model.path": settings["model"],
        "actor_rollout_ref.model.lora_rank": settings["lora"],
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.actor.ppo_mini_batch_size": size,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 16384,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": settings["group_size"],
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5,
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz": True,
        "custom_reward_function.path": reward,
        "trainer.logger": "[console]",
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        "trainer.total_training_steps": settings["steps"] + 1,
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
    }
    words = [f"{key}={value}" for key, value in options.items()]
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *words]
    said = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds = [float(value) for value in re.findall(r"timing_s/step:([\d.]+)", said)][1:]
    lengths = [float(value) for value in re.findall(r"response_length/mean:([\d.]+)", said)][1:]
    tokens = sum(lengths) * size * settings["group_size"]
    memory = max((float(gb) for gb in re.findall(r"perf/max_memory_allocated_gb:([\d.]+)", said)), default=0.0)
    # The work is done in processes of Ray, whose CPU seconds are not known: 0, of which no ratio is named.
    return {"seconds": sum(seconds), "cpu_s": 0.0, "tokens": tokens, "memory_mb": memory * 1e3}


CONTENDERS = {
    "assay": Contender(ours),
    "TRL GRPOTrainer": Contender(trl, "ASSAY_TRL_PYTHON"),
    "verl": Contender(verl, "ASSAY_VERL_PYTHON"),
}


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    options = parser(__doc__)
    options.add_argument("--prompts-per-step", type=int, default=16)
    options.add_argument("--group-size", type=int, default=8)
    options.add_argument("--max-new-tokens", type=int, default=1024)
    options.add_argument("--lora", type=int, default=0, help="rank of adapters; 0: all weights")
    options.add_argument("--sampler", default="vllm", choices=["vllm", "transformers"], help="of ours and of TRL's")
    options.add_argument("--peer-rows", type=int, default=8, help="rows of one of TRL's passes")
    return run(__file__, CONTENDERS, options, settings_of, MEASURES, arguments)


if __name__ == "__main__":
    main()
