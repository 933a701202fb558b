"""Loading, unloading and swapping models over real HTTP, with real models of the tiny kind and clients at work."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from assay.domain import Message
from assay.models.spec import RewardModelSpec, weights_digest
from assay.planning import scoring_memory as memory_room
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.settings import ServerSettings
from assay_serving.server.in_process import InProcessBackend
from assay_serving.server.rollout import lifecycle
from assay_serving.server.rollout.agreement import agreement
from assay_serving.server.rollout.shadow import in_share

PATIENCE_S = 240.0
PROMPTS = [f"Question {n}: which metal is number {n}?" for n in range(24)]
ANYWHERE = ServerSettings(model_folders=("/",))  # which models may be loaded is a matter of other tests
ANSWERS = ["Gold.", "It is tin, I think.", "None of them is.", "Iron, or an alloy of it with carbon."]


def make_model(source: Path, folder: Path, *, seed: int, trained_length: int = 512, broken: bool = False) -> Path:
    """The same body with another head; `broken`: with one that is not a number."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    head = weights["score.weight"]
    drawn = torch.randn(head.shape, generator=torch.Generator().manual_seed(seed))
    weights["score.weight"] = head * torch.nan if broken else head + 0.5 * head.std() * drawn
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    spec = RewardModelSpec.read(source)
    assert spec is not None
    replace(spec, version=weights_digest(folder), trained_length=trained_length).write(folder)
    return folder


@pytest.fixture(scope="module")
def second(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tiny_reward_model, tmp_path_factory.mktemp("second") / "rm-2", seed=1)


@pytest.fixture(scope="module")
def short(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can read next to nothing: every answer is too long for it."""
    folder = tmp_path_factory.mktemp("short") / "rm-short"
    return make_model(tiny_reward_model, folder, seed=2, trained_length=4)


def load(folder: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(folder), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def engines(tiny_reward_model: Path, second: Path) -> dict[str, TransformersScorer]:
    """By version, for scores computed without a server."""
    return {engine.info.version: engine for engine in (load(tiny_reward_model), load(second))}


@contextmanager
def serving(folder: Path, settings: ServerSettings = ANYWHERE) -> Iterator[tuple[RunningServer, httpx.Client]]:
    with (
        running_server({"rm": load(folder)}, settings=settings) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE_S) as client,
    ):
        yield running, client


def admin(client: httpx.Client, method: str, path: str = "", **body: Any) -> dict[str, Any]:
    reply = client.request(method, "/v1/admin/models" + path, json=body or None)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def refused(client: httpx.Client, status: int, method: str, path: str = "", **body: Any) -> str:
    reply = client.request(method, "/v1/admin/models" + path, json=body or None)
    assert reply.status_code == status, reply.text
    return str(reply.json()["detail"])


def plan(folder: Path, **more: Any) -> dict[str, Any]:
    return {"reference": str(folder), "device": "cpu", **more}


def ask(client: httpx.Client, prompt: str, responses: Sequence[str] = ANSWERS) -> dict[str, Any]:
    reply = client.post("/v1/score", json={"prompt": prompt, "responses": list(responses)})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def rewards_of(reply: dict[str, Any]) -> list[float]:
    return [entry["reward"] for entry in reply["results"]]


def offline(engine: TransformersScorer, prompt: str, responses: Sequence[str] = ANSWERS) -> list[float]:
    found = engine.score([ScoreItem((Message("user", prompt),), response) for response in responses])
    return [result.reward for result in found if isinstance(result, Score)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def live_version(client: httpx.Client) -> str:
    [model] = client.get("/v1/models").json()["data"]
    return str(model["version"])


class Clients:
    """Several clients that ask without a pause, each request once, until they are told to stop."""

    def __init__(self, url: str, number: int = 8) -> None:
        self.replies: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[str] = []
        self._url = url
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(number)
        self._running = [self._pool.submit(self._ask, place) for place in range(number)]

    def _ask(self, place: int) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S) as client:
            turn = place
            while not self._over.is_set():
                prompt = PROMPTS[turn % len(PROMPTS)]
                reply = client.post("/v1/score", json={"prompt": prompt, "responses": ANSWERS})
                if reply.status_code == 200:
                    self.replies.append((prompt, reply.json()))
                else:
                    self.errors.append(f"{reply.status_code} {reply.text}")
                turn += 1

    def stop(self) -> None:
        self._over.set()
        for future in self._running:
            future.result()
        self._pool.shutdown()


@contextmanager
def clients_at(url: str) -> Iterator[Clients]:
    clients = Clients(url)
    try:
        yield clients
    finally:
        clients.stop()


@pytest.mark.slow
def test_a_swap_under_load_drops_nothing_and_every_reply_is_one_versions(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    expected = {version: {prompt: offline(engine, prompt) for prompt in PROMPTS} for version, engine in engines.items()}
    old, new = engines
    settings = replace(ANYWHERE, cache_entries=0)  # every reply from an engine
    with serving(tiny_reward_model, settings) as (running, client):
        # The one that was given is held by who gave it: watch one that the server has loaded itself.
        admin(client, "POST", "/rm/swap", plan=plan(tiny_reward_model), mode="now")
        loaded = weakref.ref(running.app.state.service.backend.registry.live[0].queue.scorer.model)
        with clients_at(running.url) as clients:
            until(lambda: len(clients.replies) >= 30)
            outcome = admin(client, "POST", "/rm/swap", plan=plan(second), mode="now")
            assert outcome["swap"]["state"] == "promoted"
            so_far = len(clients.replies)
            assert ask(client, PROMPTS[0])["version"] == new
            until(lambda: len(clients.replies) >= so_far + 60)
        assert clients.errors == []
        assert {reply["version"] for _, reply in clients.replies} == {old, new}
        for prompt, reply in clients.replies:
            assert {entry["version"] for entry in reply["results"]} == {reply["version"]}
            assert {entry["model"] for entry in reply["results"]} == {"rm"}
            assert rewards_of(reply) == pytest.approx(expected[reply["version"]][prompt], abs=1e-5)
        assert live_version(client) == new
        until(lambda: admin(client, "GET", "/rm")["models"][0]["retiring"] == 0)
        gc.collect()
        assert loaded() is None, "the replaced model is still in memory"
        text = client.get("/metrics").text
    assert "candidate" not in text
    assert 'assay_queue_items{model="rm"} 0.0' in text
    assert 'assay_reward_window_mean{model="rm"}' in text


def test_a_shadow_is_unseen_and_its_figures_are_those_of_the_two_engines(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    old, new = engines
    with serving(tiny_reward_model) as (_, client):
        begun = admin(client, "POST", "/rm/swap", plan=plan(second), mode="shadow", share=0.5)["swap"]
        assert (begun["state"], begun["compared"]) == ("going on", 0)
        for prompt in [*PROMPTS, *PROMPTS]:  # an item counts once, however often it is asked for
            reply = ask(client, prompt)
            assert reply["version"] == old
            assert rewards_of(reply) == pytest.approx(offline(engines[old], prompt), abs=1e-5)
        chosen = [p for p in PROMPTS if in_share(ScoreItem((Message("user", p),), ""), new, 0.5)]
        assert 0 < len(chosen) < len(PROMPTS)
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["compared"] == len(chosen) * len(ANSWERS))
        found = admin(client, "GET", "/rm/swap")["swap"]
        metrics = client.get("/metrics").text
        scores = [np.concatenate([offline(engines[version], p) for p in chosen]) for version in (old, new)]
        groups = [p.encode() for p in chosen for _ in ANSWERS]
        by_hand = agreement(groups, *scores)
        assert by_hand.order is not None
        assert found["agreement"]["items"] == len(groups)
        assert found["agreement"]["order"]["agreement"] == by_hand.order.agreement
        for name in ("old_mean", "new_std", "difference", "kendall_within", "spearman_within", "spearman"):
            assert found["agreement"][name] == pytest.approx(getattr(by_hand, name), abs=1e-4)
        assert (found["old"]["version"], found["new"]["version"]) == (old, new)
        assert found["new"]["failed"] == found["dropped"] == 0
        assert found["new"]["engine_seconds_per_item"] > 0
        assert f'assay_swap_compared_items{{model="rm"}} {float(len(groups))}' in metrics
        # What callers got, and nothing of the shadow, is counted under the name.
        assert f'assay_items_total{{model="rm"}} {float(2 * len(PROMPTS) * len(ANSWERS))}' in metrics
        ended = admin(client, "POST", "/rm/abort")["swap"]
        assert (ended["state"], ended["why"]) == ("aborted", "by hand")
        assert live_version(client) == old
        assert admin(client, "GET", "/rm/swap")["swap"]["agreement"]["items"] == len(groups)
        until(lambda: "candidate" not in client.get("/metrics").text)


def test_a_swap_that_is_decided_by_hand_leaves_neither_model_in_memory_that_no_longer_answers(
    tiny_reward_model: Path, second: Path
) -> None:
    with serving(tiny_reward_model) as (running, client):
        host = running.app.state.service.backend
        admin(client, "POST", "/rm/swap", plan=plan(tiny_reward_model), mode="now")  # one that nobody else holds
        old = weakref.ref(host.registry.live[0].queue.scorer.model)
        news = []
        for decided in ("abort", "promote"):
            admin(client, "POST", "/rm/swap", plan=plan(second), mode="shadow", share=1.0)
            news.append(weakref.ref(host.registry.find("rm").new.queue.scorer.model))
            ask(client, PROMPTS[0])
            until(lambda: admin(client, "GET", "/rm/swap")["swap"]["compared"] == len(ANSWERS))
            time.sleep(0.3)  # the swap's watcher has seen all that there is, and waits for more
            admin(client, "POST", f"/rm/{decided}")
        aborted, promoted = news

        def freed() -> bool:
            gc.collect()
            return old() is None and aborted() is None

        until(freed)
        assert promoted() is not None


def test_a_canary_gives_its_share_the_new_scores_whole_prompts_at_a_time(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    old, new = engines
    with serving(tiny_reward_model) as (_, client):
        admin(client, "POST", "/rm/swap", plan=plan(second), mode="canary", share=0.4)
        expected = {p: new if in_share(ScoreItem((Message("user", p),), ""), new, 0.4) else old for p in PROMPTS}
        assert set(expected.values()) == {old, new}
        for prompt in PROMPTS:  # one request a response: all of a prompt go the same way
            for answer in ANSWERS:
                reply = ask(client, prompt, [answer])
                assert reply["version"] == expected[prompt]
                assert rewards_of(reply) == pytest.approx(
                    offline(engines[reply["version"]], prompt, [answer]), abs=1e-5
                )
        items = [{"prompt": p, "response": a} for a in ANSWERS for p in PROMPTS]
        mixed = client.post("/v1/score", json={"items": items}).json()
        assert mixed["version"] == f"{old}+{new}"
        for item, entry in zip(items, mixed["results"], strict=True):
            version = expected[item["prompt"]]
            assert (entry["version"], entry["model"]) == (version, "rm")
            [reward] = offline(engines[version], item["prompt"], [item["response"]])
            assert entry["reward"] == pytest.approx(reward, abs=1e-5)
        canaries = sum(version == new for version in expected.values())
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["compared"] == canaries * len(ANSWERS))
        found = admin(client, "GET", "/rm/swap")["swap"]["agreement"]
        scores = [np.concatenate([offline(engines[v], p) for p in expected if expected[p] == new]) for v in (old, new)]
        assert (found["old_mean"], found["new_mean"]) == pytest.approx([s.mean() for s in scores], abs=1e-5)
        ended = admin(client, "POST", "/rm/promote")
        assert ended["swap"]["state"] == "promoted"
        assert {ask(client, prompt)["version"] for prompt in PROMPTS} == {new}


def test_a_canary_that_fails_too_often_aborts_itself(
    tiny_reward_model: Path, short: Path, engines: dict[str, TransformersScorer]
) -> None:
    old, _ = engines
    with serving(tiny_reward_model) as (_, client):
        admin(client, "POST", "/rm/swap", plan=plan(short), mode="canary", share=1.0, max_failure_rate=0.2)
        for prompt in PROMPTS[:6]:
            ask(client, prompt)
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["state"] == "aborted")
        assert "fails on 100.0% of items" in admin(client, "GET", "/rm/swap")["swap"]["why"]
        assert live_version(client) == old
        assert rewards_of(ask(client, PROMPTS[0])) == pytest.approx(offline(engines[old], PROMPTS[0]), abs=1e-5)


@pytest.mark.slow
def test_a_swap_promotes_itself_when_its_conditions_hold_and_not_before(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    _, new = engines
    with serving(tiny_reward_model) as (_, client):
        terms: dict[str, Any] = {"mode": "shadow", "share": 1.0, "min_items": 40}
        admin(client, "POST", "/rm/swap", plan=plan(second), **terms, promote_when={"drift_ks": -1.0})
        for prompt in PROMPTS:
            ask(client, prompt)
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["compared"] == len(PROMPTS) * len(ANSWERS))
        found = admin(client, "GET", "/rm/swap")["swap"]
        assert [(c["name"], c["met"]) for c in found["conditions"]] == [("drift_ks", False)]
        admin(client, "POST", "/rm/abort")
        conditions = {"order_agreement": 0.0, "failed": 0.0}
        admin(client, "POST", "/rm/swap", plan=plan(second), **terms, promote_when=conditions)
        for prompt in PROMPTS:
            ask(client, prompt)
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["state"] == "promoted")
        ended = admin(client, "GET", "/rm/swap")["swap"]
        assert ended["why"] == "every condition holds"
        assert all(condition["met"] for condition in ended["conditions"])
        assert live_version(client) == new


def test_a_model_that_cannot_be_loaded_or_cannot_score_leaves_everything_as_it_was(
    tiny_reward_model: Path, tiny_principle_model: Path, tmp_path: Path, engines: dict[str, TransformersScorer]
) -> None:
    old, _ = engines
    torn, other, blank = tmp_path / "torn", tmp_path / "other", tmp_path / "blank"
    for folder in (torn, other):
        shutil.copytree(tiny_reward_model, folder)
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:200])
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    make_model(tiny_reward_model, blank, seed=0, broken=True)
    with serving(tiny_reward_model) as (_, client):
        for mode in ("now", "shadow", "canary"):
            refused(client, 404, "POST", "/rm/swap", plan=plan(tmp_path / "none"), mode=mode)
        assert "gives no score" in refused(client, 500, "POST", "/rm/swap", plan=plan(blank), mode="now")
        for folder in (torn, other):  # cut off, and not the files that its description was written for
            assert str(folder) in refused(client, 422, "POST", "/rm/swap", plan=plan(folder), mode="now")
        assert "another name" in refused(client, 422, "POST", "/rm/swap", plan=plan(tiny_principle_model), mode="now")
        refused(client, 404, "POST", "", name="other", plan=plan(tmp_path / "none"))
        refused(client, 404, "POST", "/none/swap", plan=plan(tiny_reward_model))
        refused(client, 422, "POST", "", name="../rm", plan=plan(tiny_reward_model))
        refused(client, 422, "POST", "/rm/swap", plan=plan(tiny_reward_model), mode="shadow", promote_when={"luck": 1})
        refused(client, 422, "POST", "/rm/swap", plan=plan(tiny_reward_model), mode="later")
        refused(client, 422, "POST", "/rm/swap", plan={"reference": str(tiny_reward_model), "device": "abacus"})
        assert admin(client, "GET")["changing"] == {}
        assert live_version(client) == old
        assert rewards_of(ask(client, PROMPTS[0])) == pytest.approx(offline(engines[old], PROMPTS[0]), abs=1e-5)


def test_loading_and_unloading_beside_others(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    old, new = engines
    with serving(tiny_reward_model) as (_, client):
        loaded = admin(client, "POST", "", name="team/rm-2", plan=plan(second))["model"]
        assert (loaded["name"], loaded["info"]["version"], loaded["plan"]["reference"]) == (
            "team/rm-2",
            new,
            str(second),
        )
        assert "served already" in refused(client, 409, "POST", "", name="team/rm-2", plan=plan(second))
        both = client.get("/v1/models").json()["data"]
        assert [(model["id"], model["version"]) for model in both] == [("rm", old), ("team/rm-2", new)]
        body = {"model": "team/rm-2", "prompt": PROMPTS[0], "responses": ANSWERS}
        assert rewards_of(client.post("/v1/score", json=body).json()) == pytest.approx(
            offline(engines[new], PROMPTS[0]), abs=1e-5
        )
        assert admin(client, "DELETE", "/team/rm-2") == {"unloaded": "team/rm-2"}
        assert client.post("/v1/score", json=body).status_code == 404
        assert "team/rm-2" not in client.get("/metrics").text
        refused(client, 404, "DELETE", "/team/rm-2")
        # The last one too: a server without a model is not ready, and takes the next.
        admin(client, "DELETE", "/rm")
        assert client.get("/readyz").status_code == 503
        assert client.post("/v1/score", json={"prompt": "a", "responses": ["b"]}).status_code == 503
        admin(client, "POST", "", name="rm", plan=plan(tiny_reward_model))
        assert client.get("/readyz").status_code == 200
        assert ask(client, PROMPTS[0])["version"] == old


def test_only_what_the_server_allows_is_loaded_and_a_swap_keeps_the_names_that_callers_use(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    _, new = engines
    settings = ServerSettings(model_folders=(str(tiny_reward_model.parent),))
    with serving(tiny_reward_model, settings) as (_, client):
        for reference in (str(second), "/etc", "../../etc/passwd", "http://elsewhere/rm"):
            said = refused(client, 422, "POST", "", name="other", plan={"reference": reference})
            assert "model_folders" in said
        admin(client, "POST", "", name="other", plan={"reference": "tiny-rm", "aliases": ["judge"]})
    with serving(tiny_reward_model) as (_, client):
        admin(client, "POST", "/rm/swap", plan=plan(tiny_reward_model, aliases=["judge"]), mode="now")
        admin(client, "POST", "/rm/swap", plan=plan(second), mode="now")
        for name in ("rm", "judge", str(tiny_reward_model), str(second)):
            body = {"model": name, "prompt": PROMPTS[0], "responses": ANSWERS}
            reply = client.post("/v1/score", json=body).json()
            assert (reply["model"], reply["version"]) == ("rm", new)


def test_only_one_change_of_a_name_at_a_time(tiny_reward_model: Path, second: Path) -> None:
    with serving(tiny_reward_model) as (_, client):
        assert "no swap" in refused(client, 409, "POST", "/rm/promote")
        assert "not been swapped" in refused(client, 404, "GET", "/rm/swap")
        admin(client, "POST", "/rm/swap", plan=plan(second), mode="shadow")
        for method, path, body in (
            ("POST", "/rm/swap", {"plan": plan(second), "mode": "now"}),
            ("DELETE", "/rm", {}),
            ("POST", "", {"name": "rm", "plan": plan(second)}),
        ):
            refused(client, 409, method, path, **body)
        admin(client, "POST", "/rm/abort")
        refused(client, 409, "POST", "/rm/abort")
        with ThreadPoolExecutor(4) as pool:
            futures = [
                pool.submit(client.post, "/v1/admin/models/rm/swap", json={"plan": plan(second), "mode": "now"})
                for _ in range(4)
            ]
        statuses = sorted(future.result().status_code for future in futures)
        assert statuses[0] == 200
        assert set(statuses) <= {200, 409}


class HeldEngine(TransformersScorer):
    """The real engine behind a door."""

    door: threading.Event

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        assert self.door.wait(PATIENCE_S)
        return super().score(items, on_progress)


@pytest.fixture
def held(tiny_reward_model: Path) -> Iterator[HeldEngine]:
    engine = HeldEngine.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))
    assert isinstance(engine, HeldEngine)
    engine.door = threading.Event()
    yield engine
    engine.door.set()


@contextmanager
def with_queued(held: HeldEngine) -> Iterator[tuple[httpx.Client, Any, list[Any], Any]]:
    """A server, its registry, requests that wait for the engine, and a pool."""
    with (
        running_server({"rm": held}, settings=ANYWHERE) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE_S) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        registry = running.app.state.service.backend.registry
        waiting = [pool.submit(ask, client, prompt) for prompt in PROMPTS[:5]]
        until(lambda: registry.find("rm").live.in_flight == 5)
        try:
            yield client, registry, waiting, pool
        finally:
            held.door.set()


def test_unloading_answers_what_is_queued_first(held: HeldEngine, engines: dict[str, TransformersScorer]) -> None:
    with with_queued(held) as (client, registry, waiting, pool):
        unloading = pool.submit(admin, client, "DELETE", "/rm")
        until(lambda: "rm" not in registry)
        assert client.post("/v1/score", json={"model": "rm", "prompt": "a", "responses": ["b"]}).status_code in (
            404,
            503,
        )
        assert not unloading.done()
        held.door.set()
        old = next(iter(engines))
        for prompt, future in zip(PROMPTS, waiting, strict=False):
            assert rewards_of(future.result()) == pytest.approx(offline(engines[old], prompt), abs=1e-5)
        assert unloading.result() == {"unloaded": "rm"}


def test_requests_of_before_a_swap_are_answered_by_the_old_model_and_later_ones_do_not_wait_for_it(
    held: HeldEngine, second: Path, engines: dict[str, TransformersScorer]
) -> None:
    old, new = engines
    with with_queued(held) as (client, _, waiting, _):
        admin(client, "POST", "/rm/swap", plan=plan(second), mode="now")
        assert ask(client, PROMPTS[0])["version"] == new  # though the old engine is still held
        assert admin(client, "GET", "/rm")["models"][0]["retiring"] == 1
        held.door.set()
        assert {future.result()["version"] for future in waiting} == {old}
        until(lambda: admin(client, "GET", "/rm")["models"][0]["retiring"] == 0)


def test_a_shadow_waits_until_nothing_live_is_unanswered_and_drops_what_it_has_no_room_for(
    held: HeldEngine, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_serving.server.rollout.shadow.BACKLOG_ITEMS", 2 * len(ANSWERS))
    with with_queued(held) as (client, _, waiting, _):
        held.door.set()
        for future in waiting:
            future.result()
        admin(client, "POST", "/rm/swap", plan=plan(second), mode="shadow", share=1.0)
        held.door.clear()
        with ThreadPoolExecutor(2) as pool:
            stuck = pool.submit(ask, client, "not asked before")
            until(lambda: admin(client, "GET", "/rm")["models"][0]["in_flight"] == 1)
            for prompt in PROMPTS[:5]:
                ask(client, prompt)  # from the cache, while a live request waits
            found = admin(client, "GET", "/rm/swap")["swap"]
            assert (found["compared"], found["waiting"], found["dropped"]) == (0, 2 * len(ANSWERS), 3 * len(ANSWERS))
            held.door.set()
            stuck.result()
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["compared"] == 2 * len(ANSWERS))


@pytest.mark.slow
def test_a_canary_whose_engine_hangs_is_aborted_and_its_share_goes_back_to_the_old_model(
    tiny_reward_model: Path, held: HeldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same model behind a closed door; as it is, no plan can name it.
    monkeypatch.setattr("assay_serving.server.rollout.lifecycle.open_checked", lambda *_: held)
    settings = replace(ANYWHERE, engine_timeout_s=3.0, cache_entries=0)
    with serving(tiny_reward_model, settings) as (_, client):
        admin(client, "POST", "/rm/swap", plan=plan(tiny_reward_model), mode="canary", share=1.0)
        reply = client.post("/v1/score", json={"prompt": PROMPTS[0], "responses": ANSWERS})
        assert (reply.status_code, reply.json()["code"]) == (504, "timeout")
        assert len(ask(client, PROMPTS[0])["results"]) == len(ANSWERS)
        until(lambda: admin(client, "GET", "/rm/swap")["swap"]["state"] == "aborted")
        assert admin(client, "GET", "/rm/swap")["swap"]["why"] == "its engine does not return from a call"
        assert len(ask(client, PROMPTS[1])["results"]) == len(ANSWERS)


def test_an_order_continues_when_whoever_gave_it_is_gone(
    tiny_reward_model: Path, second: Path, engines: dict[str, TransformersScorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, new = engines
    loading, gone = threading.Event(), threading.Event()
    open_checked = lifecycle.open_checked

    def held_back(*arguments: Any) -> Any:
        loading.set()
        assert gone.wait(PATIENCE_S)
        return open_checked(*arguments)

    monkeypatch.setattr(lifecycle, "open_checked", held_back)

    async def give_up() -> None:
        told: list[list[dict[str, Any]]] = []
        host = InProcessBackend({"rm": load(tiny_reward_model)}, ANYWHERE, on_plans=told.append)
        await host.start()
        order = asyncio.create_task(
            host.manage({"action": "swap", "name": "rm", "plan": plan(second), "terms": {"mode": "now"}})
        )
        assert await asyncio.to_thread(loading.wait, PATIENCE_S)
        assert "rm" in (await host.manage({"action": "status"}))["changing"]
        order.cancel()
        await asyncio.gather(order, return_exceptions=True)
        assert order.cancelled()
        gone.set()
        async with asyncio.timeout(PATIENCE_S):
            while not told:
                await asyncio.sleep(0.01)
        [info] = await host.models()
        assert info.version == new
        assert [(each["served_as"], each["reference"]) for each in told[-1]] == [("rm", str(second.resolve()))]
        await host.stop()

    asyncio.run(give_up())


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    tiny_reward_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    tensors = load_file(tiny_reward_model / "model.safetensors").values()
    elements = sum(tensor.numel() for tensor in tensors)
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        assert memory_room.weight_bytes(tiny_reward_model, dtype) == elements * size
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert memory_room.weight_bytes(tiny_reward_model, "auto") == stored
    assert memory_room.weight_bytes(tiny_reward_model / "none", "auto") == 0
    free = memory_room.free_bytes("cpu")
    assert free is None or free > stored
    monkeypatch.setattr(memory_room, "_machine_free", lambda: 1000)
    with serving(tiny_reward_model) as (_, client):
        said = refused(client, 500, "POST", "/rm/swap", plan=plan(tiny_reward_model), mode="now")
        assert "no room for tiny-rm: its weights in float32 take" in said
        assert "unload another model first" in said
        ask(client, PROMPTS[0])


def test_the_reference_of_drift_can_be_set_anew(tiny_reward_model: Path) -> None:
    with serving(tiny_reward_model) as (_, client):
        ask(client, PROMPTS[0])
        scores = admin(client, "GET", "/rm")["models"][0]["scores"]
        assert (scores["reference"]["scores"], scores["drift"]) == (len(ANSWERS), None)
        assert admin(client, "POST", "/rm/reference")["model"]["scores"]["reference"]["scores"] == len(ANSWERS)
