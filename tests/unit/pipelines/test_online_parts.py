"""Parts of an online loop: which pairs are candidates, when labels are spent, when a refit is refused, its files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import online_labels
import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.score import Score, ScoreResult
from assay.workspace import Workspace
from assay_pipelines.judging.judge import Opinion
from assay_pipelines.judging.simulated import SimulatedConfig
from assay_pipelines.llm.questions import Question
from assay_pipelines.online.candidate_pairs import candidate_pairs
from assay_pipelines.online.config import BudgetPlan, SwapPlan, loop_of
from assay_pipelines.online.journal import Control, Journal, LabelRow
from assay_pipelines.online.label_sources.judges import ErringJudge, JudgeLabels
from assay_pipelines.online.label_sources.kind import LabelSource
from assay_pipelines.online.label_sources.people import PeoplesQueue
from assay_pipelines.online.purchase import LabelLimits, LabelPurchase
from assay_pipelines.online.record import LoopRecord
from assay_pipelines.online.refit import TrainingPair
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.uniform import RandomPairs
from assay_pipelines.online.shadow import compare
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_serving.scorer import ScoreItem


def batch(prompts: list[str], responses: list[str]) -> RolloutBatch:
    rows = len(prompts)
    ids, mask = torch.zeros(rows, 1, dtype=torch.long), torch.ones(rows, 1, dtype=torch.bool)
    asked = tuple((Message("user", prompt),) for prompt in prompts)
    flags = torch.zeros(rows, dtype=torch.bool)
    return RolloutBatch(
        *(tuple(prompts), asked, tuple(responses), ids, mask, ids, mask, ids, mask, mask),
        *(torch.zeros(rows, 1), torch.zeros(rows, dtype=torch.long), ids, flags, flags),
        items=tuple(map(PromptItem, asked)),
    )


def test_candidates_are_different_texts_to_one_prompt_once_and_not_twice() -> None:
    pairs = candidate_pairs(batch(["p", "p", "p", "q", "q"], ["x", "y", "x", "x", "x"]))
    assert {pairs.texts[row] for row in (pairs.first[0], pairs.second[0])} == {"x", "y"}
    assert len(pairs.comparisons) == 1
    asked = set(pairs.comparisons)
    assert len(candidate_pairs(batch(["p", "p"], ["x", "y"]), asked).comparisons) == 0
    more = candidate_pairs(batch(["p", "p", "p", "q", "q"], ["x", "y", "z", "x", "y"]), asked)
    assert len(more.comparisons) == 3
    assert more.prompt_numbers.tolist() == [0, 0, 1]
    swapped = candidate_pairs(batch(["p", "p"], ["y", "x"]))
    assert swapped.comparisons == pairs.comparisons
    assert swapped.texts[swapped.first[0]] == pairs.texts[pairs.first[0]], "A and B are of the comparison"


@pytest.mark.parametrize(
    ("spent", "reached"),
    [
        ({"labels": 9, "money": 0.9, "step": 20, "minutes": 4.9}, None),
        ({"labels": 10, "money": 0, "step": 1, "minutes": 0}, "labels: 10 of 10"),
        ({"labels": 0, "money": 1.0, "step": 1, "minutes": 0}, "money: 1 of 1"),
        ({"labels": 0, "money": 0, "step": 21, "minutes": 0}, "steps: 21 of 20"),
        ({"labels": 0, "money": 0, "step": 1, "minutes": 5.5}, "minutes: 5.5 of 5"),
    ],
)
def test_the_first_limit_that_leaves_nothing(spent: dict[str, Any], reached: str | None) -> None:
    limits = LabelLimits.of(BudgetPlan(labels=3, money=1.0, steps=20, minutes=5.0), Control(labels=10))
    assert limits.reached(**spent) == reached


class Told:
    """Rewards by response."""

    info: Any = None

    def __init__(self, **rewards: float) -> None:
        self.rewards = rewards

    def score(self, items: Any, on_progress: Any = None) -> list[ScoreResult]:
        return [Score(self.rewards[item.response], "told", "1", "", 1, False) for item in items]


def test_a_refit_is_refused_by_held_out_labels_and_by_disagreement() -> None:
    prompt = (Message("user", "p"),)
    items = [ScoreItem(prompt, text) for text in "abc"]
    held_out = [TrainingPair(items[0], items[1]), TrainingPair(items[1], items[2])]
    old, worse = Told(a=3, b=2, c=1), Told(a=3, b=1, c=2)
    figures = compare(old, worse, items, ["p"] * 3, held_out)
    assert (figures.accuracy_old, figures.accuracy_new) == (1.0, 0.5)
    assert figures.agreement == pytest.approx(2 / 3)
    assert (figures.level, figures.scale) == (0.0, 1.0)
    assert figures.objection(SwapPlan(least=3)) is None
    assert "0.500" in str(figures.objection(SwapPlan(least=2)))
    assert figures.objection(SwapPlan(least=2, tolerance=0.5)) is None
    assert "0.667" in str(figures.objection(SwapPlan(least=3, agreement=0.7)))


@contextmanager
def purchase_of(
    source: LabelSource, workspace: Workspace
) -> Iterator[tuple[LabelPurchase, Callable[..., list[LabelRow]]]]:
    """A purchase, and what buys one pair of each of three prompts."""
    pairs = candidate_pairs(batch(["p", "p", "q", "q", "r", "r"], ["long", "x"] * 3))
    candidates = Candidates(pairs.first, pairs.second, pairs.prompt_numbers, np.zeros(6))
    with start_run(workspace, "loop", {}) as run:
        purchase = LabelPurchase(LoopRecord(workspace, "loop", "gold"), source, Journal(run.folder), run, 0, 0.0)

        def buy(step: int, **limits: float) -> list[LabelRow]:
            return purchase.buy(step, RandomPairs(), pairs, candidates, 3, LabelLimits(**limits))  # type: ignore[arg-type]

        yield purchase, buy


def test_first_labels_may_come_one_by_one_and_money_is_kept_for_them(workspace: Workspace) -> None:
    with purchase_of(online_labels.Source(waits=True, price_of_pair=2.0), workspace) as (purchase, buy):
        assert buy(0) == []
        assert (purchase.cost, purchase.committed) == (0.0, 6.0)
        came = [row.comparison_id for _ in range(3) for row in purchase.collect(0)]
        assert sorted(came) == sorted(purchase.rows)
        assert (purchase.cost, purchase.committed) == (6.0, 6.0)


@pytest.mark.slow
def test_a_price_is_within_the_limit_and_questions_without_an_answer_cost_too(workspace: Workspace) -> None:
    with purchase_of(JudgeLabels(online_labels.LongerIsBetter(), workspace, price=0.1), workspace) as (purchase, buy):
        assert len(buy(1, money=0.2)) == 2
        assert purchase.cost == pytest.approx(0.2)
        assert buy(2, money=0.2) == []
    queue = PeoplesQueue(workspace, "loop", price=1.0)
    with purchase_of(queue, workspace) as (purchase, buy):
        assert buy(1, money=2.0) == []
        assert (len(purchase.waiting), len(purchase.rows)) == (2, 2), "the third pair was not asked about"
        purchase.load(purchase.journal.label_rows())
        assert len(purchase.rows) == 2
    with purchase_of(online_labels.Source(answers=False, price_of_pair=0.5), workspace) as (purchase, buy):
        assert buy(1) == []
        assert (purchase.cost, purchase.rows) == (1.5, {})
        purchase.load(purchase.journal.label_rows())
        assert purchase.cost == 1.5


def test_a_journal_is_taken_over_without_a_torn_line_or_an_order_to_pause(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    journal = Journal(old)
    row = LabelRow(1, [{"role": "user", "content": "p"}], ["x", "y"], "c-1", "random", {}, "queue", asked_at=1.0)
    journal.add_labels([row])
    sizes = journal.sizes()
    journal.keep_reply(2, minutes=1.0)
    journal.keep_reply(2, collected=[])
    journal.event(2, "refit")
    Control("pause", labels=7).write(old)
    with (old / "labels.jsonl").open("a") as stream:
        stream.write('{"step": 2, "pro')
    taken = Journal(new).begin_from(old)
    assert taken.label_rows() == [row]
    assert (taken.reply(2, "minutes"), taken.reply(2, "collected"), taken.reply(1, "minutes")) == (1.0, [], None)
    assert Control.read(new) == Control("run", labels=7)
    taken.cut(sizes)
    assert (taken.label_rows(), taken.events.rows()) == ([row], [])
    (new / "control.json").write_text('{"state": "walk"}')
    with pytest.raises(BadInputError, match="walk"):
        Control.read(new)
    third = tmp_path / "third"
    third.mkdir()
    Journal(third).begin_from(new)
    assert Control.read(third) == Control()


def test_a_simulated_annotator_errs_as_often_as_stated() -> None:
    questions = [Question(f"c-{n}", (Message("user", "p"),), "long" * n, "x") for n in range(2, 402)]
    answers: dict[int, Any] = {}
    ErringJudge(online_labels.LongerIsBetter(), SimulatedConfig(0.8, seed=3)).judge(questions, answers.__setitem__)
    right = np.array([isinstance(answer, Opinion) and answer.answer == "A" for answer in answers.values()])
    assert len(right) == 400
    assert abs(right.mean() - 0.8) < 3 * math.sqrt(0.8 * 0.2 / 400)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": {"labels": "many"}}, "field 'reward.labels': must be a whole number, not 'many'"),
        (
            {"reward": {"labels": 1, "hosts": "x"}},
            "field 'reward.hosts': no setting is named 'hosts'; did you mean host",
        ),
        ({"labels": {"every": 0}}, "field 'labels.every': must be at least 1, not 0"),
        ({"labels": {"source": "verifier"}}, "labels.source"),
        ({"reward": {"labels": 1, "start": "m"}}, "field 'reward': begin with one of start, pairs and labels"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError) as error:
        loop_of({"name": "x", "reward": {"labels": 1}, **settings})
    assert message in str(error.value)
