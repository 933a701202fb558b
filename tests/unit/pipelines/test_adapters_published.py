"""Rows in the form of published data sets: each is recognised as its own layout and says what its publisher means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from published_rows import PUBLISHED_ROWS

from assay.data.json_lines import RowError
from assay.workspace import Workspace
from assay_pipelines.importers.adapters.loading import PUBLISHED
from assay_pipelines.importers.kind import IMPORTERS, create_layout
from assay_pipelines.importers.recognition import recognise
from assay_pipelines.importers.rows import PairRow
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig


class Judged(NamedTuple):
    """One judgment: `better` is the text that won, or the tie's name."""

    kind: str
    name: str
    better: str
    strength: int | None = None
    rationale: str | None = None


def take(workspace: Workspace, path: Path, rows: list[dict[str, Any]], **options: Any) -> ImportReport:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return run_import(workspace, open_import(workspace, ImportConfig(str(path), **options)))


def judgments(workspace: Workspace) -> list[Judged]:
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT kind, name, CASE answer WHEN 'A' THEN a.content WHEN 'B' THEN b.content ELSE answer END AS better,
                      strength, rationale
               FROM judgments j JOIN annotators USING (annotator_id) JOIN comparisons c USING (comparison_id)
               JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
               ORDER BY ALL"""
        ).fetchall()
    return [Judged(*row) for row in rows]


def prompts(workspace: Workspace) -> list[list[tuple[str, str]]]:
    with workspace.store.unit() as db:
        rows = db.execute("SELECT messages FROM prompts ORDER BY ALL").fetchall()
    return [[(message["role"], message["content"]) for message in row[0]] for row in rows]


def origins(workspace: Workspace) -> list[tuple[str, str | None, str | None]]:
    with workspace.store.unit() as db:
        return db.execute("SELECT DISTINCT record_id, category, license FROM origins ORDER BY ALL").fetchall()


WHY = [("user", "Why?")]
DIALOGUE = [("user", "Hi"), ("assistant", "Hello"), *WHY]
TLDR = [("user", "SUBREDDIT: r/pets\n\nTITLE: Cat\n\nPOST: My cat left.\n\nTL;DR:")]
GPT4 = "weighted_alpaca_eval_gpt4_turbo"
#: Adapter -> its judgments, and the prompt that all rows share.
MEANINGS: dict[str, tuple[list[Judged], list[tuple[str, str]]]] = {
    "helpsteer2-preference": (
        [
            Judged("human", "HelpSteer2-preference/position-1", "y", 2, "s e"),
            Judged("human", "HelpSteer2-preference/position-2", "x", 1, "t f"),
            Judged("source", "HelpSteer2-preference", "y", 2, "@Response 2 is better."),
        ],
        [("user", "hi"), ("assistant", "Hello!"), *WHY],
    ),
    "shp": ([Judged("source", "SHP", "Seven minutes.")], [("user", "How long to boil an egg?")]),
    "webgpt": ([Judged("source", "WebGPT", "y", 2)], [("user", "Why do rivers freeze?")]),
    "pku-saferlhf": ([Judged("source", "PKU-SafeRLHF", "x")], [("user", "How?")]),
    "pku-saferlhf-safety": ([Judged("source", "PKU-SafeRLHF-safety", "y")], [("user", "How?")]),
    "nectar": ([Judged("source", "Nectar", better) for better in ("best", "best", "mid")], DIALOGUE),
    "openai-tldr": (
        [
            Judged("human", "summarize-from-feedback/w1", "y"),
            Judged("source", "summarize-from-feedback", "y"),
        ],
        TLDR,
    ),
    "openai-tldr-axis": ([Judged("source", "summarize-from-feedback-axis", "x", 3)], TLDR),
    "mt-bench-human": (
        [
            Judged("human", "MT-bench-human/author_2", "a one"),
            Judged("human", "MT-bench-human/expert_0", "b one"),
            Judged("llm", "MT-bench-human/gpt4_pair", "a one"),
            Judged("source", "MT-bench-human", "a one"),
            Judged("source", "MT-bench-human", "b one"),
        ],
        WHY,
    ),
    "arena-conversations": ([Judged("source", "Arena-conversations", "both_bad")], WHY),
    "arena-140k": ([Judged("source", "Arena-140k", "answer b")], WHY),
    "distilabel": ([Judged("source", "rows", "4")], [("user", "Add 2 and 2.")]),
    "distilabel-dpo": ([Judged("source", "capybara", "x", 1)], WHY),
    "distilabel-capybara-dpo": ([Judged("source", "distilabel-Capybara-DPO", "x", 2)], WHY),
    "distilabel-math-dpo": ([Judged("source", "distilabel-math-DPO", "4", 1)], [("user", "Add 2 and 2.")]),
    "distilabel-orca-dpo": (
        [Judged("source", "distilabel-Orca-DPO", "x", None, "x is right")],
        [("system", "Be brief."), *WHY],
    ),
    "orca-dpo": ([Judged("source", "Orca-DPO", "x")], [("system", "Be brief."), *WHY]),
    "oasst-ranked": ([Judged("source", "rows", better) for better in ("best", "best", "mid")], DIALOGUE),
    "llama-factory-alpaca": (
        [Judged("source", "rows", "Katze")],
        [("system", "Be brief."), *DIALOGUE[:2], ("user", "Translate.\ncat")],
    ),
    "llama-factory-output-list": ([Judged("source", "rows", "x")], WHY),
    "llama-factory-sharegpt": ([Judged("source", "rows", "x")], DIALOGUE),
    "llama-factory-kto": ([Judged("source", "rows", "x")], WHY),
    "llama-factory-kto-sharegpt": ([Judged("source", "rows", "x")], WHY),
    "kto-messages": ([Judged("source", "rows", "x")], WHY),
    "alpaca-eval": (
        [
            Judged("llm", f"AlpacaEval/{GPT4}", "tie"),
            Judged("llm", f"AlpacaEval/{GPT4}", "x", 3),
            Judged("llm", f"AlpacaEval/{GPT4}", "y", 2),
            Judged("source", "AlpacaEval", "tie"),
            Judged("source", "AlpacaEval", "x", 3),
            Judged("source", "AlpacaEval", "y", 2),
        ],
        WHY,
    ),
    "pandalm": (
        [
            Judged("human", "PandaLM/annotator1", "y"),
            Judged("human", "PandaLM/annotator2", "y"),
            Judged("human", "PandaLM/annotator3", "tie"),
            Judged("source", "PandaLM", "y"),
        ],
        [("user", "Come up with queries.")],
    ),
    "llmbar": ([Judged("source", "LLMBar", "134")], [("user", "What is 75+48?")]),
    "judgelm": ([Judged("source", "JudgeLM", "x", 3, "10 1\nThe first is right.")], WHY),
    "stack-exchange-paired": ([Judged("source", "stack-exchange-paired", "x")], [("user", "How?")]),
    "stack-exchange-preferences": ([Judged("source", "stack-exchange-preferences", "x")], [("user", "How?")]),
    "beavertails": ([Judged("source", "BeaverTails", "x")], [("user", "How?")]),
    "prometheus-preference": ([Judged("source", "Preference-Collection", "y", None, "B is clearer.")], WHY),
    "prometheus-feedback": ([Judged("source", "Feedback-Collection", "x", 3)], WHY),
}


@pytest.mark.parametrize("name", PUBLISHED_ROWS)
def test_rows_are_recognised_as_their_publishers(name: str) -> None:
    recognised = recognise(PUBLISHED_ROWS[name], mapped=False)
    assert recognised is not None
    assert IMPORTERS.name_of(type(recognised)) == name


@pytest.mark.parametrize("name", MEANINGS)
def test_rows_say_what_their_publisher_means(workspace: Workspace, tmp_path: Path, name: str) -> None:
    report = take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS[name], format=name)
    expected, prompt = MEANINGS[name]
    assert judgments(workspace) == sorted(expected, key=lambda j: (j.kind, j.name, j.better))
    assert prompts(workspace) == [prompt]
    assert report.rejected == {}


def test_every_adapter_has_rows_and_says_where_its_names_are_from() -> None:
    published = {path.stem for path in PUBLISHED.glob("*.yaml")}
    assert published <= set(IMPORTERS.members)
    for name in published:
        layout = create_layout(name)
        assert getattr(layout, "spec").names, name  # noqa: B009


def test_ratings_are_kept_and_make_pairs_of_a_prompt(workspace: Workspace, tmp_path: Path) -> None:
    report = take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS["helpsteer2"])
    assert judgments(workspace) == [
        Judged("source", "HelpSteer2", "A language.", 2),
        Judged("source", "HelpSteer2", "Both.", 2),
    ]
    assert report.rejected == {"helpfulness: not on the scale": 1}
    assert report.unused == []
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT r.content, kind, name, value, low, high FROM response_judgments j
               JOIN responses r USING (response_id) JOIN annotators USING (annotator_id)
               WHERE aspect = 'helpfulness' ORDER BY ALL"""
        ).fetchall()
    scale = (0.0, 4.0)
    assert rows == [
        ("A language.", "source", "HelpSteer2", 3.0, *scale),
        ("A note.", "source", "HelpSteer2", 0.0, *scale),
        *(("Both.", "human", f"HelpSteer2/position-{n}", 5.0 - n, *scale) for n in (1, 2, 3)),
        ("Nothing beside it.", "source", "HelpSteer2", 2.0, *scale),
    ]


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("beavertails", [("x", "source", "BeaverTails", "safe", 1.0), ("y", "source", "BeaverTails", "safe", 0.0)]),
        (
            "prometheus-feedback",
            [(text, "llm", "Feedback-Collection/GPT-4", "score", value) for text, value in (("x", 5.0), ("y", 1.0))],
        ),
        ("llama-factory-kto", [("x", "source", "rows", "acceptable", 1.0), ("y", "source", "rows", "acceptable", 0.0)]),
        (
            "openai-tldr-axis",
            [
                (text, "human", f"summarize-from-feedback-axis/{worker}", aspect, value)
                for text, worker, overall in (("x", "w1", 7.0), ("y", "w2", 1.0))
                for aspect, value in (("accuracy", 6.0), ("overall", overall))
            ],
        ),
    ],
)
def test_labels_of_single_responses_keep_their_annotators(
    workspace: Workspace, tmp_path: Path, name: str, labels: list[tuple[str, str, str, str, float]]
) -> None:
    take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS[name], format=name)
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT r.content, kind, name, aspect, value FROM response_judgments j
               JOIN responses r USING (response_id) JOIN annotators USING (annotator_id) ORDER BY ALL"""
        ).fetchall()
    assert rows == labels


def test_repeated_votes_of_a_worker_stay_several(workspace: Workspace, tmp_path: Path) -> None:
    take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS["openai-tldr"] * 2)
    votes = [judgment for judgment in judgments(workspace) if judgment.kind == "human"]
    assert votes == [Judged("human", "summarize-from-feedback/w1", "y")] * 2
    take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS["openai-tldr"] * 2)
    assert len(judgments(workspace)) == 3, "the same file again adds nothing"


def test_trees_give_the_ranked_replies_at_every_depth(workspace: Workspace, tmp_path: Path) -> None:
    report = take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS["oasst-trees"])
    assert report.pairs == 2
    assert judgments(workspace) == [Judged("source", "OASST", "best"), Judged("source", "OASST", "deep 1")]
    assert prompts(workspace) == [WHY, [*WHY, ("assistant", "best"), ("user", "And?")]]


def test_messages_of_a_tree_may_stand_in_any_order(workspace: Workspace, tmp_path: Path) -> None:
    """The published Parquet files have a row for each message; the pairs are those of the trees."""
    (tree,) = PUBLISHED_ROWS["oasst-trees"]
    labels = {"name": ["quality", "spam"], "value": [0.75, None], "count": [3, 3]}
    flat: list[dict[str, Any]] = []
    waiting = [(None, tree["prompt"])]
    while waiting:
        parent, message = waiting.pop(0)
        about = {"message_id": f"n{len(flat)}", "deleted": False, "review_result": True, "rank": None} | message
        about |= {"parent_id": parent, "message_tree_id": "t1", "tree_state": "ready_for_export", "labels": labels}
        waiting += [(about["message_id"], reply) for reply in about.pop("replies", [])]
        flat.append(about)
    orphan = flat[-1] | {"message_id": "o", "parent_id": "elsewhere", "message_tree_id": "t2"}
    report = take(workspace, tmp_path / "rows.jsonl", [orphan, *reversed(flat)])
    assert report.recognised == "OpenAssistant's messages in JSON Lines"
    assert (report.rows, report.pairs) == (len(flat) + 1, 2)
    assert report.rejected == {"parent_id: the message that it replies to is not in the file": 1}
    assert judgments(workspace) == [Judged("source", "OASST", "best"), Judged("source", "OASST", "deep 1")]
    assert prompts(workspace)[:2] == [WHY, [*WHY, ("assistant", "best"), ("user", "And?")]]
    with workspace.store.unit() as db:
        rated = db.execute("SELECT DISTINCT aspect, value, low, high FROM response_judgments").fetchall()
        assert rated == [("quality", 0.75, 0, 1)]
        assert db.execute("SELECT count(*) FROM response_judgments").fetchall() == [(5,)]


def test_a_row_of_which_nothing_is_imported_says_so(workspace: Workspace, tmp_path: Path) -> None:
    row = PUBLISHED_ROWS["mt-bench-human"][0]
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "title: t\nrequires: [question, notes]\nprompt: question\nfeedback: [{response: answer, text: notes}]\n"
    )
    rows: list[dict[str, Any]] = [
        {"question": "Q", "answer": "a", "notes": "good"},
        {"question": "Q", "answer": "b", "notes": None},
        {"question": "Q", "answer": None, "notes": "lost"},
    ]
    report = take(workspace, tmp_path / "rows.jsonl", rows, format=str(mine))
    assert (report.rows, report.statements) == (3, 1)
    assert report.rejected == {"notes: nothing to read: no label, rating or text": 1, "answer: missing": 1}
    assert create_layout("mt-bench-human").parse(row)


def test_feedback_on_each_generation_is_kept_with_its_model(workspace: Workspace, tmp_path: Path) -> None:
    report = take(workspace, tmp_path / "rows.jsonl", PUBLISHED_ROWS["distilabel"])
    assert report.statements == 2
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT r.content, f.content, a.kind, a.name FROM feedback f JOIN responses r USING (response_id)
               JOIN annotators a USING (annotator_id) ORDER BY 1"""
        ).fetchall()
    assert rows == [("4", "right", "llm", "rows/gpt-4o"), ("and a car", "wrong", "llm", "rows/gpt-4o")]


def test_the_answer_that_was_judged_is_that_of_the_turn() -> None:
    row = {**PUBLISHED_ROWS["mt-bench-human"][0], "turn": 2}
    same_first = [*row["conversation_a"][:2], *row["conversation_b"][2:]]
    (pair,) = create_layout("mt-bench-human").parse({**row, "conversation_b": same_first})
    assert isinstance(pair, PairRow)
    assert (len(pair.turns), pair.first, pair.second) == (3, "a two", "b two")


def test_tools_and_images_stand_in_the_prompt_and_videos_are_refused() -> None:
    row = PUBLISHED_ROWS["llama-factory-sharegpt"][0]
    layout = create_layout("llama-factory-sharegpt")
    (plain,) = layout.parse({**row, "tools": "", "images": []})
    (typed,) = layout.parse({**row, "tools": '[{"name": "f"}]', "images": ["a.png"]})
    assert isinstance(plain, PairRow)
    assert isinstance(typed, PairRow)
    parts = [part for turn in typed.turns if isinstance(turn["content"], list) for part in turn["content"]]
    assert {"type": "tool_definition", "name": "f"} in parts
    assert {"type": "image", "url": "a.png"} in parts
    with pytest.raises(RowError, match="videos and audios are not read"):
        layout.parse({**row, "videos": ["a.mp4"]})
