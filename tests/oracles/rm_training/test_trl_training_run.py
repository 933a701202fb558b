"""A training of 30 steps by `assay train dpo`'s loop and by TRL's DPOTrainer: the same pairs, weights and order."""

from __future__ import annotations

import importlib.util
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message, PreferencePair
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer, resolve_model
from assay_rm_training.data.pair_dataset import encode_pairs

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
