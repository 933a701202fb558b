"""Benchmark items scored by engines and asked of pairwise judges: order, failures, truncation, both games."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_rm_training.benchmarks.catalogue import benchmark
from assay_rm_training.benchmarks.item import BenchmarkItem, with_unique_keys
from assay_rm_training.benchmarks.report import report
from assay_rm_training.benchmarks.scoring import judge_items, score_items
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.pairwise import PairwiseJudge
from assay_serving.generative.templates import PAIRWISE, JudgeFormat
from assay_serving.generative.verdict import read_verdict
from assay_serving.scorer import ModelInfo, ScoreItem


def info(kind: str) -> ModelInfo:
    return ModelInfo("toy", "1", kind, "t", 100, calibrated=False, parity="passed", dtype="float32", device="cpu")


class CountsLetters:
    """A whole scorer of a toy kind: the reward is the response's length; a `?` cannot be scored, `~` is truncated."""

    def __init__(self, kind: str = "scalar") -> None:
        self.info = info(kind)
        self.principles: list[str | None] = []

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.principles += [item.principle for item in items]
        return [
            ScoreFailure("too_long", "a question mark")
            if "?" in item.response
            else Score(float(len(item.response)), "toy", "1", "t", 1, "~" in item.response)
            for item in items
        ]


class Judge:
    """A writer that answers by a rule of the text it is shown: tests' own engine."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule, self.info = rule, info("generative")

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        return True

    def answer(
        self, asked: Sequence[Prompt], form: JudgeFormat, judging: Judging, *, seed: int, on_progress: Advance = silent
    ) -> list[list[JudgeSample] | ScoreFailure]:
        made: list[list[JudgeSample] | ScoreFailure] = []
        for prompt in asked:
            if "LONG" in prompt[-1].content:
                made.append(ScoreFailure("too_long", "does not fit"))
                continue
            text = self.rule(prompt[-1].text)
            made.append([JudgeSample(text, True, 7, 3, read_verdict(text, form.labels), None)])
        return made


def item(
    id_: str, *responses: str, gold: tuple[float, ...] = (1.0, 0.0), principle: str | None = None
) -> BenchmarkItem:
    prompt = (Message("user", f"question {id_}"),)
    return BenchmarkItem(id_, prompt, responses, gold, "math", "math", principle=principle, models=("m",))


def test_scores_come_back_to_their_items() -> None:
    items = with_unique_keys([item("a", "xx", "x"), item("b", "x", "yy~", "zzz"), item("c", "x", "?", "zzz")])[0]
    one, two, three = score_items(CountsLetters(), items)
    assert (one.scores, one.truncated, one.failure) == ((2.0, 1.0), False, None)
    assert (two.scores, two.truncated) == ((1.0, 3.0, 3.0), True)
    assert (three.scores, three.failure) == (None, "too_long"), "one failure takes the item, and no score stands in"


def test_only_models_that_take_principles_are_asked_by_them() -> None:
    items = [item("a", "x", "y", principle="Is it short?"), item("b", "x", "y")]
    scalar, principle = CountsLetters(), CountsLetters("principle")
    score_items(scalar, items)
    score_items(principle, items, principle="Is it right?")
    assert scalar.principles == [None] * 4
    assert principle.principles == ["Is it short?"] * 2 + ["Is it right?"] * 2
    with pytest.raises(BadInputError, match="toy is a reward model of kind scalar and takes no principle"):
        score_items(scalar, items, principle="Is it right?")


def verdict(label: str) -> str:
    return f"Because.\nVerdict: {label}"


def first_is_better(text: str) -> bool:
    return text.index("BETTER") < text.index("WORSE")


@pytest.mark.parametrize(
    ("rule", "decisions", "right"),
    [
        (lambda text: verdict("A" if first_is_better(text) else "B"), ("A>B", "A>B"), 1.0),
        (lambda text: verdict("B" if first_is_better(text) else "A"), ("B>A", "B>A"), 0.0),
        (lambda text: verdict("A"), ("A>B", "B>A"), 0.0),
        (lambda text: verdict("A") if first_is_better(text) else "I cannot say.", ("A>B", None), 1.0),
    ],
)
def test_a_judge_plays_two_games(
    rule: Callable[[str], str], decisions: tuple[str | None, str | None], right: float
) -> None:
    spec = RewardModelSpec("generative", "tiny", "t", 1000, "v", judging=Judging("pairwise", PAIRWISE.hash))
    judge = PairwiseJudge(Judge(rule), spec)
    items = with_unique_keys([item("a", "BETTER", "WORSE"), item("b", "WORSE", "BETTER", gold=(0.0, 1.0))])[0]
    outcomes, replies = judge_items(judge, items)
    assert outcomes[0].decisions == decisions
    assert (replies.replies, replies.unread) == (4, 2 if None in decisions else 0)
    assert report(benchmark("judgebench"), items, outcomes, model="toy").aggregates["overall"] == right


def test_a_pair_that_does_not_fit_is_a_failure_and_not_a_null_decision() -> None:
    spec = RewardModelSpec("generative", "tiny", "t", 1000, "v", judging=Judging("pairwise", PAIRWISE.hash))
    judge = PairwiseJudge(Judge(lambda text: verdict("A")), spec)
    items = with_unique_keys([item("a", "LONG BETTER", "WORSE"), item("b", "BETTER", "WORSE")])[0]
    outcomes, _ = judge_items(judge, items)
    assert (outcomes[0].decisions, outcomes[0].failure) == (None, "too_long")
    assert outcomes[1].decisions == ("A>B", "B>A")


def test_an_item_without_any_readable_reply_is_a_failure_and_not_a_null_decision() -> None:
    spec = RewardModelSpec("generative", "tiny", "t", 1000, "v", judging=Judging("pairwise", PAIRWISE.hash))
    judge = PairwiseJudge(Judge(lambda text: "[[A]]" if "MUTE" in text else verdict("A")), spec)
    items = with_unique_keys([item("a", "MUTE BETTER", "WORSE"), item("b", "BETTER", "WORSE")])[0]
    outcomes, replies = judge_items(judge, items)
    assert (outcomes[0].decisions, outcomes[0].failure) == (None, "unparsable")
    assert (replies.replies, replies.unread, replies.most) == (4, 2, False)
    assert "they look like judge profile" in replies.line("toy", "pairwise", 2)
