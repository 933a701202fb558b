"""`assay curate stage1` and `stage2` as a user runs them: people, an LLM judge over HTTP, kill -9, dry runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from annotating import vote
from forked_command import ForkedCommand

from assay.cli.main import main
from assay.compute.job import JobSpec, Unit, UnitDone
from assay.compute.local import LocalExecutor
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.annotation.queues import get_queue
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.judging.fake_endpoint import FakeEndpoint, fake_endpoint, prefers

PAIRS = 40


class Command:
    """`assay ...` in this process, as a user calls it in the workspace."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, workspace: Workspace, *arguments: object, code: int = 0) -> str:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--workspace", str(workspace.root)])
        said = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, said.out + said.err
        return said.out if code == 0 else said.err


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "120")
    return Command(capsys)


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    rows = []
    for n in range(PAIRS):
        good, bad = f"A careful and complete answer, number {n}.", f"dunno {n}"
        rows.append(
            {
                **dict.fromkeys(pair_schema().names),
                "row": n + 1,
                "messages": [{"role": "user", "content": f"Tell me about river {n}."}],
                "first": good,
                "second": bad,
                "label": "second" if n % 5 == 0 else "first",
                "source": "made-up",
                "record_id": str(n),
            }
        )
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
    return workspace


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    with fake_endpoint(prefers(lambda text: float("careful" in text))) as fake:
        yield fake


def loop_file(folder: Path, endpoint: FakeEndpoint, **more: Any) -> Path:
    (folder / "judges.yaml").write_text(
        json.dumps({"judges": [{"kind": "openai", "base_url": endpoint.base_url, "model": "fake"}]})
    )
    config = {
        "name": "loop",
        "iterations": 1,
        "seed": 6,
        "judges": "judges.yaml",
        "encoder": "hashing",
        "attributes": True,
        "preverify": True,
        "model": {"base": "tiny", "max_length": 128, "device": "cpu"},
        "people": {"seed": 6, "per_iteration": 2, "gold_checks": 0.0},
        **more,
    }
    path = folder / "loop.yaml"
    path.write_text(json.dumps(config))
    return path


def people_answer(workspace: Workspace, queue: str) -> int:
    """A person who sees which answer is careful, through the desk that every front end uses."""
    votes = 0
    with AnnotationService(workspace) as desk:
        while (given := desk.next(queue, "ann")) is not None:
            vote(desk, given, "first" if "careful" in given.content.first else "second")
            votes += 1
    return votes


@pytest.mark.slow
def test_the_loop_waits_for_people_and_resumes(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = loop_file(tmp_path, endpoint)
    mapped: list[tuple[str, int]] = []
    plain_run = LocalExecutor.run

    def noted_run(self: LocalExecutor, spec: JobSpec, units: Sequence[Unit], **more: Any) -> Iterator[UnitDone]:
        mapped.append((spec.target.partition(":")[2], self.workers))
        return plain_run(self, spec, units, **more)

    monkeypatch.setattr(LocalExecutor, "run", noted_run)
    said = assay(filled, "curate", "stage1", path)
    assert "waiting for people: 6 of 6 comparisons in queue 'loop-i0'" in said
    assert "assay annotate loop-i0 --as NAME" in said
    calls = len(endpoint.requests)
    assert "waiting for people" in assay(filled, "curate", "stage1", path)
    assert len(endpoint.requests) == calls  # asking again costs nothing
    assert people_answer(filled, "loop-i0") == 6
    said = assay(filled, "curate", "stage1", path, "--on", "local:1")
    assert mapped == [("TextEncoding", 1)]
    if "waiting" in said:
        assert people_answer(filled, "loop-i1") == get_queue(filled, "loop-i1").items
        said = assay(filled, "curate", "stage1", path)
    assert "the best of them is now model loop" in said
    assert not endpoint.repeats()
    status = json.loads(assay(filled, "curate", "status", "--json"))
    assert status["pools"]["gold"] >= 6
    assert {loop["name"] for loop in status["loops"]} == {"loop"}
    shown = assay(filled, "curate", "status")
    assert "gold / people" in shown
    assert "changed against the source's A/B label" in shown


@pytest.mark.slow
def test_an_adjudicator_settles_what_the_loops_people_disagree_on(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    people = {"seed": 2, "per_iteration": 0, "gold_checks": 0.0, "overlap": 2}
    path = loop_file(tmp_path, endpoint, attributes=False, preverify=False, people=people)
    assay(filled, "curate", "stage1", path)
    settled = []
    with AnnotationService(filled) as desk:
        for who in ("ann", "bob"):  # they never agree
            while (given := desk.next("loop-i0", who)) is not None:
                vote(desk, given, "first" if ("careful" in given.content.first) == (who == "ann") else "second")
        given = desk.next_conflict("loop-i0", "cleo")
        assert given is not None
        settled.append(given.comparison_id)
        vote(desk, given, "first" if "careful" in given.content.first else "second")
    assay(filled, "curate", "stage1", path)
    with filled.store.unit() as db:
        found = db.execute(
            "SELECT comparison_id, pool, rule, reason FROM decisions WHERE rule LIKE 'people%' ORDER BY pool"
        ).fetchall()
        votes = db.execute("SELECT count(*) FROM queue_votes").fetchone()
    assert [row[1:3] for row in found] == [("discarded", "people_conflict"), ("gold", "people")]
    assert found[1][0] == settled[0]
    assert "adjudicated by cleo" in found[1][3]
    assert votes == (5,)  # in the store before the decisions that rest on them


@pytest.mark.slow
def test_killed_while_judges_are_asked_nothing_is_asked_twice(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    people = {"seed": 5, "per_iteration": 0, "gold_checks": 0.0}
    path = loop_file(tmp_path, endpoint, seed=20, people=people, attributes=False, preverify=False)
    assay(filled, "curate", "stage1", path)
    assert people_answer(filled, "loop-i0") == 5
    reached, killed = threading.Event(), threading.Event()

    def hold(request: Any) -> None:
        if request.number >= 10:
            reached.set()
            assert killed.wait(300)

    endpoint.faults = hold
    process = ForkedCommand("curate", "stage1", path, "-w", filled.root)
    try:
        process.until(reached.is_set)
    finally:
        process.kill()
        killed.set()
    said = assay(filled, "curate", "stage1", path)
    assert "the best of them is now model loop" in said
    repeated = sum(n - 1 for n in endpoint.repeats().values())
    assert repeated <= 8  # at most the calls in flight, which nobody had answered


@pytest.mark.slow(reason="a budget that stops the loop is in test_stage1_loop")
def test_a_budget_is_the_loops_however_often_it_is_run(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    people = {"seed": 4, "per_iteration": 0, "gold_checks": 0.0}
    path = loop_file(
        tmp_path, endpoint, attributes=False, preverify=False, people=people, seed=20, max_cost=0.01, source_votes=True
    )
    priced = {"base_url": endpoint.base_url, "model": "fake", "price_in": 1.0, "price_out": 1.0, "max_tokens": 100}
    (tmp_path / "judges.yaml").write_text(json.dumps({"judges": [{"kind": "openai", **priced}]}))
    assay(filled, "curate", "stage1", path)
    people_answer(filled, "loop-i0")
    assert "budget of 0.01 cost" in assay(filled, "curate", "stage1", path)
    calls = len(endpoint.requests)
    assert 0 < calls < 20
    said = assay(filled, "curate", "stage1", path)
    assert "stopped: budget of 0.01 cost" in said
    assert f"assay curate stage1 {path}" in said
    assert len(endpoint.requests) == calls  # nothing more is spent before it is raised
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "max_cost": 1.0}))
    assert "the best of them is now model loop" in assay(filled, "curate", "stage1", path)
    assert not endpoint.repeats()


@pytest.mark.slow
def test_stage2_says_first_what_it_would_do(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    path = loop_file(
        tmp_path, endpoint, attributes=False, preverify=False, people={"seed": 8, "per_iteration": 0}, seed=12
    )
    assay(filled, "curate", "stage1", path)
    people_answer(filled, "loop-i0")
    assay(filled, "curate", "stage1", path)
    assay(filled, "data", "snapshot", "gold", "--pool", "gold")
    assay(filled, "train", "probe", "--data", "gold", "--base", "tiny", "--name", "gold-rm", "--max-length", "128")
    options = (
        "--best",
        "loop",
        "--gold",
        "gold-rm",
        "--judges",
        tmp_path / "judges.yaml",
        "--recycle-below",
        "0.5",
        "--encoder",
        "hashing",
    )
    calls = len(endpoint.requests)
    before = json.loads(assay(filled, "curate", "status", "--json"))
    would = json.loads(assay(filled, "curate", "stage2", *options, "--dry-run", "--json"))
    after = json.loads(assay(filled, "curate", "status", "--json"))
    assert (before["pools"], before["rules"]) == (after["pools"], after["rules"])
    assert len(endpoint.requests) == calls
    assert would["dry_run"] is True
    did = json.loads(assay(filled, "curate", "stage2", *options, "--json"))
    assert did["to_ask"] == would["to_ask"]
    assert did["kept"] + did["recycled"] + did["discarded"] == would["kept"] + would["recycled"] + would["discarded"]
    status = json.loads(assay(filled, "curate", "status", "--json"))
    assert status["pools"].get("unverified", 0) == did["unlabelled"] + did["unscored"]
    again = json.loads(assay(filled, "curate", "stage2", *options, "--json"))
    assert again["seen"] == status["pools"].get("unverified", 0)


def test_without_gold_the_loop_says_what_is_missing(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    people = {"seed": 0, "per_iteration": 0}
    path = loop_file(tmp_path, endpoint, attributes=False, preverify=False, people=people)
    assert "no gold pair" in assay(filled, "curate", "stage1", path, code=2)


def test_the_example_is_a_configuration_that_loads(assay: Command, workspace: Workspace, tmp_path: Path) -> None:
    from assay_pipelines.curation.loop.config import Stage1Config

    path = tmp_path / "loop.yaml"
    path.write_text(assay(workspace, "curate", "stage1", "--example"))
    assert Stage1Config.read(path).name == "first-loop"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "not YAML"),
        ("name: x\nsurprise: 1\n", "field 'surprise': unknown setting"),
        ("name: x\nsource_votes: true\nmodel: {backend: other}\n", "unknown model.backend 'other'; one of probe, bt"),
        ("name: x\n", "no voter labels silver"),
        ("name: my loop\nsource_votes: true\n", "field 'name'"),
        ("name: x\nsource_votes: true\npeople: 5\n", "field 'people': wrong type: 5"),
        ("name: x\nsource_votes: true\niterations: 2.5\n", "field 'iterations': wrong type: 2.5"),
        ("name: x\nsource_votes: 1\n", "field 'source_votes'"),
        ("name: x\nsource_votes: true\nwaivers: [y]\n", "field 'waivers'"),
        ("name: x\nsource_votes: true\npeople: {overlap: two}\n", "field 'people.overlap': wrong type: 'two'"),
        ("name: x\nsource_votes: true\npeople: {gold_checks: 0.7}\n", "field 'people.gold_checks'"),
        ("name: x\nsource_votes: true\nk_max: 0\n", "field 'k_max'"),
    ],
)
def test_a_wrong_configuration_is_one_clear_line(
    assay: Command, workspace: Workspace, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text(text)
    message = assay(workspace, "curate", "stage1", path, code=2)
    assert said in message
    assert "Traceback" not in message


def test_a_model_that_does_not_exist_is_said_before_people_are_asked(
    assay: Command, filled: Workspace, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    path = loop_file(tmp_path, endpoint, model={"base": "tinyq"})
    assert "no model 'tinyq'" in assay(filled, "curate", "stage1", path, code=3)
    with filled.store.unit() as db:
        assert db.execute("SELECT count(*) FROM loops").fetchone() == (0,)
