"""Exports: each format is read back as the same comparisons and labels, and no file holds a person's name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from empty_workspaces import new_workspace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay import ids
from assay.data.snapshots import Selection, create_snapshot
from assay.domain import Judgment, Message, prompt_of
from assay.errors import BadInputError
from assay.store.feedback_intake import principle_schema, store_principle_judgments
from assay.store.intake import pair_schema, store_pairs
from assay.store.records import insert_annotator, insert_judgments
from assay.system.atomic_files import replacing_folder
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.push import prompt_text
from assay_pipelines.exporters import verl
from assay_pipelines.exporters.export import content_hash, export
from assay_pipelines.exporters.kind import EXPORTERS
from assay_pipelines.importers.run import ImportReport, open_import, run_import
from assay_pipelines.importers.source import ImportConfig

NAMES = ("Alice Liddell", "Bob Cratchit")
FILES = {
    "trl": "out.jsonl",
    "trl-implicit": "out.jsonl.gz",
    "openrlhf": "out.jsonl",
    "nemo-rl": "out.jsonl",
    "verl": "out.parquet",
    "helpsteer3-preference": "out.jsonl",
}
PLAIN = {**FILES, "trl-implicit": "out.jsonl", "label-studio": "out.json"}
SYSTEM = {"role": "system", "content": "Be brief."}


def row(number: int, turns: list[dict[str, str]], first: str, second: str, **more: Any) -> dict[str, Any]:
    common = {"row": number, "messages": turns, "first": first, "second": second, "label": "first", "strength": 2}
    about = {"source": "set", "record_id": f"alice-{number}", "category": "topic", "license": "MIT", "language": "en"}
    return {**common, **about, **more}


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def put(workspace: Workspace, *rows: dict[str, Any]) -> None:
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(list(rows), schema=pair_schema()), None)


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    """Two prompts of which one has two pairs, a tie, an unlabelled pair, votes by two people and a judge."""
    votes = [
        {"kind": "human", "voter": name, "label": label, "strength": strength, "rationale": f"{name} says so"}
        for name, label, strength in zip(NAMES, ("first", "second"), (3, 1), strict=True)
    ]
    talk = [SYSTEM, *asked("Hi"), {"role": "assistant", "content": "Hello."}, *asked("Why?")]
    put(
        workspace,
        row(1, asked("Why is the sky blue?"), "Rayleigh.", "Paint.", votes=votes, meta='{"by": "Alice Liddell"}'),
        row(2, asked("Why is the sky blue?"), "Rayleigh.", "No idea.", votes=votes[:1], category=None),
        row(3, talk, 'Because "so"\n\u2028é', "Because\x07 not", label="second", source="other", license=None),
        row(4, asked("Equal?"), "x", "y", label="tie", strength=None, votes=votes[:1]),
        row(5, asked("Open?"), "p", "q", label=None, strength=None),
    )
    with workspace.store.unit() as db:
        judge = insert_annotator(db, "llm", "judge-1")
        (comparison,) = db.execute("SELECT comparison_id FROM origins WHERE record_id = 'alice-1'").fetchall()[0]
        said = Judgment(comparison, judge, "A", strength=3, confidence=0.75, rationale="clear")
        sample = Judgment(comparison, judge, "B", origin="vote/1")
        insert_judgments(db, [said, sample], None)
    return workspace


def truth(workspace: Workspace) -> dict[str, tuple[str, ...]]:
    """Comparison id -> prompt roles and label, of the labelled ones."""
    with workspace.store.unit() as db:
        rows = db.execute("SELECT comparison_id, label FROM pools WHERE label IS NOT NULL").fetchall()
    return {comparison: (label,) for comparison, label in rows}


def decided(workspace: Workspace) -> dict[str, tuple[str, ...]]:
    return {comparison: label for comparison, label in truth(workspace).items() if label != ("tie",)}


def read_back(tmp_path: Path, path: Path | str, **options: Any) -> tuple[Workspace, ImportReport]:
    other = new_workspace(tmp_path / f"back-{len(list(tmp_path.iterdir()))}")
    return other, run_import(other, open_import(other, ImportConfig(str(path), **options)))


def test_every_format_is_read_back_as_what_was_written(filled: Workspace, tmp_path: Path) -> None:
    with filled.store.unit() as db:
        prompts = {r[0] for r in db.execute("SELECT prompt_id FROM prompts").fetchall()}
    for name, file in FILES.items():
        path = tmp_path / name / file
        path.parent.mkdir()
        report = export(filled, path, Selection(), format=name)
        assert (report.pairs, report.undecided) == (3, 2)
        back, imported = read_back(tmp_path, path)
        assert imported.rejected == {}
        assert truth(back) == (truth(filled) if name == "helpsteer3-preference" else decided(filled))
        with back.store.unit() as db:
            assert {r[0] for r in db.execute("SELECT prompt_id FROM prompts").fetchall()} <= prompts
            strengths = db.execute(
                """SELECT DISTINCT strength FROM judgments JOIN annotators USING (annotator_id)
                   WHERE kind = 'source' AND answer IN ('A', 'B')"""
            ).fetchall()
        assert strengths == [(None,) if name == "nemo-rl" else (2,)]  # ranks say no strength
        assert [p.name for p in path.parent.iterdir()] == [file]


def test_no_person_is_named(filled: Workspace, tmp_path: Path) -> None:
    with filled.store.unit() as db:
        people = [r[0] for r in db.execute("SELECT annotator_id FROM annotators WHERE kind = 'human'").fetchall()]
    told = {"hf", "helpsteer3-preference", "label-studio"}
    for name in set(EXPORTERS.members) - {"helpsteer3", "ratings", "steps", "stepwise", "turns"}:
        for rationales in (False, True):
            path = tmp_path / f"{name}-{rationales}{'' if name == 'hf' else Path(PLAIN.get(name, 'out.jsonl')).suffix}"
            export(filled, path, Selection(), format=name, rationales=rationales)
            text = "".join(
                json.dumps(pq.read_table(p).to_pylist()) if p.suffix == ".parquet" else p.read_text()
                for p in (path.rglob("*") if path.is_dir() else [path])
                if p.is_file()
            )
            assert "Rayleigh" in text
            for secret in (*people, "alice-", *(() if rationales else ("Alice", "Bob", "says so"))):
                assert secret not in text, (name, secret)
            assert ("says so" in text) == (rationales and name in told)


def test_a_pseudonym_holds_within_one_export_only(filled: Workspace, tmp_path: Path) -> None:
    seen = []
    for name in ("one", "two"):
        export(filled, tmp_path / name, Selection())
        rows = pq.read_table(tmp_path / name / "judgments" / "train.parquet").to_pylist()
        people = [r for r in rows if r["kind"] == "human"]
        assert len(people) == 4
        assert all(re.fullmatch("annotator-[0-9a-f]{16}", r["annotator"]) for r in people)
        who = {r["annotator"] for r in people}
        assert len(who) == 2
        seen.append(who)
        assert {r["annotator"] for r in rows if r["kind"] == "llm"} == {"judge-1"}
        assert sum(r["kind"] == "llm" for r in rows) == 1, "the samples of a merged answer are no answers"
    assert not seen[0] & seen[1]


def test_withdrawn_votes_are_not_exported(filled: Workspace, tmp_path: Path) -> None:
    with filled.store.unit() as db:
        db.execute(
            """INSERT INTO withdrawn_judgments (judgment_id, withdrawn_at, reason)
               SELECT judgment_id, now(), 'taken back' FROM judgments JOIN annotators USING (annotator_id)
               WHERE kind = 'human'"""
        )
    export(filled, tmp_path / "folder", Selection())
    rows = pq.read_table(tmp_path / "folder" / "judgments" / "train.parquet").to_pylist()
    assert {r["kind"] for r in rows} == {"source", "llm"}


def test_hugging_face_folder_loads_and_says_where_it_is_from(filled: Workspace, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    snapshot = create_snapshot(filled, "train", Selection(), None)
    export(filled, tmp_path / "folder", "train", run_id="run-x")
    cache = str(tmp_path / "cache")
    pairs = datasets.load_dataset(str(tmp_path / "folder"), split="train", cache_dir=cache)
    assert len(pairs) == 3
    assert pairs[0]["chosen"][0]["role"] == "assistant"
    judgments = datasets.load_dataset(str(tmp_path / "folder"), "judgments", split="train", cache_dir=cache)
    assert {j["answer"] for j in judgments} == {"A", "B", "tie"}
    card = (tmp_path / "folder" / "README.md").read_text()
    for part in (snapshot.id, snapshot.content_hash, "run-x", "| set | MIT | 2 |", "| other | not stated | 1 |"):
        assert part in card
    assert "| unverified | 3 |" in card
    assert "| human | 2 | 3 |" not in card
    assert "| human | 2 | 4 |" in card
    back, _ = read_back(tmp_path, tmp_path / "folder" / "pairs" / "train.parquet")
    assert truth(back) == decided(filled)
    hub, _ = read_back(tmp_path, f"hf:{tmp_path / 'folder'}", subset="pairs")
    assert truth(hub) == decided(filled)


def test_exported_judgments_come_back_with_ties_and_votes(filled: Workspace, tmp_path: Path) -> None:
    export(filled, tmp_path / "folder", Selection(), rationales=True)
    back, imported = read_back(tmp_path, tmp_path / "folder" / "judgments" / "train.parquet")
    assert imported.recognised == "judgments that Assay exported in Parquet"
    assert imported.rejected == {}
    assert truth(back) == truth(filled)
    judged = """SELECT comparison_id, kind, answer, strength, rationale FROM judgments
                JOIN annotators USING (annotator_id) WHERE origin NOT LIKE 'vote/%' ORDER BY ALL"""
    with filled.store.unit() as db, back.store.unit() as other:
        assert other.execute(judged).fetchall() == db.execute(judged).fetchall()


def test_label_studio_tasks_come_back_with_their_votes(filled: Workspace, tmp_path: Path) -> None:
    report = export(filled, tmp_path / "tasks.json", Selection(), rationales=True)
    assert (report.format, report.rows, report.unit) == ("label-studio", 5, "tasks")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == 5
    with filled.store.unit() as db:
        for task in tasks:
            assert task["data"]["prompt"] == prompt_text(prompt_of(task["data"]["messages"]))
            row_ = db.execute(
                """SELECT a.content, b.content FROM comparisons JOIN responses a ON a.response_id = response_a
                   JOIN responses b ON b.response_id = response_b WHERE comparison_id = ?""",
                [task["data"]["comparison_id"]],
            ).fetchone()
            assert row_ == (task["data"]["answer1"], task["data"]["answer2"])
    people = {a["completed_by"] for task in tasks for a in task["annotations"]}
    assert people == {1, 2}
    votes = """SELECT comparison_id, kind, answer, strength, rationale FROM judgments
               JOIN annotators USING (annotator_id)
               WHERE kind <> 'source' AND origin NOT LIKE 'vote/%' ORDER BY ALL"""
    back, imported = read_back(tmp_path, tmp_path / "tasks.json")
    assert imported.rejected == {}
    with filled.store.unit() as db, back.store.unit() as other:
        assert other.execute(votes).fetchall() == db.execute(votes).fetchall()


def test_label_studio_skips_come_back_as_skips(workspace: Workspace, tmp_path: Path) -> None:
    vote = {"kind": "human", "voter": "w", "label": "skip", "strength": None, "rationale": None}
    put(workspace, row(1, asked("Q"), "x", "y", label=None, strength=None, votes=[vote]))
    export(workspace, tmp_path / "tasks.json", Selection())
    back, _ = read_back(tmp_path, tmp_path / "tasks.json")
    with back.store.unit() as db:
        assert db.execute("SELECT answer, rationale FROM judgments").fetchall() == [("skip", None)]


def test_helpsteer3_signs(filled: Workspace, tmp_path: Path) -> None:
    export(filled, tmp_path / "out.jsonl", Selection(), format="helpsteer3-preference", rationales=True)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().split("\n") if line]
    assert len(rows) == 4
    for found in rows:
        score = found["overall_preference"]
        better = found["response1"] if score < 0 else found["response2"]
        assert {("Rayleigh.", 2), ('Because "so"\n\u2028é', 2), ("x", 0), ("y", 0)} >= {(better, abs(score))} or (
            better == "Because\x07 not"
        )
    by_score = sorted(vote["score"] for found in rows for vote in found["individual_preference"])
    assert sorted(map(abs, by_score)) == [1, 3, 3, 3]
    assert {vote["reasoning"] for found in rows for vote in found["individual_preference"]} == {
        f"{name} says so" for name in NAMES
    }


def principle(response: str, statement: str, answer: str, **more: Any) -> dict[str, Any]:
    common = {
        "row": 1,
        "messages": asked("Q"),
        "response": response,
        "kind": "source",
        "source": "HelpSteer3-principle",
    }
    about = {"record_id": "r", "category": "code", "language": "python", "license": "CC-BY-4.0"}
    return {**common, **about, "principle": statement, "answer": answer, **more}


def test_principle_rows_in_helpsteer3s_fields(workspace: Workspace, tmp_path: Path) -> None:
    rows = [
        principle("x", "clear", "yes"),
        principle("x", "true", "no"),
        principle("y", "clear", "partially"),
        principle("y", "true", "yes"),
        principle("y", "true", "no", voter="w", kind="human"),
    ]
    with workspace.store.unit() as db:
        store_principle_judgments(db, pa.Table.from_pylist(rows, schema=principle_schema()), None)
    report = export(workspace, tmp_path / "p.jsonl", Selection(), format="helpsteer3")
    assert (report.rows, report.unit) == (2, "principle judgments")
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().split("\n") if line]
    common = {"domain": "code", "language": "python", "context": asked("Q"), "response": "x"}
    assert sorted(found, key=lambda r: str(r["principle"])) == [
        {**common, "principle": "clear", "fulfilment": "Yes"},
        {**common, "principle": "true", "fulfilment": "No"},
    ]
    back, imported = read_back(tmp_path, tmp_path / "p.jsonl")
    assert imported.recognised.startswith("HelpSteer3 principle judgments")
    with back.store.unit() as db:
        assert db.execute("SELECT answer FROM principle_judgments ORDER BY 1").fetchall() == [("no",), ("yes",)]
    with pytest.raises(BadInputError, match="nothing to export: no yes or no"):
        export(workspace, tmp_path / "p.jsonl", Selection(pools=("gold",)), format="helpsteer3")
    with pytest.raises(BadInputError, match="nothing to export: no yes or no"):
        export(workspace, tmp_path / "p.jsonl", Selection(sources=("elsewhere",)), format="helpsteer3")


def test_extracted_principles_count_only_if_the_newest_filter_run_kept_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    rows = [principle("x", name, "yes") for name in ("clear", "true", "brief")]
    with workspace.store.unit() as db:
        store_principle_judgments(db, pa.Table.from_pylist(rows, schema=principle_schema()), None)
        db.execute("UPDATE principle_judgments SET extractor = 'rules'").fetchall()
        for run, minute in (("run-old", 1), ("run-new", 2)):
            db.execute(
                """INSERT INTO runs (run_id, kind, config, code_version, status, started_at)
                   VALUES (?, 'principles filter', '{}', '0', 'done', make_timestamptz(2026, 1, 1, 0, ?, 0))""",
                [run, minute],
            ).fetchall()
        outcomes = {"clear": ("evidence", "kept"), "true": ("kept", "consensus"), "brief": ()}
        for name, stages in outcomes.items():
            for run, stage in zip(("run-old", "run-new"), stages, strict=False):
                db.execute(
                    """INSERT INTO principle_outcomes (run_id, judgment_id, stage, reason)
                       SELECT ?, judgment_id, ?, 'so' FROM principle_judgments WHERE principle_id = ?""",
                    [run, stage, ids.principle_id(name)],
                ).fetchall()
    export(workspace, tmp_path / "p.jsonl", Selection(), format="helpsteer3")
    assert [json.loads(line)["principle"] for line in (tmp_path / "p.jsonl").open()] == ["clear"]


def test_verl_has_one_row_for_each_prompt(filled: Workspace, tmp_path: Path) -> None:
    report = export(filled, tmp_path / "train.parquet", Selection(), format="verl")
    assert (report.rows, report.unit, report.notes) == (2, "prompts", ("3 pairs in extra_info.comparisons",))
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert set(rows[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert sorted(len(found["extra_info"]["comparisons"]) for found in rows) == [1, 2]
    assert [found["extra_info"]["index"] for found in rows] == [0, 1]
    for found in rows:
        assert found["reward_model"]["style"] == "model"
        assert found["reward_model"]["ground_truth"] in {c["chosen"] for c in found["extra_info"]["comparisons"]}


def test_verl_keeps_a_prompt_whole_across_batches(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl, "BATCH_PAIRS", 3)
    put(workspace, *(row(n, asked(f"Q {n % 4}"), f"good {n}", f"bad {n}") for n in range(30)))
    export(workspace, tmp_path / "train.parquet", Selection(), format="verl")
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert sorted(len(found["extra_info"]["comparisons"]) for found in rows) == [7, 7, 8, 8]
    assert [found["extra_info"]["index"] for found in rows] == [0, 1, 2, 3]
    for found in rows:
        number = found["prompt"][0]["content"].removeprefix("Q ")
        assert {int(c["chosen"].split()[1]) % 4 for c in found["extra_info"]["comparisons"]} == {int(number)}
    back, _ = read_back(tmp_path, tmp_path / "train.parquet")
    assert truth(back) == decided(workspace)


def test_a_margin_is_all_or_nothing_for_trl(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, row(1, asked("Q"), "x", "y"), row(2, asked("R"), "x", "y", strength=None))
    report = export(workspace, tmp_path / "out.jsonl", Selection())
    assert report.notes == ("no column margin: 1 of 2 pairs have none",)
    assert "margin" not in (tmp_path / "out.jsonl").read_text()
    export(workspace, tmp_path / "all.jsonl", Selection(sources=("set",)), format="openrlhf")
    margins = [json.loads(line)["margin"] for line in (tmp_path / "all.jsonl").read_text().split("\n") if line]
    assert sorted(margins, key=str) == [2.0, None]


def test_what_cannot_be_written_is_said(filled: Workspace, tmp_path: Path) -> None:
    for path, options, message in (
        ("x.jsonl", {"format": "yaml"}, "no exporter is named 'yaml'; one of"),
        ("x.csv", {"format": "verl"}, "in the format verl the file must end in .parquet, .jsonl"),
        ("x.xlsx", {}, "in the format trl the file must end in .jsonl, .jsonl.gz, .parquet"),
        ("no/such/x.jsonl", {}, "no such folder"),
    ):
        with pytest.raises(BadInputError, match=re.escape(message)):
            export(filled, tmp_path / path, Selection(), **options)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="none of them has a label"):
        export(filled, tmp_path / "x.jsonl", Selection(pools=("gold",)), format="helpsteer3-preference")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(BadInputError, match="is in the way and was not made by this command"):
        export(filled, tmp_path / "mine", Selection())
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_an_export_replaces_an_earlier_one_whole_or_not_at_all(filled: Workspace, tmp_path: Path) -> None:
    export(filled, tmp_path / "folder", Selection())
    before = content_hash(tmp_path / "folder")
    with pytest.raises(BadInputError, match="nothing to export"):
        export(filled, tmp_path / "folder", Selection(pools=("gold",)))
    assert content_hash(tmp_path / "folder") == before

    def broken() -> None:
        with replacing_folder(tmp_path / "folder", ours="assay-export.json") as new:
            (new / "half").write_text("")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert content_hash(tmp_path / "folder") == before
    export(filled, tmp_path / "folder", Selection(sources=("set",)))
    assert content_hash(tmp_path / "folder") != before
    assert [p.name for p in tmp_path.glob(".*")] == []


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(
        st.tuples(TEXT, TEXT, TEXT, st.integers(1, 3)).filter(lambda p: p[1] != p[2]), min_size=3, max_size=20
    ),
    name=st.sampled_from(sorted(FILES)),
)
def test_any_text_survives_every_format(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str, str, int]], name: str
) -> None:
    folder = tmp_path_factory.mktemp("round")
    workspace = new_workspace(folder / "workspace")
    unique = {
        ids.comparison_id(p := ids.prompt_id([Message("user", q)]), ids.response_id(p, a), ids.response_id(p, b)): (
            q,
            a,
            b,
            n,
        )
        for q, a, b, n in pairs
    }
    put(workspace, *(row(n, asked(q), a, b, strength=s) for n, (q, a, b, s) in enumerate(unique.values(), 1)))
    export(workspace, folder / FILES[name], Selection(), format=name)
    back, imported = read_back(folder, folder / FILES[name])
    assert imported.rejected == {}
    assert truth(back) == truth(workspace)
