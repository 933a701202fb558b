"""Short trainings by `assay train dpo` and `sft` and by TRL's DPOTrainer and SFTTrainer: same rows, weights, order."""

import importlib.util
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message, PreferencePair
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer, resolve_model
from assay.runs.json_log import read_metrics
from assay_rm_training.data.pair_dataset import encode_pairs
from assay_rm_training.trainer import RewardModelTrainer
from assay_rm_training.training.batch_order import StepPlan

WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]


def benchmark() -> Any:
    """`benchmarks/dpo_training.py`, whose two trainings are compared in speed too."""
    spec = importlib.util.spec_from_file_location(
        "dpo_training", Path(__file__).resolve().parents[3] / "benchmarks" / "dpo_training.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_curves_of_a_training_are_those_of_trls_dpo_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float32, a rate at which the loss halves: losses and margins of all steps agree to 1e-4, rankings exactly."""
    pytest.importorskip("trl", reason="the extra `bench` is not installed")
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    rng = random.Random(0)
    rows = [
        PreferencePair((Message("user", f"number {n}"),), f"{first}!", f"{second}?")
        for n in range(120)
        for first, second in [[" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) for _ in range(2)]]
    ]
    items = encode_pairs(rows, Renderer(load_tokenizer("tiny"), max_length=256)).items
    settings = {
        "precision": "float32",
        "model": resolve_model("tiny"),
        "pairs": [(item.chosen.tolist(), item.rejected.tolist(), list(item.starts)) for item in items],
        "batch_size": 4,
        "max_length": 256,
        "lr": 1e-3,
        "betas": (0.9, 0.98),
        "eps": 1e-12,
        "beta": 0.1,
        "threads": 1,
        "folder": str(tmp_path / "run"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = benchmark().both(settings)
    assert len(ours["losses"]) == 30
    assert sum(ours["losses"][-5:]) < 0.7 * sum(ours["losses"][:5])
    assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-4)
    assert ours["margins"] == pytest.approx(theirs["margins"], abs=1e-4)
    # Before the first update both responses' rewards are 0 but for rounding.
    assert ours["accuracies"][1:] == theirs["accuracies"][1:]


def test_the_losses_of_a_training_are_those_of_trls_sft_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 steps on conversations as TRL reads them, each by its own chat rendering: losses agree to 1e-4."""
    trl = pytest.importorskip("trl", reason="the extra `bench` is not installed")
    import datasets
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    rng = random.Random(0)
    rows = [
        {
            "prompt": [{"role": "user", "content": f"number {n}"}],
            "completion": [{"role": "assistant", "content": " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))}],
        }
        for n in range(80)
    ]
    settings: dict[str, Any] = {
        "batch_size": 4,
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "schedule": "linear",
        "warmup_ratio": 0.0,
        "dtype": "float32",
        "device": "cpu",
    }
    trainer = RewardModelTrainer("sft", data=rows, base="tiny", workspace=tmp_path / "ws", **settings)
    ours = [row["loss"] for row in read_metrics(trainer.train().folder) if row["kind"] == "train"]

    plan = StepPlan(len(rows), trainer.plan.config)
    ordered = [rows[index] for step in range(1, plan.total + 1) for index in plan.batch(step)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = trl.SFTConfig(
            output_dir=str(tmp_path / "trl"),
            per_device_train_batch_size=4,
            num_train_epochs=1,
            learning_rate=1e-3,
            bf16=False,
            gradient_checkpointing=False,
            train_sampling_strategy="sequential",
            save_strategy="no",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        peer = trl.SFTTrainer(
            AutoModelForCausalLM.from_pretrained(resolve_model("tiny"), dtype=torch.float32),
            config,
            train_dataset=datasets.Dataset.from_list(ordered),
            processing_class=AutoTokenizer.from_pretrained(resolve_model("tiny")),
        )
        peer.train()
    theirs = [row["loss"] for row in peer.state.log_history if "loss" in row]
    assert len(ours) == 20
    assert ours[-1] < 0.8 * ours[0]
    assert ours == pytest.approx(theirs, abs=1e-4)
