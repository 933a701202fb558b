"""Train a policy with TRL's GRPOTrainer on rewards from an Assay server.

    pip install "assay[bench]"                       # TRL 1.16 beside what Assay needs
    assay serve MODEL --port 8000                    # in another terminal
    python examples/trl_grpo.py --url http://127.0.0.1:8000 --policy POLICY

POLICY is a language model's folder or hub id. The server's key, if it has one, comes from $ASSAY_API_KEY. Prints the
rewards of every step and how many completions went without one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay_serving.trainers.trl import AssayReward

PROMPTS = (
    "Name a metal and say what it is used for.",
    "Explain in one sentence why the sky is blue.",
    "What should one check before lending a book?",
    "Write a friendly line for a birthday card.",
)


def train(arguments: argparse.Namespace, out: Path) -> list[dict[str, Any]]:
    """TRL's log of the run, one entry a step."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    reward = AssayReward(arguments.url, model=arguments.model, principle=arguments.principle)
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in PROMPTS[: arguments.prompts]]
    config = GRPOConfig(
        output_dir=str(out),
        per_device_train_batch_size=arguments.prompts * arguments.generations,
        num_generations=arguments.generations,
        max_completion_length=arguments.tokens,
        max_steps=arguments.steps,
        learning_rate=1e-5,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        seed=arguments.seed,
    )
    tokenizer = AutoTokenizer.from_pretrained(arguments.policy, padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(arguments.policy, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=policy,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of the reward server")
    parser.add_argument("--policy", required=True, help="the language model to train: a folder or a hub id")
    parser.add_argument("--model", help="the reward model, where the server has several")
    parser.add_argument("--principle", help="the question to judge by, for models that take one")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        for step, entry in enumerate(train(arguments, Path(scratch)), start=1):
            kept = {name: value for name, value in entry.items() if name.startswith(("reward", "assay", "loss"))}
            print(json.dumps({"step": step} | kept))


if __name__ == "__main__":
    main()
