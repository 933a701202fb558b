"""The area rewards of the web server: real reward servers; scores and evaluations by the product's own commands."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from web_pages import check_accessible, opened, running_web, screenshot, signed_in

from assay.cli.main import main
from assay.domain import Message
from assay.models.calibration import Calibration
from assay.score import Score
from assay.workspace import Workspace
from assay_pipelines.annotation.queues import get_queue
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings
from assay_web.settings import RewardServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KEY = "the-key-of-the-reward-server"
NOBODY = "http://127.0.0.1:9"  #: a reward server that is not there
PAIRS = 60


@dataclass(frozen=True)
class Place:
    """What the tests share: the pages' address, the reward server's, the workspace, the texts that were scored."""

    url: str
    rewards: str
    workspace: Workspace
    rows: list[dict[str, Any]]
    engines: dict[str, Any]


def run(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code in (0, None), arguments


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(
    shared_data: Path,
    empty_workspace: Path,
    tiny_reward_model: Path,
    tiny_principle_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """A workspace whose every figure was made by a command, and the web server beside a reward server with a key."""
    from assay_serving.model_loader import load_scorer

    folder = tmp_path_factory.mktemp("rewards")
    workspace = Workspace.open(shutil.copytree(empty_workspace, folder / "workspace"))
    at = ("-w", workspace.root)
    found = gzip.decompress((shared_data / "hh_helpful_base_test.jsonl.gz").read_bytes()).splitlines()
    rows = [row for row in map(json.loads, found) if len(str(row["prompt"])) + longest(row) < 420][:PAIRS]
    fields = ("id", "prompt", "chosen", "rejected", "category")
    run("data", "import", lines(folder / "pairs.jsonl", [{f: row[f] for f in fields} for row in rows]), *at)
    run("data", "snapshot", "all", "--pool", "unverified", *at)
    run("train", "probe", "--base", "tiny", "--data", "all", "--name", "probe", "--max-length", "4096", *at)
    probe = workspace.models / "probe"
    run("calibrate", "--model", "probe", "--data", "all", "--method", "temperature", *at)
    engines = {
        "probe": load_scorer(ModelConfig(str(probe), device="cpu")),
        "other": load_scorer(ModelConfig(str(tiny_reward_model), device="cpu")),
        "principled": load_scorer(ModelConfig(str(tiny_principle_model), device="cpu")),
    }
    asked = [{"prompt": row["prompt"], "responses": [row["chosen"], row["rejected"]]} for row in rows]
    with running_server(engines, settings=ServerSettings(api_keys=(KEY,))) as rewards:
        for name in ("probe", "other"):
            file, out = lines(folder / "responses.jsonl", asked), folder / f"{name}.jsonl"
            asking = ("--reward", rewards.url, "--model", name, "--api-key", KEY)
            run("score", file, *asking, "--save", "--out", out, *at)
        truths = gzip.decompress((shared_data / "truthfulqa_answers.jsonl.gz").read_bytes()).splitlines()
        lists = [list_of(row) for row in map(json.loads, truths[:40])]
        kept = lines(folder / "lists.jsonl", [row for row in lists if len(row["rejected"]) > 1])
        run("eval", "--bench", "rewardbench2", "--path", kept, "--model", probe, *at)
        files = [flag for f in sorted((shared_data / "native").glob("rm_bench_chat*")) for flag in ("--path", f)]
        run("eval", "--bench", "rm-bench", *files, "--model", probe, *at)
        servers = (RewardServer(rewards.url, KEY), RewardServer(NOBODY))
        with running_web(workspace, reward_servers=servers) as url:
            yield Place(url, rewards.url, workspace, rows, engines)


def longest(row: dict[str, Any]) -> int:
    return max(len(row[side]) for side in ("chosen", "rejected"))


def list_of(row: dict[str, Any]) -> dict[str, Any]:
    """A prompt with one right and several wrong answers, as RewardBench 2 has them."""
    right = [text for text, true in zip(row["responses"], row["ratings"]["correct"], strict=True) if true]
    wrong = [text for text, true in zip(row["responses"], row["ratings"]["correct"], strict=True) if not true]
    return {
        "id": row["id"],
        "subset": "Factuality",
        "prompt": row["prompt"][-1]["content"],
        "chosen": right[:1],
        "rejected": wrong,
        "num_correct": 1,
    }


@pytest.fixture
def client(place: Place) -> Iterator[httpx.Client]:
    with signed_in(place.url) as found:
        yield found


def ask(client: httpx.Client, place: Place, models: list[str], **more: Any) -> Any:
    question = {
        "prompt": [{"role": "user", "content": "Name a metal."}],
        "responses": ["Gold.", "Glass is no metal.", "x" * 40_000],
        "models": [{"address": place.rewards, "model": name} for name in models],
        **more,
    }
    answered = client.post("/api/rewards/playground", json=question)
    assert answered.status_code == 200, answered.text
    assert KEY not in answered.text
    return answered.json()


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    answered = client.get(path, params=query)
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_what_the_servers_offer_without_their_key(client: httpx.Client, place: Place) -> None:
    answered = client.get("/api/rewards/served")
    assert KEY not in answered.text
    here, gone = answered.json()["servers"]
    assert {(m["name"], m["kind"], m["calibrated"], m["principle_use"]) for m in here["models"]} == {
        ("probe", "scalar", True, "refused"),
        ("other", "scalar", False, "refused"),
        ("principled", "principle", False, "required"),
    }
    assert (gone["address"], gone["models"]) == (NOBODY, [])
    assert NOBODY in gone["error"]


def test_the_playground_gives_the_models_own_scores_and_failures_in_words(client: httpx.Client, place: Place) -> None:
    told = ask(client, place, ["probe", "other"])
    for column, name in zip(told["columns"], ("probe", "other"), strict=True):
        prompt = (Message("user", "Name a metal."),)
        expected = place.engines[name].score([ScoreItem(prompt, text) for text in ("Gold.", "Glass is no metal.")])
        for shown, score in zip(column["scores"], expected, strict=False):
            assert isinstance(score, Score)
            assert shown["reward"] == pytest.approx(score.reward, abs=1e-4)
            assert shown["tokens"] == score.tokens
            assert (shown["probability"] is None) == (name == "other")
        failed = column["scores"][2]
        assert failed["code"] == "too_long"
        assert failed["reward"] is failed["probability"] is failed["rank"] is None
        ranks = [score["rank"] for score in column["scores"][:2]]
        assert sorted(ranks) == [1, 2]
        assert 0.5 <= column["best_beats_second"] <= 1
    assert told["columns"][0]["basis"] == "calibration"
    best = [sum(column["scores"][n]["rank"] == 1 for column in told["columns"]) for n in range(2)]
    assert [standing["best"] for standing in told["standings"]] == [*best, 0]
    assert told["standings"][2]["columns"] == 0


def test_principles_make_columns_and_a_model_that_needs_one_says_so(client: httpx.Client, place: Place) -> None:
    told = ask(client, place, ["principled", "other"])
    assert "choose one" in told["columns"][0]["refused"]
    assert told["columns"][0]["scores"] == []
    principles = ["The response is short.", "The response is true."]
    told = ask(client, place, ["principled", "other"], principles=principles)
    assert [(c["model"], c["principle"]) for c in told["columns"]] == [
        ("principled", principles[0]),
        ("principled", principles[1]),
        ("other", None),
    ]
    rewards = [column["scores"][0]["reward"] for column in told["columns"][:2]]
    assert None not in rewards
    assert rewards[0] != rewards[1]


def test_only_servers_that_were_named_are_asked(client: httpx.Client, place: Place) -> None:
    body = {
        "prompt": [{"role": "user", "content": "a"}],
        "responses": ["b"],
        "models": [{"address": place.url, "model": "probe"}],
    }
    refused = client.post("/api/rewards/playground", json=body)
    assert refused.status_code == 404
    gone = client.post("/api/rewards/playground", json=body | {"models": [{"address": NOBODY, "model": "probe"}]})
    assert NOBODY in gone.json()["columns"][0]["refused"]


def test_leaderboards_are_what_the_evaluations_stored(client: httpx.Client, place: Place) -> None:
    boards = {board["bench"]: board for board in get(client, "/api/rewards/leaderboards")["boards"]}
    assert set(boards) == {"rewardbench2", "rm-bench"}
    for bench, board in boards.items():
        (entry,) = board["entries"]
        kept = json.loads((place.workspace.runs / entry["run_id"] / "benchmark.json").read_text())
        assert entry["headline"]["value"] == kept["aggregates"]["overall"]
        assert entry["headline"]["low"] == kept["intervals"]["overall"]["low"]
        assert (entry["items"], entry["failed"]) == (kept["counts"]["items"], kept["counts"]["failed"])
        assert entry["missing"] == kept["missing"]
        assert entry["version"] == place.engines["probe"].info.version
        result = get(client, f"/api/rewards/results/{entry['run_id']}", bench=bench, model=entry["model"])
        assert {a["name"]: a["value"] for a in result["aggregates"]} == kept["aggregates"]
        assert {c["name"]: [p["gold"] for p in c["points"]] for c in result["curves"]} == {
            name: [point["gold"] for point in points] for name, points in kept["curves"].items()
        }
        assert sum(subset["items"] for subset in result["subsets"]) == kept["counts"]["items"]
    (part,) = result["subsets"]  # of RM-Bench, which has one part here: its mean credit is the mean of its nine cells
    cells = [a["value"] for a in result["aggregates"] if a["name"].startswith("chat/") and ">" in a["name"]]
    assert len(cells) == 9
    assert part["credit"] == pytest.approx(np.mean(cells))
    assert client.get("/api/rewards/results/run-none", params={"bench": "rm-bench", "model": "x"}).status_code == 404


def test_calibration_is_what_the_run_measured(client: httpx.Client, place: Place) -> None:
    told = get(client, "/api/rewards/calibration")
    (measured,) = told["runs"]
    assert (measured["kind"], measured["pairs"], measured["trained_on"]) == ("calibrate", PAIRS, True)
    assert measured["fitted"].startswith("temperature")
    for side in (measured["before"], measured["after"]):
        assert sum(one["pairs"] for one in side["bins"]) == PAIRS
        assert all(one["low"] <= one["observed"] <= one["high"] for one in side["bins"])
    (kept,) = told["calibrations"]
    assert (kept["scores"], kept["newest"]) == (2 * PAIRS, True)


def test_length_figures_are_those_of_the_stored_scores(client: httpx.Client, place: Place) -> None:
    probe = next(one for one in get(client, "/api/rewards/scored")["models"] if one["model"] == "probe")
    assert (probe["scored"], probe["probabilities"], probe["uncertainties"]) == (2 * PAIRS, 2 * PAIRS, 0)
    told = get(client, "/api/rewards/length", version=probe["version"], template_hash=probe["template_hash"])
    rewards = place.engines["probe"].score(
        [
            ScoreItem(tuple(Message(**turn) for turn in row["prompt"]), row[side])
            for row in place.rows
            for side in ("chosen", "rejected")
        ]
    )
    lengths = [len(row[side]) for row in place.rows for side in ("chosen", "rejected")]
    expected = np.corrcoef([score.reward for score in rewards], lengths)[0, 1]
    assert told["overall"]["value"] == pytest.approx(expected, abs=1e-4)
    assert told["overall"]["low"] < expected < told["overall"]["high"]
    assert told["labelled"]["pairs"] == PAIRS
    assert sum(group["responses"] for group in told["groups"]) == told["total"] == 2 * PAIRS


def references(client: httpx.Client) -> dict[str, str]:
    found = get(client, "/api/rewards/raters")["raters"]
    return {rater["name"].partition("@")[0]: rater["reference"] for rater in found if rater["kind"] == "scores"}


def test_disagreements_are_the_pairs_ordered_differently(client: httpx.Client, place: Place) -> None:
    named = references(client)
    both = {"first": named["probe"], "second": named["other"]}
    assert set(get(client, "/api/rewards/raters")["start"]) == set(both.values())
    agreement = get(client, "/api/rewards/agreement", **both)
    assert agreement["common"] == PAIRS == agreement["agree"] + agreement["disagree"] + agreement["tied"]
    assert agreement["disagree"] > 1
    pages = [get(client, "/api/rewards/disagreements", **both, page=page) for page in (1, 2)]
    pairs = [pair for page in pages for pair in page["pairs"]]
    assert pages[0]["total"] == agreement["disagree"] == len({pair["comparison_id"] for pair in pairs})
    keys = [min(abs(pair[side]["relative_margin"]) for side in ("first", "second")) for pair in pairs]
    assert keys == sorted(keys, reverse=True)
    with place.workspace.store.unit() as db:
        (parameters,) = db.execute("SELECT parameters FROM calibrations").fetchall()[0]
    calibration = Calibration.from_dict(json.loads(parameters))
    for pair in pairs:
        first, second = pair["first"], pair["second"]
        assert {first["prefers"], second["prefers"]} == {"A", "B"}
        assert first["margin"] == pytest.approx(first["reward_a"] - first["reward_b"])
        assert first["probability"] == pytest.approx(calibration.of_difference(abs(first["margin"])))
        assert second["probability"] is None
        assert pair["supports"] == ("first" if pair["label"] == first["prefers"] else "second")
    supported = get(client, "/api/rewards/disagreements", **both, supports="first")
    assert supported["total"] == agreement["label_supports_first"]
    source = next(r for r in get(client, "/api/rewards/raters")["raters"] if r["kind"] == "source")
    against = get(client, "/api/rewards/agreement", first=named["probe"], second=source["reference"])
    assert (against["common"], against["label_supports_first"]) == (PAIRS, 0)  # the label is the source's
    assert client.get("/api/rewards/agreement", params={"first": "probe", "second": "other"}).status_code == 422


def test_pairs_are_sent_to_a_queue_with_a_reason_that_tells_no_preference(client: httpx.Client, place: Place) -> None:
    named = references(client)
    both = {"first": named["probe"], "second": named["other"]}
    ids = [p["comparison_id"] for p in get(client, "/api/rewards/disagreements", **both)["pairs"]]
    body = {**both, "comparison_ids": ids[:2], "queue": "apart", "overlap": 2, "note": "who is right?"}
    sent = client.post("/api/rewards/disagreements/queue", json=body).json()
    assert (sent["added"], sent["made"]) == (2, True)
    assert get_queue(place.workspace, "apart").overlap == 2
    more = client.post("/api/rewards/disagreements/queue", json=body | {"comparison_ids": ids[1:3]}).json()
    assert (more["added"], more["items"], more["made"]) == (1, 3, False)
    (line, *_) = get(client, "/api/audit", action="send_disagreements_to_queue")["lines"]
    assert json.loads(line["detail"])["run"] == more["run_id"]
    assert named["probe"] not in line["detail"], "a reference may hold a principle's text"
    with place.workspace.store.unit() as db:
        payloads = [json.loads(p) for (p,) in db.execute("SELECT payload FROM queue_items").fetchall()]
        kinds = db.execute("SELECT kind, status FROM runs WHERE kind LIKE 'queue-%' ORDER BY kind").fetchall()
    assert kinds == [("queue-create", "done"), ("queue-extend", "done")]
    for payload in payloads:
        assert payload["reason"].endswith("prefer different responses: who is right?")
        assert {opinion["answer"] for opinion in payload["opinions"]} == {"A", "B"}
    agreed = client.post("/api/rewards/disagreements/queue", json=body | {"comparison_ids": ["c-none"]})
    assert agreed.status_code == 422
    assert "c-none" in agreed.json()["detail"]


@pytest.mark.slow
@pytest.mark.browser
def test_the_playground_outlives_a_reload(place: Place, browser: Browser) -> None:
    with opened(browser, place.url) as page:
        page.goto("/rewards")
        page.get_by_label("Message 1", exact=True).fill("Name a metal.")
        page.get_by_label("Response 1", exact=True).fill("Gold.")
        page.get_by_label("Response 2", exact=True).fill("Glass is no metal.")
        page.get_by_role("button", name="Add response").click()
        page.get_by_label("Response 3", exact=True).fill("x" * 40_000)
        page.get_by_text("This server does not answer").wait_for()
        for name in ("probe", "principled"):
            page.get_by_label(name, exact=True).check()
        page.get_by_label("Another principle").fill("The response is short.")
        page.get_by_label("Another principle").press("Enter")
        page.get_by_role("button", name="Score", exact=True).click()
        page.get_by_role("region", name="Scores").wait_for()
        page.mouse.move(0, 0)
        check_playground(page)
        check_accessible(page)
        screenshot(page, "rewards-playground", full_page=True)
        page.reload()
        page.get_by_role("region", name="Scores").wait_for()
        check_playground(page)
        assert page.get_by_label("Response 1", exact=True).input_value() == "Gold."
        assert page.get_by_role("checkbox", name="The response is short.").is_checked()


def check_playground(page: Page) -> None:
    from playwright.sync_api import expect

    table = page.get_by_role("region", name="Scores")
    expect(table.get_by_text("failed: too_long")).to_have_count(2)
    expect(table.get_by_text("rank 1")).to_have_count(2)
    expect(table).to_contain_text("P(best beats second)")


@pytest.mark.slow
@pytest.mark.browser
def test_leaderboards_calibration_and_length_are_shown_and_readable(place: Place, browser: Browser) -> None:
    with opened(browser, place.url, color_scheme="dark") as page:
        page.goto("/rewards/leaderboards")
        page.get_by_role("region", name="Models and benchmarks").wait_for()
        check_accessible(page)
        page.get_by_role("row", name="RewardBench 2").get_by_role("link", name="parts").first.click()
        page.get_by_role("img", name="Expected gold of the best of n").wait_for()
        page.get_by_text(re.compile(r"fewer towards the right: \d+ lists at 1, \d+ at \d+\.")).wait_for()
        page.get_by_label("Table of: Expected gold").check()
        page.get_by_role("region", name="Table of Expected gold").get_by_text("lists").first.wait_for()
        check_accessible(page)
        page.goto("/rewards/leaderboards/rm-bench")
        page.get_by_role("button", name="Parts of chat").click()
        page.get_by_role("button", name="hard", exact=True).nth(1).click()
        page.wait_for_url("**part=chat%2Fhard**")
        page.get_by_role("img", name="chat/hard, with 95 % intervals").wait_for()
        screenshot(page, "rewards-rm-bench", full_page=True)
        check_accessible(page)
        page.goto("/rewards/calibration")
        page.get_by_role("img", name="Calibrated, on folds left out of the fit").wait_for()
        page.get_by_text("The model was trained on these pairs").wait_for()
        check_accessible(page)
        page.goto("/rewards/length")
        page.get_by_text("The label prefers the longer side").wait_for()
        screenshot(page, "rewards-length", full_page=True)
        check_accessible(page)


@pytest.mark.slow
@pytest.mark.browser
def test_disagreements_are_picked_and_sent(place: Place, browser: Browser) -> None:
    with opened(browser, place.url, viewport={"width": 390, "height": 844}) as page:
        page.goto("/rewards/disagreements")
        page.get_by_role("article").first.wait_for()
        page.get_by_role("article").first.get_by_role("checkbox").check()
        page.reload()  # what was picked is kept
        page.get_by_role("button", name="Send 1 to a queue").click()
        page.get_by_role("combobox", name="Queue").fill("from-the-page")
        page.get_by_role("textbox", name="Note").fill("short answers")
        check_accessible(page)
        screenshot(page, "rewards-send")
        page.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("1 pair added to from-the-page, which is new").wait_for()
        page.get_by_role("button", name="Close").last.click()
        check_accessible(page)
    assert get_queue(place.workspace, "from-the-page").items == 1
