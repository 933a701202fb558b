"""The engine for principle models: what it refuses, what a score carries, what is computed once."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.loading import load_tokenizer
from assay.models.spec import Calibration, RewardModelSpec
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer, open_scorer
from assay_serving.scorer import ScoreItem

PROMPT = (Message("user", "Name a metal."),)
ITEM = ScoreItem(PROMPT, "Gold.", "Correctness")


@pytest.fixture(scope="module")
def scorer(tiny_principle_model: Path) -> PrincipleScorer:
    return PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu"))


def only(results: list[ScoreResult]) -> Score:
    [result] = results
    assert isinstance(result, Score), result
    return result


def test_a_score_carries_its_principle_and_the_models_own_probability(scorer: PrincipleScorer) -> None:
    score = only(scorer.score([ITEM]))
    assert score.principle == "Correctness"
    assert score.probability == pytest.approx(1 / (1 + math.exp(-score.reward)))
    assert score.calibration is None
    assert score.template_hash == scorer.questions.template_hash != scorer.renderer.template_hash
    assert score.tokens == len(scorer.questions.encode(PROMPT, "Gold.", "Correctness"))


def test_a_calibration_takes_the_place_of_the_models_own_probability(
    tiny_principle_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny_principle_model, folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    calibration = Calibration(0.5, 0.1, "gold", 10)
    spec.calibrated(calibration).write(folder)
    score = only(PrincipleScorer.load(ModelConfig(str(folder), device="cpu")).score([ITEM]))
    assert score.probability == pytest.approx(calibration.probability(score.reward))
    assert score.calibration == calibration.id


@pytest.mark.parametrize("principle", [None, "", "  \n"])
def test_an_item_without_a_principle_fails_and_the_others_do_not(
    scorer: PrincipleScorer, principle: str | None
) -> None:
    failed, scored = scorer.score([ScoreItem(PROMPT, "Gold.", principle), ITEM])
    assert isinstance(failed, ScoreFailure)
    assert failed.code == "bad_input"
    assert "principle" in failed.message
    assert isinstance(scored, Score)


def test_typed_failures(tiny_principle_model: Path) -> None:
    short = PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", max_length=300))
    long, broken = short.score([ScoreItem(PROMPT, "x" * 400, "Clarity"), ScoreItem(PROMPT, "Gold.", "\ud800")])
    assert isinstance(long, ScoreFailure)
    assert isinstance(broken, ScoreFailure)
    assert (long.code, broken.code) == ("too_long", "bad_input")
    assert short.score([]) == []


def test_several_principles_on_one_response_compute_it_once(scorer: PrincipleScorer) -> None:
    response = "A long answer. " * 20
    principles = [f"Principle {n}" for n in range(8)]
    scorer.score([ScoreItem(PROMPT, response, principle) for principle in principles])
    alone = len(scorer.questions.encode(PROMPT, response, principles[0]))
    assert scorer.last_tokens == 8 * alone
    assert scorer.last_computed < alone + 8 * 64  # the principle, the end of the turn, the header: bytes are tokens


def test_several_responses_share_their_prompt(scorer: PrincipleScorer) -> None:
    prompt = (Message("user", "A long question. " * 20),)
    scorer.score([ScoreItem(prompt, f"Answer {n}.", "Clarity") for n in range(4)])
    assert scorer.last_computed < 0.8 * scorer.last_tokens


def test_the_question_and_the_answer_tokens_are_checked_against_the_spec(
    tiny_principle_model: Path, tmp_path: Path
) -> None:
    spec = RewardModelSpec.read(tiny_principle_model)
    assert spec is not None
    for number, changed in enumerate((replace(spec, question="Is it {principle}?"), replace(spec, yes_token=7))):
        folder = tmp_path / str(number)
        shutil.copytree(tiny_principle_model, folder)
        changed.write(folder)
        with pytest.raises(BackendError, match="tokenizer now gives"):
            PrincipleScorer.load(ModelConfig(str(folder), device="cpu"))


def test_a_language_model_from_elsewhere_is_asked_by_an_explicit_kind(tiny_principle_base: Path) -> None:
    with pytest.raises(BadInputError, match="without a reward head"):
        open_scorer(ModelConfig(str(tiny_principle_base), device="cpu"))
    ours = open_scorer(ModelConfig(str(tiny_principle_base), device="cpu", kind="principle"))
    wording = "Judge the reply by this: {principle}. Yes or No?"
    theirs = open_scorer(ModelConfig(str(tiny_principle_base), device="cpu", kind="principle", question=wording))
    assert ours.info.kind == theirs.info.kind == "principle"
    assert only(ours.score([ITEM])).reward != only(theirs.score([ITEM])).reward
    assert ours.info.template_hash != theirs.info.template_hash


def test_kinds_are_not_confused(tiny_principle_model: Path, tiny_reward_model: Path) -> None:
    assert isinstance(load_scorer(ModelConfig(str(tiny_principle_model), device="cpu")), PrincipleScorer)
    assert isinstance(load_scorer(ModelConfig(str(tiny_reward_model), device="cpu")), TransformersScorer)
    with pytest.raises(BadInputError, match="principle"):
        load_scorer(ModelConfig(str(tiny_principle_model), device="cpu", kind="scalar"))
    with pytest.raises(BadInputError, match="scalar"):
        load_scorer(ModelConfig(str(tiny_reward_model), device="cpu", kind="principle"))
    with pytest.raises(BadInputError, match="trained with the question"):
        load_scorer(
            ModelConfig(str(tiny_principle_model), device="cpu", kind="principle", question="Is it {principle}?")
        )
    with pytest.raises(BadInputError, match="for principle models"):
        load_scorer(ModelConfig(str(tiny_reward_model), device="cpu", question="Is it {principle}?"))


def test_a_scalar_model_cannot_be_wrapped(tiny_reward_model: Path, tiny_principle_model: Path) -> None:
    scalar = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    spec = RewardModelSpec.read(tiny_principle_model)
    assert spec is not None
    renderer = Renderer(load_tokenizer(str(tiny_principle_model)), max_length=512)
    with pytest.raises(BadInputError, match="no language head"):
        PrincipleScorer(scalar.model, renderer, spec, name="x")


def test_a_policy_is_rewarded_by_the_prompts_principle(
    scorer: PrincipleScorer, tiny_reward_model: Path, tmp_path: Path
) -> None:
    from assay_policy_training.plugins.prompts.source import load_prompts
    from assay_policy_training.rollouts.rewards import ModelReward

    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "Name a metal.", "principle": "Correctness"}\n'
        '{"prompt": "Name a metal.", "principle": "Brevity"}\n'
        '{"prompt": "Name a metal."}\n'
    )
    items = load_prompts(str(file), seed=0)
    found = ModelReward(scorer).score(items, ["Gold."] * 3)
    assert [score[scorer.info.name].principle for score in found.scores[:2]] == ["Correctness", "Brevity"]
    assert found.scores[2] == {}
    assert [len(failed) for failed in found.failures] == [0, 0, 1]
    scalar = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    assert all(not failed for failed in ModelReward(scalar).score(items, ["Gold."] * 3).failures)
