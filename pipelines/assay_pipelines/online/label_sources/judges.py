"""Label sources that answer at once: the judges of the curation, a verifier, a reward model, a simulated annotator.

Covers: one asking for each, whose opinions are in the store with their judge as annotator. Leaves out: the judges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.annotation.votes import preference
from assay.domain import AnnotatorKind
from assay.runs.record import Run
from assay.workspace import Workspace
from assay_pipelines.judging.asking import ask, opinions
from assay_pipelines.judging.config import judge_of
from assay_pipelines.judging.judge import Judge, JudgeResult, OnResult, Opinion
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.judging.verifier import ConstraintJudge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.questions import Question
from assay_pipelines.online.label_sources.kind import Answer, AskedPair, affordable_pairs


@dataclass(frozen=True)
class JudgeLabels:
    """The labels of a judge. `price`: of an answer, beside what the judge's calls cost by themselves."""

    judge: Judge
    workspace: Workspace
    price: float = 0.0
    waits: bool = False

    @property
    def name(self) -> str:
        return annotator_of(self.judge).name

    def ask(self, pairs: Sequence[AskedPair], run: Run, *, money: float | None) -> list[Answer]:
        paid = pairs[: affordable_pairs(len(pairs), self.price, money)]
        money = None if money is None else money - self.price * len(paid)
        questions = [Question(pair.comparison_id, pair.prompt, *pair.responses) for pair in paid]
        spending = Spending(Budget(cost=money))
        report = ask(self.workspace, self.judge, questions, run.id, budget=spending)
        annotator = annotator_of(self.judge).id
        stored = opinions(self.workspace, [pair.comparison_id for pair in pairs])
        of_calls = spending.cost / max(len(paid), 1)
        problem = report.stopped or ", ".join(f"{code}: {count}" for code, count in sorted(report.failures.items()))
        answers = [Answer(pair.comparison_id, None, problem="over budget") for pair in pairs[len(paid) :]]
        for pair in paid:
            by_annotator = stored.get(pair.comparison_id, {})
            opinion = by_annotator.get(annotator)
            label = None if opinion is None else preference(opinion.answer)
            preferences = {preference(one.answer) for one in by_annotator.values()}
            if opinion is None or label is None:
                answers.append(Answer(pair.comparison_id, None, cost=of_calls, problem=problem or "no opinion"))
            else:
                contradicts = {"A", "B"} <= preferences
                cost = self.price + of_calls
                answers.append(Answer(pair.comparison_id, label, opinion.judgment_ids, cost, contradicts=contradicts))
        return answers

    def collect(self, waiting: Sequence[str], run: Run) -> list[Answer]:
        return []


@dataclass(frozen=True)
class ErringJudge:
    """An annotator of stated accuracy: what `truth` says, or its opposite. Ties of the truth it decides by chance."""

    truth: Judge
    settings: SimulatedConfig
    kind: AnnotatorKind = "simulated"

    @property
    def name(self) -> str:
        return f"simulated {self.truth.name}"

    @property
    def config(self) -> Mapping[str, Any]:
        return {**asdict(self.settings), "truth": dict(self.truth.config)}

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        results: dict[int, JudgeResult] = {}
        self.truth.judge(questions, results.__setitem__)
        truths = {questions[i].comparison_id: r.answer for i, r in results.items() if isinstance(r, Opinion)}
        erring = SimulatedJudge(truths, self.settings, self.name)
        answered = [i for i, question in enumerate(questions) if question.comparison_id in truths]
        for i in results.keys() - set(answered):
            on_result(i, results[i])
        erring.judge([questions[i] for i in answered], lambda index, result: on_result(answered[index], result))


def verifier_labels(*, workspace: Workspace, price: float = 0.0) -> JudgeLabels:
    """The prompts' own constraints: the response that meets more of them."""
    return JudgeLabels(ConstraintJudge(workspace), workspace, price)


def judge_labels(*, workspace: Workspace, judge: Mapping[str, Any], price: float = 0.0) -> JudgeLabels:
    """`judge`: as in a file of judges, e.g. {kind: openai, base_url: ..., model: ...}."""
    return JudgeLabels(judge_of(dict(judge), workspace), workspace, price)


def reward_labels(*, workspace: Workspace, model: str, price: float = 0.0) -> JudgeLabels:
    """`model`: a reward model by name, or the URL of its server: the response with the higher reward."""
    return JudgeLabels(judge_of({"kind": "reward_model", "model": model}, workspace), workspace, price)


def simulated_labels(
    *,
    workspace: Workspace,
    accuracy: float = 0.8,
    tie_rate: float = 0.0,
    position_bias: float = 0.0,
    seed: int = 0,
    truth: Mapping[str, Any] | None = None,
    price: float = 0.0,
) -> JudgeLabels:
    """An annotator that errs. `truth`: a judge as in a file of judges; None: the verifier."""
    judge = ConstraintJudge(workspace) if truth is None else judge_of(dict(truth), workspace)
    settings = SimulatedConfig(accuracy, tie_rate, position_bias, seed=seed)
    return JudgeLabels(ErringJudge(judge, settings), workspace, price)
