"""The list of runs over HTTP: search, order, columns, notes, removal; output, resources, samples, alerts of runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from web_pages import check_accessible, opened, running_web, signed_in

from assay.runs.record import start_run
from assay.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.create(tmp_path_factory.mktemp("lists") / "workspace")


@pytest.fixture(scope="module")
def url(place: Workspace) -> Iterator[str]:
    with running_web(place, store_wait_s=0.3) as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[httpx.Client]:
    with signed_in(url) as found:
        yield found


def made(place: Workspace, kind: str, config: dict[str, Any], metrics: dict[str, Any], **inputs: str) -> str:
    with start_run(place, kind, config, inputs=inputs) as run:
        print(f"training {config['name']}")
        run.metrics.update(metrics)
    return run.id


@pytest.fixture(scope="module")
def runs(place: Workspace) -> dict[str, str]:
    a = made(place, "train", {"name": "xa", "lr": 1e-5, "seed": 1, "opt": {"decay": 0.1}}, {"accuracy": 0.9})
    b = made(place, "train", {"name": "xb", "lr": 1e-5, "seed": 2, "opt": {"decay": 0.1}}, {"accuracy": 0.6})
    c = made(place, "train", {"name": "xc", "lr": 2e-4, "seed": 1, "opt": {"decay": 0.1}}, {"slices": {"by.x": 7}})
    d = made(place, "rl", {"name": "xd xc", "lr": None, "base": "tiny"}, {}, **{c: "run"})
    return {"a": a, "b": b, "c": c, "d": d}


def listed(client: httpx.Client, runs: dict[str, str], **query: Any) -> str:
    """Names of the runs in their order."""
    names = {run: name for name, run in runs.items()}
    return "".join(names[row["id"]] for row in client.get("/api/runs", params=query).raise_for_status().json()["runs"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "dcba"),
        ("XC", "dc"),
        ("-xc", "ba"),
        ("config.lr<1e-4", "ba"),
        ("config.lr < 1e-4  metrics.accuracy >= 0.9", "a"),
        ("config.opt.decay=0.1 config.seed!=2", "ca"),
        ("config.base=TINY", "d"),
        ("config.base!=tiny", "cba"),
        ('config.name~"d xc"', "d"),
        ("metrics.slices.by.x>6", "c"),
        ("kind:rl", "d"),
        ("-status:done", ""),
        ("%", ""),
        ("'; DROP TABLE runs; --", ""),
    ],
)
def test_search(client: httpx.Client, runs: dict[str, str], text: str, found: str) -> None:
    assert listed(client, runs, text=text) == found


def test_order_and_columns(client: httpx.Client, runs: dict[str, str]) -> None:
    assert listed(client, runs, sort="config.lr", direction="up") == "bacd"
    assert listed(client, runs, sort="config.lr") == "cbad", "those without it come last"
    assert listed(client, runs, sort="metrics.accuracy")[:2] == "ab"
    assert listed(client, runs, sort="metrics.accuracy", direction="up")[:2] == "ba"
    assert listed(client, runs, sort="name", direction="up") == "abcd"
    columns = ["config.lr", "config.base", "metrics.slices.by.x", "config.none"]
    rows = client.get("/api/runs", params={"column": columns, "sort": "name"}).json()["runs"]
    assert [list(row["values"].values()) for row in rows[:2]] == [[None, "tiny", None, None], [2e-4, None, 7, None]]
    known = client.get("/api/runs/columns").json()
    assert {"config.opt.decay", "metrics.accuracy", "metrics.slices.by.x"} <= set(known["fields"])
    text = client.get("/api/runs/table.csv", params={"column": columns[:1], "text": "kind:train", "sort": "name"}).text
    table = list(csv.DictReader(io.StringIO(text)))
    assert [(row["name"], row["config.lr"]) for row in table] == [("xc", "0.0002"), ("xb", "1e-05"), ("xa", "1e-05")]
    for bad in ({"sort": "nothing"}, {"sort": 'config."'}, {"column": "lr"}, {"text": "config.lr<small"}):
        assert client.get("/api/runs", params=bad).status_code == 422


def test_runs_that_differ_in_seed_alone_are_one_group(client: httpx.Client, runs: dict[str, str]) -> None:
    found = client.get("/api/runs/compare", params={"run": list(runs.values())}).json()
    assert found["groups"] == [[runs["a"], runs["b"]], [runs["c"]], [runs["d"]]]


def test_notes_and_archive(place: Workspace, client: httpx.Client, runs: dict[str, str]) -> None:
    change = {"runs": [runs["a"], runs["b"]], "add_tags": ["best", "two words"], "note": "held, see <b>"}
    assert client.post("/api/runs/notes", json=change).status_code == 200
    assert "held, see" not in client.get("/api/audit").raise_for_status().text
    assert listed(client, runs, text="tag:best") == "ba"
    assert listed(client, runs, text='tag:"two words" -name') == "ba"
    assert listed(client, runs, text="held,") == "ba"
    assert client.get("/api/runs/columns").json()["tags"] == ["best", "two words"]
    client.post("/api/runs/notes", json={"runs": [runs["b"]], "archived": True, "remove_tags": ["best"]})
    assert listed(client, runs) == "dca"
    assert listed(client, runs, archived=True) == "dcba"
    shown = client.get(f"/api/runs/{runs['b']}").json()["run"]
    assert (shown["tags"], shown["archived"], shown["note"]) == (["two words"], True, "held, see <b>")
    assert client.post("/api/runs/notes", json={"runs": ["run-0", runs["b"]], "note": ""}).status_code == 404
    client.post("/api/runs/notes", json={"runs": [runs["b"]], "archived": False})


def test_files_of_a_run_are_removed_where_nothing_reads_it(
    place: Workspace, client: httpx.Client, runs: dict[str, str]
) -> None:
    planned = client.get(f"/api/runs/{runs['c']}/removal").json()
    assert planned["dependents"] == [f"{runs['d']} (rl)"]
    refused = client.delete(f"/api/runs/{runs['c']}")
    assert (refused.status_code, runs["d"] in refused.json()["detail"]) == (409, True)
    assert (place.runs / runs["c"]).is_dir()
    gone = made(place, "train", {"name": "gone"}, {"accuracy": 0.7})
    assert client.get(f"/api/runs/{gone}/removal").json()["bytes"] > 0
    assert client.delete(f"/api/runs/{gone}").status_code == 200
    assert not (place.runs / gone).exists()
    assert listed(client, runs) == "dcba"
    shown = client.get(f"/api/runs/{gone}").json()
    assert (shown["run"]["archived"], bool(shown["run"]["removed"]), shown["console"]) == (True, True, False)
    assert {"name": "accuracy", "value": "0.7"} in shown["figures"], "the record stays"
    with start_run(place, "train", {}) as running:
        assert client.delete(f"/api/runs/{running.id}").status_code == 422
    client.post("/api/runs/notes", json={"runs": [running.id], "archived": True})


def test_what_a_run_printed_and_used(place: Workspace, client: httpx.Client, runs: dict[str, str]) -> None:
    page = client.get(f"/api/runs/{runs['a']}/console").json()
    assert [line.split(" ", 1)[1] for line in page["lines"]] == ["training xa"]
    assert client.get(f"/api/runs/{runs['a']}/console", params={"after": page["next"]}).json()["lines"] == []
    samples = '{"at": 2e9, "cores": 1.5}\n{"at": 2000000010, "gpu0_use": 1}\n{"a'
    (place.runs / runs["a"] / "resources.jsonl").write_text(samples)
    used = client.get(f"/api/runs/{runs['a']}/resources").json()
    assert used["columns"] == {"cores": [1.5, None], "gpu0_use": [None, 1]}
    assert used["seconds"][1] - used["seconds"][0] == 10


def test_responses_of_two_runs_to_the_same_prompt(place: Workspace, client: httpx.Client, runs: dict[str, str]) -> None:
    for name, prompts in (("a", ["p1", "p2"]), ("b", ["p2", "p2", "p3"])):
        rows: list[dict[str, Any]] = [
            {"step": step, "uid": f"{n}", "prompt_id": p, "prompt": [{"role": "user", "content": f"Ask {p}"}]}
            | {"response": f"{name}{step}{n}", "reward": n, "advantage": None, "parts": {}, "tokens": 1}
            for step in (1, 2)
            for n, p in enumerate(prompts)
        ]
        (place.runs / runs[name] / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query: dict[str, Any] = {"run": [runs["a"], runs["b"], runs["c"], runs["a"]], "step": [-1, -1, -1, 1]}
    found = client.get("/api/runs/samples", params=query).json()
    assert (found["steps"], found["total"]) == ([2, 2, None, 1], 3)
    assert found["bounds"][::2] == [{"first": 1, "last": 2}, None]
    shown = [[[one["response"] for one in part] for part in row["samples"]] for row in found["prompts"]]
    assert shown[0] == [["a21"], ["b20", "b21"], [], ["a11"]], "the prompt that most places have"
    assert client.get("/api/runs/samples", params=query | {"text": "P3"}).json()["total"] == 1
    assert client.get("/api/runs/samples", params={"run": "../x"}).status_code == 404


def test_rules_over_http(place: Workspace, client: httpx.Client) -> None:
    made_rule = client.post("/api/runs/alerts", json={"condition": "above", "metric": "loss", "value": 2}).json()
    assert client.post("/api/runs/alerts", json={"condition": "above", "metric": "loss"}).status_code == 422
    assert [rule["id"] for rule in client.get("/api/runs/alerts").json()["rules"]] == [made_rule["id"]]
    assert client.post(f"/api/runs/alerts/{made_rule['id']}/run-0/seen").status_code == 404
    assert client.delete(f"/api/runs/alerts/{made_rule['id']}").status_code == 200
    assert client.delete(f"/api/runs/alerts/{made_rule['id']}").status_code == 404
    assert client.get("/api/runs/alerts").json() == {"rules": [], "alerts": [], "more": 0}


@pytest.mark.slow
@pytest.mark.browser
def test_runs_are_compared_noted_and_taken_away_as_pictures(
    place: Workspace, url: str, browser: Browser, tmp_path: Path
) -> None:
    made_runs = []
    for seed in (1, 2):
        with start_run(place, "train", {"name": f"curve-s{seed}", "seed": seed}) as run:
            print("a line of output")
            rows = [
                {"kind": "train", "step": n, "loss": 1 / n + seed / 100, "tokens": 100, "seconds": n}
                for n in range(1, 9)
            ]
            (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        made_runs.append(run.id)
    with opened(browser, url, accept_downloads=True) as page:
        page.goto("/runs?text=curve-s&columns=config.seed&sort=config.seed&direction=up")
        page.get_by_label("Choose all of this page").check()
        check_accessible(page)
        page.get_by_role("button", name="Compare 2 runs").click()
        page.get_by_text("mean over seeds").click()
        page.get_by_text("log values").click()
        page.get_by_text("tokens", exact=True).click()
        page.get_by_role("img", name="Loss by tokens. curve, 2 seeds: from 1.015 at 100 to 0.14 at 800.").wait_for()
        check_accessible(page)
        address = page.url
        page.goto("/runs")
        page.goto(address)
        page.get_by_role("img", name="Loss by tokens. curve, 2 seeds: from 1.015").wait_for()
        for item, start in (("Numbers (CSV)", b"tokens,"), ("Picture (SVG)", b"<svg"), ("Picture (PNG)", b"\x89PNG")):
            page.get_by_label("Loss: download").click()
            with page.expect_download() as download:
                page.get_by_role("menuitem", name=item).click()
            saved = tmp_path / download.value.suggested_filename
            download.value.save_as(saved)
            assert saved.read_bytes().startswith(start)
        page.goto(f"/runs/{made_runs[0]}/console")
        page.get_by_role("region", name="Console output").get_by_text("a line of output").wait_for()
        page.get_by_role("button", name="Add a note or tags").click()
        page.get_by_label("Note", exact=True).fill("kept <b>")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("kept <b>").wait_for()
        check_accessible(page)
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Remove its files").click()
        page.get_by_role("dialog").get_by_text("are removed for good").wait_for()
        check_accessible(page)
        page.get_by_role("dialog").get_by_role("button", name="Remove its files").click()
        page.get_by_text("files removed").wait_for()
        page.goto("/runs/alerts")
        page.get_by_role("button", name="Add the rule").click()
        page.get_by_role("cell", name="The run failed", exact=True).wait_for()
        check_accessible(page)
    assert not (place.runs / made_runs[0]).exists()
