"""Principles: feedback in, the lexicon, the LLM extractor against our fake endpoint, the filters and their reasons."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BackendError, BadInputError, NotFoundError
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.embedding.hashing import HashingEncoder
from assay_pipelines.judging.fake_endpoint import JudgeRequest, fake_endpoint
from assay_pipelines.llm.budget import Budget, Spending
from assay_pipelines.llm.configuration import EndpointConfig
from assay_pipelines.principles.exporting import export_principles
from assay_pipelines.principles.extraction import ExtractedPrinciple, ExtractionReport, extract
from assay_pipelines.principles.feedback_files import feedback_from_judgments, import_feedback, introduction
from assay_pipelines.principles.filtering import FilterConfig, FilterReport, evidence_score, filter_principles
from assay_pipelines.principles.lexicon import LexiconExtractor
from assay_pipelines.principles.llm_extractor import LlmExtractor
from assay_pipelines.principles.report import KIND, principle_report, require_run
from assay_serving.chat.scripted import always, once

FIRST = introduction("first", "this one")
SECOND = introduction("second", "the other one")


def critique(number: int, rationale: str, **more: Any) -> dict[str, Any]:
    row = {
        "id": f"s{number}",
        "source": "critics",
        "prompt": [{"role": "user", "content": f"Question {number}?"}],
        "responses": [f"Answer {number}."],
        "rationale": rationale,
        "label_type": "human",
        "lang": "en",
        "category": "stem",
    }
    return row | more


def votes(number: int, *said: tuple[str, str], **more: Any) -> dict[str, Any]:
    """One pair with a vote and a reason by each of several people."""
    listed = [{"annotator": f"w{i}", "value": value, "reason": reason} for i, (value, reason) in enumerate(said)]
    two = {"responses": [f"One {number}.", f"Two {number}."], "ratings": {"votes": listed}, "rationale": None}
    return critique(number, "") | two | more


def write(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def rows_of(workspace: Workspace, query: str) -> list[tuple[Any, ...]]:
    with workspace.store.unit() as db:
        found: list[tuple[Any, ...]] = db.execute(query).fetchall()
    return found


def outcomes(workspace: Workspace) -> dict[str, tuple[str, str]]:
    """evidence -> (stage, reason) of the latest run."""
    run = require_run(workspace)
    return {
        evidence: (stage, reason)
        for evidence, stage, reason in rows_of(
            workspace,
            f"""SELECT coalesce(j.evidence, ''), o.stage, o.reason FROM principle_outcomes o
                JOIN principle_judgments j USING (judgment_id) WHERE o.run_id = '{run}'""",
        )
    }


def filtered(workspace: Workspace, **settings: Any) -> FilterReport:
    with start_run(workspace, KIND, {}) as run:
        return filter_principles(workspace, HashingEncoder(), FilterConfig(**settings), run.id)


# --- feedback in ---


def test_what_each_kind_of_row_says(workspace: Workspace, tmp_path: Path) -> None:
    test = {"test": {"question": "Is the  ending earned?"}}
    answered = {"votes": [{"annotator": f"e{i}", "value": v, "reason": "why"} for i, v in enumerate(["Yes", "No"])]}
    file = write(
        tmp_path / "set.jsonl.gz",
        critique(1, "Clear and short."),
        votes(2, ("A", "A1 is clearer than A2"), ("tie", "same")),
        critique(3, "", ratings=answered, meta=test),
        critique(4, "", responses=["x", "y"], ratings={"critiques": ["good", "bad"]}, label_type="model"),
        critique(5, "The better one is right.", responses=["x", "y"], chosen="y"),
        critique(6, ""),
        critique(7, "?", responses=[]),
        "{broken",
    )
    report = import_feedback(workspace, file, "run-1")
    assert (report.rows, report.feedback, report.principle_judgments, report.without) == (8, 1 + 4 + 2 + 2, 2, 1)
    assert set(report.rejected.values()) == {1}
    contents = sorted(content for (content,) in rows_of(workspace, "SELECT content FROM feedback"))
    assert "Clear and short." in contents
    assert f"{FIRST}A1 is clearer than A2" in contents
    assert f"{SECOND}A1 is clearer than A2" in contents
    assert f"{introduction('second', 'neither')}same" in contents
    assert f"{introduction('first', 'the other one')}The better one is right." in contents
    assert rows_of(workspace, "SELECT statement FROM principles") == [("Is the ending earned?",)]
    kinds = dict(
        rows_of(workspace, "SELECT n.kind, count(*) FROM feedback JOIN annotators n USING (annotator_id) GROUP BY 1")
    )
    assert kinds == {"human": 7, "llm": 2}
    again = import_feedback(workspace, file, "run-2")
    assert (again.new.feedback, again.new.principle_judgments) == (0, 0)
    places = rows_of(workspace, "SELECT count(*), count(DISTINCT (ref, item)), count(DISTINCT ref) FROM feedback_items")
    assert places == [(11, 11, 11)]


def test_a_file_without_feedback_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no row holds feedback"):
        import_feedback(workspace, write(tmp_path / "a.jsonl.gz", critique(1, "")), "run-1")
    with pytest.raises(BadInputError, match="no such file"):
        import_feedback(workspace, tmp_path / "none.jsonl", "run-1")


def test_reasons_of_judgments_become_feedback_on_both_responses(workspace: Workspace) -> None:
    import pyarrow as pa

    from assay.domain import Comparison, Judgment, Message
    from assay.store.intake import pair_schema, store_pairs
    from assay.store.records import insert_annotator, insert_judgments

    prompt = (Message("user", "Q"),)
    pair, _ = Comparison.of(prompt, "x", "y")
    row: dict[str, Any] = dict.fromkeys(pair_schema().names)
    row |= {"row": 1, "messages": [{"role": "user", "content": "Q"}], "first": "x", "second": "y"}
    row |= {"source": "s", "record_id": "1"}
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist([row], schema=pair_schema()), None)
        person, model = insert_annotator(db, "human", "ann"), insert_annotator(db, "llm", "m")
        insert_judgments(
            db,
            [
                Judgment(pair.id, person, "B", rationale="B is clear", shown_order="BA"),
                Judgment(pair.id, model, "A", rationale="no person"),
                Judgment(pair.id, person, "skip", rationale="cannot tell", origin="2"),
            ],
            None,
        )
    assert feedback_from_judgments(workspace, "run-1") == 2
    assert feedback_from_judgments(workspace, "run-1") == 0
    found = dict(rows_of(workspace, "SELECT r.content, f.content FROM feedback f JOIN responses r USING (response_id)"))
    assert found[pair.response_b] == "(One of two responses, the first; preferred: this one.) B is clear"
    assert found[pair.response_a] == "(One of two responses, the second; preferred: the other one.) B is clear"
    assert rows_of(workspace, "SELECT DISTINCT item FROM feedback_items") == [(pair.id,)]


# --- the lexicon ---


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("It gives evidence. It is confusing!", {("gives evidence", "yes"), ("is clear", "no")}),
        ("It does not give any evidence", {("gives evidence", "no")}),
        ("Somewhat clear", {("is clear", "partially")}),
        (FIRST + "A1 is clearer than A2", {("is clear", "yes")}),
        (SECOND + "A1 is clearer than A2", {("is clear", "no")}),
        (FIRST + "A1 cites facts, A2 is a joke", {("gives evidence", "yes")}),
        (SECOND + "A1 cites facts, A2 is a joke", {("is serious", "no")}),
        (FIRST + "more detail", {("gives details", "yes")}),
        (SECOND + "more detail", set()),
        (SECOND + "nonsense", {("reasons logically", "no")}),
        (introduction("first", "neither") + "Both lack detail", {("gives details", "no")}),
        (introduction(None, "this one") + "A1 is clear", set()),
        (introduction(None, "this one") + "It is clear", {("is clear", "yes")}),
        ("nothing of note", set()),
    ],
)
def test_what_the_lexicon_reads(content: str, found: set[tuple[str, str]]) -> None:
    items = LexiconExtractor().items(content)
    assert {(item.principle, item.fulfilment) for item in items} == found
    assert all(item.evidence in content for item in items)


def test_a_lexicon_of_ones_own_has_a_name_of_its_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("is green:\n  has: green(ish)? | leafy\n")
    mine = LexiconExtractor(own)
    assert mine.items("a leafy text") == (ExtractedPrinciple("is green", "yes", "a leafy text"),)
    assert mine.name != LexiconExtractor().name
    own.write_text("is green:\n  has: gre(en\n")
    with pytest.raises(BadInputError, match=r"own\.yaml: is not a lexicon"):
        LexiconExtractor(own)


# --- the LLM extractor ---


def echo(asked: JudgeRequest) -> Mapping[str, Any]:
    """One principle for each sentence of the feedback, quoted."""
    said = [s.strip() for s in asked.sections["Feedback on this response"].split(".") if s.strip()]
    return {"items": [{"evidence": s, "principle": s.split()[0].lower(), "fulfilment": "yes"} for s in said]}


def llm_run(
    workspace: Workspace, base_url: str, *, budget: Budget | None = None, again: bool = False
) -> ExtractionReport:
    endpoint = EndpointConfig(base_url, "fake", longest_wait=0.2, timeout=240.0)
    reader = LlmExtractor(endpoint, workspace, spending=Spending(budget or Budget()))
    return extract(workspace, reader, "run-1", again=again)


def some_feedback(workspace: Workspace, tmp_path: Path, number: int = 6) -> None:
    file = write(
        tmp_path / "f.jsonl.gz", *(critique(n, f"Clarity is good {n}. Accuracy is poor {n}.") for n in range(number))
    )
    import_feedback(workspace, file, "run-0")


def test_every_feedback_is_read_once_and_quotes_come_first(workspace: Workspace, tmp_path: Path) -> None:
    some_feedback(workspace, tmp_path)
    with fake_endpoint(echo, faults=once("429")) as fake:
        report = llm_run(workspace, fake.base_url)
        assert (report.read, report.items, report.failures, report.failure_rate) == (6, 12, {}, 0.0)
        known = llm_run(workspace, fake.base_url)
        assert (known.read, known.read_before) == (0, 6)
        assert not fake.repeats()
        schema = fake.requests[0].body["response_format"]["json_schema"]["schema"]
    item = schema["$defs"]["FoundPrinciple"]
    assert list(item["properties"]) == ["evidence", "principle", "fulfilment"]
    assert item["properties"]["fulfilment"]["enum"] == ["yes", "no", "partially"]
    stored = rows_of(
        workspace, "SELECT count(*), count(DISTINCT extractor), count(feedback_id) FROM principle_judgments"
    )
    assert stored == [(12, 1, 12)]
    people = rows_of(workspace, "SELECT DISTINCT kind FROM principle_judgments JOIN annotators USING (annotator_id)")
    assert people == [("human",)]  # the judgment is the person's; the model has only read it


def test_answers_that_cannot_be_read_are_counted_and_kept_apart(workspace: Workspace, tmp_path: Path) -> None:
    some_feedback(workspace, tmp_path)
    with fake_endpoint(echo, faults=lambda a: "wrong_schema" if "good 3" in str(a.sections) else None) as fake:
        report = llm_run(workspace, fake.base_url)
        assert (report.read, report.failures) == (5, {"bad_answer": 1})
        assert report.failure_rate == pytest.approx(1 / 6)
        assert llm_run(workspace, fake.base_url).read == 0
        fake.faults = lambda _: None
        assert llm_run(workspace, fake.base_url, again=True).read == 1
    reader = principle_report(workspace).readers[0]
    assert (reader.read, reader.failed, reader.items) == (6, {}, 12)


def test_a_principle_without_a_name_is_no_answer(workspace: Workspace, tmp_path: Path) -> None:
    some_feedback(workspace, tmp_path, 2)
    nameless = {"items": [{"evidence": "Clarity is good", "principle": " ", "fulfilment": "yes"}]}
    with fake_endpoint(lambda _: nameless) as fake:
        report = llm_run(workspace, fake.base_url)
    assert (report.read, report.failures) == (0, {"bad_answer": 2})
    reader = principle_report(workspace).readers[0]
    assert (reader.failed, reader.failure_rate) == ({"bad_answer": 2}, 1.0)


@pytest.mark.slow
def test_what_failed_in_passing_is_read_by_the_next_run(workspace: Workspace, tmp_path: Path) -> None:
    some_feedback(workspace, tmp_path)
    with fake_endpoint(echo) as fake:
        first = llm_run(workspace, fake.base_url, budget=Budget(calls=2))
        assert first.read == 2
        assert first.stopped is not None
        assert sum(first.failures.values()) == 4
        second = llm_run(workspace, fake.base_url)
        assert (second.read, second.read_before) == (4, 2)
        assert not fake.repeats()


def test_an_endpoint_that_refuses_everything_is_an_error(workspace: Workspace, tmp_path: Path) -> None:
    some_feedback(workspace, tmp_path)
    with fake_endpoint(echo, faults=always("401")) as fake, pytest.raises(BackendError):
        llm_run(workspace, fake.base_url)
    assert rows_of(workspace, "SELECT count(*) FROM principle_extractions") == [(0,)]


def test_nothing_to_read_is_said(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="no feedback"):
        extract(workspace, LexiconExtractor(), "run-1")


# --- the filters ---


def said(
    workspace: Workspace, *people: tuple[tuple[str, Any, str], ...], content: str = "", response: str = "r1"
) -> None:
    """One feedback of each person on one response, read as these (principle, answer, evidence)."""

    class Told:
        name, page = "told@1", 100
        config: Mapping[str, Any] = {}

        def read(self, feedback, run_id):  # type: ignore[no-untyped-def]
            return [tuple(ExtractedPrinciple(*i) for i in people[int(f.content.split()[1])]) for f in feedback], None

    import pyarrow as pa

    from assay.store.feedback_intake import feedback_schema, store_feedback

    rows = [
        {
            "row": n,
            "messages": [{"role": "user", "content": "Q"}],
            "response": response,
            "kind": "human",
            "voter": f"p{n}",
            "source": "t",
            "record_id": response,
            "content": f"person {n} {response} says: {content}",
        }
        for n in range(len(people))
    ]
    with workspace.store.unit() as db:
        store_feedback(db, pa.Table.from_pylist(rows, schema=feedback_schema()), None)
    extract(workspace, Told(), "run-t")


def test_a_quote_must_be_in_the_feedback() -> None:
    assert evidence_score("clear structure", "I liked the clear structure of it") == 100
    assert evidence_score("clear  structre", "I liked the clear structure of it") > 60
    assert evidence_score("gives no sources at all", "I liked the clear structure of it") <= 60
    assert evidence_score("", "text") == evidence_score(None, "text") == evidence_score("  ", "text") == 0


@pytest.mark.slow
def test_each_stage_drops_its_own_with_a_reason(workspace: Workspace) -> None:
    content = "it is clear, mostly accurate, very helpful, and polite"
    said(
        workspace,
        (
            ("clarity", "yes", "it is clear"),
            ("accuracy", "partially", "mostly accurate"),
            ("Helpfulness", "yes", "very helpful"),
            ("depth", "yes", "quotes nothing that stands there"),
            ("politeness", "yes", "and polite"),
        ),
        (("clarity", "yes", "is clear"), ("politeness", "no", "polite")),
        content=content,
    )
    report = filtered(workspace, extractor="told@1")
    stages = {"evidence": 1, "partially": 1, "helpfulness": 1, "consensus": 2, "conflict": 0, "duplicate": 1}
    assert (report.items, report.accepted, report.dropped) == (7, 1, stages)
    found = outcomes(workspace)
    assert found["quotes nothing that stands there"][0] == "evidence"
    assert found["and polite"] == ("consensus", "0 of 1 other annotators share it")
    assert {found["it is clear"][0], found["is clear"][0]} == {"kept", "duplicate"}
    assert all(reason for _, reason in found.values())
    relaxed = filtered(workspace, extractor="told@1", same_fulfilment=False)
    assert (relaxed.accepted, relaxed.dropped["conflict"]) == (1, 2)
    assert rows_of(workspace, "SELECT count(DISTINCT run_id), count(*) FROM principle_outcomes") == [(2, 14)]


@pytest.mark.slow
def test_the_line_that_we_put_in_front_is_no_evidence(workspace: Workspace) -> None:
    said(workspace, (("preference", "yes", "preferred: this one"), ("clarity", "yes", "so clear")), content="so clear")
    with workspace.store.unit() as db:
        db.execute("UPDATE feedback SET content = ?", [FIRST + "so clear"])
    filtered(workspace, extractor="told@1", alone=True)
    assert {evidence: stage for evidence, (stage, _) in outcomes(workspace).items()} == {
        "preferred: this one": "evidence",
        "so clear": "kept",
    }


@pytest.mark.slow
def test_an_annotator_who_names_no_principle_still_has_to_agree(workspace: Workspace) -> None:
    one = ("clarity", "yes", "clear")
    said(workspace, (one,), (one,), (), content="clear")
    report = filtered(workspace, extractor="told@1")
    assert (report.accepted, report.groups) == (0, {3: 1})
    assert filtered(workspace, extractor="told@1", at_least=1).accepted == 1


@pytest.mark.slow
def test_one_annotator_alone_is_kept_only_if_allowed(workspace: Workspace) -> None:
    said(workspace, (("clarity", "yes", "clear"),), content="clear")
    assert filtered(workspace, extractor="told@1").accepted == 0
    assert next(iter(outcomes(workspace).values())) == ("consensus", "one annotator only")
    assert filtered(workspace, extractor="told@1", alone=True).accepted == 1


@pytest.mark.slow
def test_people_who_saw_another_comparison_need_not_agree(workspace: Workspace, tmp_path: Path) -> None:
    """One response in two comparisons, each judged by two people of its own."""
    same = {"responses": ["shared", "other"]}
    file = write(
        tmp_path / "v.jsonl.gz",
        votes(1, ("A", "A1 is clear"), ("A", "A1 is very clear"), **same),
        votes(
            2,
            ("A", "A1 cites facts"),
            ("A", "A1 has statistics"),
            responses=["shared", "third"],
            prompt=[{"role": "user", "content": "Question 1?"}],
            ratings={
                "votes": [
                    {"annotator": "x1", "value": "A", "reason": "A1 cites facts"},
                    {"annotator": "x2", "value": "A", "reason": "A1 has statistics"},
                ]
            },
        ),
    )
    import_feedback(workspace, file, "run-0")
    reader = LexiconExtractor()
    extract(workspace, reader, "run-1")
    report = filtered(workspace, extractor=reader.name)
    assert (report.accepted, report.dropped["duplicate"], report.groups) == (2, 2, {2: 2})


@pytest.mark.slow
def test_stated_judgments_are_filtered_without_quotes(workspace: Workspace, tmp_path: Path) -> None:
    question = {"test": {"question": "Is it earned?"}}
    for n, values in enumerate((["Yes", "Yes", "Yes"], ["Yes", "No", "Yes"])):
        listed = [{"annotator": f"e{i}", "value": value, "reason": "x"} for i, value in enumerate(values)]
        row = critique(n, "", ratings={"votes": listed}, meta=question)
        import_feedback(workspace, write(tmp_path / f"{n}.jsonl.gz", row), "run-0")
    report = filtered(workspace)
    assert (report.items, report.accepted, report.responses_with, report.groups) == (6, 1, 1, {3: 2})


def test_wrong_settings_and_nothing_to_filter_are_refused(workspace: Workspace) -> None:
    for wrong in ({"consensus_above": 2}, {"evidence_above": 101}, {"at_least": 0}):
        with pytest.raises(BadInputError):
            FilterConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="no principle judgments"):
        filtered(workspace)
    with pytest.raises(NotFoundError, match="filtered"):
        require_run(workspace)


# --- report and export ---


def test_base_rates_and_files_in_the_fields_of_helpsteer3(workspace: Workspace, tmp_path: Path) -> None:
    import polars as pl

    rows = [critique(n, "It is clear. It is wrong." if n % 2 else "It is clear.", id=f"x{n}") for n in range(30)]
    import_feedback(workspace, write(tmp_path / "f.jsonl.gz", *rows), "run-0")
    reader = LexiconExtractor()
    extract(workspace, reader, "run-1")
    filtered(workspace, extractor=reader.name, alone=True)
    report = principle_report(workspace)
    assert (report.accepted, report.accepted_yes, report.principles, report.responses) == (45, 30, 2, 30)
    assert [(b.principle, b.responses, b.yes) for b in report.base_rates] == [
        ("is clear", 30, 30),
        ("is accurate", 15, 0),
    ]
    run = require_run(workspace)
    train, held = export_principles(workspace, run, tmp_path / "p.jsonl", holdout=0.3, seed=1)
    assert train.rows + held.rows == 45
    assert train.prompts + held.prompts == 30
    assert held.prompts > 0
    read = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert list(read[0]) == ["domain", "language", "context", "response", "principle", "fulfilment"]
    assert {(row["domain"], row["language"]) for row in read} == {("stem", "en")}
    assert {row["fulfilment"] for row in read} == {"Yes", "No"}
    other = [json.loads(line) for line in (tmp_path / "p.holdout.jsonl").read_text().splitlines()]
    assert not {json.dumps(row["context"]) for row in read} & {json.dumps(row["context"]) for row in other}
    (whole,) = export_principles(workspace, run, tmp_path / "all.parquet")
    table = pl.read_parquet(whole.path)
    assert (table.height, table.columns) == (45, list(read[0]))
    for wrong in ({"path": tmp_path / "p.csv"}, {"path": tmp_path / "p.jsonl", "holdout": 1.0}):
        with pytest.raises(BadInputError):
            export_principles(workspace, run, **wrong)
