"""Reward models that TRL's own RewardTrainer trains here, all weights and LoRA, load and give its rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message
from assay.models.loading import resolve_model
from assay.score import Score
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

pytest.importorskip("trl", reason='TRL is in the bench extra: pip install "assay[bench]"')

ANSWERS = ("Gold.", "Glass is not a metal, but silver is.")


def trained(out: Path, *, lora: bool) -> Any:
    """TRL's trainer after two steps, its model saved in `out`."""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import RewardConfig, RewardTrainer

    turn = [{"role": "user", "content": "Name a metal."}]
    row = {"chosen": [*turn, {"role": "assistant", "content": ANSWERS[0]}]}
    row["rejected"] = [*turn, {"role": "assistant", "content": ANSWERS[1]}]
    config = RewardConfig(
        output_dir=str(out), max_steps=2, per_device_train_batch_size=2, learning_rate=1e-2, report_to="none",
        save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True, max_length=128,
    )  # fmt: skip
    settings = LoraConfig(task_type="SEQ_CLS", r=4, modules_to_save=["score"]) if lora else None
    trainer = RewardTrainer(
        model=resolve_model("tiny"), args=config, train_dataset=Dataset.from_list([row] * 4), peft_config=settings
    )
    trainer.train()
    trainer.save_model(str(out))
    return trainer


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "LoRA"])
def test_a_model_of_trls_reward_trainer(tmp_path: Path, lora: bool) -> None:
    import torch

    trainer = trained(tmp_path / "rm", lora=lora)
    model, tokenizer = trainer.model.eval(), trainer.processing_class
    scorer = load_scorer(ModelConfig(str(tmp_path / "rm"), device="cpu"))
    assert getattr(scorer, "form", None) is None or lora
    results = scorer.score([ScoreItem((Message("user", "Name a metal."),), answer) for answer in ANSWERS])
    for answer, result in zip(ANSWERS, results, strict=True):
        turns = [{"role": "user", "content": "Name a metal."}, {"role": "assistant", "content": answer}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        with torch.no_grad():
            reward = float(model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0, 0])
        assert isinstance(result, Score)
        assert result.reward == pytest.approx(reward, abs=1e-5)
