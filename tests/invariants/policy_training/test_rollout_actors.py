"""Rollout actors: their number changes no row, every row is its weights', and what is killed loses and doubles none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import async_training
import pytest
import torch
from async_training import STEPS, Holding, recipe_with, trainer
from forked_actors import fork_actors
from torch import Tensor

from assay.errors import BackendError, BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.sampling import derived_seed
from assay_policy_training.plugins.samplers.carried import continued, empty_row
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe, recipe_to_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts import pool as pool_module
from assay_policy_training.rollouts.actor import rollout_process
from assay_policy_training.rollouts.buffer import RolloutUnit
from assay_policy_training.rollouts.relay import check_loaded, load_weights, probe_logp
from assay_policy_training.training.loop import PolicyLoop

PATIENCE_S = 300


@contextmanager
def opened(recipe: Recipe, folder: Path, model: str = "tiny") -> Iterator[PolicyLoop]:
    made = trainer(recipe, folder, model)
    try:
        yield made
    finally:
        made.close()


def weights(made: PolicyLoop) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in made.parameters.items()}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]


def assert_same_run(one: Path, other: Path, weights_of: dict[Path, dict[str, Tensor]]) -> None:
    assert rows_of(one) == rows_of(other)
    assert weights_of[one].keys() == weights_of[other].keys()
    for name, value in weights_of[one].items():
        assert torch.equal(value, weights_of[other][name]), name


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def _forked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        fork_actors(patch)
        yield


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """What an actor of this process sets for itself."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return async_training.save_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model: str) -> tuple[Path, dict[str, Tensor]]:
    """A run with lag 2 and one actor."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with opened(recipe_with(lag=2, actors=1), folder, model) as made:
        rows = made.train()
        assert [row["staleness_max"] for row in rows] == [0, 1, 2, 2]
        return folder, weights(made)


@pytest.mark.slow
def test_a_thread_draws_what_actors_draw(
    tmp_path: Path, model: str, undisturbed: tuple[Path, dict[str, Tensor]]
) -> None:
    """A first step: later ones follow from log-probs that differ by rounding, since a thread generates whole steps."""
    with opened(recipe_with(lag=2), tmp_path, model) as made:
        made.train(1)
    texts = [[row["response"] for row in rows_of(folder) if row["step"] == 1] for folder in (undisturbed[0], tmp_path)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 6


def test_a_killed_actor_loses_and_doubles_no_row(
    tmp_path: Path, model: str, undisturbed: tuple[Path, dict[str, Tensor]]
) -> None:
    """It is held in the middle of a group of the second step, and killed there."""
    second = {row["prompt"][0]["content"] for row in rows_of(undisturbed[0]) if row["step"] == 2}
    number = next(item.meta["number"] for item in async_training.ITEMS if item.prompt[0].text in second)
    marker = tmp_path / "marker"
    recipe = replace(recipe_with(lag=2, actors=2), sampler=Holding(marker=str(marker), number=number))
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: marker.is_file() and bool(marker.read_text()), "no actor came to the prompt")
        killed.append(int(marker.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with opened(recipe, tmp_path / "run", model) as made:
        made.train()
        found = weights(made)
    killer.join()
    assert not (tmp_path / "run" / "weights").exists(), "weights are left behind"
    assert killed
    assert_same_run(undisturbed[0], tmp_path / "run", {undisturbed[0]: undisturbed[1], tmp_path / "run": found})


def ended(pid: int) -> bool:
    """Whether the process is gone, or dead and not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="asks /proc which processes there are")
def test_a_killed_driver_resumes_exactly(
    tmp_path: Path, model: str, undisturbed: tuple[Path, dict[str, Tensor]]
) -> None:
    """It is killed after its third step, of which there is no checkpoint yet; its actors end with it."""
    folder = tmp_path / "run"
    folder.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, async_training.__file__, str(folder), model, "2", "2"], env=environment)
    try:
        wait_for(lambda: (folder / "held").is_file() or process.poll() is not None, "three steps")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    pids = json.loads((folder / "held").read_text())
    assert len(pids) == 2
    for pid in pids:
        wait_for(lambda pid=pid: ended(pid), "an actor outlives its driver")  # type: ignore[misc]
    with opened(recipe_with(lag=2, actors=2), folder, model) as made:
        assert made.resume() == STEPS - 2
        made.train()
        assert_same_run(undisturbed[0], folder, {undisturbed[0]: undisturbed[1], folder: weights(made)})


@pytest.mark.slow
def test_a_checkpoint_holds_the_buffer(tmp_path: Path, model: str) -> None:
    """Finished groups of later steps are in it, and are not generated again."""
    recipe = recipe_with(actors=1, staleness=2, window=3)
    with opened(recipe, tmp_path, model) as made:
        made.train(1)
        assert made.collector.pool is not None
        pool = made.collector.pool
        wait_for(lambda: all(unit.outcome is not None for unit in pool.buffer.units), "two steps ahead")
        finished = [(unit.step, unit.first, unit.outcome) for unit in pool.buffer.units]
        assert [step for step, _, _ in finished] == [2] * 4 + [3] * 4
        made.save_checkpoint()
    with opened(recipe, tmp_path, model) as again:
        assert again.resume() == 1
        assert again.collector.pool is not None
        restored = again.collector.pool.buffer.units
        for (step, first, outcome), unit in zip(finished, restored, strict=True):
            assert (unit.step, unit.first, unit.generated) == (step, first, True)
            assert_equal_batches(unit.outcome.batch, outcome.batch)
            assert unit.outcome.batch.items == outcome.batch.items
            assert torch.equal(unit.outcome.rewards[0].parts["letters"], outcome.rewards[0].parts["letters"])
        again.train(3)
    uids = [row["uid"] for row in rows_of(tmp_path)]
    assert uids == [f"{step}.{group}" for step in (1, 2, 3) for group in range(4) for _ in range(3)]


def assert_equal_batches(one: RolloutBatch, other: RolloutBatch) -> None:
    for name in ("tokens", "mask", "loss_mask", "logp_mu", "version", "token_version", "finished", "truncated"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for name in ("uid", "prompts", "responses", "source"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "asynchrony",
    [
        # Rows of one version each; those of several are the harder case.
        pytest.param({"staleness": 3, "actors": 2, "groups": 2}, marks=pytest.mark.slow),
        {"staleness": 2, "actors": 2, "window": 2, "partial": True},
    ],
    ids=["responses", "partial"],
)
def test_every_row_is_drawn_again_by_its_stamped_weights(
    tmp_path: Path, model: str, asynchrony: dict[str, Any]
) -> None:
    recipe = recipe_with(**asynchrony)
    published: dict[int, dict[str, Tensor]] = {}
    with opened(recipe, tmp_path, model) as made:
        assert made.collector.pool is not None
        relay = made.collector.pool.relay
        put = relay.put

        def kept(key: str, weights: dict[str, Tensor]) -> Any:
            published[made.updates] = {name: value.clone() for name, value in weights.items()}
            return put(key, weights)

        relay.put = kept  # type: ignore[method-assign, assignment]
        batches: list[RolloutBatch] = []
        for step in range(1, STEPS + 1):
            collect = made.collector.collect
            made.collector.collect = lambda *a, c=collect, **k: _noted(batches, c(*a, **k))  # type: ignore[method-assign]
            rows = made.train(step)
            made.collector.collect = collect  # type: ignore[method-assign]
            assert rows[0]["staleness_max"] <= asynchrony["staleness"]
    policy = rollout_process(recipe_to_dict(recipe), model, "cpu").policy
    for batch in batches:
        for row in range(len(batch)):
            assert_redrawn(policy, batch, row, recipe, published)
            if not asynchrony.get("partial"):
                assert set(batch.token_version[row][batch.mask[row]].tolist()) == {int(batch.version[row])}


def _noted(batches: list[RolloutBatch], collected: Any) -> Any:
    batches.append(collected.batch)
    return collected


def assert_redrawn(
    policy: Policy, batch: RolloutBatch, row: int, recipe: Recipe, published: dict[int, dict[str, Tensor]]
) -> None:
    """Token by token, each under the weights it is stamped with."""
    seed = derived_seed(recipe.seed, batch.uid[row])
    again = empty_row(batch.uid[row], batch.items[row], seed, row % recipe.sampling.group_size)
    own = batch.mask[row]
    versions = batch.token_version[row][own].tolist()
    for version in sorted(set(versions)):
        load_weights(policy, published[version])
        [again] = continued(
            TransformersSampler(policy, recipe.sampling), [again], versions.count(version), version=version
        )
    assert again.tokens.tolist() == batch.tokens[row][own].tolist()
    torch.testing.assert_close(again.logp, batch.logp_mu[row][own], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_weights_that_do_not_arrive_are_noticed(tmp_path: Path) -> None:
    with opened(recipe_with(staleness=1, actors=1), tmp_path) as made:
        assert made.collector.pool is not None
        relay = made.collector.pool.relay
        put = relay.put
        first: list[Any] = []

        def stale(key: str, weights: dict[str, Tensor]) -> Any:
            first.append({name: value.clone() for name, value in weights.items()})
            return put(key, first[0])

        relay.put = stale  # type: ignore[method-assign, assignment]
        with pytest.raises(BackendError, match=r"does not have the policy's weights \(version 1\)"):
            made.train()


def test_the_check_compares_with_the_trainers_log_probs() -> None:
    torch.manual_seed(0)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, lora=Lora(rank=2))
    expected = probe_logp(policy)
    assert len(expected) > 4
    check_loaded(policy, expected, 0)
    with torch.no_grad():
        next(iter(policy.trainable().values())).add_(1.0)
        list(policy.trainable().values())[1].add_(1.0)
    with pytest.raises(BackendError, match="version 3"):
        check_loaded(policy, expected, 3)


class StandInActor:
    closed = False

    def call(self, method: str, *arguments: Any) -> Any:
        raise BackendError("no such weights")

    def close(self) -> None:
        self.closed = True


def test_nothing_stays_of_an_actor_that_comes_after_the_end_nor_of_a_killed_trainers_weights(
    tmp_path: Path, model: str
) -> None:
    left_behind, hiring, late = tmp_path / "weights" / "0-9.safetensors", threading.Event(), StandInActor()
    left_behind.parent.mkdir()
    left_behind.touch()
    with opened(recipe_with(lag=2, actors=1), tmp_path, model) as made:
        pool: Any = made.collector.pool

        def hire(index: int) -> StandInActor:
            hiring.set()
            wait_for(lambda: pool._closed, "the pool is not closed")
            return late

        pool.hire = hire
        pool.publish(1, 0)
        assert hiring.wait(PATIENCE_S)
    assert late.closed
    assert not left_behind.parent.exists()


def test_an_error_of_what_a_restored_checkpoint_replaced_ends_no_run(tmp_path: Path, model: str) -> None:
    with opened(recipe_with(lag=2, actors=1), tmp_path, model) as made:
        pool: Any = made.collector.pool
        pool._actors[0], pool._epoch = StandInActor(), 1
        unit: Any = SimpleNamespace(request=None)
        publication: Any = SimpleNamespace(handle=None, key="0-1", version=0, probe=[])
        pool._run(0, [unit], publication, 0)
        assert pool._error is None
        pool._run(0, [unit], publication, 1)
        assert str(pool._error) == "no such weights"


class RefusingRewards:
    name = "refusing"

    def score(self, items: Any, responses: Any) -> Any:
        raise BackendError("no rewards today")


def test_rewards_of_what_a_restored_checkpoint_replaced_are_dropped(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(recipe_with(lag=2, actors=1), tmp_path, model) as made:
        pool: Any = made.collector.pool
        unit = RolloutUnit(0, 0, 1, None, 0)
        pool._epoch = 1
        monkeypatch.setattr(pool_module, "score_completed", lambda source, batch: source.score([], []))
        pool.rewards = [RefusingRewards()]
        pool._score(unit, None, 0)
        assert pool._error is None
        pool.rewards, pool._source_locks = [], []
        pool._score(unit, None, 0)
        assert unit.outcome is None
        pool._score(unit, None, 1)
        assert unit.outcome is not None


@pytest.mark.slow
def test_what_fails_in_an_actor_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    recipe = replace(recipe_with(actors=1), sampler=Holding(marker=str(tmp_path / "no" / "folder")))
    with opened(recipe, tmp_path / "run") as made, pytest.raises(FileNotFoundError, match="no/folder"):
        made.train()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"lag": 1, "staleness": 1}, "lag"),
        ({"window": 4}, "window"),
        ({"groups": 2}, "groups"),
        ({"devices": ("cpu",)}, "devices"),
        ({"run_on": "moon", "actors": 1}, "run_on"),
        ({"actors": 1, "partial": True, "window": 4}, "partial"),
        ({"actors": 1, "partial": True, "staleness": 1}, "partial"),
        ({"actors": 1, "partial": True, "lag": 1, "window": 2}, "partial"),
        ({"staleness": -1}, "staleness"),
    ],
)
def test_settings_that_do_not_combine_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(BadInputError, match=f"asynchrony.{key}"):
        Asynchrony(**settings)


@pytest.mark.parametrize(
    ("recipe", "overrides", "key"),
    [
        ("t_ppo", ["asynchrony.actors=2"], "asynchrony.actors"),
        ("t_ppo", ["asynchrony.staleness=1"], "asynchrony.staleness"),
        ("hapo", ["asynchrony.lag=1"], "asynchrony.lag"),
    ],
)
def test_samplers_with_memory_are_refused(tmp_path: Path, recipe: str, overrides: list[str], key: str) -> None:
    with pytest.raises(BadInputError, match=f"{key}.*memory|memory.*{key}"):
        trainer(load_recipe(recipe, overrides), tmp_path)


def test_rows_of_several_units_continue_together_each_by_its_own_settings(model: str) -> None:
    """What a moved tail meets: rows of another step, whose schedule has other lengths and another temperature."""
    recipe = recipe_with()
    actor = rollout_process(recipe_to_dict(recipe), model, "cpu")
    items, late = async_training.ITEMS[:2], replace(recipe.sampling, max_new_tokens=7, temperature=0.5)
    settings = [recipe.sampling, late]
    begun = [[empty_row("1.0", item, seed, index) for index in range(3)] for seed, item in enumerate(items)]
    together: list[Any] = begun
    for _ in range(5):
        units = list(zip(together, settings, strict=True))
        answers = actor.extend({}, "k", 0, [], units, 2)
        together = [rows for rows, _, _ in answers]
    for (rows, open_rows, batch), first, sampling in zip(answers, begun, settings, strict=True):
        assert open_rows == 0
        assert batch is not None
        assert int(batch.lengths.max()) <= sampling.max_new_tokens
        alone = actor.extend({}, "k", 0, [], [(first, sampling)], sampling.max_new_tokens)[0][0]
        assert [row.tokens.tolist() for row in rows] == [row.tokens.tolist() for row in alone]
