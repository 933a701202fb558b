"""Rendered conversations in the engines: the same score as their messages, and nothing cut unasked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.domain import Message
from assay.models.chat.formats import FAMILIES
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.engines.length_corrected import LengthCorrectedScorer
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import Rendered, ScoreItem

PROMPT = (Message("user", "Name a metal."),)
LLAMA = next(family for family in FAMILIES if family.name == "Llama 3")


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


def of(text: str, **options: object) -> ScoreItem:
    return ScoreItem((), "", rendered=replace(Rendered(text), **options))  # type: ignore[arg-type]


def score(result: ScoreResult) -> Score:
    assert isinstance(result, Score), result
    return result


def failed(result: ScoreResult) -> ScoreFailure:
    assert isinstance(result, ScoreFailure), result
    return result


def test_text_and_ids_and_another_template_give_the_score_of_the_messages(scorer: TransformersScorer) -> None:
    text = scorer.renderer.render(PROMPT, "Gold.")
    ids = scorer.renderer.encode(PROMPT, "Gold.").ids
    foreign = LLAMA.write((*PROMPT, Message("assistant", "Gold.")))
    items = [
        ScoreItem(PROMPT, "Gold."),
        of(text),
        of(text, add_special_tokens=True),
        of(text.rstrip(), complete=True),
        of(foreign),
        ScoreItem((), "", rendered=Rendered(ids=ids)),
    ]
    first, *others = [score(result) for result in scorer.score(items)]
    for other in others:
        assert other.reward == pytest.approx(first.reward, abs=1e-5)
        assert (other.tokens, other.truncated) == (first.tokens, False)
    unfinished = score(scorer.score([of(text.rstrip())])[0])
    assert abs(unfinished.reward - first.reward) > 1e-4  # read one token earlier: why `complete` exists


def test_a_long_text_is_cut_only_where_asked(scorer: TransformersScorer) -> None:
    limit = scorer.info.max_length
    text = scorer.renderer.render(PROMPT, "x" * 2 * limit)
    ids = tuple(scorer.renderer.tokenizer(text, add_special_tokens=False).input_ids)
    several = scorer.renderer.render((Message("user", "y" * limit), Message("assistant", "z"), *PROMPT), "Gold.")
    llama = LLAMA.write(
        (Message("user", "y" * limit), Message("assistant", "z"), *PROMPT, Message("assistant", "Gold."))
    )
    for item in (of(text), of(several), of(llama), of(text, keep=limit + 1)):
        assert failed(scorer.score([item])[0]).code == "too_long"
    for keep, end, kept in ((-1, True, ids[-limit:]), (7, True, ids[-7:]), (7, False, ids[:7])):
        cut, same = scorer.score([of(text, keep=keep, keep_end=end), ScoreItem((), "", rendered=Rendered(ids=kept))])
        assert score(cut).reward == pytest.approx(score(same).reward, abs=1e-5)
        assert (score(cut).tokens, score(cut).truncated) == (len(kept), True)
    assert failed(scorer.score([of(text, keep=0)])[0]).code == "bad_input"


def test_what_cannot_be_read_fails_by_itself(scorer: TransformersScorer) -> None:
    good = scorer.renderer.render(PROMPT, "Gold.")
    bad = [of(""), of("\ud800"), of("[INST] <<SYS>>"), ScoreItem((), "", rendered=Rendered(ids=(1, 1 << 20)))]
    results = scorer.score([*bad, of(good)])
    assert [failed(result).code for result in results[:-1]] == ["bad_input"] * len(bad)
    assert "Llama 2" in failed(results[2]).message
    assert score(results[-1]).tokens > 0


def test_models_that_need_the_response_alone_read_it_out_of_the_text(tiny_principle_model: Path) -> None:
    scorer = PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu"))
    item = ScoreItem(PROMPT, "Gold.", "correctness")
    text = replace(of(scorer.renderer.render(PROMPT, "Gold.")), principle="correctness")
    apart, together = scorer.score([item, text])
    assert score(together).reward == pytest.approx(score(apart).reward, abs=1e-5)
    unreadable = replace(of("no turns here"), principle="correctness")
    ids = ScoreItem((), "", "correctness", rendered=Rendered(ids=(1, 2)))
    for result in scorer.score([unreadable, ids]):
        assert failed(result).code == "bad_input"


def test_a_generative_model_is_asked_about_the_response_in_the_text(tiny_judges: dict[str, Path]) -> None:
    judge = GenerativeScorer.load(ModelConfig(str(tiny_judges["pointwise"]), device="cpu"))
    text = LLAMA.write((*PROMPT, Message("assistant", "Gold.")))
    apart, broken, together = judge.score([ScoreItem(PROMPT, "Gold."), of("no turns here"), of(text)])
    assert score(together).reward == pytest.approx(score(apart).reward, abs=1e-5)
    assert failed(broken).code == "bad_input"


def test_a_length_correction_needs_to_know_the_response(scorer: TransformersScorer) -> None:
    from assay.models.length_correction import LengthCorrection

    correction = LengthCorrection("short", "penalty", "characters", rate=0.01)
    corrected = LengthCorrectedScorer(scorer, correction)
    result = corrected.score([of(scorer.renderer.render(PROMPT, "Gold."))])[0]
    assert failed(result).code == "bad_input"
