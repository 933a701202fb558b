"""Rows in the exact shape their publishers use: what each is recognised as, and what it says in the store."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.domain import Comparison, prompt_of
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_pipelines.importers.kind import layout_names
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

PROMPT = "Why is the sky blue?"
USER = [{"role": "user", "content": PROMPT}]
GOOD, BAD = "Rayleigh scattering.", "It is painted."


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def write(path: Path, *records: dict[str, Any]) -> Path:
    """JSON Lines, or an array where the name ends in .json."""
    text = json.dumps(list(records), indent=1) if path.suffix == ".json" else "\n".join(map(json.dumps, records))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def take(workspace: Workspace, path: Path, **options: Any) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path), **options)))


class Said(NamedTuple):
    """One judgment, in the order of the test: `better` is the text that won, or the tie's name."""

    kind: str
    name: str
    better: str
    strength: int | None = None
    rationale: str | None = None


def judgments(workspace: Workspace) -> list[Said]:
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT kind, name, CASE answer WHEN 'A' THEN a.content WHEN 'B' THEN b.content ELSE answer END,
                      strength, rationale
               FROM judgments j JOIN annotators USING (annotator_id) JOIN comparisons c USING (comparison_id)
               JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
               ORDER BY kind, name, 3"""
        ).fetchall()
    return [Said(*row) for row in rows]


def origins(workspace: Workspace) -> list[dict[str, Any]]:
    with workspace.store.unit() as db:
        cursor = db.execute("SELECT source, record_id, category, license, language, meta FROM origins ORDER BY ALL")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def rejects(workspace: Workspace) -> list[tuple[int, str | None, str]]:
    with workspace.store.unit() as db:
        return db.execute('SELECT "row", field, reason FROM rejects ORDER BY 1, 3').fetchall()


def table_sizes(workspace: Workspace) -> dict[str, int]:
    tables = ("prompts", "responses", "comparisons", "origins", "annotators", "judgments", "feedback")
    with workspace.store.unit() as db:
        return {
            table: db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in (*tables, "response_origins", "principles", "principle_judgments", "rejects")
        }


HELPSTEER = {"domain": "code", "language": "python", "context": USER}


def test_helpsteer3_preference_negative_means_response_1(workspace: Workspace, tmp_path: Path) -> None:
    votes = [{"score": score, "reasoning": f"because {score}"} for score in (-1, -3, 2)]
    path = write(
        tmp_path / "train.jsonl.gz",
        {
            **HELPSTEER,
            "response1": GOOD,
            "response2": BAD,
            "overall_preference": -2,
            "individual_preference": votes,
        },
        {**HELPSTEER, "response1": "x", "response2": "y", "overall_preference": 0, "individual_preference": []},
        {**HELPSTEER, "response1": "p", "response2": "q", "overall_preference": 3, "individual_preference": None},
        {**HELPSTEER, "response1": "p", "response2": "r", "overall_preference": 4, "individual_preference": []},
        {
            **HELPSTEER,
            "response1": "s",
            "response2": "t",
            "overall_preference": 1,
            "individual_preference": [{"score": "?", "reasoning": "bad"}, {"score": 1, "reasoning": None}],
        },
    )
    report = take(workspace, path)
    assert report.recognised == "HelpSteer3 preferences in JSON Lines"
    assert (report.rows, report.pairs) == (5, 4)
    source = "HelpSteer3-preference"
    assert judgments(workspace) == [
        Said("human", f"{source}/position-1", GOOD, 1, "because -1"),
        Said("human", f"{source}/position-2", GOOD, 3, "because -3"),
        Said("human", f"{source}/position-2", "t", 1),
        Said("human", f"{source}/position-3", BAD, 2, "because 2"),
        Said("source", source, GOOD, 2),
        Said("source", source, "q", 3),
        Said("source", source, "t", 1),
        Said("source", source, "tie"),
    ]
    assert rejects(workspace) == [
        (4, "overall_preference", "not a whole number from -3 to 3"),
        (5, "individual_preference", "not a whole number from -3 to 3"),
    ]
    about = origins(workspace)[0]
    assert (about["category"], about["language"], about["license"]) == ("code", "python", "CC-BY-4.0")


@pytest.mark.slow
def test_helpsteer3_feedback_is_about_single_responses(workspace: Workspace, tmp_path: Path) -> None:
    row = {
        **HELPSTEER,
        "response1": GOOD,
        "response2": BAD,
        "feedback1": ["The response is mostly helpful. True.", "The response is perfectly helpful."],
        "feedback2": ["The response is not helpful.", None, 7],
    }
    path = write(tmp_path / "train.jsonl", row)
    report = take(workspace, path)
    assert report.recognised == "HelpSteer3 feedback in JSON Lines"
    assert (report.pairs, report.statements, report.new_statements.feedback) == (1, 3, 3)
    assert rejects(workspace) == [(1, "feedback2", "wrong type: a number instead of text")]
    with workspace.store.unit() as db:
        found = db.execute(
            """SELECT r.content, a.name, f.content FROM feedback f JOIN responses r USING (response_id)
               JOIN annotators a USING (annotator_id) ORDER BY ALL"""
        ).fetchall()
        about = db.execute("SELECT DISTINCT source, category, license, language FROM response_origins").fetchall()
        assert db.execute("SELECT label FROM pools").fetchall() == [(None,)]
    who = "HelpSteer3-feedback/position-"
    assert found == [
        (BAD, f"{who}1", "The response is not helpful."),
        (GOOD, f"{who}1", "The response is mostly helpful. True."),
        (GOOD, f"{who}2", "The response is perfectly helpful."),
    ]
    assert about == [("HelpSteer3-feedback", "code", "CC-BY-4.0", "python")]
    again = take(workspace, path)
    assert (again.new_statements.feedback, again.new.comparisons) == (0, 0)


@pytest.mark.slow
def test_helpsteer3_edits_beat_what_they_edit(workspace: Workspace, tmp_path: Path) -> None:
    edit = {
        **HELPSTEER,
        "original_response": BAD,
        "edited_response": GOOD,
        "feedback": ["The response is not helpful. It is wrong."],
        "change_summary": "Made it true.",
    }
    quality = {
        **HELPSTEER,
        "original_response": "It is.",
        "good_edited_response": "It is, and why.",
        "bad_edited_response": "No.",
        "feedback": ["The response is partially helpful."],
    }
    one = take(workspace, write(tmp_path / "edit.jsonl", edit))
    two = take(workspace, write(tmp_path / "quality.jsonl", quality))
    assert (one.recognised, two.recognised) == (
        "HelpSteer3 edits in JSON Lines",
        "HelpSteer3 good and bad edits in JSON Lines",
    )
    assert judgments(workspace) == [
        Said("source", "HelpSteer3-edit", GOOD, None, "Made it true."),
        Said("source", "HelpSteer3-edit-quality", "It is, and why."),
    ]
    with workspace.store.unit() as db:
        found = db.execute("SELECT r.content FROM feedback JOIN responses r USING (response_id) ORDER BY 1").fetchall()
    assert found == [(BAD,), ("It is.",)]


def test_helpsteer3_principles_are_spelled_fulfilment(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        {**HELPSTEER, "response": GOOD, "principle": "accuracy", "fulfilment": "Yes"},
        {**HELPSTEER, "response": BAD, "principle": "accuracy", "fulfilment": "No"},
        {**HELPSTEER, "response": BAD, "principle": "accuracy", "fulfilment": "Perhaps"},
    ]
    report = take(workspace, write(tmp_path / "train.jsonl", *rows))
    assert report.recognised == "HelpSteer3 principle judgments in JSON Lines"
    assert (report.pairs, report.statements) == (0, 2)
    assert rejects(workspace) == [(3, "fulfilment", "not Yes, No or Partially")]
    with workspace.store.unit() as db:
        found = db.execute(
            """SELECT r.content, p.statement, j.answer FROM principle_judgments j JOIN responses r USING (response_id)
               JOIN principles p USING (principle_id) ORDER BY 3"""
        ).fetchall()
    assert found == [(BAD, "accuracy", "no"), (GOOD, "accuracy", "yes")]


def completion(text: str, rating: str | list[str], **more: Any) -> dict[str, Any]:
    ratings = [rating] * 4 if isinstance(rating, str) else rating
    names = ("helpfulness", "honesty", "instruction_following", "truthfulness")
    notes = {name: {"Rating": value, "Rationale": "so"} for name, value in zip(names, ratings, strict=True)}
    about = {"model": f"m-{text}", "principle": "honesty", "custom_system_prompt": "Be kind.", "overall_score": 10.0}
    return {**about, "response": text, "annotations": notes, "critique": f"On {text}.", **more}


def ultrafeedback(*completions: dict[str, Any]) -> dict[str, Any]:
    models = [item["model"] for item in completions]
    answers = {"correct_answers": ["None"], "incorrect_answers": ["None"]}
    return {"source": "flan", "instruction": PROMPT, "models": models, "completions": list(completions), **answers}


def test_ultrafeedback_ranks_by_the_ratings_both_have(workspace: Workspace, tmp_path: Path) -> None:
    row = ultrafeedback(
        completion("four", "4"),
        completion("two", "2", overall_score=10.0),
        completion("also four", "4", overall_score=1.0),
        completion("unrated", ["N/A", "5", "5", "N/A"]),
    )
    listed = {name: [note] for name, note in row["completions"][0]["annotations"].items()}
    row["completions"][0]["annotations"] = listed  # as in the publisher's own files: a list of one object
    report = take(workspace, write(tmp_path / "train.jsonl", row))
    assert report.recognised == "UltraFeedback, ranked by its aspect ratings in JSON Lines"
    assert (report.pairs, report.new_statements.feedback) == (6, 4)
    found = {(item.better, item.strength) for item in judgments(workspace) if item.kind == "source"}
    assert found == {("four", 2), ("also four", 2), ("tie", None), ("unrated", 1), ("unrated", 2)}
    metas = [json.loads(origin["meta"]) for origin in origins(workspace)]
    assert {meta["ranked_by"] for meta in metas} == {
        "mean of instruction_following, honesty, truthfulness, helpfulness",
        "mean of instruction_following, honesty",
    }
    assert {origin["category"] for origin in origins(workspace)} == {"flan"}


def test_ultrafeedback_without_a_shared_rating_is_no_pair(workspace: Workspace, tmp_path: Path) -> None:
    none, one = ["N/A"] * 4, ["1", "N/A", "N/A", "N/A"]
    path = write(
        tmp_path / "train.jsonl",
        ultrafeedback(completion("a", none), completion("b", one), completion("c", "3"), completion("c", "3")),
        ultrafeedback(*(completion(t, none, **{"fine-grained_score": n}) for t, n in (("x", 1.5), ("y", 3.0)))),
    )
    report = take(workspace, path)
    assert report.pairs == 3
    assert rejects(workspace) == [
        *[(1, "completions", "no rating that both responses have")] * 3,
        (1, None, "the two sides are identical"),
    ]
    assert Said("source", "UltraFeedback", "y", 1) in judgments(workspace)


def test_ultrafeedback_binarized_margin_comes_from_the_scores(workspace: Workspace, tmp_path: Path) -> None:
    def row(chosen: str, better: float, worse: float) -> dict[str, Any]:
        sides = {"chosen": USER + said(chosen), "rejected": USER + said(BAD)}
        about = {"prompt": PROMPT, "prompt_id": f"id-{chosen}", "messages": USER + said(chosen)}
        return {**about, **sides, "score_chosen": better, "score_rejected": worse}

    argilla = {"source": "evol", "prompt": PROMPT, "chosen": USER + said("z"), "rejected": USER + said(BAD)}
    rows = [row("far", 10, 1), row("near", 8.5, 7.5), row("even", 6, 6), row("wrong", 3, 6)]
    report = take(workspace, write(tmp_path / "train.jsonl", *rows))
    assert report.recognised == "UltraFeedback, binarized in JSON Lines"
    report = take(workspace, write(tmp_path / "other.jsonl", {**argilla, "chosen-rating": 5.0, "rejected-rating": 2.0}))
    assert report.recognised == "UltraFeedback, binarized by its ratings in JSON Lines"
    source = "UltraFeedback-binarized"
    assert judgments(workspace) == [
        Said("source", source, "far", 3),
        Said("source", source, "near", 0),
        Said("source", source, "tie"),
        Said("source", source, "z", 2),
    ]
    assert rejects(workspace) == [(4, "score_chosen", "the chosen side has the lower score")]
    meta = json.loads(next(o["meta"] for o in origins(workspace) if o["record_id"] == "id-near"))
    assert (meta["score_chosen"], meta["score_rejected"]) == (8.5, 7.5)


def test_arena_lists_ties_and_turns(workspace: Workspace, tmp_path: Path) -> None:
    names = ["id", "model_a", "model_b", "prompt", "response_a", "response_b"]
    names += ["winner_model_a", "winner_model_b", "winner_tie"]

    def row(number: int, prompt: list[str], first: list[Any], second: list[Any], *won: int) -> list[Any]:
        return [number, "gpt-4", "vicuna", *map(json.dumps, (prompt, first, second)), *won]

    rows = [
        row(30192, [PROMPT], [BAD], [GOOD], 0, 1, 0),
        row(2, [PROMPT], ["x"], ["y"], 0, 0, 1),
        row(3, ["Hi", "Why?"], ["Hello", "a"], ["Hello", "b"], 1, 0, 0),
        row(4, ["Hi", "Why?"], ["Hello", "a"], ["Yes", "b"], 1, 0, 0),
        row(5, [PROMPT], ["only"], [None], 1, 0, 0),
        row(6, [PROMPT], ["p"], ["q"], 0, 0, 0),
        row(7, [PROMPT], ["\ud83d"], ["q"], 1, 0, 0),
    ]
    with (tmp_path / "train.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([names, *rows])
    pq.write_table(
        pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names), tmp_path / "t.parquet"
    )
    report = take(workspace, tmp_path / "train.csv")
    assert report.recognised == "Chatbot Arena votes in CSV"
    assert judgments(workspace) == [
        Said("source", "Arena-55k", GOOD),
        Said("source", "Arena-55k", "a"),
        Said("source", "Arena-55k", "assistant: Hello\n\nuser: Why?\n\nassistant: a"),
        Said("source", "Arena-55k", "tie"),
    ]
    assert rejects(workspace) == [
        (5, "response_b", "missing"),
        (6, "winner_model_a", "not exactly one of winner_model_a, winner_model_b, winner_tie is 1"),
        (7, "response_a", "a lone surrogate: not valid Unicode"),
    ]
    again = take(workspace, tmp_path / "t.parquet")
    assert (again.pairs, again.new.comparisons, again.new.judgments) == (4, 0, 0)


def test_nemo_rl_ranks_make_every_pair(workspace: Workspace, tmp_path: Path) -> None:
    ranked = [{"rank": rank, "completion": said(text)} for rank, text in ((1, "mid"), (0, "best"), (1, "even"))]
    rows: list[dict[str, Any]] = [
        {"context": USER, "completions": ranked, "task_name": "chat"},
        {"context": USER, "completions": [{"rank": 0, "completion": [*said("x"), *USER]}, ranked[0]]},
        {"context": USER, "completions": ranked[:1]},
        {"context": PROMPT, "completions": [{"completion": said("q")}, ranked[0]]},
    ]
    report = take(workspace, write(tmp_path / "pairs.jsonl", *rows))
    assert report.recognised == "NeMo-RL ranked completions in JSON Lines"
    assert report.pairs == 3
    assert [item.better for item in judgments(workspace)] == ["best", "best", "tie"]
    assert rejects(workspace) == [
        (2, "completions", "the last message is not the assistant's"),
        (3, "completions", "no pair: fewer than two responses"),
        (4, "completions", "a response without a score or rank"),
    ]
    assert {origin["category"] for origin in origins(workspace)} == {"chat"}


def rlhflow(context: str, first: str, second: str, answer: str) -> dict[str, Any]:
    text = f"[CONTEXT] {context} [RESPONSE A] {first} [RESPONSE B] {second} \n"
    return {"messages": [{"role": "user", "content": text}, *said(answer)]}


def test_rlhflow_text_is_taken_apart(workspace: Workspace, tmp_path: Path) -> None:
    turns = [("user", "Hi"), ("assistant", "Hello.\n\nYou?"), ("user", PROMPT)]
    context = "\n" + "".join(f"\n<turn> {who}\n {text}" for who, text in turns) + "\n\n"
    path = write(
        tmp_path / "train.jsonl",
        rlhflow(context, BAD, GOOD, "B"),
        rlhflow("What?", "x", "y\n\nz", "A"),
        rlhflow("What?", "x", "[RESPONSE B] y", "A"),
        rlhflow("What?", "x", "y", "C"),
    )
    report = take(workspace, path)
    assert report.recognised == "RLHFlow pair-pm text in JSON Lines"
    assert [item.better for item in judgments(workspace)] == [GOOD, "x"]
    with workspace.store.unit() as db:
        (prompts,) = zip(*db.execute("SELECT messages FROM prompts ORDER BY len(messages)").fetchall(), strict=True)
        contents = {row[0] for row in db.execute("SELECT content FROM responses").fetchall()}
    assert prompts[1] == [{"role": who, "content": text} for who, text in turns]
    assert contents == {GOOD, BAD, "x", "y\n\nz"}
    assert [(row, reason) for row, _, reason in rejects(workspace)] == [
        (3, "a mark occurs twice, so that the end of the responses is ambiguous"),
        (4, "the answer is not A or B"),
    ]


def test_skywork_pairs_and_their_warning(workspace: Workspace, tmp_path: Path) -> None:
    row = {"chosen": USER + said(GOOD), "rejected": USER + said(BAD), "source": "magpie_ultra"}
    report = take(workspace, write(tmp_path / "train.jsonl", row))
    assert report.recognised == (
        "Skywork-Reward-Preference pairs (v0.1 overlaps RewardBench: check contamination before training) in JSON Lines"
    )
    assert judgments(workspace) == [Said("source", "magpie_ultra", GOOD)]


def test_rewardbench_one_and_two(workspace: Workspace, tmp_path: Path) -> None:
    models = {"chosen_model": "a", "rejected_model": "b"}
    one = {"prompt": PROMPT, "chosen": GOOD, "rejected": BAD, **models, "subset": "xstest-should-respond", "id": 30}
    report = take(workspace, write(tmp_path / "filtered.jsonl", one))
    assert report.recognised == "RewardBench (a benchmark: do not train on it) in JSON Lines"
    assert [(o["source"], o["record_id"], o["category"]) for o in origins(workspace)] == [
        ("RewardBench", "30", "xstest-should-respond")
    ]
    assert json.loads(origins(workspace)[0]["meta"]) == models
    common = {"models": list("abcd"), "additional_metadata": None, "total_completions": 4}
    factual = {"id": "7", "prompt": "Q", "chosen": ["x"], "rejected": ["p", "q", "r"], "num_correct": 1, **common}
    tied = {"id": "tied:3", "prompt": "Name a colour.", "chosen": ["red", "blue", "green"], "rejected": ["dog"]}
    path = write(
        tmp_path / "test.jsonl",
        {**factual, "num_incorrect": 3, "subset": "Factuality"},
        {**tied, "num_correct": 3, "num_incorrect": 1, "subset": "Ties", **common},
    )
    report = take(workspace, path)
    assert report.recognised == "RewardBench 2 (a benchmark: do not train on it) in JSON Lines"
    assert report.pairs == 3 + 3 + 3
    found = [item.better for item in judgments(workspace) if item.name == "RewardBench-2"]
    assert sorted(found) == ["blue", *["both_good"] * 3, "green", "red", "x", "x", "x"]
    assert {o["record_id"] for o in origins(workspace)} == {"30", "7", "tied:3"}


def test_rm_bench_is_nine_pairs(workspace: Workspace, tmp_path: Path) -> None:
    sides = {side: [f"{side} {style}" for style in ("short", "long", "**long**")] for side in ("chosen", "rejected")}
    row = {"id": 8, "subset": "alpacaeval", "prompt": PROMPT, **sides}
    report = take(workspace, write(tmp_path / "chat_filtered.json", row, {**row, "chosen": ["x"]}))
    assert report.recognised == "RM-Bench, nine pairs per row (a benchmark: do not train on it) in a JSON array"
    assert report.pairs == 9
    assert {item.better.split()[0] for item in judgments(workspace)} == {"chosen"}
    styles = {tuple(json.loads(o["meta"])["styles"]) for o in origins(workspace)}
    assert len(styles) == 9
    assert rejects(workspace) == [(2, "chosen", "not 3 responses, one a style")]


def test_judgebench_labels(workspace: Workspace, tmp_path: Path) -> None:
    about = {"original_id": 6603, "source": "mmlu-pro-health", "response_model": "claude", "question": PROMPT}
    sides = {"response_A": BAD, "response_B": GOOD}
    rows = [{"pair_id": f"p-{n}", **about, **sides, "label": label} for n, label in enumerate(["B>A", "A=B"])]
    report = take(workspace, write(tmp_path / "claude.jsonl", *rows))
    assert report.recognised == "JudgeBench (a benchmark: do not train on it) in JSON Lines"
    assert judgments(workspace) == [Said("source", "JudgeBench", GOOD)]
    assert rejects(workspace) == [(2, "label", "none of a>b, b>a")]
    assert origins(workspace)[0]["category"] == "mmlu-pro-health"


def test_verl_rows_hold_pairs_only_where_assay_put_them(workspace: Workspace, tmp_path: Path) -> None:
    plain = {
        "data_source": "openai/gsm8k",
        "prompt": USER,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "72"},
        "extra_info": {"split": "train", "index": 0},
    }
    pairs = [{"chosen": GOOD, "rejected": BAD, "margin": 2.0, "comparison_id": "c-1", "category": "physics"}]
    pq.write_table(
        pa.Table.from_pylist([{**plain, "extra_info": {"index": 0, "comparisons": pairs}}]), tmp_path / "ours.parquet"
    )
    assert take(workspace, tmp_path / "ours.parquet").recognised == "verl rows with comparisons in Parquet"
    assert judgments(workspace) == [Said("source", "openai/gsm8k", GOOD, 2)]
    pq.write_table(pa.Table.from_pylist([plain]), tmp_path / "theirs.parquet")
    with pytest.raises(BadInputError, match=r"no row could be imported.*a prompt with its ground truth"):
        take(workspace, tmp_path / "theirs.parquet")


def test_stepwise_rows_pair_where_they_part(workspace: Workspace, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": PROMPT, "completions": ["One.", "Two.", "Three."], "labels": [True, True, True]},
        {"prompt": PROMPT, "completions": ["One.", "Wrong.", "Worse."], "labels": [True, False, False]},
        {"prompt": PROMPT, "completions": ["One.", "Two.", "Bad."], "labels": [1, 1, 0]},
        {"prompt": "SingleProcess?", "completions": ["Yes.", "No."], "labels": [True, False]},
        {"prompt": PROMPT, "completions": ["One."], "labels": [True, False]},
    ]
    report = take(workspace, write(tmp_path / "prm.jsonl", *rows))
    assert report.recognised == "TRL stepwise supervision in JSON Lines"
    found = []
    with workspace.store.unit() as db:
        for a, b, answer in db.execute(
            """SELECT a.content, b.content, j.answer FROM comparisons c JOIN judgments j USING (comparison_id)
               JOIN responses a ON a.response_id = response_a JOIN responses b ON b.response_id = response_b"""
        ).fetchall():
            found.append((a, b) if answer == "A" else (b, a))
    assert sorted(found) == [("One.\nTwo.", "One.\nWrong."), ("One.\nTwo.\nThree.", "One.\nTwo.\nBad.")]
    assert rejects(workspace) == [
        (5, "labels", "not one label for each of the completions"),
    ]
    with workspace.store.unit() as db:
        marks = db.execute(
            """SELECT content, step, substring(content, start + 1, "end" - start), value
               FROM step_judgments JOIN responses USING (response_id) ORDER BY content, step"""
        ).fetchall()
    assert marks[:3] == [("One.\nTwo.\nBad.", n, s, v) for n, s, v in ((0, "One.", 1), (1, "Two.", 1), (2, "Bad.", -1))]
    assert len(marks) == 11


def test_the_red_team_set_is_refused_with_the_reason(workspace: Workspace, tmp_path: Path) -> None:
    row = {"min_harmlessness_score_transcript": -0.7, "num_params": "52B", "model_type": "rlhf", "rating": 4.0}
    row |= {"transcript": f"\n\nHuman: {PROMPT}\n\nAssistant: {GOOD}", "task_description": "Ask it.", "tags": None}
    path = write(tmp_path / "red_team_attempts.jsonl.gz", row)
    with pytest.raises(BadInputError, match="red-team set holds one rated transcript a row") as caught:
        take(workspace, path)
    assert str(path) in str(caught.value)


def task(number: int, first: str, second: str, *annotations: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = {"prompt": PROMPT, "answer1": first, "answer2": second}
    common = {"id": number, "data": data, "annotations": list(annotations), "predictions": [], "meta": {}}
    return {**common, "inner_id": number, "project": 1, **more}


def annotation(by: object, *results: dict[str, Any], cancelled: bool = False) -> dict[str, Any]:
    common = {"id": 7, "completed_by": by, "result": list(results), "was_cancelled": cancelled, "lead_time": 12.5}
    return {**common, "ground_truth": False, "created_at": "2026-01-01T00:00:00Z", "unique_id": "u"}


def pairwise(side: str) -> dict[str, Any]:
    value = {"type": "pairwise", "value": {"selected": side}, "origin": "manual"}
    return {**value, "from_name": "comparison", "to_name": "comparison", "id": "r"}


def choice(value: str) -> dict[str, Any]:
    return {"type": "choices", "value": {"choices": [value]}, "from_name": "preference", "to_name": "prompt"}


def why(*text: str) -> dict[str, Any]:
    return {"type": "textarea", "value": {"text": list(text)}, "from_name": "rationale", "to_name": "prompt"}


def test_label_studio_pairwise_and_its_missing_tie(workspace: Workspace, tmp_path: Path) -> None:
    path = write(
        tmp_path / "export.json",
        task(1, BAD, GOOD, annotation(3, pairwise("right")), annotation({"id": 4, "email": "a@b.c"}, pairwise("left"))),
        task(2, "x", "y", annotation(3), annotation(4, cancelled=True), annotation(5, why("both fine"))),
        task(3, "p", "q", predictions=[{"result": [pairwise("left")], "score": 0.9, "model_version": "judge-1"}]),
    )
    report = take(workspace, path)
    assert report.recognised == "a Label Studio export (JSON) in a JSON array"
    undecided = "no side was selected: a tie or a skip, which Label Studio's Pairwise does not tell apart"
    assert judgments(workspace) == [
        Said("human", "export/3", GOOD),
        Said("human", "export/3", "skip", None, undecided),
        Said("human", "export/4", BAD),
        Said("human", "export/4", "skip", None, "skipped by the annotator"),
        Said("human", "export/5", "skip", None, f"both fine\n{undecided}"),
        Said("llm", "export/judge-1", "p"),
    ]
    assert "a@b.c" not in json.dumps(origins(workspace))
    again = take(workspace, path)
    assert (again.new.comparisons, again.new.judgments) == (0, 0)


def test_label_studio_choices_can_say_everything(workspace: Workspace, tmp_path: Path) -> None:
    choices = ["A>>B", "A>B", "A>=B", "tie", "both good", "both_bad", "skip", "B>=A", "B>A", "B>>A"]
    said_ = [annotation(n, choice(value), why("because")) for n, value in enumerate(choices)]
    wrong = annotation(99, choice("the blue one"))
    report = take(workspace, write(tmp_path / "export.json", task(1, GOOD, BAD, *said_, wrong)), source="ls")
    assert report.pairs == 1
    found = {int(item.name.removeprefix("ls/")): (item.better, item.strength) for item in judgments(workspace)}
    left = [(GOOD, 3), (GOOD, 2), (GOOD, 1)]
    neither = [("tie", None), ("both_good", None), ("both_bad", None), ("skip", None)]
    assert [found[n] for n in range(10)] == [*left, *neither, (BAD, 1), (BAD, 2), (BAD, 3)]
    assert {item.rationale for item in judgments(workspace)} == {"because"}
    assert [(field, reason.split(" (")[0]) for _, field, reason in rejects(workspace)] == [
        ("annotations", "an unknown choice")
    ]


def test_label_studio_min_rows(workspace: Workspace, tmp_path: Path) -> None:
    common = {"prompt": PROMPT, "answer1": GOOD, "answer2": BAD, "id": 1, "annotation_id": 5, "lead_time": 3.0}
    rows = [
        {**common, "annotator": 1, "comparison": "right"},
        {**common, "annotator": 2, "preference": "A>>B", "rationale": "clear"},
        {**common, "annotator": 3},
    ]
    report = take(workspace, write(tmp_path / "min.json", *rows))
    assert report.recognised == "a Label Studio export (JSON_MIN) in a JSON array"
    found = [(item.name, item.better, item.strength) for item in judgments(workspace)]
    assert found == [("min/1", BAD, None), ("min/2", GOOD, 3), ("min/3", "skip", None)]


EXPLICIT = {"prompt": PROMPT, "chosen": GOOD, "rejected": BAD}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("trl", EXPLICIT),
        ("trl-explicit", EXPLICIT),
        ("trl-implicit", {"chosen": USER + said(GOOD), "rejected": USER + said(BAD)}),
        ("helpsteer3", {**HELPSTEER, "response1": GOOD, "response2": BAD, "overall_preference": -1}),
        ("helpsteer3-preference", {**HELPSTEER, "response1": GOOD, "response2": BAD, "overall_preference": -1}),
        ("helpsteer3-edit", {**HELPSTEER, "original_response": BAD, "edited_response": GOOD}),
        ("ultrafeedback", ultrafeedback(completion(GOOD, "5"), completion(BAD, "1"))),
        ("ultrafeedback-binarized", {**EXPLICIT, "score_chosen": 9, "score_rejected": 2}),
        ("skywork", {"chosen": USER + said(GOOD), "rejected": USER + said(BAD), "source": "s"}),
        ("rewardbench", {**EXPLICIT, "chosen_model": "a", "rejected_model": "b", "subset": "s", "id": 1}),
        ("rlhflow", rlhflow(PROMPT, GOOD, BAD, "A")),
        ("label-studio", task(1, GOOD, BAD, annotation(1, pairwise("left")))),
    ],
)
def test_a_format_can_be_named(workspace: Workspace, tmp_path: Path, name: str, row: dict[str, Any]) -> None:
    assert name in layout_names()
    path = write(tmp_path / "x.jsonl", row)
    assert take(workspace, path, format=name).pairs == 1
    before = table_sizes(workspace)
    again = take(workspace, path, format=name)
    assert (again.pairs, again.new.comparisons) == (1, 0)
    assert table_sizes(workspace) == before, "a second import adds nothing"
    expected = Comparison.of(prompt_of(USER), GOOD, BAD)[0]
    with workspace.store.unit() as db:
        assert db.execute("SELECT comparison_id FROM comparisons").fetchall() == [(expected.id,)]


def test_a_wrong_choice_of_format_is_said(workspace: Workspace, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", EXPLICIT)
    with pytest.raises(BadInputError, match="the rows are none of helpsteer3-principle, helpsteer3-edit-quality"):
        take(workspace, path, format="helpsteer3")
    with pytest.raises(BadInputError, match="format arena has fixed columns"):
        take(workspace, path, format="arena", mapping={"prompt": "q"})
    with pytest.raises(
        BadInputError, match="no row could be imported: 1 of 1 because of 'winner_model_a: not exactly one of"
    ) as caught:
        take(workspace, write(tmp_path / "y.jsonl", {"chosen": [1], "rejected": [2], "other": 3}), format="arena")
    assert str(tmp_path / "y.jsonl") in str(caught.value)
