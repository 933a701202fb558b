"""A real Label Studio server: tasks go there and votes come back, none lost, none doubled, whatever happens between.

The server lives in an environment of its own (`make label-studio-env`); $ASSAY_LABEL_STUDIO names its executable.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from reserved_ports import reserved_port

from assay.cli.main import main
from assay.data.snapshots import Selection
from assay.domain import Judgment
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.store.records import insert_annotator, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.config import ProjectConfig
from assay_pipelines.annotation.label_studio.connection import KEY, connect, iter_tasks
from assay_pipelines.annotation.label_studio.project import Project, create_project
from assay_pipelines.annotation.label_studio.pull import PullReport, pull
from assay_pipelines.annotation.label_studio.push import push
from assay_pipelines.annotation.label_studio.reading import COPIED, NO_CHOICE
from assay_pipelines.annotation.label_studio.webhook import HEADER, SECRET

pytestmark = pytest.mark.label_studio

REPOSITORY = Path(__file__).resolve().parents[3]
ASSAY = str(Path(sys.executable).parent / "assay")
TOKEN = "0123456789abcdef0123456789abcdef01234567"
HOOK_SECRET = "a secret of enough length"
START_S = 240
QUIET = {
    "SSRF_PROTECTION_ENABLED": "false",  # else it refuses to call a webhook on this machine
    "LATEST_VERSION_CHECK": "false",
    "COLLECT_ANALYTICS": "false",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
}


@contextmanager
def serving(executable: Path, data: Path) -> Iterator[str]:
    """The address of a server on `data`, ready; stopped at the end."""
    port = reserved_port()
    command = [str(executable), "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port)]
    command += ["--data-dir", str(data), "--username", "admin@example.com", "--password", "Test-Passw0rd!"]
    command += ["--user-token", TOKEN, "--enable-legacy-api-token", "--log-level", "ERROR"]
    log = data.with_name(data.name + ".log")
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | QUIET, start_new_session=True, cwd=data.parent
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                if httpx.get(f"{address}/health", timeout=5, trust_env=False).json()["status"] == "UP":
                    break
            except (httpx.HTTPError, ValueError, KeyError):
                pass
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="session")
def executable() -> Path:
    named = os.environ.get("ASSAY_LABEL_STUDIO")
    found = Path(named) if named else REPOSITORY / ".venv-label-studio" / "bin" / "label-studio"
    if not found.is_file():
        pytest.skip(f"no Label Studio at {found}: make label-studio-env, or name one with ASSAY_LABEL_STUDIO")
    return found


@pytest.fixture(scope="session")
def migrated(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder on which a server has run once: its migrations take most of a start."""
    data = tmp_path_factory.mktemp("label-studio") / "migrated"
    with serving(executable, data):
        pass
    return data


@pytest.fixture(scope="module")
def server(executable: Path, migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("label-studio-module") / "data"
    shutil.copytree(migrated, data)
    with serving(executable, data) as address:
        yield address


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, TOKEN)


@pytest.fixture(scope="module")
def second_person(server: str) -> int:
    """The number of a user beside the administrator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY, TOKEN)
        user = connect(server).users.create(
            email="ann@example.com", username="ann", first_name="", last_name="", phone=""
        )
    return int(user.id)


@pytest.fixture
def pairs(workspace: Workspace, tmp_path: Path) -> Workspace:
    """The workspace with five comparisons."""
    return filled(workspace, tmp_path, 5)


def filled(workspace: Workspace, folder: Path, number: int) -> Workspace:
    rows = [{"prompt": f"Why {n}?", "chosen": f"good {n}\n\n  <b>&", "rejected": f"bad {n}"} for n in range(number)]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run("data", "import", str(path), "--source", "toy", "--workspace", str(workspace.root))
    return workspace


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 0


@dataclass
class Site:
    """One project and what a person does there, over the API as Label Studio's own page does."""

    workspace: Workspace
    project: Project
    client: Any

    @classmethod
    def open(cls, workspace: Workspace, server: str, title: str, config: ProjectConfig | None = None) -> Site:
        client = connect(server)
        return cls(workspace, create_project(workspace, client, server, title, config or ProjectConfig(), None), client)

    def push(self, **options: Any) -> Any:
        return push(self.workspace, self.client, self.project, Selection(), None, **options)

    def pull(self) -> PullReport:
        return pull(self.workspace, self.client, self.project, None)

    def tasks(self) -> list[dict[str, Any]]:
        pages = iter_tasks(self.client, self.project.server, self.project.id, ("data", "predictions"))
        return [task for page in pages for task in page]

    def vote(self, task: int, value: str | None, **more: Any) -> int:
        return int(self.client.annotations.create(id=task, result=said(value), lead_time=4.5, **more).id)

    def edit(self, annotation: int, value: str) -> None:
        self.client.annotations.update(id=annotation, result=said(value))

    def standing(self) -> list[tuple[Any, ...]]:
        """(answer, strength, rationale, seconds, whether the good response was preferred) of people, in order."""
        with self.workspace.store.unit() as db:
            return db.execute(
                """SELECT j.answer, j.strength, j.rationale, j.seconds,
                          CASE j.answer WHEN 'A' THEN starts_with(a.content, 'good')
                                        WHEN 'B' THEN starts_with(b.content, 'good') END
                   FROM standing_judgments j JOIN annotators n USING (annotator_id)
                   JOIN comparisons c USING (comparison_id)
                   JOIN responses a ON a.response_id = c.response_a JOIN responses b ON b.response_id = c.response_b
                   WHERE n.kind = 'human' ORDER BY j.origin"""
            ).fetchall()


def said(value: str | None) -> list[dict[str, Any]]:
    """A choice of our template; `left`/`right` in Pairwise, as its page writes it; None: nothing was chosen."""
    if value is None:
        return []
    if value in ("left", "right"):
        shown = {"type": "pairwise", "value": {"selected": value}, "from_name": "comparison", "to_name": "comparison"}
        return [{"id": "r1", "origin": "manual", **shown}]
    chosen = {"type": "choices", "value": {"choices": [value]}, "from_name": "preference", "to_name": "prompt"}
    return [{"id": "r1", "origin": "manual", **chosen}]


def good_side(task: dict[str, Any], better: str = ">") -> str:
    """The choice that prefers the good response, wherever it is shown."""
    return f"A{better}B" if task["data"]["answer1"].startswith("good") else f"B{better}A"


@pytest.mark.slow
def test_from_the_command_line(
    server: str, pairs: Workspace, second_person: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def assay(*arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        run("label-studio", *arguments, "--json", "--workspace", str(pairs.root))
        out = capsys.readouterr().out
        assert TOKEN not in out
        found: dict[str, Any] = json.loads(out)
        return found

    made = assay("create", "By command", "--server", server + "/", "--overlap", "2", "--seed", "1")
    assert assay("push", "--limit", "3")["pushed"] == 3
    first = assay("push")
    assert (first["pushed"], first["known"]) == (2, 3)
    again = assay("push", "By command")
    assert (again["pushed"], again["known"]) == (0, 5)

    client = connect(server)
    (tasks,) = iter_tasks(client, server, made["project"], ("data",))
    assert len(tasks) == 5
    site = Site(pairs, Project(server, made["project"], "", None, ProjectConfig()), client)  # type: ignore[arg-type]
    for task in tasks[:2]:
        site.vote(task["id"], good_side(task))
    site.vote(tasks[0]["id"], "both bad", completed_by=second_person)
    assert assay("pull")["counts"]["votes"] == 3
    assert assay("pull")["counts"]["votes"] == 0
    (status,) = assay("status")["projects"]
    assert (status["tasks"], status["answered"], status["people"]) == (5, 2, 2)
    assert sum(status["votes"].values()) == 3
    assert status["votes"]["both_bad"] == 1
    stored = b"".join(p.read_bytes() for p in pairs.root.rglob("*") if p.is_file())
    assert TOKEN.encode() not in stored
    assert b"example.com" not in stored


@pytest.mark.slow
def test_every_vote_comes_back_in_the_order_that_was_shown(server: str, pairs: Workspace) -> None:
    site = Site.open(pairs, server, "Orders", ProjectConfig(seed=3))
    assert site.push().pushed == 5
    tasks = site.tasks()
    with pairs.store.unit() as db:
        orders = {row[0] for row in db.execute("SELECT shown_order FROM label_studio_tasks").fetchall()}
    assert orders == {"AB", "BA"}
    rationale = {"type": "textarea", "value": {"text": ["clear"]}, "from_name": "rationale", "to_name": "prompt"}
    for task, better in zip(tasks, (">>", ">", ">=", ">>", ">"), strict=True):
        side = good_side(task, better)
        value = side if side.startswith("A") else {">=": "B>=A"}.get(better, side)
        result = [*said(value), rationale]
        site.client.annotations.create(id=task["id"], result=result, lead_time=4.5)
    report = site.pull()
    assert (report.tasks, report.annotations, report.counts.votes) == (5, 5, 5)
    assert [row[1:] for row in site.standing()] == [(s, "clear", 4.5, True) for s in (3, 2, 1, 3, 2)]


@pytest.mark.slow
def test_edits_and_deletions_follow_and_stay_on_record(server: str, pairs: Workspace) -> None:
    site = Site.open(pairs, server, "Edits")
    site.push()
    first, second, third, fourth, _ = (task["id"] for task in site.tasks())
    kept, edited, deleted, orphan = (site.vote(task, "A>B") for task in (first, second, third, fourth))
    assert site.pull().counts.votes == 4
    site.edit(edited, "tie")
    site.client.annotations.delete(id=deleted)
    site.client.tasks.delete(id=str(fourth))
    report = site.pull().counts
    assert (report.votes, report.withdrawn, report.deleted) == (1, 3, 2)
    answers = [row[0] for row in site.standing()]
    assert len(answers) == 2
    assert answers.count("tie") == 1
    repeat = site.pull().counts
    assert (repeat.votes, repeat.withdrawn, repeat.deleted) == (0, 0, 0)
    with pairs.store.unit() as db:
        history = db.execute(
            """SELECT r.annotation_id, r.standing, w.reason FROM label_studio_revisions r
               LEFT JOIN withdrawn_judgments w USING (judgment_id) ORDER BY r.annotation_id, r.revision"""
        ).fetchall()
    assert history == [
        (kept, "current", None),
        (edited, "superseded", "edited in Label Studio"),
        (edited, "current", None),
        (deleted, "deleted", "deleted in Label Studio"),
        (orphan, "deleted", "deleted in Label Studio"),
    ]
    assert site.push().pushed == 0  # what a person deleted there does not come back


@pytest.mark.slow
def test_predictions_are_pushed_but_not_shown_to_whoever_labels(server: str, pairs: Workspace) -> None:
    with pairs.store.unit() as db:
        judge = insert_annotator(db, "llm", "judge-1")
        ids = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons").fetchall()]
        insert_judgments(db, [Judgment(c, judge, "A", strength=3, confidence=0.75) for c in ids], None)
    offered = {}
    for title, config in (("Hidden", ProjectConfig()), ("Shown", ProjectConfig(show_predictions=True))):
        site = Site.open(pairs, server, title, config)
        assert site.push(predictions=True).predictions == 5
        for task in site.tasks():
            (prediction,) = task["predictions"]
            with pairs.store.unit() as db:
                (order,) = db.execute(
                    "SELECT shown_order FROM label_studio_tasks WHERE task_id = ?", [task["id"]]
                ).fetchall()[0]
            expected = "A>>B" if order == "AB" else "B>>A"
            assert prediction["result"][0]["value"] == {"choices": [expected]}
            assert (prediction["model_version"], prediction["score"]) == ("judge-1", 0.75)
        reply = httpx.get(
            f"{site.project.server}/api/projects/{site.project.id}/next",
            headers={"Authorization": f"Token {TOKEN}"},
            trust_env=False,
        ).json()
        offered[title] = len(reply["predictions"])
        assert site.client.projects.get(id=site.project.id).show_collab_predictions is config.show_predictions
    assert offered == {"Hidden": 0, "Shown": 1}


@pytest.mark.slow
def test_predictions_turned_into_annotations_in_bulk_are_no_votes(server: str, pairs: Workspace) -> None:
    with pairs.store.unit() as db:
        judge = insert_annotator(db, "reward_model", "rm-1")
        ids = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons").fetchall()]
        insert_judgments(db, [Judgment(c, judge, "B") for c in ids], None)
    site = Site.open(pairs, server, "Bulk")
    site.push(predictions=True)
    reply = httpx.post(
        f"{server}/api/dm/actions?id=predictions_to_annotations&project={site.project.id}",
        json={"selectedItems": {"all": True, "excluded": []}},
        headers={"Authorization": f"Token {TOKEN}"},
        trust_env=False,
    )
    assert reply.json()["detail"] == "Created 5 annotations"
    report = site.pull()
    assert (report.annotations, report.counts.votes, report.counts.unreadable) == (5, 0, 5)
    assert site.standing() == []
    with pairs.store.unit() as db:
        assert db.execute("SELECT DISTINCT note FROM label_studio_annotations").fetchall() == [(COPIED,)]


@pytest.mark.slow
@pytest.mark.parametrize(("empty_means_tie", "answer"), [(False, "skip"), (True, "tie")])
def test_pairwise_without_a_choice(server: str, pairs: Workspace, empty_means_tie: bool, answer: str) -> None:
    config = ProjectConfig("pairwise", empty_means_tie=empty_means_tie)
    site = Site.open(pairs, server, f"Pairwise {answer}", config)
    site.push()
    tasks = site.tasks()
    for task, value in zip(tasks, ("left", "right", None), strict=False):
        site.vote(task["id"], value)
    site.vote(tasks[3]["id"], None, was_cancelled=True)
    assert site.pull().counts.votes == 4
    rows = site.standing()
    for row, task, side in zip(rows, tasks, ("answer1", "answer2"), strict=False):
        assert row[4] is task["data"][side].startswith("good")
    assert [row[0] for row in rows[2:]] == [answer, "skip"]
    with pairs.store.unit() as db:
        notes = [
            n for (n,) in db.execute("SELECT note FROM label_studio_annotations ORDER BY annotation_id").fetchall()
        ]
    assert notes == [None, None, "no choice" if empty_means_tie else NO_CHOICE, "skipped"]


@pytest.mark.slow
def test_a_push_that_was_killed_is_taken_up(server: str, pairs: Workspace) -> None:
    site = Site.open(pairs, server, "Killed")

    class Killed(BaseException):
        pass

    class DiesAfterImport:
        """The real client, on a machine that dies when the server has taken the tasks and nothing is noted yet."""

        def __getattr__(self, name: str) -> Any:
            return getattr(site.client, name)

        @property
        def projects(self) -> Any:
            return self

        def get(self, **arguments: Any) -> Any:
            return site.client.projects.get(**arguments)

        def import_tasks(self, **arguments: Any) -> None:
            site.client.projects.import_tasks(**arguments)
            raise Killed

    dying: Any = DiesAfterImport()
    with pytest.raises(Killed):
        push(pairs, dying, site.project, Selection(), None)
    report = site.push()
    assert (report.taken_up, report.pushed, report.known) == (5, 0, 5)
    tasks = site.tasks()
    assert len({task["data"]["comparison_id"] for task in tasks}) == len(tasks) == 5
    site.vote(tasks[0]["id"], good_side(tasks[0]))
    assert site.pull().counts.votes == 1
    assert site.standing()[0][4] is True


@pytest.mark.slow
def test_pages_miss_nothing_while_tasks_go_away(server: str, workspace: Workspace, tmp_path: Path) -> None:
    site = Site.open(filled(workspace, tmp_path, 60), server, "Pages")
    assert site.push().pushed == 60
    seen: list[int] = []
    for page in iter_tasks(site.client, server, site.project.id, ("data",), page=7):
        assert len(page) <= 7
        seen += [task["id"] for task in page]
        for task in page[:3]:
            site.client.tasks.delete(id=str(task["id"]))
    assert len(seen) == len(set(seen)) == 60


@pytest.mark.slow
def test_errors_are_one_clear_line(server: str, pairs: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site.open(pairs, server, "Gone")
    with pytest.raises(BadInputError, match="choose another title"):
        Site.open(pairs, server, "Gone")
    with pytest.raises(BadInputError, match="title: Ensure this field has no more than 50 characters"):
        Site.open(pairs, server, "x" * 60)
    site.client.projects.delete(id=site.project.id)
    with pytest.raises(NotFoundError, match=rf"{server} has no project {site.project.id} \('Gone'\)"):
        site.pull()
    monkeypatch.setenv(KEY, "wrong" * 8)
    with pytest.raises(BadInputError, match=KEY) as refused:
        create_project(pairs, connect(server), server, "No", ProjectConfig(), None)
    assert "cookie" not in str(refused.value)
    nobody = f"http://127.0.0.1:{reserved_port()}"
    with pytest.raises(BackendError, match=f"no answer from {nobody}"):
        create_project(pairs, connect(nobody), nobody, "No", ProjectConfig(), None)


@contextmanager
def receiving(workspace: Workspace) -> Iterator[subprocess.Popen[str]]:
    """`assay label-studio serve-webhook` as its own process, registered with the server, ready; killed at the end."""
    port = reserved_port()
    command = [ASSAY, "label-studio", "serve-webhook", "--port", str(port), "--register", f"http://127.0.0.1:{port}"]
    command += ["--json", "--workspace", str(workspace.root)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {SECRET: HOOK_SECRET}, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        ready = json.loads(line)
        assert httpx.post(ready["url"], json={}, headers={HEADER: "no"}, trust_env=False).status_code == 401
        yield process
    finally:
        process.kill()
        process.communicate()


def soon(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_webhook_and_poll_together_lose_and_double_nothing(server: str, pairs: Workspace) -> None:
    site = Site.open(pairs, server, "Webhook")
    site.push()
    tasks = [task["id"] for task in site.tasks()]
    spool = pairs.journal / "label-studio"
    with receiving(pairs) as process:
        first, second = site.vote(tasks[0], "A>B"), site.vote(tasks[1], "B>>A")
        soon(lambda: len(site.standing()) == 2)
        site.edit(first, "both good")
        soon(lambda: "both_good" in [row[0] for row in site.standing()])
        site.client.annotations.delete(id=second)
        soon(lambda: [row[0] for row in site.standing()] == ["both_good"])
        report = site.pull()
        assert (report.counts.votes, report.counts.withdrawn) == (0, 0)

        with pairs.store.unit():  # somebody holds the store: votes are acknowledged and wait
            third = site.vote(tasks[2], "tie")
            site.client.tasks.delete(id=str(tasks[0]))
            soon(lambda: len(list(spool.glob("event-*.json"))) == 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
    lost = site.vote(tasks[3], "skip")  # nobody receives this one
    report = site.pull()
    assert report.events.events == 2
    assert (report.events.counts.votes, report.events.counts.withdrawn) == (1, 1)
    assert report.counts.votes == 1
    assert [row[0] for row in site.standing()] == ["tie", "skip"]
    assert site.pull().counts.votes == 0
    with pairs.store.unit() as db:
        rows = db.execute(
            "SELECT annotation_id FROM label_studio_revisions WHERE standing = 'current' ORDER BY ALL"
        ).fetchall()
    assert rows == [(third,), (lost,)]


@pytest.mark.slow
def test_the_receiver_stops_when_told_and_folds_what_it_has(server: str, pairs: Workspace) -> None:
    site = Site.open(pairs, server, "Stopping")
    site.push(limit=1)
    (task,) = site.tasks()
    with receiving(pairs) as process:
        site.vote(task["id"], "tie")  # acknowledged when this returns: Label Studio calls before it answers
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert [row[0] for row in site.standing()] == ["tie"]
