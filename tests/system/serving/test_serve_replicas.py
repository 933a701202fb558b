"""`assay serve --replicas`: one of two killed under load, swaps that one of them cannot follow, limits of both."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_serve_processes import (
    ASSAY,
    CLIENTS,
    KEY,
    Load,
    children_of,
    pytestmark,
    some_items,
    started,
    until,
    url_when_ready,
)

from assay.models.spec import RewardModelSpec, weights_digest
from assay.score import Score
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem
from assay_serving.server.auth.key_store import create_key

__all__ = ["pytestmark"]

KEYED = {"X-API-Key": KEY}
BOTH_S = 300.0  # two engines start at once, on a machine that may be busy
GROUPS = 4  # prompts of one request
FEW = 32  # items a minute of the key with a limit


@pytest.fixture(scope="module")
def other_reward_model(tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the tiny one, with other rewards and another version."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_reward_model, tmp_path_factory.mktemp("models") / "tiny-rm-2")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"score.weight": -weights["score.weight"]}, folder / "model.safetensors", {"format": "pt"})
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    replace(spec, version=weights_digest(folder)).write(folder)
    return folder


@pytest.fixture(scope="module")
def limited_key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    return file, create_key(file, "few", scopes=("score", "read"), items_per_minute=FEW)[0]


@pytest.fixture(scope="module")
def server(
    tiny_reward_model: Path,
    other_reward_model: Path,
    limited_key: tuple[Path, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Two replicas behind two HTTP workers, without a cache: every score is computed."""
    config = tmp_path_factory.mktemp("config") / "serve.yaml"
    folders = [str(tiny_reward_model.parent), str(other_reward_model.parent)]
    settings = {"replicas": 2, "workers": 2, "cache_entries": 0, "model_folders": folders}
    config.write_text(json.dumps(settings | {"keys_file": str(limited_key[0])}))
    arguments = (str(tiny_reward_model), "--name", "rm", "--port", "0", "--device", "cpu", "--api-key", KEY)
    with started(*arguments, "--config", str(config)) as process:
        yield url_when_ready(process, BOTH_S), process


@pytest.fixture(scope="module")
def items() -> list[ScoreItem]:
    return some_items(60)


@pytest.fixture(scope="module")
def rewards(tiny_reward_model: Path, other_reward_model: Path, items: list[ScoreItem]) -> dict[str, list[float]]:
    """Of all items, by version."""
    scorers = [
        TransformersScorer.load(ModelConfig(str(f), device="cpu")) for f in (tiny_reward_model, other_reward_model)
    ]
    scores = {scorer.info.version: scorer.score(items) for scorer in scorers}
    by_version = {name: [s.reward for s in each if isinstance(s, Score)] for name, each in scores.items()}
    first, second = by_version.values()
    assert first == pytest.approx([-reward for reward in second], abs=1e-5)
    assert min(map(abs, first)) > 1e-4  # versions can be told apart
    return by_version


def engines_of(process: subprocess.Popen[str]) -> set[int]:
    return {pid for name, pid in children_of(process.pid).items() if name.startswith("engine")}


def metrics(url: str) -> dict[str, dict[str, float]]:
    """Values of the samples with the label `replica`, by name."""
    values: dict[str, dict[str, float]] = {}
    text = httpx.get(url + "/metrics", headers=KEYED, timeout=BOTH_S).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "replica" in sample.labels:
                values.setdefault(sample.name, {})[sample.labels["replica"]] = sample.value
    return values


def both_ready(url: str) -> bool:
    return metrics(url)["assay_replica_ready"] == {"1": 1.0, "2": 1.0}


def swap(url: str, folder: Path) -> httpx.Response:
    body = {"plan": {"reference": str(folder), "device": "cpu"}, "mode": "now"}
    return httpx.post(url + "/v1/admin/models/rm/swap", json=body, headers=KEYED, timeout=BOTH_S)


class GroupLoad(Load):
    """Requests of several prompts, which both replicas score; each reply is checked when it comes."""

    def __init__(self, url: str, items: list[ScoreItem], rewards: dict[str, list[float]]) -> None:
        super().__init__(url, items)
        self._expected = rewards
        self.versions: Counter[str] = Counter()

    async def __aenter__(self) -> GroupLoad:
        await super().__aenter__()
        return self

    async def _ask(self, number: int) -> None:
        while not self.ended:
            number += CLIENTS
            numbers = [(number + n) % len(self.items) for n in range(2 * GROUPS)]
            sent = [self.items[n] for n in numbers]
            entries = [{"prompt": [m.to_dict() for m in item.prompt], "response": item.response} for item in sent]
            reply = await self._client.post("/v1/score", json={"items": entries})
            self.statuses[reply.status_code] += 1
            assert reply.is_success, reply.text
            body = reply.json()
            expected = self._expected[body["version"]]
            assert {result["version"] for result in body["results"]} == {body["version"]}
            found = [result["reward"] for result in body["results"]]
            assert found == pytest.approx([expected[n] for n in numbers], abs=1e-5)
            self.versions[body["version"]] += 1


@pytest.mark.slow
def test_prompts_are_spread_and_every_group_stays_together(
    server: tuple[str, subprocess.Popen[str]], items: list[ScoreItem], rewards: dict[str, list[float]]
) -> None:
    url, process = server
    assert len(engines_of(process)) == 2
    until(lambda: both_ready(url), BOTH_S)

    async def work() -> None:
        async with GroupLoad(url, items, rewards) as load:
            await load.until_scored(2 * CLIENTS)
            await asyncio.to_thread(
                until, lambda: all(metrics(url)["assay_items_total"].get(replica) for replica in "12"), BOTH_S
            )
        assert len(load.versions) == 1

    asyncio.run(work())
    values = metrics(url)
    assert set(values["assay_queue_seconds"]) == {"1", "2"}
    (model,) = httpx.get(url + "/v1/admin/models", headers=KEYED, timeout=BOTH_S).json()["models"]
    assert [each["replica"] for each in model["replicas"]] == [1, 2]
    assert model["in_flight"] == sum(each["in_flight"] for each in model["replicas"])
    assert sum(each["scores"]["items"] for each in model["replicas"]) > 0


@pytest.mark.slow
def test_a_killed_replica_costs_no_score(
    server: tuple[str, subprocess.Popen[str]], items: list[ScoreItem], rewards: dict[str, list[float]]
) -> None:
    url, process = server
    until(lambda: both_ready(url), BOTH_S)

    async def work() -> Load:
        async with GroupLoad(url, items, rewards) as load:
            await load.until_scored(2 * CLIENTS)
            before = engines_of(process)
            os.kill(min(before), signal.SIGKILL)
            await load.until_scored(2 * CLIENTS)
            await asyncio.to_thread(until, lambda: both_ready(url) and len(engines_of(process) - before) == 1, BOTH_S)
            await load.until_scored(2 * CLIENTS)
        return load

    load = asyncio.run(work())
    assert set(load.statuses) == {200}
    assert load.cut == 0


@pytest.mark.slow
def test_a_swap_that_one_replica_cannot_make_is_made_by_none(
    server: tuple[str, subprocess.Popen[str]],
    items: list[ScoreItem],
    rewards: dict[str, list[float]],
    tiny_reward_model: Path,
    other_reward_model: Path,
) -> None:
    url, process = server
    until(lambda: both_ready(url), BOTH_S)
    assert swap(url, tiny_reward_model).is_success  # whatever is served now
    old, new = rewards
    failing = max(engines_of(process))
    limits = resource.prlimit(failing, resource.RLIMIT_NOFILE)

    async def work() -> None:
        async with GroupLoad(url, items, rewards) as load:
            await load.until_scored(CLIENTS)
            resource.prlimit(failing, resource.RLIMIT_NOFILE, (0, limits[1]))  # it opens no file more
            refused = await asyncio.to_thread(swap, url, other_reward_model)
            resource.prlimit(failing, resource.RLIMIT_NOFILE, limits)
            assert refused.status_code == 500
            assert "cannot be loaded" in refused.json()["detail"]
            await load.until_scored(2 * CLIENTS)
            assert set(load.versions) == {old}
            # Nothing is left of it: the same swap succeeds, with every request by one version.
            assert (await asyncio.to_thread(swap, url, other_reward_model)).is_success
            load.versions.clear()
            await load.until_scored(3 * CLIENTS)
            assert new in load.versions
            load.versions.clear()
            await load.until_scored(CLIENTS)
            assert set(load.versions) == {new}
            # A replica that starts afterwards has the new model too.
            os.kill(failing, signal.SIGKILL)
            await asyncio.to_thread(until, lambda: failing not in engines_of(process) and both_ready(url), BOTH_S)
            load.versions.clear()
            await load.until_scored(2 * CLIENTS)
            assert set(load.versions) == {new}

    asyncio.run(work())


@pytest.mark.slow
def test_a_swap_in_progress_ends_in_all_replicas_together(
    server: tuple[str, subprocess.Popen[str]],
    tiny_reward_model: Path,
    other_reward_model: Path,
    rewards: dict[str, list[float]],
) -> None:
    url, process = server
    _old, new = rewards
    until(lambda: both_ready(url), BOTH_S)
    assert swap(url, tiny_reward_model).is_success
    plan = {"reference": str(other_reward_model), "device": "cpu"}

    def order(path: str, **body: Any) -> dict[str, Any]:
        reply = httpx.post(f"{url}/v1/admin/models/rm/{path}", json=body or None, headers=KEYED, timeout=BOTH_S)
        assert reply.is_success, reply.text
        return dict(reply.json()["swap"])

    def versions() -> set[str]:
        (model,) = httpx.get(url + "/v1/admin/models", headers=KEYED, timeout=BOTH_S).json()["models"]
        return {each["version"] for each in model["replicas"]}

    def states() -> list[tuple[int, str]]:
        reply = httpx.get(url + "/v1/admin/models/rm/swap", headers=KEYED, timeout=BOTH_S).json()
        return [(each["replica"], each["state"]) for each in reply["swap"]["replicas"]]

    assert order("swap", plan=plan, mode="shadow")["state"] == "going on"
    assert states() == [(1, "going on"), (2, "going on")]
    assert order("promote")["state"] == "promoted"
    assert states() == [(1, "promoted"), (2, "promoted")]
    assert versions() == {new}
    # The successor of a replica that ends knows no swap: it ends in the others.
    order("swap", plan=plan, mode="shadow")
    killed = min(engines_of(process))
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in engines_of(process) and both_ready(url), BOTH_S)
    until(lambda: {state for _, state in states()} == {"aborted"})
    assert swap(url, tiny_reward_model).is_success


@pytest.mark.slow
def test_a_key_has_one_limit_at_all_replicas(
    server: tuple[str, subprocess.Popen[str]], limited_key: tuple[Path, str]
) -> None:
    url, _ = server
    until(lambda: both_ready(url), BOTH_S)
    entries = [{"prompt": f"Which metal is number {n}?", "response": "Gold."} for n in range(FEW)]

    async def both() -> list[int]:
        async with httpx.AsyncClient(base_url=url, headers={"X-API-Key": limited_key[1]}, timeout=BOTH_S) as client:
            replies = await asyncio.gather(*(client.post("/v1/score", json={"items": entries}) for _ in range(2)))
        return sorted(reply.status_code for reply in replies)

    assert asyncio.run(both()) == [200, 429]  # each replica alone would have had enough for both


@pytest.mark.parametrize(
    ("arguments", "visible", "message"),
    [
        (("--replicas", "0"), None, "'replicas': must be at least 1, not 0"),
        (("--replicas", "2", "--in-process"), None, "needs HTTP workers"),
        (("--replicas", "3"), "0,1", "3 replicas need as many GPUs, and 2 can be used here"),
        (("--replicas", "2", "--device", "cuda:1"), "0,1", "names a GPU for all replicas (cuda:1)"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: tuple[str, ...], visible: str | None, message: str, rule_reward: Path
) -> None:
    environment = os.environ | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    command = [ASSAY, "serve", str(rule_reward), "--port", "0", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=BOTH_S)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert message in line
