"""Generative engines: the reward is read at the verdict, votes are counted, what cannot be read is a failure."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay.domain import Message, Prompt
from assay.errors import BackendError, BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.engine import Examination, GenerativeScorer
from assay_serving.generative.generation import SamplingParams, generate, next_logp
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.pairwise import PairOutcome, PairQuestion, PairwiseJudge
from assay_serving.generative.reader import VerdictReader
from assay_serving.generative.templates import PAIRWISE, POINTWISE, RATING, JudgeFormat
from assay_serving.generative.verdict import read_verdict
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_judge, open_scorer
from assay_serving.scorer import ModelInfo, ScoreItem

PROMPT = (Message("user", "Name a metal."),)
LONG = (Message("user", "Say which of these is a metal, and why it is one."),)


class Scripted:
    """A writer whose answers are given, by question: tests' own engine."""

    def __init__(self, texts: Sequence[Sequence[str]], form: JudgeFormat, logp: dict[str, float] | None) -> None:
        self.texts, self.logp = list(texts), logp
        self.asked: list[Prompt] = []
        self.info = ModelInfo("scripted", "v", "generative", "t", 1000, False, "passed", "float32", "cpu")
        self.limit = 10_000

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        return len(prompt[0].content) <= self.limit

    def answer(
        self, asked: Sequence[Prompt], form: JudgeFormat, judging: Judging, *, seed: int, on_progress: Advance = silent
    ) -> list[list[JudgeSample] | ScoreFailure]:
        self.asked += asked
        made: list[list[JudgeSample] | ScoreFailure] = []
        for texts in self.texts[: len(asked)]:
            verdicts = [read_verdict(text, form.labels) for text in texts]
            made.append([JudgeSample(t, True, 7, 3, v, self.logp) for t, v in zip(texts, verdicts, strict=True)])
            on_progress(1)
        return made


def spec(judging: Judging) -> RewardModelSpec:
    return RewardModelSpec("generative", "tiny", "t", 1000, "v", judging=judging)


def scorer(texts: Sequence[Sequence[str]], judging: Judging, **logp: float) -> GenerativeScorer:
    form = {"pointwise": POINTWISE, "rating": RATING}[judging.format]
    return GenerativeScorer(Scripted(texts, form, logp or None), spec(judging))


def test_votes_by_mean_and_by_majority() -> None:
    yes, no = "x\nVerdict: Yes", "x\nVerdict: No"
    items = [ScoreItem(PROMPT, "gold")]
    by_mean = scorer([[yes, no, "?"]], Judging("pointwise", POINTWISE.hash, 3, 0.7), Yes=-0.5, No=-1.5)
    (score,) = by_mean.score(items)
    assert isinstance(score, Score)
    assert score.reward == pytest.approx(1.0)
    assert score.uncertainty == pytest.approx(0.0)
    (examination,) = by_mean.examine(items)
    assert isinstance(examination, Examination)
    assert examination.faults == {"no_verdict": 1}
    majority = Judging("pointwise", POINTWISE.hash, 3, 0.7, vote="majority")
    (score,) = scorer([[yes, yes, no]], majority).score(items)
    assert isinstance(score, Score)
    assert score.reward == pytest.approx(2 / 3)


def test_no_readable_answer_is_a_failure_never_a_number() -> None:
    (found,) = scorer([["Yes it is good", ""]], Judging("pointwise", POINTWISE.hash, 2, 1.0)).score(
        [ScoreItem(PROMPT, "gold")]
    )
    assert isinstance(found, ScoreFailure)
    assert found.code == "unparsable"
    assert "1 no_verdict" in found.message
    assert "1 empty" in found.message


def test_an_endpoint_without_log_probs_gives_no_yes_no_reward_but_a_rating() -> None:
    (found,) = scorer([["x\nVerdict: Yes"]], Judging("pointwise", POINTWISE.hash)).score([ScoreItem(PROMPT, "gold")])
    assert isinstance(found, ScoreFailure)
    assert "vote by majority" in found.message
    (rated,) = scorer([["x\nVerdict: 7"]], Judging("rating", RATING.hash)).score([ScoreItem(PROMPT, "gold")])
    assert isinstance(rated, Score)
    assert rated.reward == 7.0


def test_oldest_turns_are_dropped_where_the_question_does_not_fit() -> None:
    writer = Scripted([["x\nVerdict: Yes"]], POINTWISE, {"Yes": -0.1, "No": -2.0})
    turns = (Message("user", "a" * 500), Message("assistant", "ok"), Message("user", "Name a metal."))
    writer.limit = len(POINTWISE.ask(turns[2:], ("gold",))[0].content)
    (score,) = GenerativeScorer(writer, spec(Judging("pointwise", POINTWISE.hash))).score([ScoreItem(turns, "gold")])
    assert isinstance(score, Score)
    assert score.truncated
    assert "aaa" not in writer.asked[0][0].content


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(BadInputError, match="at temperature 0 are all the same"):
        Judging("pointwise", POINTWISE.hash, samples=3)
    with pytest.raises(BadInputError, match="compares two responses"):
        GenerativeScorer(Scripted([], PAIRWISE, None), spec(Judging("pairwise", PAIRWISE.hash)))
    with pytest.raises(BadInputError, match="does not compare pairs"):
        PairwiseJudge(Scripted([], POINTWISE, None), spec(Judging("pointwise", POINTWISE.hash)))


def test_a_trained_judge_scores_and_its_reward_is_at_the_verdict(tiny_judges: dict[str, Path]) -> None:
    found = open_scorer(ModelConfig(str(tiny_judges["pointwise"]), device="cpu"))
    assert isinstance(found, GenerativeScorer)
    (examined,) = found.examine([ScoreItem(PROMPT, "gold")])
    assert not isinstance(examined, ScoreFailure)
    (answer,) = examined.answers
    assert answer.text.endswith(f"Verdict: {answer.label}")
    # By hand: the model's own question and answer up to the label's first letter, then its next-token log-probs.
    writer = found.writer
    assert isinstance(writer, LocalWriter)
    question = POINTWISE.ask(PROMPT, ["gold"])
    ids = writer.renderer.encode(question).ids
    before = writer.renderer.tokenizer(answer.text[: -len(answer.label or "")], add_special_tokens=False)["input_ids"]
    logp = next_logp(writer.model, [[*ids, *before]])[0]
    first = {label: writer.renderer.tokenizer(label[0])["input_ids"][0] for label in ("Yes", "No")}
    assert examined.reward == pytest.approx(float(logp[first["Yes"]] - logp[first["No"]]), abs=1e-4)


def test_an_answer_depends_on_its_question_alone(tiny_judges: dict[str, Path]) -> None:
    judging = Judging("pairwise", PAIRWISE.hash, samples=2, temperature=1.0, max_new_tokens=24)
    judge = PairwiseJudge.load(
        ModelConfig(str(tiny_judges["pairwise"]), device="cpu"),
        judging=judging,
    )
    pairs = [PairQuestion(PROMPT, "gold", "glass"), PairQuestion(LONG, "tin", "wood, which is not one")]
    together = judge.compare(pairs)
    alone = [judge.compare([pair])[0] for pair in pairs]

    def texts(outcomes: Sequence[PairOutcome | ScoreFailure]) -> list[str]:
        found = [o for o in outcomes if isinstance(o, PairOutcome)]
        return [answer.text for outcome in found for order in outcome.orders for answer in order.answers]

    assert texts(together) == texts(alone)
    assert len(set(texts(together))) > 1  # the samples of a question differ
    other = PairwiseJudge.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"), judging=judging, seed=1)
    assert texts(other.compare(pairs)) != texts(together)


def test_both_orders_are_asked_and_come_back_as_the_pairs_own(tiny_judges: dict[str, Path]) -> None:
    judge = open_judge(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    pair, swapped = judge.compare([PairQuestion(PROMPT, "gold", "glass"), PairQuestion(PROMPT, "glass", "gold")])
    assert isinstance(pair, PairOutcome)
    assert isinstance(swapped, PairOutcome)
    assert pair.probability is not None
    assert swapped.probability == pytest.approx(1 - pair.probability, abs=1e-5)
    assert [order.first_shown for order in pair.orders] == ["A", "B"]


def test_a_judge_that_failed_its_parity_is_asked_only_when_told_to(
    tiny_judges: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "judge"
    shutil.copytree(tiny_judges["pairwise"], folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    replace(spec, parity="failed: saved = loaded").write(folder)
    with pytest.raises(BadInputError, match="failed: saved = loaded"):
        open_judge(ModelConfig(str(folder), device="cpu"))
    assert (
        open_judge(ModelConfig(str(folder), device="cpu", allow_failed_parity=True)).info.parity
        == "failed: saved = loaded"
    )


def test_sampling_follows_the_models_distribution(tiny_judges: dict[str, Path]) -> None:
    writer, _ = LocalWriter.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    ids = writer.renderer.encode(PROMPT).ids
    probability = next_logp(writer.model, [ids])[0].double().exp()
    drawn = generate(writer.model, [ids], SamplingParams(1, 1.0, 1.0), samples=2000, ends=[], seed=0)[0]
    counts = [0] * len(probability)
    for sample in drawn:
        counts[sample.ids[0]] += 1
    for token in probability.topk(3).indices.tolist():
        p = float(probability[token])
        assert counts[token] / 2000 == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 2000) + 1e-9)
    narrow = generate(writer.model, [ids], SamplingParams(1, 1.0, 1e-6), samples=20, ends=[], seed=0)[0]
    assert {sample.ids[0] for sample in narrow} == {int(probability.argmax())}


def test_a_rating_beside_ten_gets_what_ten_leaves(tiny_judges: dict[str, Path]) -> None:
    writer, _ = LocalWriter.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    (logp,) = writer.label_logps([PROMPT], ["Fine.\nVerdict: 7"], RATING)
    assert logp is not None
    ids = list(writer.renderer.encode(PROMPT).ids)
    before = writer.renderer.tokenizer("Fine.\nVerdict: ", add_special_tokens=False)["input_ids"]
    one, zero = (writer.renderer.tokenizer(digit)["input_ids"][0] for digit in "10")
    root = next_logp(writer.model, [[*ids, *before]])[0]
    after = next_logp(writer.model, [[*ids, *before, one]])[0]
    assert logp["10"] == pytest.approx(float(root[one] + after[zero]), abs=1e-4)
    assert math.exp(logp["1"]) + math.exp(logp["10"]) == pytest.approx(math.exp(float(root[one])), rel=1e-4)
    assert set(logp) == set(RATING.labels)


def test_votes_share_the_computation_of_their_question(tiny_judges: dict[str, Path]) -> None:
    """The log-probs of eight answers to one question: its tokens once, and the figures of each answer by itself."""
    writer, _ = LocalWriter.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    question = PAIRWISE.ask(PROMPT, ("gold", "glass"))
    texts = [f"Answer number {n} has a reason.\nVerdict: {'AB'[n % 2]}" for n in range(8)]
    alone = [writer.label_logps([question], [text], PAIRWISE)[0] for text in texts]
    positions: list[int] = []
    embeddings = writer.model.get_input_embeddings()
    hook = embeddings.register_forward_hook(lambda _, inputs, __: positions.append(inputs[0].numel()))
    together = writer.label_logps([question] * 8, texts, PAIRWISE)
    hook.remove()
    asked = len(writer.renderer.encode(question).ids)
    assert asked < sum(positions) < asked + 8 * 60
    for one, other in zip(together, alone, strict=True):
        assert one is not None
        assert other is not None
        assert [one[label] for label in "AB"] == pytest.approx([other[label] for label in "AB"], abs=1e-4)


def test_a_question_that_does_not_fit_is_a_failure(tiny_judges: dict[str, Path]) -> None:
    judge = PairwiseJudge.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu", max_length=400))
    (found,) = judge.compare([PairQuestion(PROMPT, "gold", "glass")])
    assert isinstance(found, ScoreFailure)
    assert found.code == "too_long"


def test_a_model_is_not_asked_another_question_than_it_learnt(tiny_judges: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "old"
    shutil.copytree(tiny_judges["pointwise"], folder)
    known = RewardModelSpec.read(folder)
    assert known is not None
    assert known.judging is not None
    replace(known, judging=replace(known.judging, template="0" * 16)).write(folder)
    with pytest.raises(BackendError, match="trained with judge question 0000"):
        open_scorer(ModelConfig(str(folder), device="cpu"))
    replace(known, parity="failed: response 1").write(folder)
    with pytest.raises(BadInputError, match="does not give the scores"):
        open_scorer(ModelConfig(str(folder), device="cpu"))
    payload = json.loads((folder / "assay.json").read_text(encoding="utf-8"))
    assert payload["judging"]["format"] == "pointwise"
    with pytest.raises(BadInputError, match="compares two responses and scores none"):
        open_scorer(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))


def test_the_reader_gives_the_log_odds_of_a_given_answer(tiny_judges: dict[str, Path]) -> None:
    reader = VerdictReader.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    question = PAIRWISE.ask(PROMPT, ("gold", "glass"))
    right, cut = reader.score([ScoreItem(question, "Fine.\nVerdict: A"), ScoreItem(question, "Fine.")])
    assert isinstance(right, Score)
    assert isinstance(cut, ScoreFailure)
    outcome = open_judge(ModelConfig(str(tiny_judges["pairwise"]), device="cpu")).compare(
        [PairQuestion(PROMPT, "gold", "glass")], swapped_too=False
    )[0]
    assert isinstance(outcome, PairOutcome)
    answer = outcome.orders[0].answers[0]
    (again,) = reader.score([ScoreItem(question, answer.text)])
    assert isinstance(again, Score)
    assert answer.log_odds("A", "B") == pytest.approx(again.reward, abs=1e-4)


def test_an_answer_is_cut_off_where_its_time_is_over(tiny_judges: dict[str, Path]) -> None:
    writer, _ = LocalWriter.load(ModelConfig(str(tiny_judges["pairwise"]), device="cpu"))
    ids = writer.renderer.encode(PROMPT).ids
    cut = generate(writer.model, [ids], SamplingParams(40, 0.0, 1.0, max_seconds=0.0), samples=1, ends=[], seed=0)[0][0]
    whole = generate(writer.model, [ids], SamplingParams(40, 0.0, 1.0), samples=1, ends=[], seed=0)[0][0]
    assert (len(cut.ids), cut.ended) == (1, False)
    assert whole.ids[:1] == cut.ids
