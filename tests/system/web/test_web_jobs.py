"""Jobs as real processes under a real web server: it is killed and started again, they are killed, two people start at
once, the disk is full."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi.testclient import TestClient
from reserved_ports import reserved_port
from web_pages import PATIENCE_S, check_accessible, opened, running_web, signed_in

from assay.cli.main import main
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_web.app import create_app
from assay_web.jobs.job import new_job
from assay_web.jobs.scheduler import keys_for
from assay_web.processes.child import EXIT_FILE, reserve
from assay_web.settings import RewardServer, WebSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ELSEWHERE = {"pid": 1, "host": "elsewhere", "birth": None, "started": "2026-01-01T00:00:00+00:00"}
GOING = ("waiting", "running", "stopping")
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    """Forty pairs, in the store and in an uploaded file."""
    (workspace.root / "uploads").mkdir()
    rows = [
        {"prompt": f"What is {n} + {n}?", "chosen": f"It is {2 * n}.", "rejected": "I do not know."} for n in range(40)
    ]
    path = workspace.root / "uploads" / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit) as ended:
        main(["data", "import", str(path), "-w", str(workspace.root)])
    assert ended.value.code == 0
    return workspace


@contextmanager
def server(workspace: Workspace, port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`assay web` in a process of its own, which is killed at the end as a machine's power cut would."""
    command = [sys.executable, "-m", "assay", "web", "-w", str(workspace.root), "--open", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                assert process.poll() is None
                assert time.monotonic() < deadline
                try:
                    httpx.get(f"{url}/api/session")
                    break
                except httpx.HTTPError:
                    time.sleep(0.1)
            yield process, url
        finally:
            process.kill()


def started(client: httpx.Client, kind: str, **settings: Any) -> dict[str, Any]:
    reply = client.post("/api/jobs", json={"kind": kind, "settings": settings})
    assert reply.status_code == 200, reply.text
    job: dict[str, Any] = reply.json()
    return job


def until(client: httpx.Client, job: dict[str, Any], *wanted: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        record: dict[str, Any] = client.get(f"/api/jobs/{job['id']}").json()
        if record["status"] in wanted:
            return record
        assert record["status"] in GOING, record
        assert time.monotonic() < deadline, record
        time.sleep(0.1)


def process_of(workspace: Workspace, job: dict[str, Any]) -> int:
    return int(json.loads((workspace.root / "jobs" / job["id"] / "process.json").read_text())["pid"])


@pytest.mark.slow
def test_jobs_outlive_the_server_wait_for_each_other_and_resume(filled: Workspace) -> None:
    port = reserved_port()
    with server(filled, port) as (process, url), signed_in(url, "ada") as ada, signed_in(url, "bob") as bob:
        settings = {"method": "bt", "data": "uploads/sums.jsonl", "base": "tiny", "max_length": 64, "device": "cpu"}
        training = started(ada, "train", **settings, epochs=2000, save_every=1, name="sums")
        at_once = [(ada, "dedup"), (bob, "clean")]  # two people at the same moment
        begun: list[dict[str, Any]] = []
        threads = [threading.Thread(target=lambda c=c, k=k: begun.append(started(c, k))) for c, k in at_once]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first, second = sorted(begun, key=lambda job: float(job["started"]))
        held = ada.get(f"/api/jobs/{second['id']}").json()
        assert (held["status"], held["waits_for"]) == ("waiting", [first["id"]])
        last = started(bob, "snapshot", name="sums")
        taken_back = bob.post(f"/api/jobs/{last['id']}/stop").json()
        assert (taken_back["status"], taken_back["why"], taken_back["can_resume"]) == (
            "stopped",
            "taken back by bob",
            True,
        )
        until(ada, training, "running")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with server(filled, port) as (_, url), signed_in(url, "ada") as ada:
        assert until(ada, first, "done")["by"] in ("ada", "bob")
        assert until(ada, second, "done")["waits_for"] == []  # it began by itself, under the new server
        checkpoint = filled.root / "runs"
        deadline = time.monotonic() + PATIENCE_S
        while not list(checkpoint.glob("*/**/*.safetensors")) and not list(checkpoint.glob("*/state*")):
            assert ada.get(f"/api/jobs/{training['id']}").json()["status"] == "running"
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert ada.post(f"/api/jobs/{training['id']}/stop").json()["status"] in ("stopping", "stopped")
        stopped = until(ada, training, "stopped")
        assert (stopped["why"], stopped["can_resume"]) == ("stopped by ada", True)

        resumed = ada.post(f"/api/jobs/{training['id']}/resume").json()
        assert resumed["command"] == f"assay train bt --resume {stopped['run_id']}"
        assert ada.post(f"/api/jobs/{training['id']}/resume").status_code == 409
        running = until(ada, resumed, "running")
        while running["run_id"] is None:
            running = until(ada, resumed, "running")
        os.killpg(process_of(filled, resumed), signal.SIGKILL)
        killed = until(ada, resumed, "interrupted")
        assert (killed["why"], killed["can_resume"]) == ("its process was killed; what it had stored is kept", True)
        with ada.stream("GET", f"/api/jobs/{resumed['id']}/events", params={"start": 0}) as stream:
            events = [line.partition(": ")[2] for line in stream.iter_lines() if line.startswith("event")]
        assert events[-2:] == ["job", "end"]
        lines = ada.get("/api/audit").json()["lines"]
        assert {
            ("start_job", "bob"),
            ("start_job", "ada"),
            ("stop_job", "ada"),
            ("stop_job", "bob"),
            ("resume_job", "ada"),
        } <= {(line["action"], line["person"]) for line in lines}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "bt", "dat": "x"}, "did you mean data"),
        ({"method": "bte", "data": "x"}, "did you mean bt"),
        ({"method": "bt"}, "name the training data"),
        ({"method": "bt", "data": "nothing"}, "no snapshot and no file is named 'nothing'"),
        ({"method": "bt", "data": "sums", "epochs": 0}, "must be at least 1"),
        ({"method": "bt", "data": "sums", "schedule": "sinus"}, "one of constant, linear, cosine, wsd"),
        ({"method": "bt", "data": "sums", "lora": "many"}, "must be a number"),
        ({"method": "bt", "data": "sums", "name": "x\0y"}, "is no text"),
    ],
)
def test_what_a_job_is_refused_with_before_it_starts(client: TestClient, settings: dict[str, Any], words: str) -> None:
    for path, more in (("/api/jobs/estimate", {}), ("/api/jobs", {"token": None})):
        refused = client.post(path, json={"kind": "train", "settings": settings, **more})
        assert refused.status_code == 422
        assert words in refused.json()["detail"]
    assert client.get("/api/jobs").json()["jobs"] == []


def upload(workspace: Workspace, name: str) -> None:
    (workspace.root / "uploads").mkdir()
    (workspace.root / "uploads" / name).write_text(json.dumps({"prompt": "A metal?", "response": "Tin."}) + "\n")


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("score", {}, "choose a file"),
        ("score", {"file": "uploads/rows.jsonl"}, "name the reward model"),
        ("score", {"file": "uploads/row.jsonl", "model": "tiny"}, "there is uploads/rows.jsonl"),
        ("score", {"file": "uploads/rows.jsonl", "model": "harmles"}, "the workspace has harmless"),
        ("score", {"file": "uploads/rows.jsonl", "model": "nothing-like-it"}, "the workspace has harmless"),
        ("benchmark", {"name": "ours", "path": "elsewhere.jsonl"}, "no file 'elsewhere.jsonl'"),
        ("evaluate", {"data": "uploads/rows.jsonl"}, "name the reward model"),
        ("evaluate", {"model": ["tiny"]}, "name the pairs"),
        ("evaluate", {"model": ["tiny"], "bench": "hhh", "path": ["row.jsonl"]}, "there is uploads/rows.jsonl"),
        ("evaluate", {"model": ["harmles"], "data": "uploads/rows.jsonl"}, "the workspace has harmless"),
        ("evaluate", {"model": ["tiny"], "data": "uploads/none.jsonl"}, "no snapshot and no file"),
    ],
)
def test_what_is_missing_is_seen_before_a_job_starts(
    client: TestClient, workspace: Workspace, kind: str, settings: dict[str, Any], words: str
) -> None:
    upload(workspace, "rows.jsonl")
    with start_run(workspace, "train", {}) as run:
        run.add_artifact("reward_model", "harmless", workspace.root, content_hash="0" * 32)
    refused = client.post("/api/jobs/estimate", json={"kind": kind, "settings": settings})
    assert refused.status_code == 422, refused.text
    assert words in refused.json()["detail"]


def test_every_form_is_made_of_its_command(client: TestClient, workspace: Workspace) -> None:
    kinds = client.get("/api/jobs/kinds").json()["kinds"]
    assert {"import", "train", "evaluate", "calibrate", "policy", "loop", "stage1"} <= {kind["name"] for kind in kinds}
    for kind in kinds:
        form = client.get(f"/api/jobs/kinds/{kind['name']}/form").json()
        for choice in [*form["choices"]] or [None]:
            form = client.get(
                f"/api/jobs/kinds/{kind['name']}/form", params={"choice": choice} if choice else {}
            ).json()
            assert form["fields"] or kind["name"] == "dedup"
            assert not [
                field for field in form["fields"] if field["name"] in ("workspace", "json", "api_key", "watch_key")
            ]
    ranges = {field["name"]: (field["least"], field["most"]) for field in form_of(client, "clean")["fields"]}
    assert ranges["max_characters"] == (0, None)
    upload(workspace, "rows.jsonl")
    command = {"kind": "score", "settings": {"file": "uploads/rows.jsonl", "model": "tiny", "save": True}}
    estimate = client.post("/api/jobs/estimate", json=command).json()
    assert estimate["command"] == "assay score uploads/rows.jsonl --model tiny --save"
    suggested = {field["name"]: field["suggestions"] for field in form_of(client, "score")["fields"]}
    assert suggested["kind"] == ["scalar", "principle", "generative"]
    choices = {field["name"]: field["choices"] for field in form_of(client, "decontaminate")["fields"]}
    assert (choices["unit"], choices["action"]) == (["word", "character"], ["discard", "report"])


def form_of(client: TestClient, kind: str) -> dict[str, Any]:
    form: dict[str, Any] = client.get(f"/api/jobs/kinds/{kind}/form").json()
    return form


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with TestClient(create_app(workspace, WebSettings(open_access=True)), "http://127.0.0.1") as client:
        entered = client.post("/api/session", json={"name": "ada"}).raise_for_status()
        client.headers["X-CSRF-Token"] = entered.json()["csrf"]
        yield client


def test_a_loop_is_described_in_a_few_fields(client: TestClient, workspace: Workspace) -> None:
    made = client.post("/api/jobs/online-loops", json={"name": "first", "policy": "tiny", "steps": 4}).json()
    assert made == {"file": "loops/first.yaml"}
    assert client.post("/api/jobs/online-loops", json={"name": "first"}).status_code == 409
    assert "loops/first.yaml" in form_of(client, "loop")["fields"][0]["suggestions"]
    estimate = client.post(
        "/api/jobs/estimate", json={"kind": "loop", "settings": {"config": "loops/first.yaml"}}
    ).json()
    assert estimate["command"] == "assay loop loops/first.yaml"
    (workspace.root / "loops" / "first.yaml").write_text("stesp: 3\n")
    refused = client.post("/api/jobs/estimate", json={"kind": "loop", "settings": {"config": "loops/first.yaml"}})
    assert (refused.status_code, "no setting is named 'stesp'" in refused.json()["detail"]) == (422, True)


def test_a_stage_of_an_earlier_version_is_a_job(workspace: Workspace, client: TestClient) -> None:
    folder = workspace.root / "stages" / "stage-20260101-000000-abcdef"
    folder.mkdir(parents=True)
    stage = {
        "settings": {"stage": "dedup"},
        "command": "assay data dedup",
        "by": "ada",
        "started": 1.0,
        "process": {**ELSEWHERE, "kind": "stage"},
    }
    (folder / "stage.json").write_text(json.dumps({**stage, "expected": None}))
    (folder / "exit.json").write_text(json.dumps({"code": 1, "at": 2.0}))
    (folder / "output.txt").write_text("assay: the store is busy\n")
    (job,) = client.get("/api/jobs", params={"area": "data"}).json()["jobs"]
    assert (job["id"], job["status"], job["why"], job["can_resume"]) == (
        folder.name,
        "failed",
        "the store is busy",
        True,
    )
    assert client.get("/api/jobs", params={"area": "policies"}).json()["jobs"] == []


def test_what_would_be_refused_again_is_not_resumed(workspace: Workspace, client: TestClient) -> None:
    with workspace.store.unit() as db:
        db.execute("INSERT INTO benchmarks (benchmark, content_hash, prompts, file) VALUES ('ours', 'h', 1, 'f')")
    upload(workspace, "rows.jsonl")
    settings: dict[str, Any] = {"method": "bt", "data": "uploads/rows.jsonl", "base": "tiny"}
    refused = client.post("/api/jobs", json={"kind": "train", "settings": settings})
    assert (refused.status_code, "is not checked against benchmark 'ours'; only snap" in refused.json()["detail"]) == (
        422,
        True,
    )
    waived = {**settings, "waive_contamination": ["ours=old rows"]}
    assert client.post("/api/jobs/estimate", json={"kind": "train", "settings": waived}).status_code == 200

    words = ["train", "bt", "--data", "uploads/rows.jsonl"]
    job = new_job(workspace, "train", "Train", "compute", settings, words, "ada", 1.0)
    (job.folder / "process.json").write_text(json.dumps({**ELSEWHERE, "kind": "job"}))
    (job.folder / EXIT_FILE).write_text(json.dumps({"code": 2, "at": 2.0, "error": "is not checked"}))
    run = workspace.runs / "run-20260101-000000-abcdef"
    run.mkdir(parents=True)
    (job.folder / "run.txt").write_text(run.name)
    assert client.get(f"/api/jobs/{job.id}").json()["can_resume"] is False
    refused = client.post(f"/api/jobs/{job.id}/resume")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "it is failed, with nothing to go on from: is not checked",
    )
    (run / "state.pt").touch()  # refused after its first state: that is not lost
    assert client.get(f"/api/jobs/{job.id}").json()["can_resume"] is True


@pytest.mark.parametrize("words", [["judge", "run", "--judges", "judges.yaml"], ["gone"]])
def test_what_a_begun_run_left_unread_is_asked_again(
    workspace: Workspace, client: TestClient, words: list[str]
) -> None:
    job = new_job(workspace, "judge", "Ask judges", "store", {}, words, "ada", 1.0)
    (job.folder / "process.json").write_text(json.dumps({**ELSEWHERE, "kind": "job"}))
    (job.folder / EXIT_FILE).write_text(json.dumps({"code": 2, "at": 2.0, "error": "3 answers could not be read"}))
    assert client.get(f"/api/jobs/{job.id}").json()["can_resume"] is False  # refused before its run began
    (job.folder / "run.txt").write_text("run-20260101-000000-abcdef")
    assert client.get(f"/api/jobs/{job.id}").json()["can_resume"] is (words[0] == "judge")


def test_scores_are_not_resumed_for_all_of_them_would_be_computed_again(
    workspace: Workspace, client: TestClient
) -> None:
    words = ["score", "uploads/rows.jsonl", "--model", "tiny", "--save"]
    job = new_job(workspace, "score", "Score responses", "compute", {"file": "uploads/rows.jsonl"}, words, "ada", 1.0)
    (job.folder / "process.json").write_text(json.dumps({**ELSEWHERE, "kind": "job"}))
    (job.folder / EXIT_FILE).write_text(json.dumps({"code": 2, "at": 2.0, "error": None}))
    (job.folder / "run.txt").write_text("run-20260101-000000-abcdef")
    assert client.get(f"/api/jobs/{job.id}").json()["can_resume"] is False
    refused = client.post(f"/api/jobs/{job.id}/resume")
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "it is failed, and would do all of its work again: start a new job",
    )


def test_a_job_has_the_keys_of_the_servers_that_it_names() -> None:
    servers = (RewardServer("http://127.0.0.1:1", "one"), RewardServer("http://127.0.0.1:2/", "two"))
    rl = ["rl", "--reward", "quality=http://127.0.0.1:2#safety", "--watch", "http://127.0.0.1:1"]
    assert keys_for(rl, servers) == {"ASSAY_API_KEY": "two", "ASSAY_WATCH_API_KEY": "one"}
    assert keys_for(["rl", "--reward", "http://127.0.0.1:15"], servers) == {}


@pytest.mark.slow
def test_output_that_a_full_disk_does_not_take_ends_nothing(tmp_path: Path) -> None:
    for arguments, code, error in ((["recipes"], 0, ""), (["data", "stats", "-w", "nowhere"], 3, "no workspace")):
        reserve(tmp_path)
        command = [sys.executable, "-m", "assay_web.processes.child", str(tmp_path), *arguments]
        with open("/dev/full", "wb") as full:  # every write fails with ENOSPC
            subprocess.run(command, stdout=full, stderr=full, check=False)
        noted = json.loads((tmp_path / EXIT_FILE).read_text())
        assert noted["code"] == code
        assert error in noted["error"]


def test_on_a_full_disk_no_job_is_begun_and_an_outcome_still_written(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode:
        pytest.skip("no namespace in which a small file system could be mounted")
    code = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from assay_web.processes.child import run
from assay_web.jobs.job import jobs_of, new_job, outcome_of
root = Path(sys.argv[1])
workspace = SimpleNamespace(root=root, runs=root / "runs")
def asked():
    return new_job(workspace, "dedup", "Deduplicate", "store", {}, ["data", "dedup"], "ada", time.time())
job = asked()
try:
    (root / "fill").write_bytes(b"0" * 2**24)
except OSError:
    pass
try:
    asked()
except Exception as error:
    print(type(error).__name__, error)
print(len(jobs_of(workspace)), len(list(root.glob("jobs/*"))))
try:
    run(job.folder, ["data", "stats", "-w", "nowhere"])
except SystemExit:
    print(job.exit["code"], job.exit["error"])
"""
    mount = f'mount -t tmpfs -o size=1M tmpfs {tmp_path} && exec {sys.executable} -c "$CODE" {tmp_path}'
    command = [*NAMESPACE, "sh", "-c", mount]
    done = subprocess.run(
        command, env={**os.environ, "CODE": code, "PYTHONUNBUFFERED": "1"}, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("BackendError the job was not started: the disk is full"), done.stderr
    assert lines[1] == "1 1"
    assert "no workspace" in done.stdout


@pytest.mark.browser
@pytest.mark.slow
def test_a_job_is_begun_and_followed_on_its_page(filled: Workspace, browser: Browser) -> None:
    with running_web(filled) as url, opened(browser, url) as page:
        page.goto("/jobs")
        page.get_by_role("button", name="Start a job").click()
        page.get_by_role("menuitem", name="Clean").click()
        check_accessible(page)
        page.get_by_role("button", name="What would it take?").click()
        page.get_by_role("dialog").get_by_text("assay data clean").wait_for()
        page.get_by_role("button", name="Start").click()
        page.wait_for_url("**/jobs/job-*")
        page.get_by_role("region", name="Clean, done").wait_for()  # by events: the page asks nothing again
        page.get_by_role("log").wait_for()
        check_accessible(page)
        page.get_by_role("link", name="Run again").click()
        page.get_by_role("form", name="Clean").wait_for()
        page.goto("/jobs")
        page.get_by_role("region", name="Clean, done").wait_for()
        check_accessible(page)


def test_the_scores_of_a_job_stand_beside_their_responses(workspace: Workspace, client: TestClient) -> None:
    (workspace.root / "uploads").mkdir()
    asked = [{"prompt": "A metal?", "response": "Tin."}, {"prompt": "Two?", "responses": ["Zinc.", "Wood."]}, {"id": 7}]
    (workspace.root / "uploads" / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    settings: dict[str, Any] = {"file": "uploads/rows.jsonl"}
    words = ["score", "uploads/rows.jsonl", "--model", "tiny"]
    job = new_job(workspace, "score", "Score", "compute", settings, words, "ada", 1.0)
    failed = {"error": {"code": "too_long", "message": "does not fit", "model": None}}
    lines = [
        {"row": 1, "score": {"reward": 0.25, "uncertainty": None}},
        {"row": 2, "scores": [{"reward": -1.5}, failed], "dtype": "bfloat16"},
        {"row": 3, "id": 7, "error": {"code": "bad_input", "message": "field 'response': missing"}},
    ]
    damaged = '{"row": 1, "score": {"rew{"row": 2}\n{"row": "1"}\n{"row": 1, "score'
    wrong = ['"scores": {"reward": 1}', '"scores": [1]', '"score": [2]', '"error": "busy"', '"score": {"reward": "a"}']
    damaged = "".join(f'{{"row": 4, {part}}}\n' for part in wrong) + damaged
    text = f"assay: a warning\n{damaged}}}\n" + "".join(f"{json.dumps(line)}\n" for line in lines)
    (job.folder / "output.txt").write_text(f"{text}3 rows: 2 responses scored, 2 failed, in float32\n")
    page = client.get(f"/api/jobs/{job.id}/scores").json()
    assert (page["lines"], page["damaged"]) == (3, 8)
    assert [(one["row"], one["response"], one["reward"], one["dtype"], one["error"]) for one in page["scores"]] == [
        (1, "Tin.", 0.25, "float32", None),
        (2, "Zinc.", -1.5, "bfloat16", None),
        (2, "Wood.", None, None, "too_long: does not fit"),
        (3, None, None, None, "bad_input: field 'response': missing"),
    ]
    second = client.get(f"/api/jobs/{job.id}/scores", params={"offset": 1, "limit": 1}).json()
    assert [one["response"] for one in second["scores"]] == ["Zinc.", "Wood."]
    download = client.get(f"/api/jobs/{job.id}/scores.jsonl")
    assert [json.loads(line) for line in download.text.splitlines()] == lines
    assert f"{job.id}-scores.jsonl" in download.headers["content-disposition"]
    with (job.folder / "output.txt").open("a") as output:  # it goes on
        output.write('{"row": 4, "score": {"reward": 1.5}}\n{"row": 5, "sco')
    more = client.get(f"/api/jobs/{job.id}/scores", params={"offset": 3}).json()
    assert ([one["reward"] for one in more["scores"]], more["lines"], more["damaged"]) == ([1.5], 4, 8)
    with (job.folder / "output.txt").open("a") as output:
        output.write('re": {"reward": 2.5}}\n')
    assert client.get(f"/api/jobs/{job.id}/scores").json()["lines"] == 5
    other = new_job(workspace, "import", "Import", "store", {}, ["data", "import"], "ada", 1.0)
    (other.folder / "output.txt").write_text(text)
    assert client.get(f"/api/jobs/{other.id}/scores").json()["lines"] == 0
    elsewhere = {**settings, "model": "tiny", "out": "other.jsonl"}  # so that all scores are in a job's output
    assert client.post("/api/jobs/estimate", json={"kind": "score", "settings": elsewhere}).status_code == 422
