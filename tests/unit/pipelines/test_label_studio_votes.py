"""Label Studio without a server: reading annotations as recorded from one, and which votes stand whatever the order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import duckdb
import pytest
from empty_workspaces import new_workspace
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Comparison, Message, swap_answer
from assay.errors import BadInputError
from assay.store.schema import migrate
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.config import CHOICES, ProjectConfig, choice_for
from assay_pipelines.annotation.label_studio.connection import server_address
from assay_pipelines.annotation.label_studio.events import append_event, fold_events, observations, slim, spool_folder
from assay_pipelines.annotation.label_studio.reading import (
    COPIED,
    NO_CHOICE,
    STARTED_FROM_PREDICTION,
    as_judgment,
    read_annotation,
)
from assay_pipelines.annotation.label_studio.votes import Deletion, record
from assay_pipelines.annotation.label_studio.webhook import HEADER, PATH, create_app

SERVER = "http://ls.example.org:8080"
PROJECT = 7
PREFERENCE, PAIRWISE = ProjectConfig(), ProjectConfig("pairwise")


def recorded(**changes: Any) -> dict[str, Any]:
    """An annotation in a task of GET /api/tasks?fields=all, Label Studio 1.23.2."""
    return {
        "id": 4,
        "result": [],
        "created_username": " admin@example.com, 1",
        "created_ago": "0 minutes",
        "completed_by": 1,
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2026-11-21T15:17:47.407227Z",
        "updated_at": "2026-11-21T15:17:47.649114Z",
        "draft_created_at": None,
        "lead_time": 3.5,
        "import_id": None,
        "last_action": None,
        "bulk_created": False,
        "task": 7,
        "project": PROJECT,
        "updated_by": 1,
        "parent_prediction": None,
        "parent_annotation": None,
        "last_created_by": None,
    } | changes


def choice(value: str) -> list[dict[str, Any]]:
    said = {"from_name": "preference", "to_name": "prompt", "type": "choices", "value": {"choices": [value]}}
    return [{"id": "lR3mZ", "origin": "manual", **said}]


def pairwise(side: str) -> list[dict[str, Any]]:
    """As the web page writes it: `to_name` is the control's own name."""
    said = {"type": "pairwise", "value": {"selected": side}, "from_name": "comparison", "to_name": "comparison"}
    return [{"id": "x1", "origin": "manual", **said}]


def test_every_choice_of_our_template_is_read() -> None:
    for value, (answer, strength) in CHOICES.items():
        revision = read_annotation(recorded(result=choice(value)), PREFERENCE)
        assert (revision.answer, revision.strength, revision.note) == (answer, strength, None)
        assert choice_for(answer, strength) == value
        assert f'alias="{value.replace(">", "&gt;")}"' in PREFERENCE.label_config
    assert choice_for("A", 0) == "A>=B"
    assert choice_for("B", None) == "B>A"


def test_rationale_time_and_skip_are_read() -> None:
    why = {"from_name": "rationale", "to_name": "prompt", "type": "textarea", "value": {"text": ["clearer", "shorter"]}}
    revision = read_annotation(recorded(result=[*choice("A>B"), why]), PREFERENCE)
    assert revision.rationale == "clearer\nshorter"
    assert revision.seconds == 3.5
    assert revision.revision == datetime(2026, 11, 21, 15, 17, 47, 649114, UTC)
    skipped = read_annotation(recorded(result=choice("A>B"), was_cancelled=True), PREFERENCE)
    assert (skipped.answer, skipped.note) == ("skip", "skipped")
    assert read_annotation(recorded(result=choice("tie"), lead_time=-1.0), PREFERENCE).seconds is None


def test_pairwise_reads_selected_and_is_honest_about_no_result() -> None:
    assert read_annotation(recorded(result=pairwise("left")), PAIRWISE).answer == "A"
    assert read_annotation(recorded(result=pairwise("right")), PAIRWISE).answer == "B"
    nothing = read_annotation(recorded(), PAIRWISE)
    assert (nothing.answer, nothing.note) == ("skip", NO_CHOICE)
    cancelled = read_annotation(recorded(was_cancelled=True), PAIRWISE)
    assert (cancelled.answer, cancelled.note) == ("skip", "skipped")
    told = ProjectConfig("pairwise", empty_means_tie=True)
    assert read_annotation(recorded(), told).answer == "tie"
    assert read_annotation(recorded(was_cancelled=True), told).answer == "skip"


def test_pairwise_does_not_read_a_key_that_label_studio_never_writes() -> None:
    wrong = [{"type": "pairwise", "value": {"pairwise": "left"}, "from_name": "comparison", "to_name": "comparison"}]
    assert read_annotation(recorded(result=wrong), PAIRWISE).answer == "skip"


def test_an_unknown_choice_is_no_vote_and_says_why() -> None:
    for result in (choice("left is nicer"), choice("A>B") + choice("B>A")):
        revision = read_annotation(recorded(result=result), PREFERENCE)
        assert revision.answer is None
        assert revision.note is not None
        assert "not a choice of this template" in revision.note
        assert as_judgment(revision, SERVER, "c-1", "AB") is None


def test_a_prediction_copied_in_bulk_is_no_vote_but_one_that_a_person_looked_at_is() -> None:
    copied = read_annotation(recorded(result=choice("A>B"), parent_prediction=9, lead_time=None), PREFERENCE)
    assert (copied.answer, copied.note) == (None, COPIED)
    looked_at = read_annotation(recorded(result=choice("A>B"), parent_prediction=9), PREFERENCE)
    assert (looked_at.answer, looked_at.note) == ("A", STARTED_FROM_PREDICTION)


def test_the_shown_order_turns_the_answer_and_the_annotator_is_a_pseudonym() -> None:
    revision = read_annotation(recorded(result=choice("A>>B"), completed_by={"id": 12, "email": "x@y.org"}), PREFERENCE)
    straight, turned = (as_judgment(revision, SERVER, "c-1", order) for order in ("AB", "BA"))
    assert straight is not None
    assert turned is not None
    assert (straight.answer, turned.answer) == ("A", "B")
    assert turned.shown_order == "BA"
    assert straight.annotator_id == turned.annotator_id
    assert "x@y.org" not in json.dumps(asdict(straight))


def test_what_is_no_annotation_is_refused() -> None:
    with pytest.raises(BadInputError, match="updated_at"):
        read_annotation(recorded(updated_at="yesterday"), PREFERENCE)
    with pytest.raises(BadInputError, match="field 'id'"):
        read_annotation(recorded(id="4"), PREFERENCE)
    for part in ("result", "was_cancelled", "updated_at", "task"):  # a reply cut to fewer fields is not half a vote
        with pytest.raises(BadInputError):
            read_annotation({k: v for k, v in recorded(result=choice("A>B")).items() if k != part}, PREFERENCE)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInputError, match="template"):
        ProjectConfig("ranker")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="overlap"):
        ProjectConfig(overlap=0)
    with pytest.raises(BadInputError, match="pairwise"):
        ProjectConfig(empty_means_tie=True)


def test_one_spelling_of_a_server_and_no_key_in_it() -> None:
    assert server_address(" HTTP://LS.example.org:8080/ ") == SERVER
    for bad in ("ls.example.org", "http://", "ftp://x", "http://user:key@x", "http://x/?token=1", "http://x:99999"):
        with pytest.raises(BadInputError):
            server_address(bad)


# A world of three tasks on which people vote, edit and delete. What was said is sent as webhook events, which may be
# lost, repeated and reordered, and seen by polls, each of which sees the server as it then is.

TASKS = (1, 2, 3)
ORDERS: tuple[Literal["AB", "BA"], ...] = ("AB", "BA", "AB")


@dataclass
class World:
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict)
    tasks: set[int] = field(default_factory=lambda: set(TASKS))
    clock: Iterator[int] = field(default_factory=itertools.count)
    next_id: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def vote(self, task: int, value: str) -> dict[str, Any] | None:
        if task not in self.tasks:
            return None
        number = next(self.next_id)
        user = number % 2 + 1
        self.annotations[number] = recorded(
            id=number, task=task, completed_by=user, result=choice(value), updated_at=self._now()
        )
        return {"action": "ANNOTATION_CREATED", "annotation": dict(self.annotations[number])}

    def edit(self, which: int, value: str) -> dict[str, Any] | None:
        if not self.annotations:
            return None
        number = sorted(self.annotations)[which % len(self.annotations)]
        self.annotations[number] = self.annotations[number] | {"result": choice(value), "updated_at": self._now()}
        return {"action": "ANNOTATION_UPDATED", "annotation": dict(self.annotations[number])}

    def delete(self, which: int) -> dict[str, Any] | None:
        if not self.annotations:
            return None
        number = sorted(self.annotations)[which % len(self.annotations)]
        del self.annotations[number]
        return {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": number}], "project": {"id": PROJECT}}

    def delete_task(self, task: int) -> dict[str, Any] | None:
        if task not in self.tasks:
            return None
        self.tasks.remove(task)
        self.annotations = {n: a for n, a in self.annotations.items() if a["task"] != task}
        return {"action": "TASKS_DELETED", "tasks": [{"id": task}], "project": {"id": PROJECT}}

    def _now(self) -> str:
        return (datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=next(self.clock))).isoformat()

    def standing(self, comparisons: list[str]) -> set[tuple[str, str, str]]:
        """(comparison, answer in canonical order, origin) that must count."""
        found: set[tuple[str, str, str]] = set()
        for annotation in self.annotations.values():
            place = TASKS.index(annotation["task"])
            judgment = as_judgment(read_annotation(annotation, PREFERENCE), SERVER, comparisons[place], ORDERS[place])
            assert judgment is not None
            shown = CHOICES[annotation["result"][0]["value"]["choices"][0]][0]
            assert judgment.answer == (shown if ORDERS[place] == "AB" else swap_answer(shown))
            found.add((judgment.comparison_id, judgment.answer, judgment.origin))
        return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("vote"), st.sampled_from(TASKS), st.sampled_from(sorted(CHOICES))),
        st.tuples(st.just("edit"), st.integers(0, 9), st.sampled_from(sorted(CHOICES))),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("delete_task"), st.sampled_from(TASKS)),
        st.tuples(st.just("fetch")),
        st.tuples(st.just("store")),
        st.tuples(st.just("deliver"), st.integers(0, 99)),
    ),
    max_size=25,
)


@dataclass
class Poll:
    """A poll between what it fetched and what it stores; people and events go on meanwhile."""

    known: set[int]
    seen: list[dict[str, Any]]

    @classmethod
    def fetch(cls, db: duckdb.DuckDBPyConnection, world: World) -> Poll:
        rows = db.execute("SELECT annotation_id FROM label_studio_revisions WHERE standing = 'current'").fetchall()
        return cls({row[0] for row in rows}, [dict(a) for a in world.annotations.values()])

    def store(self, db: duckdb.DuckDBPyConnection, world: World) -> None:
        """As `pull`: gone is what was known before, was not fetched, and is not there when asked for."""
        record(db, SERVER, [read_annotation(a, PREFERENCE) for a in self.seen], (), None)
        missing = self.known - {a["id"] for a in self.seen}
        gone = [Deletion("annotation", n, PROJECT) for n in missing if n not in world.annotations]
        gone += [Deletion("task", t, PROJECT) for t in TASKS if t not in world.tasks]
        record(db, SERVER, (), gone, None)


@pytest.fixture(scope="module")
def store() -> Iterator[duckdb.DuckDBPyConnection]:
    """The store's tables in memory."""
    with duckdb.connect(":memory:") as db:
        migrate(db)
        yield db


@pytest.fixture(scope="module")
def world_workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return new_workspace(tmp_path_factory.mktemp("label-studio") / "workspace")


def new_project(db: duckdb.DuckDBPyConnection) -> list[str]:
    """An empty Label Studio part of the store with three tasks; returns the comparisons' ids."""
    comparisons = [Comparison.of((Message("user", f"q{n}"),), "x", "y")[0].id for n in TASKS]
    for table in ("annotations", "deletions", "tasks", "projects"):
        db.execute(f"DELETE FROM label_studio_{table}")
    db.execute("DELETE FROM judgments")
    db.execute("DELETE FROM withdrawn_judgments")
    db.execute(
        """INSERT INTO label_studio_projects (server, project_id, title, born_at, settings)
           VALUES (?, ?, 'votes', now(), ?)""",
        [SERVER, PROJECT, json.dumps(asdict(PREFERENCE))],
    )
    db.executemany(
        """INSERT INTO label_studio_tasks (server, project_id, task_id, comparison_id, shown_order)
           VALUES (?, ?, ?, ?, ?)""",
        [(SERVER, PROJECT, t, c, o) for t, c, o in zip(TASKS, comparisons, ORDERS, strict=True)],
    )
    return comparisons


def standing(db: duckdb.DuckDBPyConnection) -> set[tuple[str, str, str]]:
    rows = db.execute("SELECT comparison_id, answer, origin FROM standing_judgments").fetchall()
    votes, distinct = db.execute("SELECT count(*), count(DISTINCT judgment_id) FROM judgments").fetchall()[0]
    assert votes == distinct
    assert len(rows) == len(set(rows))
    return set(rows)


def take_in(db: duckdb.DuckDBPyConnection, event: dict[str, Any]) -> None:
    kept = slim(event)
    assert kept is not None
    revisions, deletions = observations(SERVER, kept, {(SERVER, PROJECT): PREFERENCE})
    record(db, SERVER, revisions, deletions, None)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps=STEPS, data=st.data())
def test_any_interleaving_of_events_and_polls_ends_in_the_same_votes(
    store: duckdb.DuckDBPyConnection, steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    comparisons, world = new_project(store), World()
    sent: list[dict[str, Any]] = []
    polling: Poll | None = None
    for verb, *arguments in steps:
        if verb == "fetch":
            polling = Poll.fetch(store, world)
        elif verb == "store":
            if polling is not None:
                polling.store(store, world)
        elif verb == "deliver":  # any event that was ever sent, again or late
            if sent:
                take_in(store, sent[arguments[0] % len(sent)])
        else:
            event = getattr(world, verb)(*arguments)
            if event is not None:
                sent.append(event)
    if data.draw(st.booleans(), label="every event arrives, in some order, and nobody polls"):
        for event in data.draw(st.permutations(sent)):
            take_in(store, event)
    else:
        Poll.fetch(store, world).store(store, world)
    expected = world.standing(comparisons)
    assert standing(store) == expected
    if polling is not None:  # a poll that began long ago ends now
        polling.store(store, world)
    for event in sent:  # late repeats change nothing
        take_in(store, event)
    assert standing(store) == expected


def deliver(workspace: Workspace, event: dict[str, Any]) -> None:
    kept = slim(event)
    assert kept is not None
    append_event(spool_folder(workspace), SERVER, kept)
    fold_events(workspace)


def test_an_edit_and_a_deletion_keep_what_was_said_before(world_workspace: Workspace) -> None:
    with world_workspace.store.unit() as db:
        new_project(db)
    world = World()
    for event in (world.vote(1, "A>B"), world.edit(0, "tie"), world.delete(0)):
        assert event is not None
        deliver(world_workspace, event)
    with world_workspace.store.unit() as db:
        rows = db.execute(
            """SELECT j.answer, w.reason, r.standing FROM label_studio_revisions r JOIN judgments j USING (judgment_id)
               LEFT JOIN withdrawn_judgments w USING (judgment_id) ORDER BY r.revision"""
        ).fetchall()
    assert rows == [("A", "edited in Label Studio", "deleted"), ("tie", "deleted in Label Studio", "deleted")]


# The receiver

SECRET = "a secret of enough length"


@pytest.fixture
def receiver(world_workspace: Workspace) -> Iterator[TestClient]:
    with world_workspace.store.unit() as db:
        new_project(db)
    with TestClient(create_app(world_workspace, SERVER, SECRET)) as client:
        yield client


def waiting(workspace: Workspace) -> list[Path]:
    return sorted(spool_folder(workspace).glob("event-*.json"))


def test_an_acknowledged_event_is_on_the_disk_and_is_folded_once(
    receiver: TestClient, world_workspace: Workspace
) -> None:
    event = World().vote(2, "B>>A")
    for _ in range(2):  # Label Studio behind a proxy may send twice
        assert receiver.post(PATH, json=event, headers={HEADER: SECRET}).json() == {"stored": "ANNOTATION_CREATED"}
    assert len(waiting(world_workspace)) == 2
    assert (fold_events(world_workspace).counts.votes, waiting(world_workspace)) == (1, [])
    with world_workspace.store.unit() as db:
        assert [row[1] for row in standing(db)] == ["A"]  # shown the other way round


def test_without_the_secret_nothing_is_taken(receiver: TestClient, world_workspace: Workspace) -> None:
    event = World().vote(2, "B>>A")
    for headers in ({}, {HEADER: "wrong"}, {HEADER: SECRET + "x"}):
        assert receiver.post(PATH, json=event, headers=headers).status_code == 401
    assert waiting(world_workspace) == []


def test_what_is_no_event_is_refused_and_other_events_are_ignored(
    receiver: TestClient, world_workspace: Workspace
) -> None:
    headers = {HEADER: SECRET}
    assert receiver.post(PATH, content=b"{", headers=headers).status_code == 400
    assert receiver.post(PATH, json=[1], headers=headers).status_code == 400
    assert receiver.post(PATH, json={}, headers=headers).status_code == 400
    without_payload = receiver.post(PATH, json={"action": "ANNOTATION_CREATED"}, headers=headers)
    assert without_payload.status_code == 400
    assert "send payload" in without_payload.json()["error"]
    assert receiver.post(PATH, json={"action": "PROJECT_UPDATED"}, headers=headers).json() == {
        "ignored": "PROJECT_UPDATED"
    }
    assert waiting(world_workspace) == []


def test_a_full_disk_is_not_acknowledged(receiver: TestClient, world_workspace: Workspace) -> None:
    folder = spool_folder(world_workspace)
    if folder.exists():
        for path in folder.glob("event-*"):
            path.unlink()
        folder.rename(folder.with_name("moved"))
    folder.write_text("in the way")
    try:
        reply = receiver.post(PATH, json=World().vote(1, "tie"), headers={HEADER: SECRET})
    finally:
        folder.unlink()
    assert reply.status_code == 503


def test_events_of_other_projects_and_damaged_files_disturb_nothing(
    receiver: TestClient, world_workspace: Workspace
) -> None:
    foreign = World().vote(1, "tie")
    assert foreign is not None
    foreign["annotation"]["project"] = 99
    receiver.post(PATH, json=foreign, headers={HEADER: SECRET})
    receiver.post(PATH, json=World().vote(1, "A>B"), headers={HEADER: SECRET})
    waiting(world_workspace)[0].with_name("event-0.json").write_text('{"server":')
    report = fold_events(world_workspace)
    assert (report.events, report.ignored, report.damaged, report.counts.votes) == (3, 1, 1, 1)
    assert [path.name for path in (spool_folder(world_workspace) / "damaged").iterdir()] == ["event-0.json"]
