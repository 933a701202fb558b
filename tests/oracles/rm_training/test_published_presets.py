"""Presets are what they name: every field against the published configuration, TRL's against the installed package."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from pair_files import write_pairs

from assay.cli.main import main
from assay.domain import Message, PreferencePair
from assay.workspace import Workspace
from assay_rm_training.presets import PRESETS, preset
from assay_rm_training.training_config import LoraConfig, TrainingConfig

#: RLHFlow, bradley-terry-rm/llama3_rm.py: its arguments, and transformers' defaults for the others.
RLHFLOW = {
    "lr": 2e-6, "head_lr": 0.0, "batch_size": 512, "weight_decay": 1e-3, "epochs": 1, "schedule": "cosine",
    "warmup_ratio": 0.03, "max_length": 4096, "gradient_checkpointing": True, "betas": (0.9, 0.999), "eps": 1e-8,
    "max_grad_norm": 1.0, "min_lr_ratio": 0.0, "optimizer": "adamw", "head_init": "stock",
}  # fmt: skip
#: What the papers state: lr, batch size, weight decay, schedule, epochs, length.
SKYWORK = {
    "skywork-v1-8b": (2e-6, 128, 1e-3, "cosine", 2, None),
    "skywork-v1-27b": (1e-6, 128, 1e-3, "cosine", 2, None),
    "skywork-v2": (3e-6, 10_240, 0.0, "constant", 1, 16_384),
    "skywork-v2-dev-8b": (1e-6, 256, 0.0, "linear", 1, 16_384),
    "skywork-v2-dev-small": (4e-6, 256, 0.0, "linear", 1, 16_384),
}


def configured(name: str, **given: Any) -> TrainingConfig:
    return TrainingConfig("tiny", **{**preset(name).settings, **given})


def test_trl_has_the_defaults_of_the_installed_reward_config(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = trl.RewardConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    ours = configured("trl", lora=LoraConfig())
    assert {
        "learning_rate": ours.learning_rate,
        "head": ours.head_rate,
        "num_train_epochs": float(ours.epochs),
        "batch": ours.batch_size,
        "lr_scheduler_type": ours.schedule,
        "warmup": ours.warmup_ratio,
        "weight_decay": ours.weight_decay,
        "betas": ours.betas,
        "adam_epsilon": ours.eps,
        "max_grad_norm": ours.max_grad_norm,
        "max_length": ours.max_length,
        "center_rewards_coefficient": preset("trl").objective["centring"] or None,
        "gradient_checkpointing": ours.gradient_checkpointing,
        "adamw": ours.optimizer == "adamw",
        "end": ours.min_lr_ratio,
    } == {
        "learning_rate": theirs.learning_rate,
        "head": theirs.learning_rate,
        "num_train_epochs": theirs.num_train_epochs,
        "batch": theirs.per_device_train_batch_size * theirs.gradient_accumulation_steps,
        "lr_scheduler_type": theirs.lr_scheduler_type.value,
        "warmup": float(theirs.warmup_steps or 0),
        "weight_decay": theirs.weight_decay,
        "betas": (theirs.adam_beta1, theirs.adam_beta2),
        "adam_epsilon": theirs.adam_epsilon,
        "max_grad_norm": theirs.max_grad_norm,
        "max_length": theirs.max_length,
        "center_rewards_coefficient": theirs.center_rewards_coefficient,
        "gradient_checkpointing": theirs.gradient_checkpointing,
        "adamw": theirs.optim.value.startswith("adamw"),
        "end": 0.0,
    }


def test_rlhflow_and_skywork_are_as_published() -> None:
    ours = configured("rlhflow")
    assert {name: getattr(ours, name) for name in RLHFLOW} == RLHFLOW
    assert ours.head_rate == ours.learning_rate
    for name, published in SKYWORK.items():
        ours = configured(name)
        assert (
            ours.lr, ours.batch_size, ours.weight_decay, ours.schedule, ours.epochs, ours.max_length
        ) == published, name  # fmt: skip


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_has_one_rate_and_the_plain_loss(name: str) -> None:
    assert configured(name).head_rate == configured(name).learning_rate
    assert configured(name, lr=1e-3).head_rate == 1e-3  # also where --lr is given
    assert preset(name).objective == {"centring": 0.0}


def test_the_command_trains_with_the_presets_settings_and_loss(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [PreferencePair((Message("user", f"Q {n}?"),), "yes!", "no?") for n in range(8)]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    arguments = [
        "train", "bt", "--data", str(tmp_path / "pairs.jsonl"), "--base", "tiny", "--preset", "trl", "--lora", "2",
        "--epochs", "1", "--device", "cpu", "--name", "like-trl", "--json", "-w", str(workspace.root),
    ]  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    out, err = capsys.readouterr()
    assert not stop.value.code, err
    plan = json.loads((workspace.runs / json.loads(out)["run_id"] / "run.json").read_text())
    config = plan["config"]
    assert (config["epochs"], config["lr"], config["head_lr"], config["schedule"]) == (1, 1e-4, 0.0, "linear")
    assert (config["betas"], config["eps"], config["warmup_ratio"]) == ([0.9, 0.999], 1e-8, 0.0)
    assert plan["method"]["loss"]["centring"] == 0.0
