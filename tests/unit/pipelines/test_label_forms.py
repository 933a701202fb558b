"""Every kind of label in the forms that files have: each is in the store with its annotator, or named in a reject."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.annotation.verdict_wording import verdict_of_wording
from assay.workspace import Workspace
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.openai_compatible import JudgeAnswer
from assay_pipelines.llm.replies import parse

PROMPT = "Why is the sky blue?"


def take(workspace: Workspace, path: Path, *rows: dict[str, Any], **config: Any) -> ImportReport:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return run_import(workspace, open_import(workspace, ImportConfig(str(path), **config)))


def query(workspace: Workspace, statement: str) -> list[tuple[Any, ...]]:
    with workspace.store.unit() as db:
        return db.execute(statement).fetchall()


def votes(workspace: Workspace) -> dict[str, int]:
    """Annotator -> judgments of pairs."""
    names = "SELECT kind || ' ' || name, count(*) FROM judgments JOIN annotators USING (annotator_id) GROUP BY 1"
    return dict(query(workspace, names))


def ratings(workspace: Workspace) -> list[tuple[Any, ...]]:
    return query(
        workspace,
        """SELECT content, kind || ' ' || name, aspect, value FROM response_judgments JOIN annotators USING
        (annotator_id)
           JOIN responses USING (response_id) ORDER BY ALL""",
    )


def marks(workspace: Workspace) -> list[tuple[Any, ...]]:
    return query(
        workspace,
        """SELECT kind || ' ' || name, step, substring(content, start + 1, "end" - start), value, low
           FROM step_judgments JOIN annotators USING (annotator_id) JOIN responses USING (response_id)
           ORDER BY content, step""",
    )


def test_ten_systems_and_three_raters_keep_all_thirty(workspace: Workspace, tmp_path: Path) -> None:
    responses = [f"answer {n}" for n in range(10)]
    matrix = [[(3 * n + rater) % 7 for rater in range(3)] for n in range(10)]
    report = take(workspace, tmp_path / "m.jsonl", {"prompt": PROMPT, "responses": responses, "ratings": matrix})
    assert report.new_statements.response_judgments == 30
    assert votes(workspace) == {"source m": 45, **{f"human m/rater {n}": 45 for n in (1, 2, 3)}}
    stored = {(text, who): value for text, who, _, value in ratings(workspace)}
    assert stored == {
        (f"answer {n}", f"human m/rater {r + 1}"): value for n, row in enumerate(matrix) for r, value in enumerate(row)
    }


def test_rankings_of_three_writers_are_judgments_of_three_annotators(workspace: Workspace, tmp_path: Path) -> None:
    rankings = {"ada": [1, 2, 3, 4], "ben": [4, 3, 2, 1], "gpt-4o": [1, 1, 2, 2]}
    row = {"prompt": PROMPT, "responses": ["p", "q", "r", "s"], "rankings": rankings, "id": "w-1"}
    take(workspace, tmp_path / "w.jsonl", row)
    assert votes(workspace) == {"source w": 6, "human w/ada": 6, "human w/ben": 6, "llm w/gpt-4o": 6}
    origins = query(
        workspace, "SELECT DISTINCT origin FROM judgments JOIN annotators USING (annotator_id) WHERE kind <> 'source'"
    )
    assert origins == [("ranking",)]
    assert ratings(workspace) == [], "a rank is no rating: the best has the lowest"


def test_ranks_of_two_responses_are_votes_and_a_bad_one_is_named(workspace: Workspace, tmp_path: Path) -> None:
    report = take(
        workspace,
        tmp_path / "two.jsonl",
        {"prompt": "1?", "responses": ["x", "y"], "rankings": {"ada": [1, 2], "ben": [1, 2], "cleo": [2, 1]}},
        {"prompt": "2?", "responses": ["x", "y", "z"], "ranks": [3, 1, "best"]},
    )
    said = query(
        workspace,
        """SELECT split_part(name, '/', -1), if(j.answer = 'A', a.content, b.content) FROM judgments j
           JOIN annotators USING (annotator_id) JOIN comparisons c USING (comparison_id)
           JOIN responses a ON a.response_id = response_a JOIN responses b ON b.response_id = response_b
           ORDER BY 1, 2""",
    )
    assert said == [("ada", "x"), ("ben", "x"), ("cleo", "y"), ("ranks", "y"), ("two", "x"), ("two", "y")]
    assert report.rejected == {"ratings.ranks: not a number, yes or no": 1}
    assert ratings(workspace) == []


def test_columns_of_ratings_alone(workspace: Workspace, tmp_path: Path) -> None:
    """Rows in HelpSteer's manner whose only labels are columns that end in `_rating`."""
    rows: list[dict[str, Any]] = [
        {"prompt": PROMPT, "response": "x", "helpfulness_rating": 4, "clarity_rating": "3 of 5", "annotator": "ada"},
        {"prompt": PROMPT, "response": "y", "helpfulness_rating": None, "clarity_rating": 2.5},
        {"prompt": PROMPT, "response": "z", "helpfulness_rating": "high", "clarity_rating": 1},
    ]
    report = take(workspace, tmp_path / "alone.jsonl", *rows)
    assert ratings(workspace) == [
        ("x", "human alone/ada", "clarity_rating", 3.0),
        ("x", "human alone/ada", "helpfulness_rating", 4.0),
        ("y", "source alone", "clarity_rating", 2.5),
        ("z", "source alone", "clarity_rating", 1.0),
    ]
    assert report.rejected == {"ratings.helpfulness_rating: not a number, yes or no": 1}
    assert (report.new_statements.prompts, report.new_statements.responses) == (1, 3)


def test_a_label_that_cannot_be_read_leaves_the_votes_beside_it(workspace: Workspace, tmp_path: Path) -> None:
    pair = {"prompt": PROMPT, "response_a": "x", "response_b": "y", "label": 2}
    rows = [
        {**pair, "annotator_1": "Candidate 2 is better", "annotator_2": "[[A]]"},
        {**pair, "prompt": "Another?", "annotator": "ada"},
    ]
    report = take(workspace, tmp_path / "codes.jsonl", *rows)
    assert votes(workspace) == {"human codes/annotator_1": 1, "human codes/annotator_2": 1}
    assert list(report.rejected.values()) == [2]
    assert report.pairs == 1


def test_repeated_votes_of_one_annotator_stay_apart(workspace: Workspace, tmp_path: Path) -> None:
    vote = {"annotator": "ada", "value": "A"}
    base = {"prompt": PROMPT, "chosen": None, "rejected": None, "responses": ["x", "y"], "label_type": "human"}
    rows = [
        {**base, "id": "1", "ratings": {"votes": [vote, vote, {"annotator": "ada", "value": "B"}]}},
        {**base, "id": "2", "ratings": {"votes": [vote]}},
    ]
    take(workspace, tmp_path / "v.jsonl", *rows)
    assert votes(workspace) == {"human v/ada": 4}
    assert take(workspace, tmp_path / "v.jsonl", *rows).new.judgments == 0


def test_wide_votes_and_recorded_judges(workspace: Workspace, tmp_path: Path) -> None:
    row = {
        "prompt": PROMPT,
        "response_a": "Rayleigh scattering.",
        "response_b": "Paint.",
        "label": "A",
        "annotator_1": "A",
        "annotator_2": "B",
        "annotator_3": "tie",
        "rater_4": "perhaps",
        "judges": {"gpt-4o": "Candidate 1 is better", "claude-3": "[[B]]"},
    }
    report = take(workspace, tmp_path / "w.jsonl", row)
    people = {f"human w/annotator_{n}": 1 for n in (1, 2, 3)}
    assert votes(workspace) == {"source w": 1, **people, "llm w/gpt-4o": 1, "llm w/claude-3": 1}
    assert report.rejected == {"rater_4: not a label (A, B, tie, both_good, both_bad, skip)": 1}


def test_an_annotator_a_row_is_a_vote_a_row(workspace: Workspace, tmp_path: Path) -> None:
    row = {"prompt": PROMPT, "response_a": "Rayleigh.", "response_b": "Paint."}
    said = [("ada", "A"), ("ben", "B"), ("claude-3", "response_a")]
    take(workspace, tmp_path / "long.jsonl", *({**row, "annotator": who, "label": label} for who, label in said))
    stored = votes(workspace)
    assert {name: stored[name] for name in stored if not name.startswith("source")} == {
        "human long/ada": 1,
        "human long/ben": 1,
        "llm long/claude-3": 1,
    }


def test_nan_rejects_its_label_and_not_the_file(workspace: Workspace, tmp_path: Path) -> None:
    rows = [{"prompt": PROMPT, "response": f"answer {n}", "score": n, "unused": float("nan")} for n in range(4)]
    rows[2]["score"] = float("nan")
    report = take(workspace, tmp_path / "nan.jsonl", *rows)
    assert [value for *_, value in ratings(workspace)] == [0, 1, 3]
    assert report.rejected == {"ratings: one response without a rating": 1}


def test_best_of_sixteen_keeps_every_score(workspace: Workspace, tmp_path: Path) -> None:
    row = {"prompt": PROMPT, "samples": [f"s{n}" for n in range(16)], "rewards": [n / 16 for n in range(16)]}
    take(workspace, tmp_path / "bon.jsonl", row)
    assert ratings(workspace) == sorted((f"s{n}", "source bon", "score", n / 16) for n in range(16))


def test_step_labels_in_their_publishers_forms(workspace: Workspace, tmp_path: Path) -> None:
    take(
        workspace,
        tmp_path / "processbench.jsonl",
        {"id": "m-1", "problem": "p", "steps": ["a", "bb", "c"], "label": 1, "final_answer_correct": False},
        {"id": "m-2", "problem": "p", "steps": ["x"], "label": -1, "final_answer_correct": True},
    )
    who = "human ProcessBench/experts"
    assert marks(workspace) == [(who, 0, "a", 1, -1), (who, 1, "bb", -1, -1), (who, 0, "x", 1, -1)]
    assert [row[2:] for row in ratings(workspace)] == [("final answer correct", 0), ("final answer correct", 1)]


def test_alternatives_of_prm800k_are_responses_of_their_own(workspace: Workspace, tmp_path: Path) -> None:
    steps = [
        {"completions": [{"text": "one", "rating": 1}, {"text": "uno", "rating": 0}], "chosen_completion": 0},
        {"completions": [{"text": "two", "rating": -1}], "human_completion": None, "chosen_completion": None},
    ]
    row = {"labeler": "w7", "question": {"problem": "p"}, "label": {"steps": steps, "finish_reason": "found_error"}}
    take(workspace, tmp_path / "prm.jsonl", row)
    who = "human PRM800K/w7"
    assert marks(workspace) == [(who, 0, "one", 1, -1), (who, 1, "two", -1, -1), (who, 0, "uno", 0, -1)]


def test_tags_of_math_shepherd(workspace: Workspace, tmp_path: Path) -> None:
    text = "How many? Step 1: 1+1=2 {0}\nStep 2: 2+1=4 {1}"
    row = {"input": text.format("ки", "ки"), "label": text.format("+", "-"), "task": "GSM8K"}
    broken = {**row, "label": "Something else"}
    report = take(workspace, tmp_path / "ms.jsonl", row, broken)
    who = "verifier Math-Shepherd/completions"
    assert marks(workspace) == [(who, 0, "Step 1: 1+1=2", 1, -1), (who, 1, "Step 2: 2+1=4", -1, -1)]
    assert query(workspace, "SELECT messages[1].content FROM prompts") == [("How many?",)]
    assert report.rejected == {"label: not the input with + or - at the end of each step": 1}


def test_probabilities_of_steps_keep_their_scale(workspace: Workspace, tmp_path: Path) -> None:
    row = {"prompt": PROMPT, "completions": ["one", "two", "three"], "labels": [0.9, 0.25, None]}
    report = take(workspace, tmp_path / "p.jsonl", row)
    assert (marks(workspace), report.pairs) == ([("source p", 0, "one", 0.9, 0), ("source p", 1, "two", 0.25, 0)], 0)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("Candidate 2 is better", "second"),
        ("**Response A** is clearly better than Response B.", "first"),
        ("My verdict: [[A>>B]]", "first"),
        ("Output (b)", "second"),
        ("I prefer the second response because it is short.", "second"),
        ("The first answer is worse.", "second"),
        ("Neither response is better.", "tie"),
        ("Both answers are bad.", "both_bad"),
        ("Candidate 1 is better on style but Candidate 2 is better overall", None),
        ("Candidate 1 is not better", None),
        ("A is the first letter", None),
        ("I can't say which is better", None),
    ],
)
def test_a_judges_own_words(words: str, verdict: str | None) -> None:
    assert verdict_of_wording(words) == verdict


def test_a_judge_that_answers_in_prose_is_read() -> None:
    answer = parse("Candidate 1 is vague.\n\nCandidate 2 is better.", JudgeAnswer)
    assert (answer.verdict, answer.strength, answer.confidence) == ("2", None, None)
    worded = '{"reasoning": "r", "verdict": "Candidate 1 is better", "strength": 1, "confidence": 0.5}'
    assert parse(worded, JudgeAnswer).verdict == "1"
    for text in ("I'm sorry, neither is better.", "They differ.", '{"verdict": "neither of us"}'):
        with pytest.raises(ValueError, match=r"JSON|verdict|reasoning"):
            parse(text, JudgeAnswer)
