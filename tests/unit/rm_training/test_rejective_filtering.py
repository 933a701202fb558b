"""Rejective filtering and meta reward models: which judgments are kept, what they become, who votes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.conversation.message import images_of
from assay.conversation.parts import ImagePart, TextPart
from assay.data.conversation import turns_of
from assay.data.pairs import load_pairs_or_file
from assay.domain import Message, Prompt, prompt_of
from assay.errors import BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_rm_training.data.response_labels import load_steps
from assay_rm_training.generative.judged_rows import JudgedRow, read_judged_file
from assay_rm_training.generative.rejective import (
    HINT,
    MetaGuidedWriter,
    in_drawn_order,
    meta_rewards,
    sample_judgments,
)
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.pairwise import PairQuestion, PairwiseJudge
from assay_serving.generative.templates import PAIRWISE, JudgeFormat
from assay_serving.scorer import ModelInfo, ScoreItem


class WrittenAnswers:
    """A judge of stated answers: a question's are those of the first key that it holds."""

    info = ModelInfo("written", "1", "generative")

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self.answers, self.asked = answers, 0

    def fits(self, prompt: Prompt, judging: Judging) -> bool:
        return True

    def answer(
        self, questions: Sequence[Prompt], form: JudgeFormat, judging: Judging, *, seed: int, on_progress: Advance
    ) -> list[list[JudgeSample] | ScoreFailure]:
        self.asked += len(questions)
        found = [next(v for key, v in self.answers.items() if key in question[-1].text) for question in questions]
        return [
            [JudgeSample(text, True, 1, 1, form.read(text)) for text in texts[: judging.samples]] for texts in found
        ]


class ByLength:
    """A meta reward: the longer judgment, and none for an empty one."""

    info = ModelInfo("by-length", "1")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return [
            Score(float(len(str(item.response))), "by-length", "1", "", 1, False)
            if item.response
            else ScoreFailure("bad_input", "empty", "by-length")
            for item in items
        ]


def row(number: str, label: str = "A") -> JudgedRow:
    return JudgedRow((Message("user", f"Question {number}."),), (f"first {number}", f"second {number}"), label)


def test_pairs_of_judgments_are_of_the_best_and_the_worst_by_the_meta_judge(tmp_path: Path) -> None:
    answers = {
        "mixed": [said("Short.", "B"), said("The longest of all.", "A"), "no verdict, and longer than the others are"],
        "alike": [said("Same.", "A")] * 3,
        "empty": [said("Said.", "B"), "", said("Longer.", "B")],
        "unread": ["no verdict", "none here either", ""],
    }
    sampled = sample_judgments(WrittenAnswers(answers), SPEC, [row(name) for name in answers])
    worth = meta_rewards(ByLength(), sampled)
    assert sum(reward is None for each in worth for reward in each) == 2
    pairs = [line for one, each in zip(sampled, worth, strict=True) for line in one.pairs(each)]
    assert [(line["chosen"], line["rejected"]) for line in pairs] == [
        (said("The longest of all.", "A"), said("Short.", "B")),
        (said("Longer.", "B"), said("Said.", "B")),
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in pairs))
    assert [pair.prompt for pair in load_pairs_or_file(None, str(file))] == [sampled[0].question, sampled[2].question]
    by_label = [line for one in sampled for line in one.pairs(one.right_or_wrong)]
    assert [(line["chosen"], line["rejected"]) for line in by_label] == [
        (said("The longest of all.", "A"), said("Short.", "B"))
    ]


def said(reason: str, label: str) -> str:
    return f"{reason}\nVerdict: {label}"


SPEC = RewardModelSpec(
    "generative", "written", "h", 4096, "1", judging=Judging("pairwise", PAIRWISE.hash, samples=3, temperature=0.5)
)


def test_right_judgments_of_rows_that_are_not_too_easy_are_accepted(tmp_path: Path) -> None:
    hint = HINT.format(label="A")
    writer = WrittenAnswers(
        {
            hint: [said("The first names it.", "A")],
            "mixed": [said("One.", "A"), said("Two.", "B"), said("One.", "A")],
            "easy": [said("Clear.", "A")] * 3,
            "hard": [said("No.", "B"), "no verdict", said("Never.", "B")],
        }
    )
    rows = [row("mixed"), row("easy"), row("hard")]
    mixed, easy, hard = sample_judgments(writer, SPEC, rows)
    assert writer.asked == 4  # three rows, and one again with the hint
    assert [line["rationale"] for line in mixed.accepted()] == ["One."]
    assert (easy.too_easy, easy.accepted()) == (True, [])
    assert [line["rationale"] for line in hard.accepted()] == ["The first names it."]
    path = tmp_path / "accepted.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for one in (mixed, hard) for line in one.accepted()))
    assert [(r.label, r.rationale) for r in read_judged_file(path, PAIRWISE)] == [
        ("A", "One."),
        ("A", "The first names it."),
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*mixed.trajectories(), *hard.trajectories()]))
    steps = list(load_steps(path))
    assert [labels for step in steps for labels in step.labels] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert all(len(step.steps) == 1 for step in steps)


def test_the_better_half_by_the_meta_reward_votes() -> None:
    texts = [said("A careful reason.", "A"), said("x", "B"), said("y", "B"), said("Another careful reason.", "A")]
    writer = WrittenAnswers({"mixed": texts})
    spec = replace(SPEC, judging=replace(SPEC.judging, samples=4))  # type: ignore[type-var]
    pair = PairQuestion(row("mixed").prompt, "first mixed", "second mixed")
    plain, guided = (
        PairwiseJudge(each, spec).compare([pair], swapped_too=False)[0]
        for each in (writer, MetaGuidedWriter(writer, ByLength()))
    )
    assert not isinstance(plain, ScoreFailure)
    assert not isinstance(guided, ScoreFailure)
    assert (plain.decision, guided.decision) == ("tie", "A")
    assert [answer.text for answer in guided.orders[0].answers] == [texts[0], texts[3]]


def test_an_answer_without_a_meta_reward_has_no_vote() -> None:
    writer = MetaGuidedWriter(WrittenAnswers({"mixed": ["", "word", ""], "hard": ["", ""]}), ByLength())
    questions = [row(name).question(PAIRWISE) for name in ("hard", "mixed")]
    assert SPEC.judging is not None
    failed, answers = writer.answer(questions, PAIRWISE, SPEC.judging, seed=0, on_progress=silent)
    assert isinstance(failed, ScoreFailure)
    assert failed.model == "by-length"
    assert not isinstance(answers, ScoreFailure)
    assert [answer.text for answer in answers] == ["word"]


def test_rows_that_cannot_be_asked_are_said(caplog: pytest.LogCaptureFixture) -> None:
    class Down(WrittenAnswers):
        def answer(self, questions: Sequence[Prompt], *arguments: Any, **options: Any) -> Any:
            answers = super().answer(questions, *arguments, **options)
            down = ScoreFailure("backend", "no answer", "written")
            return [down if "hard" in q[-1].text else a for q, a in zip(questions, answers, strict=True)]

    writer = Down({"easy": [said("Clear.", "A")] * 3, "hard": [""]})
    assert len(sample_judgments(writer, SPEC, [row("easy"), row("hard")])) == 1
    assert "1 of 2 rows could not be asked: {'backend': 1}, e.g. no answer" in caplog.text
    with pytest.raises(BadInputError, match="1 of 1 rows could not be asked"):
        sample_judgments(writer, SPEC, [row("hard")])


def test_images_stay_in_the_question_with_its_hint_and_in_what_the_meta_reward_learns_from() -> None:
    image = ImagePart(url="data:image/png;base64,AAAA")
    seen = JudgedRow((Message("user", (image, TextPart("mixed"))),), ("a", "b"), "A")
    asked: list[Prompt] = []

    class Recording(WrittenAnswers):
        def answer(self, questions: Sequence[Prompt], *arguments: Any, **options: Any) -> Any:
            asked.extend(questions)
            return super().answer(questions, *arguments, **options)

    [one] = sample_judgments(Recording({"mixed": [said("No.", "B")] * 3}), SPEC, [seen])
    assert [images_of(question) for question in asked] == [[image], [image]]
    assert HINT.format(label="A") in asked[1][-1].text
    [trajectory] = one.trajectories()
    assert prompt_of(turns_of(trajectory["prompt"], "prompt")) == asked[0]


def test_pairs_are_shown_in_a_drawn_order() -> None:
    """Else, of rows with chosen and rejected, the verdict A would be right each time."""
    rows = [row(str(number)) for number in range(60)]
    shown = [in_drawn_order(each) for each in rows]
    assert 15 < sum(each.label == "B" for each in shown) < 45
    for before, after in zip(rows, shown, strict=True):
        assert after.responses["AB".index(after.label)] == before.responses[0]
    assert [in_drawn_order(each) for each in rows] == shown


def test_demonstrations_beside_samples_give_the_planted_reward() -> None:
    """Demonstrations drawn from pi_ref exp(r) among the policy's samples: their likelihood has its optimum at r."""
    import torch

    from assay_rm_training.objectives.lists import plackett_luce

    planted = torch.tensor([2.0, 0.5, -1.0, 0.0])
    chances = planted.softmax(0)
    reward = torch.zeros(4, requires_grad=True)
    optimiser = torch.optim.LBFGS([reward], max_iter=60)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        ranks = [[1 if i == j else 2 for j in range(4)] for i in range(4)]
        total = sum((p * plackett_luce(reward, r) for p, r in zip(chances, ranks, strict=True)), torch.zeros(()))
        total.backward()
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    assert (reward - reward.mean()).tolist() == pytest.approx((planted - planted.mean()).tolist(), abs=1e-3)
