"""The pages of curation on a store that the product's own commands filled, and stages as real processes."""

from __future__ import annotations

import json
import random
import shutil
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
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.cli.main import main
from assay.runs.process import is_alive
from assay.workspace import Workspace
from assay_pipelines.judging.fake_endpoint import FakeEndpoint, JudgeRequest, fake_endpoint, prefers
from assay_serving.chat.scripted import Fault
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.accounts import add_account
from assay_web.accounts.passwords import Passwords
from assay_web.settings import PasswordCost

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAIRS = 40
CHEAP = PasswordCost(passes=1, memory_kib=256, lanes=1)
PASSWORD = "correct horse battery"
ENDED = ("done", "incomplete", "stopped", "interrupted", "failed")


def sentence(chance: random.Random, count: int) -> str:
    return " ".join(f"word{chance.randrange(3000)}" for _ in range(count))


def assay(workspace: Workspace, *arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "-w", str(workspace.root)])
    assert ended.value.code == 0, arguments


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    """Likes the careful answer."""
    with fake_endpoint(prefers(lambda text: float("careful" in text))) as fake:
        yield fake


@pytest.fixture(scope="module")
def curated(empty_workspace: Path, tmp_path_factory: pytest.TempPathFactory, endpoint: FakeEndpoint) -> Workspace:
    """PAIRS pairs of which every fifth has a wrong label, a near-duplicate, a leak, a loop that has ended, and one that
    waits to begin, whose judge costs something."""
    folder = tmp_path_factory.mktemp("curate")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    chance = random.Random(0)
    rows = []
    for n in range(PAIRS):
        good, bad = f"A careful answer: {sentence(chance, 10)}", f"dunno {sentence(chance, 6)}"
        chosen, rejected = (bad, good) if n % 5 == 0 else (good, bad)
        prompt = f"Tell me about {sentence(chance, 16)}"
        rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected, "category": "chat"})
    rows.append({**rows[1], "rejected": f"{rows[1]['rejected']} well"})
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"prompt": "torn"}])) + "\n")
    (folder / "bench.jsonl").write_text(json.dumps({"prompt": rows[2]["prompt"]}) + "\n")
    assay(workspace, "data", "import", folder / "pairs.jsonl", "--source", "made-up")
    assay(workspace, "data", "benchmarks", "add", "bench", folder / "bench.jsonl")
    assay(workspace, "data", "decontaminate")
    assay(workspace, "data", "near-dup", "--threshold", "0.6", "--action", "discard")
    loops = workspace.root / "loops"
    loops.mkdir()
    simulated = {"kind": "simulated", "truth": "source"}
    write(loops / "people.yaml", {"judges": [{**simulated, "name": "ann", "accuracy": 0.9}]})
    biased = {**simulated, "name": "biased", "position_bias": 0.9, "both_orders": True}
    fair = [{**simulated, "name": name, "accuracy": 1.0} for name in ("fair", "other")]
    write(loops / "judges.yaml", {"judges": [biased, *fair]})
    paid = {"kind": "openai", "base_url": endpoint.base_url, "model": "fake", "price_in": 1.0, "price_out": 5.0}
    write(loops / "paid.yaml", {"judges": [{**paid, "concurrency": 1}]})
    loop = {
        "name": "ended",
        "iterations": 1,
        "seed": 8,
        "per_iteration": 4,
        "judges": "judges.yaml",
        "encoder": "hashing",
        "model": {"base": "tiny", "max_length": 128, "device": "cpu"},
        "people": {"seed": 8, "per_iteration": 2, "queue": False, "judges": "people.yaml"},
    }
    write(loops / "ended.yaml", loop)
    write(loops / "waits.yaml", {**loop, "name": "waits", "judges": "paid.yaml", "max_cost": 3.0})
    assay(workspace, "curate", "stage1", loops / "ended.yaml")
    return workspace


def write(path: Path, payload: Any) -> None:
    path.write_text(json.dumps(payload), encoding="utf-8")


@contextmanager
def held(workspace: Workspace) -> Iterator[None]:
    """The store in another process's hands."""
    holding = "import sys; from assay.workspace import Workspace\nwith Workspace.open(sys.argv[1]).store.unit():\n"
    holding += "    print('held', flush=True)\n    sys.stdin.read()"
    command = [sys.executable, "-c", holding, str(workspace.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


def got(client: httpx.Client, path: str) -> Any:
    reply = client.get(f"/api/curate/{path}")
    assert reply.status_code == 200, reply.text
    return reply.json()


def sent(client: httpx.Client, path: str, body: Any = None) -> Any:
    reply = client.post(f"/api/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def output(client: httpx.Client, job: dict[str, Any]) -> str:
    return str(client.get(f"/api/jobs/{job['id']}/log").json()["text"])


def until(client: httpx.Client, *wanted: str) -> dict[str, Any]:
    """The newest job, once it has one of these states."""
    deadline = time.monotonic() + 240
    while True:
        newest: dict[str, Any] = client.get("/api/jobs").json()["jobs"][0]
        if newest["status"] in wanted:
            return newest
        assert newest["status"] not in ENDED, newest
        assert time.monotonic() < deadline, newest
        time.sleep(0.3)  # each look costs the server some of the time that the job wants


@pytest.mark.slow
def test_what_the_pages_are_told(curated: Workspace) -> None:
    with running_web(curated) as url, signed_in(url) as client:
        funnel = got(client, "funnel")
        assert funnel["comparisons"] == PAIRS + 1 == sum(flow["comparisons"] for flow in funnel["flows"])
        assert {rule["rule"] for rule in funnel["rules"]} >= {"people", "near_duplicate", "contamination"}
        assert [row["rows"] for row in funnel["rejected"]] == [1]
        decided = got(client, "decided?pool=discarded&rule=contamination")
        assert (decided["total"], "bench" in decided["pairs"][0]["reason"]) == (1, True)

        (loop,) = got(client, "loops")["loops"]
        assert (loop["name"], [one["iteration"] for one in loop["iterations"]]) == ("ended", [0, 1, 2])
        seed, first, last = loop["iterations"]
        assert seed["people_asked"] + seed["judges_asked"] == 16
        assert first["gold_accuracy"]["pairs"] == seed["gold"]
        assert [step["step"] for step in last["steps"]] == ["final", "publish"]
        choices = got(client, "loops/ended/iterations/1")
        assert choices["total"] == first["for_people"] + first["for_judges"]
        assert all(choice["near"] is not None for choice in choices["choices"])

        named = {one["name"].partition("@")[0]: one for one in got(client, "quality")["annotators"]}
        assert named["ann"]["gold"]["of"] > 0
        assert named["biased"]["first_shown"]["of"] > named["fair"]["first_shown"]["of"] > 0
        assert named["biased"]["first_shown"]["low"] > 0.5
        assert named["biased"]["consistent"]["share"] < 0.5
        errors = got(client, "errors")
        wrong = {entry["counts"]["name"]: entry["wrong"] for entry in errors["by_rule"]}["gold by people"]
        assert 0 < wrong["of"] <= seed["gold"] + first["gold"]

        (bench,) = got(client, "contamination")["benchmarks"]
        evidence = got(client, f"contamination/{bench['checks'][0]['check_id']}")
        assert evidence["overlaps"][0]["text"] == evidence["overlaps"][0]["benchmark_text"]
        (search,) = got(client, "near-duplicates")["searches"]
        (cluster,) = got(client, f"near-duplicates/{search['run_id']}")["clusters"]
        assert [member["kept_id"] is None for member in cluster["members"]] == [True, False]
        opposed = {one["between"]: one["opposed"] for one in got(client, "conflicts")["parties"]}
        assert got(client, "conflicts/source_judges")["total"] == opposed["source_judges"]


@pytest.mark.slow(reason="two more jobs as processes; the next test has one that is stopped and resumed")
def test_stages_of_judges_and_of_reward_models(curated: Workspace, tiny_reward_model: Path) -> None:
    shutil.copytree(tiny_reward_model, curated.root / "models" / "tiny-rm")
    judging = {"kind": "judge", "settings": {"judges": "loops/judges.yaml", "limit": 5, "pool": ["gold"]}}
    agreeing = {"kind": "consistency", "settings": {"model": ["models/tiny-rm"], "keep_above": 0.5, "dry_run": True}}
    with running_web(curated) as url, signed_in(url) as client:
        estimate = sent(client, "jobs/estimate", judging)
        assert (estimate["comparisons"], len(estimate["judges"]), estimate["cost"]) == (5, 3, 0)
        sent(client, "jobs", {**judging, "token": estimate["token"]})
        judged = until(client, "done")
        assert judged["command"] == "assay judge run --judges loops/judges.yaml --limit 5 --pool gold"
        (count,) = judged["progress"]
        assert (count["done"], count["total"], judged["spent"]) == (15, 15, None)

        of_nothing = {"kind": "decontaminate", "settings": {"benchmark": ["nowhere"]}}
        unknown = client.post("/api/jobs/estimate", json=of_nothing)
        assert "no benchmark 'nowhere'; there are: bench" in unknown.text
        wrong = {"kind": "consistency", "settings": {"model": ["models/tiny-rm"], "flip_below": 0.9}}
        backwards = client.post("/api/jobs/estimate", json=wrong)
        assert backwards.status_code == 422
        estimate = sent(client, "jobs/estimate", agreeing)
        assert estimate["comparisons"] > 0
        sent(client, "jobs", {**agreeing, "token": estimate["token"]})
        ended = until(client, "done")
        (count,) = ended["progress"]
        assert count["done"] == count["total"] == estimate["comparisons"]
        assert f"would decide {estimate['comparisons']} pairs" in output(client, ended)
        exits = [json.loads(path.read_text())["code"] for path in curated.root.glob("jobs/*/exit.json")]
        assert exits.count(0) >= 2
        assert not list(curated.root.glob("jobs/*/.*.part"))


@pytest.mark.slow
def test_a_stage_outlives_the_server_is_stopped_and_resumes(curated: Workspace, endpoint: FakeEndpoint) -> None:
    asked_for = {"kind": "stage1", "settings": {"config": "loops/waits.yaml"}}
    held, released = threading.Event(), threading.Event()

    def hold(request: JudgeRequest) -> Fault | None:
        """From the fourth call on nobody is answered until the job is stopped."""
        if request.number >= 3:
            held.set()
            assert released.wait(240)
        return None

    endpoint.faults = hold
    with running_web(curated) as url, signed_in(url) as client:
        fields = {one["name"]: one for one in client.get("/api/jobs/kinds/stage1/form").json()["fields"]}
        assert {"loops/ended.yaml", "loops/waits.yaml"} <= {*fields["config"]["suggestions"]}
        estimate = sent(client, "jobs/estimate", asked_for)
        paid = next(judge for judge in estimate["judges"] if judge["kind"] == "openai")
        assert 8 <= paid["questions"] <= 10
        assert (estimate["cost"], estimate["calls"]) == (pytest.approx(paid["cost"]), paid["calls"])
        assert estimate["cost"] > 0
        assert not endpoint.requests, "an estimate asks nobody"

        for token in (None, "of another estimate"):  # it asks judges: what that costs is to be seen first
            assert client.post("/api/jobs", json={**asked_for, "token": token}).status_code == 409
        begun = sent(client, "jobs", {**asked_for, "token": estimate["token"]})
        assert begun["command"] == "assay curate stage1 loops/waits.yaml"
        until(client, "running")
        assert held.wait(240)  # one at a time: those before are on record then
    # another server of the same workspace: the stage goes on, and is found by its process
    with running_web(curated) as url, signed_in(url) as client:
        running = until(client, "running")
        assert running["id"] == begun["id"]
        loop, step, asking = running["progress"]
        assert (loop["what"], loop["done"], loop["total"]) == ("loop waits", 2, 9)
        assert step["what"] == "iteration 0: asking judges"
        assert (asking["total"], asking["unit"], asking["ended"]) == (8, "questions", False)
        assert running["expected"]["cost"] == pytest.approx(estimate["cost"])
        assert sent(client, f"jobs/{begun['id']}/stop")["status"] in ("stopping", "stopped")
        paused = until(client, "stopped")
        released.set()
        assert paused["why"] == "stopped by ada"
        asked = len(endpoint.requests)
        assert 0 < asked < paid["questions"]
        assert paused["progress"][-1]["ended"]
        assert [one["what"] for one in paused["progress"]] == [one["what"] for one in running["progress"]]
        assert paused["progress"][0]["done"] == 2
        assert 0 < paused["progress"][-1]["done"] < 8
        assert paused["spent"]["calls"] >= asked - 1  # the one in flight was given up
        assert 0 < paused["spent"]["cost"] < estimate["cost"]
        with curated.store.unit() as db:
            row = db.execute("SELECT status FROM runs WHERE run_id = ?", [paused["run_id"]]).fetchone()
        assert row == ("interrupted",)

        estimate = sent(client, "jobs/estimate", asked_for)
        assert 0 < estimate["calls"] < paid["calls"]
        assert estimate["spent"] > 0
        resumed = sent(client, f"jobs/{begun['id']}/resume")
        assert (resumed["command"], resumed["resumes"]) == (begun["command"], begun["id"])
        assert client.post(f"/api/jobs/{begun['id']}/resume").status_code == 409
        ended = until(client, "done", "incomplete")
        assert ended["run_id"] != paused["run_id"]
        assert "the best of them is now model waits" in output(client, ended)
        assert ended["progress"][0]["done"] == ended["progress"][0]["total"]
        assert len(endpoint.repeats()) <= 1, "what was answered before it stopped was not asked again"
        assert client.post(f"/api/jobs/{begun['id']}/stop").status_code == 409
        assert not is_alive(json.loads((curated.root / "jobs" / ended["id"] / "process.json").read_text())["pid"])


@pytest.mark.slow
def test_only_files_of_the_workspace_can_be_run(curated: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "loop.yaml", {"name": "elsewhere", "source_votes": True})
    with running_web(curated) as url, signed_in(url) as client:
        for file in (str(tmp_path / "loop.yaml"), "../loop.yaml", "loops/nothing.yaml"):
            reply = client.post("/api/jobs/estimate", json={"kind": "stage1", "settings": {"config": file}})
            assert reply.status_code == 404, file
        reply = client.post("/api/jobs/estimate", json={"kind": "stage1", "settings": {"config": "--example"}})
        assert reply.status_code == 422
        made = sent(
            client,
            "curate/loops",
            {"name": "third", "judges": "loops/judges.yaml", "base": "tiny", "encoder": "hashing"},
        )
        assert made["file"] == "loops/third.yaml"
        assert client.post("/api/curate/loops", json={"name": "third"}).status_code == 409
        estimate = sent(client, "jobs/estimate", {"kind": "stage1", "settings": {"config": "loops/third.yaml"}})
        assert estimate["command"] == "assay curate stage1 loops/third.yaml"


def test_a_curator_names_no_folder_outside_the_workspace(workspace: Workspace, tiny_reward_model: Path) -> None:
    folder = str(tiny_reward_model)
    with AccessFile(workspace.root / FILE) as access:
        add_account(access, Passwords(CHEAP), "root", "admin", PASSWORD, by="test")
        add_account(access, Passwords(CHEAP), "cleo", "curator", PASSWORD, by="test")
    jobs = (
        {"kind": "consistency", "settings": {"model": [folder]}},
        {"kind": "stage2", "settings": {"best": "smollm2", "gold": folder}},
        {"kind": "stage2", "settings": {"best": f"models/../..{folder}", "gold": "smollm2"}},
    )
    with running_web(workspace, open_access=False, password_cost=CHEAP) as url:
        with signed_in(url, "cleo", PASSWORD) as client:
            for job in jobs:
                for path, body in (("jobs/estimate", job), ("jobs", {**job, "token": "any"})):
                    refused = client.post(f"/api/{path}", json=body)
                    assert refused.status_code == 403, job
                    assert "outside the workspace" in refused.json()["detail"]
            loop = client.post("/api/curate/loops", json={"name": "far", "base": folder, "encoder": "hashing"})
            assert loop.status_code == 403
            assert not (workspace.root / "loops" / "far.yaml").exists()
        with signed_in(url, "root", PASSWORD) as client:
            assert f"--model {folder}" in sent(client, "jobs/estimate", jobs[0])["command"]


@pytest.mark.slow
@pytest.mark.browser
def test_the_pages_show_it(curated: Workspace, browser: Browser) -> None:
    from playwright.sync_api import expect

    with running_web(curated) as url, opened(browser, url) as page:
        page.goto("/curate")
        gold = page.get_by_role("link", name="pool gold")
        gold.wait_for()
        assert gold.get_attribute("href") == "/data?pool=gold"
        check_accessible(page)
        screenshot(page, "curate-funnel")
        page.get_by_role("switch", name="Table of: From the sources").check(force=True)
        page.get_by_role("region", name="Table of From the sources").wait_for()
        for tab, shown in (
            ("Loops", "Iterations of ended"),
            ("Quality", "Position bias"),
            ("Errors", "How annotators err on gold"),
            ("Conflicts", "Who contradicts whom"),
            ("Contamination", "Ledger of contamination checks"),
        ):
            page.get_by_role("tab", name=tab).click()
            page.get_by_role("region", name=shown, exact=True).wait_for()
            check_accessible(page)
            screenshot(page, f"curate-{tab.lower()}")
        expect(page.locator("mark")).to_have_count(2)
        page.get_by_role("tab", name="Near-duplicates").click()
        page.get_by_role("button", name="2 members").click()
        page.get_by_text("similar to the nearest kept").wait_for()
        check_accessible(page)


@pytest.mark.slow
@pytest.mark.browser
def test_a_stage_starts_after_its_estimate_was_seen(curated: Workspace, browser: Browser) -> None:
    with running_web(curated) as url, opened(browser, url) as page:
        page.goto("/curate/stages")
        page.get_by_role("button", name="Begin a stage").click()
        page.get_by_role("menuitem", name="Deduplicate").click()
        page.get_by_role("button", name="What would it take?").click()
        page.get_by_text("it costs time alone").wait_for()
        check_accessible(page)
        screenshot(page, "curate-estimate")
        page.get_by_role("button", name="Start").click()
        page.get_by_role("region", name="Deduplicate, done").wait_for()
        page.goto("/curate/funnel")
        page.get_by_role("link", name="pool gold").wait_for()
        with held(curated):  # what was loaded stays, and the page asks again by itself
            page.get_by_role("tab", name="Errors").click()
            page.get_by_text("Trying again by itself").wait_for()
        page.get_by_role("region", name="How annotators err on gold").wait_for()
