"""Asking: nothing twice, everything kept, budgets, what the store holds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from assay.domain import AnnotatorKind, Answer, Comparison, Message
from assay.errors import BackendError
from assay.store.records import insert_annotator
from assay.workspace import Workspace
from assay_pipelines.judging.asking import ask, opinions
from assay_pipelines.judging.judge import JudgeFailure, JudgeResult, OnResult
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.questions import Question


def questions(count: int) -> list[Question]:
    made = []
    for n in range(count):
        pair, _ = Comparison.of((Message("user", f"Question {n}?"),), f"yes {n}", f"no {n}")
        made.append(Question(pair.id, pair.prompt, pair.response_a, pair.response_b))
    return made


def truth(asked: Sequence[Question]) -> dict[str, Answer]:
    return {q.comparison_id: "A" if n % 2 else "B" for n, q in enumerate(asked)}


class Counting:
    """Any judge, with a count of how often each question was put to it."""

    def __init__(self, inner: SimulatedJudge, before: Callable[[int], None] = lambda place: None) -> None:
        self.inner, self.before = inner, before
        self.asked: list[str] = []

    @property
    def kind(self) -> AnnotatorKind:
        return self.inner.kind

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def config(self) -> Mapping[str, Any]:
        return self.inner.config

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        for place, question in enumerate(questions):
            self.before(len(self.asked))
            self.asked.append(question.comparison_id)
            results: list[JudgeResult] = []
            self.inner.judge([question], lambda _, result, kept=results: kept.append(result))  # type: ignore[misc]
            on_result(place, results[0])


def stored(workspace: Workspace) -> list[tuple[Any, ...]]:
    with workspace.store.unit() as db:
        return db.execute("SELECT origin, shown_order, answer FROM judgments ORDER BY origin").fetchall()


def test_nothing_is_asked_twice_and_every_answer_is_kept(workspace: Workspace) -> None:
    asked = questions(30)
    judge = Counting(SimulatedJudge(truth(asked)))
    first = ask(workspace, judge, asked[:20], None)
    done: list[int] = []
    second = ask(workspace, judge, asked, None, advance=done.append)
    assert (first.asked, first.answered, first.known) == (20, 20, 0)
    assert (second.asked, second.answered, second.known) == (10, 10, 20)
    assert sum(done) == 30
    assert sorted(judge.asked) == sorted(q.comparison_id for q in asked)
    found = opinions(workspace, [q.comparison_id for q in asked], [annotator_of(judge).id])
    assert len(found) == 30


def test_another_configuration_is_another_annotator(workspace: Workspace) -> None:
    asked = questions(5)
    one = SimulatedJudge(truth(asked), SimulatedConfig(seed=1))
    other = SimulatedJudge(truth(asked), SimulatedConfig(seed=2))
    ask(workspace, one, asked, None)
    assert ask(workspace, other, asked, None).asked == 5
    found = opinions(workspace, [asked[0].comparison_id])
    assert set(found[asked[0].comparison_id]) == {annotator_of(one).id, annotator_of(other).id}


def test_an_opinion_is_one_row_and_its_votes_are_told_apart(workspace: Workspace) -> None:
    asked = questions(1)
    judge = SimulatedJudge(truth(asked), SimulatedConfig(position_bias=1.0, samples=2, both_orders=True))
    ask(workspace, judge, asked, None)
    assert stored(workspace) == [
        ("", None, "tie"),  # it took the first position every time
        ("vote//AB/0", "AB", "A"),
        ("vote//AB/1", "AB", "A"),
        ("vote//BA/0", "BA", "B"),
        ("vote//BA/1", "BA", "B"),
    ]
    found = opinions(workspace, [asked[0].comparison_id])[asked[0].comparison_id]
    assert found[annotator_of(judge).id].answer == "tie"


def test_a_single_vote_is_the_opinion_and_keeps_its_order(workspace: Workspace) -> None:
    asked = questions(1)
    ask(workspace, SimulatedJudge(truth(asked), SimulatedConfig(accuracy=1.0)), asked, None)
    ((origin, order, answer),) = stored(workspace)
    assert (origin, answer) == ("", "B")
    assert order in ("AB", "BA")


def test_an_answered_question_is_not_asked_again(workspace: Workspace) -> None:
    asked = questions(3)
    judge = Counting(SimulatedJudge(truth(asked), SimulatedConfig(accuracy=1.0)))
    assert ask(workspace, judge, asked, None).asked == 3
    judge.inner.truth = {q.comparison_id: "tie" for q in asked}
    assert ask(workspace, judge, asked, None).asked == 0
    stated = opinions(workspace, [asked[0].comparison_id])[asked[0].comparison_id]
    assert stated[annotator_of(judge).id].answer == truth(asked)[asked[0].comparison_id]


def test_failures_are_counted_never_stored_and_asked_again(workspace: Workspace) -> None:
    asked = questions(4)
    known = truth(asked)
    judge = SimulatedJudge({q.comparison_id: known[q.comparison_id] for q in asked[:3]})
    report = ask(workspace, judge, asked, None)
    assert (report.asked, report.answered, report.failures) == (4, 3, {"no_answer": 1})
    judge.truth = known
    assert ask(workspace, judge, asked, None).answered == 1


def test_a_budget_of_questions_stops_and_the_next_run_resumes(workspace: Workspace) -> None:
    asked = questions(10)
    judge = Counting(SimulatedJudge(truth(asked)))
    shared = Spending(Budget(questions=6))
    first = ask(workspace, judge, asked[:4], None, budget=shared)
    second = ask(workspace, judge, asked, None, budget=shared)
    assert (first.answered, first.stopped) == (4, None)
    assert (second.answered, second.known) == (2, 4)
    assert second.stopped is not None
    assert "6 questions" in second.stopped
    assert ask(workspace, judge, asked, None).answered == 4
    assert len(set(judge.asked)) == len(judge.asked) == 10


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BackendError("the endpoint is gone")])
def test_what_was_answered_before_an_interruption_is_written(workspace: Workspace, error: BaseException) -> None:
    asked = questions(10)

    def stop(place: int) -> None:
        if place == 7:
            raise error

    with pytest.raises(type(error)):
        ask(workspace, Counting(SimulatedJudge(truth(asked)), before=stop), asked, None)
    report = ask(workspace, SimulatedJudge(truth(asked)), asked, None)
    assert (report.known, report.asked) == (7, 3)


def test_a_judge_that_leaves_questions_out_has_failed_on_them(workspace: Workspace) -> None:
    class Lazy(SimulatedJudge):
        def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
            super().judge(questions[:1], on_result)

    asked = questions(3)
    assert ask(workspace, Lazy(truth(asked)), asked, None).failures == {"no_answer": 2}


def test_a_judge_that_answers_twice_is_a_defect(workspace: Workspace) -> None:
    class Twice(SimulatedJudge):
        def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
            for _ in range(2):
                on_result(0, JudgeFailure("refused", "no"))

    with pytest.raises(RuntimeError, match="twice"):
        ask(workspace, Twice({}), questions(1), None)


def test_opinions_of_people_and_sources_are_read_the_same_way(workspace: Workspace) -> None:
    from assay import ids
    from assay.domain import Judgment
    from assay.store.records import insert_judgments

    comparison = questions(1)[0].comparison_id
    person = ids.annotator_id("human", "ana")
    with workspace.store.unit() as db:
        insert_annotator(db, "human", "ana")
        insert_judgments(db, [Judgment(comparison, person, "A"), Judgment(comparison, person, "B")], None)
        assert opinions(db, [comparison])[comparison][person].answer == "tie"  # said both in one breath
        assert opinions(db, [comparison], []) == {}


def test_a_simulated_judge_is_as_accurate_and_as_biased_as_stated() -> None:
    asked = questions(2000)
    true = truth(asked)
    answers: dict[str, str] = {}

    def keep(place: int, result: Any) -> None:
        answers[asked[place].comparison_id] = result.answer

    SimulatedJudge(true, SimulatedConfig(accuracy=0.7)).judge(asked, keep)
    right = sum(answers[c] == true[c] for c in true) / len(true)
    assert 0.66 < right < 0.74
    SimulatedJudge(true, SimulatedConfig(accuracy=1.0, tie_rate=0.25)).judge(asked, keep)
    assert 0.21 < sum(a == "tie" for a in answers.values()) / len(true) < 0.29
