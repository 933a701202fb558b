"""Attributes and pre-verification by a model, by rules, from a file: what is stored, what is refused, resumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.data.pair_attributes import PairAttributes, load_attributes
from assay.data.response_checks import load_response_checks
from assay.data.snapshots import Selection
from assay.domain import Comparison, Message
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.attributes.extraction import AttributeExtractor, extract_attributes
from assay_pipelines.attributes.preverification import (
    CorrectnessChecker,
    preverify,
)
from assay_pipelines.attributes.rules import by_rules, describe_by_rules, describe_from_file
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.fake_endpoint import FakeEndpoint, JudgeRequest, fake_endpoint, longer_wins, prefers
from assay_pipelines.llm.budget import Budget
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.llm.questions import Question, iter_questions, load_questions
from assay_serving.chat.scripted import Fault, once

CATEGORIES = ("math", "poetry", "politics", None)


@pytest.fixture
def asked(workspace: Workspace, tmp_path: Path) -> list[Question]:
    rows = [
        {
            "id": f"row-{n}",
            "source": "set",
            "prompt": [{"role": "user", "content": f"Question {n}?"}],
            "chosen": f"a long right answer {n}",
            "rejected": f"wrong {n}",
            "category": CATEGORIES[n % 4],
        }
        for n in range(8)
    ]
    file = tmp_path / "set.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    run_import(workspace, open_import(workspace, ImportConfig(str(file), format="normalised")))
    made = []
    for n in range(8):
        pair, _ = Comparison.of((Message("user", f"Question {n}?"),), f"a long right answer {n}", f"wrong {n}")
        made.append(Question(pair.id, pair.prompt, pair.response_a, pair.response_b))
    return made


def endpoint(fake: FakeEndpoint, **more: Any) -> EndpointConfig:
    return EndpointConfig(fake.base_url, "fake", longest_wait=0.2, **more)


def ids_of(questions: list[Question]) -> list[str]:
    return [q.comparison_id for q in questions]


@pytest.mark.slow
def test_a_model_describes_every_pair_once(workspace: Workspace, asked: list[Question]) -> None:
    with fake_endpoint(longer_wins(), faults=once("429")) as fake:
        extractor = AttributeExtractor(endpoint(fake))
        first = extract_attributes(workspace, extractor, asked[:5], None, budget=Budget(calls=7))
        assert first.stopped is not None
        second = extract_attributes(workspace, extractor, asked, None)
        assert first.answered + second.answered == 8
        assert second.known == first.answered
        assert not fake.repeats()
        assert extract_attributes(workspace, extractor, asked, None).attempts == 0
    found = load_attributes(workspace, ids_of(asked))
    assert len(found) == 8
    assert found[asked[0].comparison_id].guideline == "Prefer the longer one."
    (page,) = iter_questions(workspace, Selection())
    assert all(q.attributes is not None for q in page)


def test_an_answer_that_is_no_five_tuple_is_asked_for_again_and_counted(
    workspace: Workspace, asked: list[Question]
) -> None:
    good = longer_wins()

    def numbering(request: JudgeRequest) -> dict[str, Any]:
        answer = dict(good(request))
        if len(request.body["messages"]) == 2:
            answer["guideline"] = "Candidate 1 is shorter."
        return answer

    with fake_endpoint(numbering) as fake:
        extractor = AttributeExtractor(endpoint(fake))
        report = extract_attributes(workspace, extractor, asked[:2], None)
        assert (report.answered, report.attempts) == (2, 4)
        assert "by number" in fake.requests[-1].body["messages"][3]["content"]
        fake.rule = lambda _: {"task_category": " ", "objectivity": "yes"}
        report = extract_attributes(workspace, extractor, asked[2:], None)
        assert (report.answered, report.failures) == (0, {"bad_answer": 6})
    assert len(load_attributes(workspace, ids_of(asked))) == 2


def test_rules_and_files_are_annotators_of_their_own(
    workspace: Workspace, asked: list[Question], tmp_path: Path
) -> None:
    assert describe_by_rules(workspace, ids_of(asked), None) == 8
    assert describe_by_rules(workspace, ids_of(asked), None) == 0
    found = load_attributes(workspace, ids_of(asked))
    described = [(found[q.comparison_id].task_category, found[q.comparison_id].objectivity) for q in asked[:4]]
    assert described == [
        ("math", "objective"),
        ("poetry", "subjective"),
        ("politics", "subjective"),
        ("general", "subjective"),
    ]
    assert by_rules("politics").controversiality == "high"
    own = PairAttributes("poetry", "subjective", "low", "A sonnet.", "Count the lines.")
    file = tmp_path / "attributes.jsonl"
    file.write_text(json.dumps({"comparison_id": asked[1].comparison_id, **own.to_dict()}) + "\n")
    assert describe_from_file(workspace, file, None, person="ana") == 1
    assert load_attributes(workspace, [asked[1].comparison_id]) == {asked[1].comparison_id: own}  # a person's first
    with workspace.store.unit() as db:
        kinds = db.execute(
            "SELECT kind, count(DISTINCT comparison_id) FROM attributes JOIN annotators USING (annotator_id) GROUP BY 1"
        ).fetchall()
    assert sorted(kinds) == [("human", 1), ("source", 8)]
    for wrong, told in (
        ({"comparison_id": asked[0].comparison_id}, "row 2, field 'task_category': is missing"),
        ({"comparison_id": asked[0].comparison_id, **own.to_dict(), "x": 1}, "row 2, field 'x'"),
        ({"comparison_id": "c-0", **own.to_dict()}, "c-0 is no comparison"),
        (own.to_dict(), "row 2, field 'comparison_id'"),
    ):
        file.write_text(
            json.dumps({"comparison_id": asked[2].comparison_id, **own.to_dict()}) + "\n" + json.dumps(wrong)
        )
        with pytest.raises(BadInputError, match=told):
            describe_from_file(workspace, file, None, person="ana")


def test_responses_of_objective_pairs_are_checked_one_at_a_time(workspace: Workspace, asked: list[Question]) -> None:
    describe_by_rules(workspace, ids_of(asked), None)
    questions = load_questions(workspace, ids_of(asked))
    with fake_endpoint(prefers(lambda text: 1.0 if "right" in text else -1.0)) as fake:
        checker = CorrectnessChecker(endpoint(fake))
        report = preverify(workspace, checker, questions, None)
        assert (report.answered, report.attempts) == (4, 4)  # two objective pairs of two responses
        for request in fake.requests:
            text = request.body["messages"][1]["content"]
            assert ("right answer" in text) != ("wrong" in text)  # never beside the other one
        assert preverify(workspace, checker, questions, None).known == 4
        assert preverify(workspace, checker, questions, None, every_pair=True).asked == 12
        assert not fake.repeats()
    found = load_response_checks(workspace, ids_of(asked))
    assert len(found) == 8
    for question in asked:
        checks = found[question.comparison_id]
        assert checks.a is not None
        assert checks.b is not None
        right = str(question.response_a).startswith("a long right")
        assert (checks.a.verdict, checks.b.verdict) == (("correct", "incorrect") if right else ("incorrect", "correct"))
        assert checks.payload()["A"].startswith(checks.a.verdict)
    with workspace.store.unit() as db:  # a hint is no judgment
        assert db.execute("SELECT count(*) FROM principle_judgments").fetchone() == (0,)
        (other,) = db.execute(
            "SELECT count(*) FROM opinions JOIN annotators USING (annotator_id) WHERE kind = 'llm'"
        ).fetchall()
        assert other == (0,)


def test_failed_checks_leave_no_trace_but_the_attempts(workspace: Workspace, asked: list[Question]) -> None:
    refused: Fault = "refusal"
    with fake_endpoint(longer_wins(), faults=lambda _: refused) as fake:
        checker = CorrectnessChecker(endpoint(fake))
        report = preverify(workspace, checker, asked[:2], None, every_pair=True)
    assert (report.answered, report.failures) == (0, {"refused": 4})
    assert load_response_checks(workspace, ids_of(asked)) == {}
