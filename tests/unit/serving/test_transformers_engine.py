"""Typed failures, truncation, calibration, refusals and threads of the transformers engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.models.spec import Calibration, RewardModelSpec
from assay.score import Score, ScoreFailure
from assay_serving.engines.packed import Layout
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, ScoreItem

PROMPT = (Message("user", "Name a metal."),)


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))


@pytest.fixture
def with_spec(tiny_reward_model: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the tiny reward model whose spec has the given fields replaced."""

    def copy(**changes: object) -> Path:
        folder = tmp_path / "copy"
        shutil.copytree(tiny_reward_model, folder)
        spec = RewardModelSpec.read(folder)
        assert spec is not None
        replace(spec, **changes).write(folder)  # type: ignore[arg-type]
        return folder

    return copy


def only_failure(result: object) -> ScoreFailure:
    assert isinstance(result, ScoreFailure), result
    return result


def test_no_items_give_no_results(scorer: TransformersScorer) -> None:
    assert scorer.score([]) == []


def test_a_score_carries_its_identity(scorer: TransformersScorer, tiny_reward_model: Path) -> None:
    [result] = scorer.score([ScoreItem(PROMPT, "Gold.")])
    spec = RewardModelSpec.read(tiny_reward_model)
    assert isinstance(result, Score)
    assert spec is not None
    assert (result.model, result.version, result.template_hash) == ("tiny-rm", spec.version, spec.template_hash)
    assert result.tokens == len(scorer.renderer.encode(PROMPT, "Gold."))
    assert not result.truncated
    assert result.probability is None
    assert scorer.info.parity == "passed"
    assert ModelInfo.from_dict({**scorer.info.to_dict(), "later": 1}) == scorer.info


def test_calibration_gives_a_probability(with_spec: Callable[..., Path]) -> None:
    calibration = Calibration(temperature=0.5, reference=0.1, fitted_on="s-1", pairs=100)
    scorer = TransformersScorer.load(ModelConfig(str(with_spec(calibration=calibration)), device="cpu"))
    [result] = scorer.score([ScoreItem(PROMPT, "Gold.")])
    assert isinstance(result, Score)
    assert result.probability == calibration.probability(result.reward)
    assert scorer.info.calibrated


def test_bad_items_fail_in_place_and_the_others_are_scored(scorer: TransformersScorer) -> None:
    items = [
        ScoreItem(PROMPT, "Gold."),
        ScoreItem(PROMPT, "\ud800"),
        ScoreItem(PROMPT, "x" * 5000),
        ScoreItem(PROMPT, "Gold.", principle="Is it short?"),
        ScoreItem(PROMPT, "Silver."),
    ]
    done: list[int] = []
    results = scorer.score(items, done.append)
    assert [r.code if isinstance(r, ScoreFailure) else "ok" for r in results] == [
        "ok",
        "bad_input",
        "too_long",
        "bad_input",
        "ok",
    ]
    assert sum(done) == len(items)
    first, alone = results[0], scorer.score(items[:1])[0]
    assert isinstance(first, Score)
    assert isinstance(alone, Score)
    assert first.reward == pytest.approx(alone.reward, abs=1e-5)


def test_a_long_conversation_loses_old_turns_and_says_so(scorer: TransformersScorer) -> None:
    history = (Message("user", "y" * 600), Message("assistant", "z"), *PROMPT)
    [long, short] = scorer.score([ScoreItem(history, "Gold."), ScoreItem(PROMPT, "Gold.")])
    assert isinstance(long, Score)
    assert isinstance(short, Score)
    assert long.truncated
    assert (long.reward, long.tokens) == pytest.approx((short.reward, short.tokens), abs=1e-5)


def test_max_length_shortens_or_lengthens_up_to_the_bases_own(tiny_reward_model: Path) -> None:
    shorter = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", max_length=40))
    assert shorter.info.max_length == 40
    assert (
        TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", max_length=9999)).info.max_length
        == 4096
    )
    assert only_failure(shorter.score([ScoreItem(PROMPT, "x" * 100)])[0]).code == "too_long"


def test_a_non_finite_score_is_a_failure(tiny_reward_model: Path) -> None:
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    with torch.no_grad():
        scorer.model.get_parameter("score.weight")[0, 0] = float("nan")
    assert only_failure(scorer.score([ScoreItem(PROMPT, "Gold.")])[0]).code == "non_finite"


def test_a_checkpoint_that_failed_parity_is_refused(with_spec: Callable[..., Path]) -> None:
    folder = str(with_spec(parity="failed: off by 0.3"))
    with pytest.raises(BadInputError, match=r"off by 0\.3"):
        TransformersScorer.load(ModelConfig(folder, device="cpu"))
    allowed = TransformersScorer.load(ModelConfig(folder, device="cpu", allow_failed_parity=True))
    assert allowed.info.parity == "failed: off by 0.3"


def test_another_chat_template_is_refused_naming_both(
    with_spec: Callable[..., Path], scorer: TransformersScorer
) -> None:
    folder = with_spec(template_hash="0123456789abcdef")
    with pytest.raises(BackendError, match="0123456789abcdef") as caught:
        TransformersScorer.load(ModelConfig(str(folder), device="cpu"))
    assert scorer.info.template_hash in str(caught.value)


def test_other_kinds_and_headless_models_are_refused(with_spec: Callable[..., Path]) -> None:
    with pytest.raises(BadInputError, match="generative"):
        TransformersScorer.load(ModelConfig(str(with_spec(kind="generative")), device="cpu"))
    with pytest.raises(BadInputError, match="without a reward head"):
        TransformersScorer.load(ModelConfig("tiny", device="cpu"))
    with pytest.raises(NotFoundError):
        TransformersScorer.load(ModelConfig("no-such-model", device="cpu"))


@pytest.mark.parametrize("layout", ["packed", "right"])
def test_a_batch_too_large_for_the_memory_is_halved(layout: Layout, tiny_reward_model: Path) -> None:
    """The real engine, with a memory that holds two rows at most and none longer than 200 tokens."""

    class SmallMemory(TransformersScorer):
        def _forward(self, batch, rows):  # type: ignore[no-untyped-def]
            numbers = [i for group in batch for i in group]
            if len(numbers) > 2 or max(len(rows[i].conversation) for i in numbers) > 200:
                raise torch.OutOfMemoryError("out of memory")
            return super()._forward(batch, rows)

    small = SmallMemory.load(ModelConfig(str(tiny_reward_model), device="cpu"), layout=layout)
    whole = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    items = [ScoreItem(PROMPT, "Gold. " * (1 + n % 3)) for n in range(9)] + [ScoreItem(PROMPT, "x" * 300)]
    results = small.score(items)
    assert only_failure(results[-1]).code == "backend"
    for got, expected in zip(results[:-1], whole.score(items)[:-1], strict=True):
        assert isinstance(got, Score)
        assert isinstance(expected, Score)
        assert got.reward == pytest.approx(expected.reward, abs=1e-5)


def test_threads_take_turns(scorer: TransformersScorer) -> None:
    items = [ScoreItem(PROMPT, f"Metal number {n}.") for n in range(12)]
    expected = scorer.score(items)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda item: scorer.score([item])[0], items))
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, Score)
        assert isinstance(other, Score)
        assert one.reward == pytest.approx(other.reward, abs=1e-5)
