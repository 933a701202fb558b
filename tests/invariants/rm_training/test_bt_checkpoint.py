"""Saved = loaded = merged: a checkpoint gives the trained model's scores, or there is no checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.published_weights import write_model
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay_rm_training.checkpoints import checkpoint
from assay_rm_training.checkpoints.checkpoint import TOLERANCE, compare, save_checkpoint
from assay_rm_training.data.pair_dataset import encode_pairs
from assay_rm_training.methods.bradley_terry import PairTask
from assay_rm_training.model.trainable_model import TrainableModel, load_trainable
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.training import written_weights
from assay_rm_training.training.loop import train
from assay_rm_training.training.written_weights import WrittenWeights, scratch_folder, write_trained
from assay_rm_training.training_config import LoraConfig, TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

CPU = torch.device("cpu")
PAIRS = [
    PreferencePair((Message("user", f"question {i}"),), f"yes {'!' * (i % 4)} {i}", f"no {'?' * (i % 3)} {i}")
    for i in range(24)
]
SAMPLE = [ScoreItem(pair.prompt, text) for pair in PAIRS[:6] for text in (pair.chosen, pair.rejected)]


def trained(folder: Path, lora: LoraConfig | None) -> tuple[TrainableModel, Renderer, RewardModelSpec]:
    config = TrainingConfig("tiny", lr=5e-3, head_lr=5e-3, batch_size=8, lora=lora, device="cpu")
    trainable = load_trainable(config, CPU)
    renderer = Renderer(trainable.tokenizer, max_length=200)
    task = PairTask(trainable, config, Objective())
    train(trainable, task, encode_pairs(PAIRS, renderer), config, folder)
    spec = RewardModelSpec("scalar", "tiny", renderer.template_hash, renderer.max_length, version="unsaved")
    return trainable, renderer, spec


@pytest.mark.parametrize("lora", [None, LoraConfig(4, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_saved_model_gives_the_trained_ones_scores(
    lora: LoraConfig | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    trainable, renderer, spec = trained(tmp_path, lora)
    before = TransformersScorer(trainable.model, renderer, spec, name="before").score(SAMPLE)
    rewards = [score.reward for score in before if isinstance(score, Score)]
    assert len(rewards) == len(SAMPLE)
    assert max(rewards) - min(rewards) > 100 * TOLERANCE  # else equality would say little
    folder = tmp_path / "model"
    scratch = scratch_folder(folder)
    scores = write_trained(trainable, renderer, spec, SAMPLE, scratch, engine=TransformersScorer, dtype=dtype)
    written, parity = save_checkpoint(
        replace(trainable, model=cast(Any, None)),  # the files have all
        spec,
        renderer,
        folder,
        sample=SAMPLE,
        card="# a card\n",
        written=WrittenWeights(scratch, scores, CPU),
    )
    assert parity.passed
    assert parity.compared == len(SAMPLE)
    again = TransformersScorer.load(ModelConfig(str(folder), dtype="float32", device="cpu"))
    assert again.spec == written == RewardModelSpec.read(folder)
    assert again.info.parity == "passed"
    gap = compare(before, again.score(SAMPLE)).largest
    assert gap <= (TOLERANCE if dtype == torch.float32 else 0.05 * (max(rewards) - min(rewards)))
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    assert config["problem_type"] == "regression"
    assert config["pad_token_id"] == trainable.tokenizer.pad_token_id
    assert not list(folder.glob("adapter*"))
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == ["model"]  # no scratch folder is left


def test_any_engine_reads_the_checkpoint(tmp_path: Path) -> None:
    """The stock class alone, without our code, gives the reward as its one logit."""
    from transformers import AutoModelForSequenceClassification

    trainable, renderer, spec = trained(tmp_path, LoraConfig(4, 8))
    scorer = TransformersScorer(trainable.model, renderer, spec, name="trained")
    save_checkpoint(trainable, spec, renderer, tmp_path / "model", sample=SAMPLE, card="")
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    for item, score in zip(SAMPLE, scorer.score(SAMPLE), strict=True):
        ids = torch.tensor([renderer.encode(item.prompt, item.response).ids])
        with torch.no_grad():
            logit = stock(input_ids=ids).logits
        assert isinstance(score, Score)
        assert logit.shape == (1, 1)
        assert float(logit) == pytest.approx(score.reward, abs=TOLERANCE)


@pytest.mark.parametrize(("free", "says"), [(10**4, "no room for the saved weights"), (10**9, "")])
def test_it_is_checked_in_main_memory_where_the_device_has_no_room(
    free: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainable, renderer, spec = trained(tmp_path, LoraConfig(4, 8))
    monkeypatch.setattr(checkpoint, "unused_memory", lambda device: free)
    written, _ = save_checkpoint(trainable, spec, renderer, tmp_path / "model", sample=SAMPLE, card="")
    assert written.parity == "passed"
    assert says in caplog.text
    assert bool(says) == bool(caplog.records)


def test_a_checkpoint_that_lost_its_head_fails_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The field's most repeated defect, made on purpose: what is written to disk has another head."""
    trainable, renderer, spec = trained(tmp_path, None)

    def write_another_head(model: Any, folder: Path, **options: Any) -> None:
        kept = model.score.weight.detach().clone()
        with torch.no_grad():
            model.score.weight.mul_(-1)
            write_model(model, folder, **options)
            model.score.weight.copy_(kept)

    monkeypatch.setattr(written_weights, "write_model", write_another_head)
    card = Mock()
    with pytest.raises(BackendError, match="does not give the trained model's scores"):
        save_checkpoint(trainable, spec, renderer, tmp_path / "model", sample=SAMPLE, card=card)
    card.assert_not_called()  # what is not the trained model is not evaluated
    assert not (tmp_path / "model").exists()
    kept = RewardModelSpec.read(tmp_path / "model.failed")
    assert kept is not None
    assert kept.parity.startswith("failed: response 1")
    with pytest.raises(BadInputError, match="allow it explicitly to serve it"):
        TransformersScorer.load(ModelConfig(str(tmp_path / "model.failed"), device="cpu"))


def test_an_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    trainable, renderer, spec = trained(tmp_path, None)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious").write_text("x")
    with pytest.raises(BadInputError, match="exists already"):
        save_checkpoint(trainable, spec, renderer, tmp_path / "model", sample=SAMPLE, card="")
    assert (tmp_path / "model" / "precious").read_text() == "x"


def test_an_error_while_it_is_evaluated_leaves_nothing(tmp_path: Path) -> None:
    trainable, renderer, spec = trained(tmp_path, None)

    def interrupted(_: Any) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(trainable, spec, renderer, tmp_path / "model", sample=SAMPLE, card=interrupted)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = scratch_folder(tmp_path / "model")
    others = [scratch_folder(tmp_path / "model.v2"), tmp_path / ".model.notes"]
    others[1].write_text("x")
    again = scratch_folder(tmp_path / "model")
    assert not left.exists()
    assert again.is_dir()
    assert all(other.exists() for other in others)


def test_comparing_scores() -> None:
    from assay.score import ScoreFailure

    score = Score(1.0, "m", "1", "t", 5, truncated=False)
    failure = ScoreFailure("too_long", "too long")
    assert compare([score, failure], [replace(score, reward=1.0001), failure]).passed
    assert not compare([score], [replace(score, reward=1.001)]).passed
    assert not compare([score], [failure]).passed
    assert not compare([failure], [failure]).passed
