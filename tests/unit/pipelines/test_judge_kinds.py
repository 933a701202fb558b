"""Judges other than language models, judges from a file, and the report on all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay import ids
from assay.domain import Answer, Comparison, Judgment, Message
from assay.errors import BadInputError, NotFoundError
from assay.registry import made_by, settings_of
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.annotation.votes import source_votes
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.asking import ask, opinions
from assay_pipelines.judging.config import judge_of, load_judges
from assay_pipelines.judging.judge import JudgeFailure, JudgeResult, Opinion
from assay_pipelines.judging.kind import JUDGES
from assay_pipelines.judging.openai_compatible import LlmJudge
from assay_pipelines.judging.recorded import RecordedJudge
from assay_pipelines.judging.reporting import judges_report
from assay_pipelines.judging.reward_model import RewardModelJudge
from assay_pipelines.judging.simulated import SimulatedConfig, SimulatedJudge
from assay_pipelines.judging.verifier import ConstraintJudge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.questions import Question
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server
from assay_serving.verifiers import MaxWords


def questions(count: int) -> list[Question]:
    made = []
    for n in range(count):
        pair, _ = Comparison.of((Message("user", f"Question {n}?"),), f"yes {n}", f"no {n}")
        made.append(Question(pair.id, pair.prompt, pair.response_a, pair.response_b))
    return made


def results(judge: Any, asked: list[Question]) -> list[JudgeResult]:
    found: dict[int, JudgeResult] = {}
    judge.judge(asked, found.__setitem__)
    return [found[n] for n in range(len(asked))]


def answer_of(result: JudgeResult) -> str:
    return result.answer if isinstance(result, Opinion) else result.code


@pytest.fixture
def voted(workspace: Workspace) -> tuple[Workspace, list[Question]]:
    """Three people on two comparisons: A A B, and A B (one does not know the second)."""
    asked = questions(3)
    votes: list[tuple[str, int, Answer]] = [
        ("set/ana", 0, "A"),
        ("set/bo", 0, "A"),
        ("set/cy", 0, "B"),
        ("set/ana", 1, "A"),
        ("set/bo", 1, "B"),
    ]
    with workspace.store.unit() as db:
        for name in ("set/ana", "set/bo", "set/cy"):
            insert_annotator(db, "human", name)
        rows = [Judgment(asked[n].comparison_id, ids.annotator_id("human", name), a) for name, n, a in votes]
        insert_judgments(db, rows, None)
    return workspace, asked


def test_recorded_people_answer_what_they_answered(voted: tuple[Workspace, list[Question]]) -> None:
    workspace, asked = voted
    judge = RecordedJudge.from_store(workspace, annotators="set/%")
    assert [answer_of(r) for r in results(judge, asked)] == ["A", "tie", "no_answer"]
    first = results(judge, asked)[0]
    assert isinstance(first, Opinion)
    assert first.confidence == 2 / 3
    assert len(first.votes) == 3
    report = ask(workspace, judge, asked, None)
    assert (report.answered, report.failures) == (2, {"no_answer": 1})
    # what it repeated is not taken for another person's vote
    with workspace.store.unit() as db:
        db.executemany(
            "INSERT INTO origins (comparison_id, source, record_id) VALUES (?, 'set', ?)",
            [[q.comparison_id, str(n)] for n, q in enumerate(asked)],
        )
    assert {vote.annotator for vote in source_votes(workspace, "set")} == {"set/ana", "set/bo", "set/cy"}
    assert len(source_votes(workspace, "set")) == 5
    assert annotator_of(RecordedJudge.from_store(workspace)).config["voters"] == annotator_of(judge).config["voters"]


def test_recorded_votes_can_be_rationed(voted: tuple[Workspace, list[Question]]) -> None:
    workspace, asked = voted
    single = RecordedJudge.from_store(workspace, votes=1, seed=3)
    again = RecordedJudge.from_store(workspace, votes=1, seed=3)
    assert [answer_of(r) for r in results(single, asked)] == [answer_of(r) for r in results(again, asked)]
    assert all(len(r.votes) == 1 for r in results(single, asked) if isinstance(r, Opinion))
    limited = RecordedJudge.from_store(workspace, limit=1)
    assert [answer_of(r) for r in results(limited, asked)] == ["A", "over_budget", "no_answer"]
    without = RecordedJudge.from_store(workspace, exclude=[ids.annotator_id("human", "set/cy")])
    assert results(without, asked)[0].confidence == 1.0  # type: ignore[union-attr]
    with pytest.raises(NotFoundError, match="nobody%"):
        RecordedJudge.from_store(workspace, annotators="nobody%")


def test_a_vote_taken_back_is_not_recorded(voted: tuple[Workspace, list[Question]]) -> None:
    workspace, asked = voted
    taken = Judgment(asked[1].comparison_id, ids.annotator_id("human", "set/bo"), "B").id
    with workspace.store.unit() as db:
        db.execute("INSERT INTO withdrawn_judgments VALUES (?, 'a slip', now())", [taken])
    assert answer_of(results(RecordedJudge.from_store(workspace), asked)[1]) == "A"


def test_recorded_answers_from_a_file(workspace: Workspace, tmp_path: Path) -> None:
    asked = questions(2)
    file = tmp_path / "votes.jsonl"
    rows = [
        {"comparison_id": asked[0].comparison_id, "answer": "B", "annotator": "x", "confidence": 0.9, "rationale": "r"},
        {"comparison_id": asked[1].comparison_id, "answer": "tie"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = RecordedJudge.from_file(file, name="votes")
    assert [answer_of(r) for r in results(judge, asked)] == ["B", "tie"]
    for wrong, told in (
        ('{"comparison_id": "c-1", "answer": "left"}', "row 3, field 'answer'"),
        ('{"answer": "A"}', "row 3, field 'comparison_id'"),
        ('{"comparison_id": "c-1", "answer": "A", "confidence": 7}', "row 3, field 'confidence'"),
        ("{", "row 3: broken JSON"),
    ):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows) + wrong + "\n")
        with pytest.raises(BadInputError, match=told):
            RecordedJudge.from_file(file)


def test_a_reward_model_prefers_its_higher_reward(workspace: Workspace, tiny_reward_model: Path) -> None:
    judge = RewardModelJudge(TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu")))
    asked = questions(3)
    found = results(judge, asked)
    swapped = [Question(q.comparison_id, q.prompt, q.response_b, q.response_a) for q in asked]
    for one, other in zip(found, results(judge, swapped), strict=True):
        assert isinstance(one, Opinion)
        assert isinstance(other, Opinion)
        assert one.confidence is not None
        assert one.confidence >= 0.5
        assert {one.answer, other.answer} in ({"A", "B"}, {"tie"})
    assert annotator_of(judge).name == judge.name == f"{judge.scorer.info.name}@{judge.scorer.info.version}"
    assert ask(workspace, judge, asked, None).answered == 3
    too_long = Question("c-x", (Message("user", "Hi"),), "x" * 5000, "short")
    (failed,) = results(judge, [too_long])
    assert isinstance(failed, JudgeFailure)
    assert failed.code == "too_long"
    with running_server({"rm": judge.scorer}) as server:
        served = judge_of({"kind": "reward_model", "model": server.url}, workspace)
        assert list(map(answer_of, results(served, asked))) == list(map(answer_of, results(judge, asked)))


def test_a_generative_model_votes_both_ways_round(
    workspace: Workspace, tiny_judges: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "judges.yaml"
    file.write_text(f"judges: [{{kind: reward_model, model: {tiny_judges['pairwise']}, device: cpu}}]\n")
    (judge,) = load_judges(file, workspace)
    asked = questions(2)
    for found in results(judge, asked):
        assert isinstance(found, Opinion)
        assert [vote.shown_order for vote in found.votes] == ["AB", "BA"]
        assert found.confidence is not None
        assert found.confidence >= 0.5
    assert judge.config["format"] == "pairwise"
    assert ask(workspace, judge, asked, None).answered == 2
    (failed,) = results(judge, [Question("c-x", (Message("user", "Hi"),), "x" * 5000, "short")])
    assert isinstance(failed, JudgeFailure)
    assert failed.code == "too_long"


@pytest.fixture
def imported(workspace: Workspace, tmp_path: Path) -> list[Question]:
    rows: list[dict[str, Any]] = [
        {
            "id": f"row-{n}",
            "source": "noisy",
            "prompt": [{"role": "user", "content": f"Question {n}?"}],
            "chosen": "far too many words in this one",
            "rejected": f"short {n}",
            "category": "math" if n % 2 else "poetry",
            "meta": {"constraints": [MaxWords(3).to_dict()]} if n < 2 else {},
        }
        for n in range(4)
    ]
    file = tmp_path / "noisy.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    made = []
    for row in rows:
        pair, _ = Comparison.of((Message("user", row["prompt"][0]["content"]),), row["chosen"], row["rejected"])
        made.append(Question(pair.id, pair.prompt, pair.response_a, pair.response_b))
    return made


def test_the_verifier_judges_what_can_be_checked(workspace: Workspace, imported: list[Question]) -> None:
    found = results(ConstraintJudge(workspace), imported)
    right = ["A" if str(q.response_a).startswith("short") else "B" for q in imported[:2]]
    assert [answer_of(r) for r in found] == [*right, "no_answer", "no_answer"]
    assert annotator_of(ConstraintJudge(workspace)).name == "constraints"


def test_a_rubric_judges_by_each_comparisons_own_items(workspace: Workspace, tmp_path: Path) -> None:
    short = {"text": "Is short", "constraints": [MaxWords(3).to_dict()]}
    rows: list[dict[str, Any]] = [
        {"id": f"row-{n}", "source": "s", "prompt": [{"role": "user", "content": f"Q {n}?"}], **pair, "meta": meta}
        for n, (pair, meta) in enumerate(
            [
                ({"chosen": "far too many words here", "rejected": "short one"}, {"rubric": [short]}),
                ({"chosen": "far too many words here", "rejected": "short two"}, {}),
            ]
        )
    ]
    file = tmp_path / "rubrics.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    pairs = [
        Comparison.of((Message("user", row["prompt"][0]["content"]),), row["chosen"], row["rejected"])[0]
        for row in rows
    ]
    asked = [Question(pair.id, pair.prompt, pair.response_a, pair.response_b) for pair in pairs]
    (tmp_path / "own.yaml").write_text("kind: rubric\n")
    judge = judge_of({"kind": "reward_model", "model": str(tmp_path / "own.yaml")}, workspace, tmp_path)
    answers = [answer_of(result) for result in results(judge, asked)]
    assert answers == ["A" if str(asked[0].response_a).startswith("short") else "B", "bad_input"]


JUDGES_FILE = """
judges:
  - kind: openai
    base_url: http://127.0.0.1:9/v1
    model: org/some-model
    samples: 3
    both_orders: true
    price_in: 1
    price_out: 2
  - {kind: verifier}
  - {kind: simulated, accuracy: 0.9, truth: source, name: sim}
  - {kind: recorded, file: votes.jsonl, name: people}
"""


def test_judges_from_a_file(workspace: Workspace, imported: list[Question], tmp_path: Path) -> None:
    (tmp_path / "votes.jsonl").write_text(
        json.dumps({"comparison_id": imported[0].comparison_id, "answer": "A"}) + "\n"
    )
    file = tmp_path / "judges.yaml"
    file.write_text(JUDGES_FILE)
    first, *others = load_judges(file, workspace)
    assert isinstance(first, LlmJudge)
    assert (first.name, first.settings.samples, first.settings.endpoint.temperature) == ("some-model", 3, 0.7)
    assert [j.name for j in others] == ["constraints", "sim", "people"]
    assert answer_of(results(others[2], imported)[0]) == "A"
    assert sum(answer_of(r) in "AB" for r in results(others[1], imported)) == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("judges: []", "at least one judge"),
        ("judges: [{kind: oracle}]", "judge 1.*'kind'.*oracle"),
        ("judges: [{kind: verifier}, {kind: simulated, acuracy: 1}]", "judge 2.*'acuracy'"),
        ("judges: [{kind: simulated, accuracy: 2}]", "judge 1.*'accuracy'"),
        ("judges: [{kind: simulated, accuracy: high}]", "judge 1"),
        ("judges: [{kind: openai, model: m}]", "judge 1.*base_url"),
        ("judges: [{kind: openai, base_url: 'http://h/v1', model: m, api_key: sk-1}]", "judge 1.*'api_key'"),
        ("judges: [{kind: local}]", "judge 1.*model"),
        ("judges: [", "not YAML"),
        ("- 1", "judges"),
    ],
)
def test_a_wrong_file_of_judges_says_what_is_wrong(workspace: Workspace, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "judges.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError, match=told) as caught:
        load_judges(file, workspace)
    assert "\n" not in str(caught.value)
    assert "judges.yaml" in str(caught.value)


def test_the_report_counts_what_is_known(workspace: Workspace) -> None:
    asked = questions(40)
    truth: dict[str, Answer] = {q.comparison_id: "A" if n % 2 else "B" for n, q in enumerate(asked)}
    truth[asked[0].comparison_id] = "tie"
    with workspace.store.unit() as db:
        decisions = [Decision(c, "gold", a, "people", "they said so") for c, a in truth.items()]  # type: ignore[arg-type]
        insert_decisions(db, decisions, None)
    right = SimulatedJudge(truth, SimulatedConfig(accuracy=1.0), "right")
    always_first = SimulatedJudge(truth, SimulatedConfig(position_bias=1.0, both_orders=True), "first")
    wrong = SimulatedJudge(truth, SimulatedConfig(accuracy=0.0), "wrong")
    for judge in (right, always_first, wrong):
        ask(workspace, judge, asked, None)
    report = judges_report(workspace)
    by_name = {judge.name.split("@")[0]: judge for judge in report.judges}
    assert (by_name["right"].gold.hits, by_name["right"].gold.of) == (39, 39)
    assert (by_name["right"].gold_with_ties.hits, by_name["right"].gold_with_ties.of) == (40, 40)
    assert (by_name["wrong"].gold.hits, by_name["wrong"].gold.of) == (0, 39)
    first = by_name["first"]
    assert (first.ties, first.gold.of) == (40, 0)
    assert (first.gold_with_ties.hits, first.gold_with_ties.of) == (39 * 0.5 + 1, 40)
    assert (first.first_shown.hits, first.first_shown.of) == (80, 80)
    assert (first.consistent.hits, first.consistent.of) == (0, 40)
    pairs = {(a.first.split("@")[0], a.second.split("@")[0]): a for a in report.agreements}
    against = pairs["right", "wrong"]
    assert (against.both, against.agreed) == (39, 0)
    assert against.kappa is not None
    assert against.kappa < -0.9
    assert json.dumps(report.to_dict())


def test_opinions_are_what_the_loop_reads(voted: tuple[Workspace, list[Question]]) -> None:
    workspace, asked = voted
    judge = RecordedJudge.from_store(workspace)
    ask(workspace, judge, asked, None)
    found = opinions(workspace, [q.comparison_id for q in asked], [annotator_of(judge).id])
    assert {c: o[annotator_of(judge).id].answer for c, o in found.items()} == {
        asked[0].comparison_id: "A",
        asked[1].comparison_id: "tie",
    }


SHORTER = '''
from assay_pipelines.judging.judge import Opinion, Vote


class Shorter:
    """Prefers the shorter response; a tie within `margin` characters."""

    kind = "verifier"
    name = "shorter"

    def __init__(self, margin=0):
        self.config = {"margin": margin}

    def judge(self, questions, on_result):
        for number, question in enumerate(questions):
            longer = len(question.response_a) - len(question.response_b)
            answer = "tie" if abs(longer) <= self.config["margin"] else "B" if longer > 0 else "A"
            on_result(number, Opinion(answer, None, (Vote(answer),)))
'''


def test_a_judge_of_ones_own_beside_the_file_of_judges(
    workspace: Workspace, imported: list[Question], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "judges"
    folder.mkdir()
    (folder / "mine.py").write_text(SHORTER)
    (folder / "assay_test_judges.py").write_text(SHORTER)
    file = folder / "judges.yaml"
    file.write_text("judges: [{kind: 'mine.py:Shorter', margin: 3}, {kind: 'assay_test_judges:Shorter'}]")
    monkeypatch.syspath_prepend(str(folder))
    own, module = load_judges(file, workspace)
    assert (annotator_of(own).config, annotator_of(module).config) == ({"margin": 3}, {"margin": 0})
    made = made_by(own)
    assert made is not None
    assert (made.kind, made.name, dict(made.settings)) == ("judge", "mine.py:Shorter", {"margin": 3})
    assert ask(workspace, own, imported, None).answered == len(imported)
    file.write_text("judges: [{kind: 'mine.py:Shorter', margn: 3}]")
    with pytest.raises(BadInputError, match="did you mean margin"):
        load_judges(file, workspace)
    file.write_text("judges: [{kind: simulatd}]")
    with pytest.raises(BadInputError, match="did you mean simulated"):
        load_judges(file, workspace)
    file.write_text("judges: [{kind: 'pathlib:Path'}]")
    with pytest.raises(BadInputError, match="is no judge: it has no kind"):
        load_judges(file, workspace)


def test_settings_of_judges_are_listed() -> None:
    names = {name: [s.name for s in settings_of(JUDGES.find(name))] for name in JUDGES.names()}
    assert {"base_url", "model", "samples", "both_orders"} <= set(names["openai"])
    assert {"truth", "accuracy", "position_bias"} <= set(names["simulated"])
