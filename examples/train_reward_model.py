"""Train a Bradley-Terry reward model on a snapshot, and say what it is worth on pairs it has not seen.

    python examples/train_reward_model.py my-rewards --data mine --base smollm2 --name helpful

The model beside two baselines: always the longer response, and chance. Serve it with `assay serve helpful`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.data.snapshots import load_pairs
from assay.statistics.intervals import interval_text
from assay.workspace import Workspace
from assay_rm_training.run_settings import EvalConfig
from assay_rm_training.runs.evaluate import evaluate_model
from assay_rm_training.runs.train import TrainingPlan, train_model
from assay_rm_training.training_config import TrainingConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path, help="see curate_preferences.py")
    parser.add_argument("--data", default="mine", help="snapshot; NAME-holdout is evaluated on")
    parser.add_argument("--base", default="smollm2", help="smollm2, tiny, a folder or a hub id")
    parser.add_argument("--name", default="helpful")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    workspace = Workspace.open(arguments.workspace)
    held_out = f"{arguments.data}-holdout"
    config = TrainingConfig(base=arguments.base, batch_size=8, max_length=512, seed=arguments.seed)
    plan = TrainingPlan(config, data=arguments.data, eval_data=held_out, name=arguments.name)
    trained = train_model(workspace, plan, load_pairs(workspace, arguments.data), load_pairs(workspace, held_out))
    print(f"trained {trained.name} in run {trained.run_id}: {trained.path}")

    found = evaluate_model(workspace, EvalConfig(trained.name, held_out, seed=arguments.seed)).evaluation
    print(f"accuracy {found.accuracy.value:.3f} [{interval_text(found.accuracy.interval, '.3f')}]")
    print(f"the longer response {found.length_baseline:.3f}, chance 0.500")


if __name__ == "__main__":
    main()
