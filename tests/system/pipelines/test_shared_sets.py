"""Real preference data: what the importers make of the published sets, counted by hand from the files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from empty_workspaces import new_workspace

from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.exporters.export import export
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig


def take(workspace: Workspace, path: Path) -> ImportReport:
    return run_import(workspace, open_import(workspace, ImportConfig(str(path))))


def records(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        if path.name.endswith(".json.gz"):
            whole = json.load(stream)
            assert isinstance(whole, list)
            return whole
        return [json.loads(line) for line in stream]


def better(workspace: Workspace) -> set[tuple[str, str, str]]:
    """(text of the last turn of the prompt, better response, worse response) of every decided pair."""
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT m.messages[-1].content, if(p.label = 'A', a.content, b.content),
                      if(p.label = 'A', b.content, a.content)
               FROM pools p JOIN prompts m USING (prompt_id) JOIN responses a ON a.response_id = p.response_a
               JOIN responses b ON b.response_id = p.response_b WHERE p.label IN ('A', 'B')"""
        ).fetchall()
    return set(rows)


def test_hh_slice_in_the_publishers_form(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "native" / "hh_harmless_base_test_raw_slice.jsonl.gz"
    report = take(workspace, path)
    empty = sum(
        any(not row[side].rpartition("\n\nAssistant:")[2].strip() for side in ("chosen", "rejected"))
        for row in records(path)
    )
    assert report.recognised == "HH-RLHF text in JSON Lines"
    assert report.rows == len(records(path))
    assert report.pairs == report.rows - empty
    normalised = take(workspace, shared_data / "hh_harmless_base_test.jsonl.gz")
    known = normalised.pairs - normalised.new.comparisons
    assert known > 0.5 * report.pairs, "both forms of the set give the same comparisons the same ids"
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM pools WHERE label IS NULL").fetchone() == (0,)


def test_helpful_set_has_no_reject(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "hh_helpful_base_test.jsonl.gz"
    report = take(workspace, path)
    assert (report.rows, report.pairs, report.rejected) == (len(records(path)),) * 2 + ({},)


@pytest.mark.slow
def test_ukp_votes_ties_and_rejects(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "ukpconvarg1_pairs.jsonl.gz"
    rows = [row for row in records(path) if row["responses"][0] != row["responses"][1]]
    report = take(workspace, path)
    assert report.pairs == len(rows)
    assert report.rejected == {"the two sides are identical": report.rows - len(rows)}
    votes = [vote for row in rows for vote in row["ratings"]["votes"]]
    with workspace.store.unit() as db:
        counted = dict(
            db.execute(
                "SELECT kind, count(*) FROM judgments JOIN annotators USING (annotator_id) GROUP BY 1"
            ).fetchall()
        )
        voters = db.execute("SELECT count(*) FROM annotators WHERE kind = 'human'").fetchone()
    assert counted["human"] == len(votes), "a vote that somebody repeats is another vote"
    assert voters == (len({vote["annotator"] for vote in votes}),)
    gold = Counter(row["ratings"]["gold"] for row in rows)
    assert counted["source"] <= gold["A"] + gold["B"] + gold["tie"]


def test_sets_without_pairs_say_why(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "webgpt_comparisons_test.jsonl.gz"
    report = take(workspace, path)
    ties = sum(row["chosen"] is None for row in records(path))
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM pools WHERE label = 'tie'").fetchone() == (ties,)
    assert report.pairs == report.rows


@pytest.mark.slow
def test_rm_bench_files_are_nine_pairs_a_row(workspace: Workspace, shared_data: Path) -> None:
    expected = set()
    for path in sorted((shared_data / "native").glob("rm_bench_*.json.gz")):
        report = take(workspace, path)
        rows = records(path)
        assert report.recognised == "RM-Bench, nine pairs per row (a benchmark: do not train on it) in a JSON array"
        assert (report.rows, report.pairs, report.rejected) == (len(rows), 9 * len(rows), {})
        expected |= {(row["prompt"], c, r) for row in rows for c in row["chosen"] for r in row["rejected"]}
    assert expected
    assert better(workspace) == expected


def test_judgebench_files_keep_the_label(workspace: Workspace, shared_data: Path) -> None:
    expected = set()
    for path in sorted((shared_data / "native").glob("judgebench_*.jsonl.gz")):
        report = take(workspace, path)
        rows = records(path)
        assert (report.rows, report.pairs, report.rejected) == (len(rows), len(rows), {})
        for row in rows:
            sides = (row["response_A"], row["response_B"])
            expected.add((row["question"], *(sides if row["label"] == "A>B" else reversed(sides))))
    assert expected
    assert better(workspace) == expected


@pytest.mark.slow
def test_real_votes_go_out_and_come_back_without_a_name(
    workspace: Workspace, shared_data: Path, tmp_path: Path
) -> None:
    """UKP's votes as a Label Studio export, read into an empty workspace: the same votes, none of the names."""
    path = shared_data / "ukpconvarg1_pairs.jsonl.gz"
    run_import(workspace, open_import(workspace, ImportConfig(str(path), limit=300)))
    votes = """SELECT comparison_id, answer, count(*) FROM judgments JOIN annotators USING (annotator_id)
               WHERE kind = 'human' GROUP BY ALL ORDER BY ALL"""
    with workspace.store.unit() as db:
        said = db.execute(votes).fetchall()
        people = db.execute("SELECT name FROM annotators WHERE kind = 'human'").fetchall()
        names = [name.rpartition("/")[2] for (name,) in people]
    export(workspace, tmp_path / "tasks.json", Selection())
    text = (tmp_path / "tasks.json").read_text(encoding="utf-8")
    assert len(names) > 50
    assert [name for name in names if name in text] == []
    back = new_workspace(tmp_path / "back")
    run_import(back, open_import(back, ImportConfig(str(tmp_path / "tasks.json"))))
    with back.store.unit() as db:
        assert db.execute(votes).fetchall() == said


@pytest.mark.slow
def test_real_pairs_survive_every_format(workspace: Workspace, shared_data: Path, tmp_path: Path) -> None:
    for name in ("native/hh_harmless_base_test_raw_slice.jsonl.gz", "oasst1_en_val_pairs.jsonl.gz"):
        take(workspace, shared_data / name)
    expected = better(workspace)
    for name, file in (("trl", "a.jsonl.gz"), ("openrlhf", "b.jsonl"), ("nemo-rl", "c.jsonl"), ("verl", "d.parquet")):
        export(workspace, tmp_path / file, Selection(), format=name)
        back = new_workspace(tmp_path / f"{name}-back")
        report = take(back, tmp_path / file)
        assert report.rejected == {}
        assert better(back) == expected


def test_soft_preferences_are_pairs_with_the_baseline(workspace: Workspace, shared_data: Path) -> None:
    path = shared_data / "alpacaeval2_soft_preferences.jsonl.gz"
    rows = records(path)[:40]
    (few := workspace.root / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = take(workspace, few)
    answers = [(row["baseline"]["text"], answer) for row in rows for answer in row["responses"]]
    apart = [answer["preference"] for baseline, answer in answers if answer["text"] != baseline]
    texts = {(baseline, answer["text"]) for baseline, answer in answers if answer["text"] != baseline}
    assert report.recognised == "AlpacaEval's soft preferences in JSON Lines"
    assert report.pairs == len(apart)
    with workspace.store.unit() as db:
        ties = db.execute("SELECT count(*) FROM judgments WHERE answer = 'tie'").fetchall()
        kept = db.execute("SELECT count(*) FROM origins WHERE (meta->>'preference')::DOUBLE BETWEEN 0 AND 1").fetchall()
    assert ties == [(sum(preference == 0.5 for preference in apart),)]
    assert kept == [(len(texts),)], "what two systems wrote is one response"


def test_reasons_of_rated_responses_are_feedback_on_them(workspace: Workspace, shared_data: Path) -> None:
    for name in ("halueval_general", "justeval_gpt4_aspect_ratings"):
        path = shared_data / f"{name}.jsonl.gz"
        rows = [row for row in records(path) if row["rationale"]][:50]
        (few := workspace.root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        report = take(workspace, few)
        assert "rationale" not in report.unused
        assert report.new_statements.feedback == len({(row["responses"][0], row["rationale"]) for row in rows})
