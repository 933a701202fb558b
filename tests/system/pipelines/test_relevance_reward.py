"""R3: the published factors, relevance without preferences, what a hacker of relevance loses, as a served engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.conversation.parts import ImagePart, TextPart
from assay.domain import Message
from assay.score import Score, ScoreFailure
from assay_pipelines.embedding.relevance import LONGEST, RelevanceScorer, length_and_repetition
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

ENGINE = "assay_pipelines.embedding.relevance:RelevanceScorer"
ANSWERS = {
    "How do I bake bread?": "Mix flour, water, salt and yeast, knead the dough, let it rise, then bake the loaf.",
    "What do cats eat?": "Cats eat meat above all: fish, chicken or a complete cat food, and fresh water.",
    "How do I change a flat tyre?": "Loosen the wheel nuts, jack up the car, swap the wheel and tighten the nuts.",
    "Why is the sky blue?": "Air scatters the blue part of sunlight more than the red, so the sky looks blue.",
}


def test_the_factors_have_the_published_numbers() -> None:
    assert length_and_repetition("a b c a b c a") == (0.07, 0.6)
    assert length_and_repetition("a b") == (0.02, 1.0)
    assert length_and_repetition("word " * 2000)[0] == LONGEST


def test_an_answer_to_the_question_beats_answers_to_others() -> None:
    scorer = RelevanceScorer.load(ModelConfig("minilm", device="cpu"))
    for question, answer in ANSWERS.items():
        prompt = (Message("user", question),)
        texts = [answer, *(other for other in ANSWERS.values() if other != answer), f"{question} " * 3, ""]
        *scores, empty = scorer.score([ScoreItem(prompt, text) for text in texts])
        assert isinstance(empty, ScoreFailure)
        rewards = [score.reward for score in scores if isinstance(score, Score)]
        assert rewards[0] == max(rewards[:-1])
        copied = scores[-1]
        assert isinstance(copied, Score)
        factors = {part.name: part.value or 0.0 for part in copied.parts}
        assert factors["repetition"] < 0.7
        assert copied.reward == pytest.approx(factors["relevance"] * factors["length"] * factors["repetition"])
    seen = (Message("user", (ImagePart(url="data:image/png;base64,AAAA"), TextPart("What is this?"))),)
    [blind] = scorer.score([ScoreItem(seen, "A cat.")])
    assert isinstance(blind, ScoreFailure)
    assert "no place for images" in blind.message
    [right, wrong] = scorer.score(
        [ScoreItem(prompt, text, label="Rayleigh scattering") for text in ("scattering", "paint")]
    )
    assert isinstance(right, Score)
    assert isinstance(wrong, Score)
    assert right.reward > wrong.reward  # a fact question: by its reference, and not longer for being longer


def test_it_is_scored_with_as_any_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question, answer = next(iter(ANSWERS.items()))
    arguments = ["--engine", ENGINE, "--prompt", question, "--response", answer, "--response", "It is a nice day."]
    with pytest.raises(SystemExit) as stop:
        main(["score", "--model", "minilm", *arguments, "--json"])
    assert not stop.value.code
    out = json.loads(capsys.readouterr().out)
    first, second = out["scores"] if isinstance(out, dict) else out
    assert first["reward"] > second["reward"]
    assert [part["name"] for part in first["parts"]] == ["relevance", "length", "repetition"]
