"""Real sets of every kind of label: what the file says, counted by hand, is in the store or in a reject with its
reason."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

Rows = list[dict[str, Any]]


def records(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def texts(row: dict[str, Any]) -> list[str]:
    return [text for text in row["responses"] if text]


def scored(key: str) -> Callable[[Rows], int]:
    """A number for each response that has a text."""
    return lambda rows: sum(
        1 for row in rows for text, _ in zip(row["responses"], row["ratings"][key], strict=True) if text
    )


def named(key: str) -> Callable[[Rows], int]:
    """A number by name, of a response that has a text."""
    return lambda rows: sum(len(row["ratings"][key]) for row in rows if texts(row))


def facts(rows: Rows) -> int:
    sentences = [sentence for row in rows for sentence in row["meta"]["facts"] or ()]
    return sum(len(s["facts"] or ()) + (s["relevant"] is False) for s in sentences)


def mistakes(rows: Rows) -> int:
    return sum(len((row["meta"]["feedback_on_prediction_1"] or {}).get("errors", ())) for row in rows)


def omissions(rows: Rows) -> int:
    return sum(len((row["meta"]["feedback_on_prediction_1"] or {}).get("missing-info", ())) for row in rows)


def likert(rows: Rows) -> int:
    return sum(len(row["ratings"]["error_types"]) + sum(map(len, row["ratings"]["likert"].values())) for row in rows)


#: Set -> labels of single responses and of spans in the file; how many rejects of labels, of responses and of records.
SETS: dict[str, tuple[Callable[[Rows], int], Callable[[Rows], int], dict[str, int]]] = {
    "ttcw_binary_tests": (
        lambda rows: sum(len(row["ratings"]["votes"]) for row in rows if texts(row)),
        lambda rows: 0,
        {"responses: no response for the ratings": 168},
    ),
    "rbr_gold_propositions": (named("propositions"), lambda rows: 0, {"responses: empty": 7}),
    "justeval_gpt4_aspect_ratings": (named("aspects"), lambda rows: 0, {}),
    "alpacaeval2_multi_model": (scored("gpt4_turbo_p_win_vs_baseline"), lambda rows: 0, {"responses: empty": 10}),
    "fgrlhf_qa_dev_pairs": (omissions, mistakes, {}),
    "factscore_labeled": (
        lambda rows: sum(len(r["ratings"]["label_counts"]) + (r["ratings"]["factscore"] is not None) for r in rows),
        facts,
        {"ratings: one response without a rating": 44},
    ),
    "topical_chat_usr": (
        lambda rows: sum(len(scores) for row in rows for scores in row["ratings"]["scores"]),
        lambda rows: 0,
        {"the two sides are identical": 1},
    ),
    "halueval_general": (len, lambda rows: sum(len(row["meta"]["spans"]) for row in rows), {}),
    "shepherd_human_critiques": (
        lambda rows: likert(rows) - 26,
        lambda rows: 0,
        {"ratings.likert: not a number, yes or no": 26},
    ),
    "llm_rubric_real": (lambda rows: sum(len(row["ratings"]["scores"]) for row in rows), lambda rows: 0, {}),
    "webgpt_comparisons_test": (scored("scores"), lambda rows: 0, {}),
    "truthfulqa_answers": (scored("correct"), lambda rows: 0, {}),
}


#: Ratings, spans of text; the others are left to `make test-all`.
ALWAYS = ("shepherd_human_critiques", "halueval_general")


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in SETS]
)
def test_no_label_of_a_real_set_is_lost(workspace: Workspace, shared_data: Path, name: str) -> None:
    path = shared_data / f"{name}.jsonl.gz"
    ratings, marks, rejected = SETS[name]
    rows = records(path)
    report = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    with workspace.store.unit() as db:
        stored = [
            db.execute(f"SELECT count(*) FROM {table} WHERE isfinite(value) OR label IS NOT NULL").fetchone()
            for table in ("(SELECT *, NULL AS label FROM response_judgments)", "step_judgments")
        ]
    assert stored == [(ratings(rows),), (marks(rows),)]
    assert stored != [(0,), (0,)]
    assert report.rejected == rejected
    again = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    assert (again.new_statements.response_judgments, again.new_statements.step_judgments) == (0, 0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rewardmath_rm_scores", "responses: no response for the ratings"),
        ("triviaqa_judges_human", "responses: no response for the ratings"),
        ("dsp_domain_specific_test", "ratings: more than two responses without a ranking or ratings"),
    ],
)
def test_a_set_without_texts_or_labels_says_so(workspace: Workspace, shared_data: Path, name: str, reason: str) -> None:
    path = shared_data / f"{name}.jsonl.gz"
    rows = len(records(path))
    with pytest.raises(BadInputError, match=f"{rows} of {rows} because of '{reason}'"):
        run_import(workspace, open_import(workspace, ImportConfig(str(path))))


@pytest.mark.slow
def test_every_vote_of_every_annotator_is_kept(workspace: Workspace, shared_data: Path, tmp_path: Path) -> None:
    """Of every fourth pair: the whole set takes 12 s of CPU time."""
    every = records(shared_data / "ukpconvarg1_pairs.jsonl.gz")[::4]
    path = tmp_path / "ukpconvarg1_pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in every), encoding="utf-8")
    rows = [row for row in every if row["responses"][0] != row["responses"][1]]
    run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    again = run_import(workspace, open_import(workspace, ImportConfig(str(path))))
    with workspace.store.unit() as db:
        query = (
            "SELECT name, count(*) FROM judgments JOIN annotators USING (annotator_id) WHERE kind = 'human' GROUP BY 1"
        )
        stored = {name.rpartition("/")[2]: count for name, count in db.execute(query).fetchall()}
    assert stored == Counter(vote["annotator"] for row in rows for vote in row["ratings"]["votes"])
    assert again.new.judgments == 0
