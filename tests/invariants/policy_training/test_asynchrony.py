"""Overlap changes no number, a lag is exactly the lag asked for, and a restart draws again what was under way."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem, item_from_dict
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Rewards, RewardSource
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.actor import frozen_copy
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase, MaxWords

CPU = torch.device("cpu")
ITEMS = [
    PromptItem((Message("user", f"Name colour {n}."),), (AllLowercase(), MaxWords(2 + n)), {"number": n})
    for n in range(6)
]


class LetterShare:
    """A reward that differs from row to row; remembers which rows it was asked about together."""

    name = "letters"

    def __init__(self, *, whole_batch: bool = False) -> None:
        self.whole_batch = whole_batch
        self.asked: list[int] = []

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        self.asked.append(len(responses))
        share = [sum(c.isalpha() for c in text) / max(1, len(text)) for text in responses]
        return Rewards({self.name: torch.tensor(share, dtype=torch.float64)}, [()] * len(items), [{}] * len(items))


@dataclass(frozen=True)
class FirstHalf:
    """Keeps the groups with even numbers."""

    rounds: int = 2

    def keep(self, batch: RolloutBatch) -> Tensor:
        return torch.tensor([int(uid.split(".")[1]) % 2 == 0 for uid in batch.uid])


def recipe_with(**asynchrony: Any) -> Recipe:
    recipe = load_recipe("grpo")
    sampling = replace(
        recipe.sampling, prompts_per_step=4, group_size=3, max_new_tokens=10, max_prompt_tokens=128, rows_at_once=6
    )
    optimisation = replace(recipe.optimisation, lr=1e-2, micro_batch_rows=4, warmup_steps=0)
    return replace(
        recipe,
        sampling=sampling,
        optimisation=optimisation,
        asynchrony=Asynchrony(**asynchrony),
        kl=replace(recipe.kl, coefficient=0.0),
        report_kl=False,
        steps=4,
        checkpoint_every=1,
    )


def trainer(recipe: Recipe, folder: Path, rewards: Sequence[RewardSource] = ()) -> PolicyLoop:
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128, lora=recipe.lora)
    sources = list(rewards) or [LetterShare(), VerifierReward()]
    return PolicyLoop(recipe, policy, ShuffledPrompts(ITEMS, seed=0), sources, folder)


def weights(made: PolicyLoop) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in made.parameters.items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_chunks_change_no_number(tmp_path: Path) -> None:
    """Rewards asked for in portions beside generation; a source that wants whole batches is not asked so."""
    plain, whole = LetterShare(), LetterShare(whole_batch=True)
    whole.name = "whole"
    once = trainer(recipe_with(), tmp_path / "once", [LetterShare(), VerifierReward()])
    rows = once.train(2)
    portions = trainer(recipe_with(chunks=2), tmp_path / "portions", [plain, VerifierReward()])
    found = portions.train(2)
    assert plain.asked == [6, 6, 6, 6]
    assert_equal(weights(once), weights(portions))
    for row, other in zip(rows, found, strict=True):
        assert {k: v for k, v in row.items() if "second" not in k} == {
            k: v for k, v in other.items() if "second" not in k
        }
    trainer(recipe_with(chunks=2), tmp_path / "whole", [whole]).train(1)
    assert whole.asked == [12]


@pytest.mark.parametrize("lag", [1, 2])
def test_a_lag_is_what_it_says(tmp_path: Path, lag: int) -> None:
    """Step s trains on rows of the weights that step s - lag started from, and old is not mu."""
    made = trainer(recipe_with(lag=lag), tmp_path / "run")
    rows = made.train()
    assert [row["staleness_max"] for row in rows] == [min(step, lag) for step in range(4)]
    assert [row["staleness_mean"] for row in rows] == [min(step, lag) for step in range(4)]
    assert rows[0]["sampler_gap_max"] < 1e-5
    assert all(row["sampler_gap_max"] > 1e-4 for row in rows[1:])
    assert all("seconds_wait" in row and "seconds_beside_sample" in row for row in rows)


def test_the_rows_of_a_lag_are_those_of_the_old_weights(tmp_path: Path) -> None:
    """The second step of a run with lag 1 sees the rows that the untrained policy draws for it."""
    made = trainer(recipe_with(lag=1), tmp_path / "run")
    made.train(1)
    assert made.collector.pool is not None
    draw, drawn, _ = made.collector.pool.take(2)
    fresh = trainer(recipe_with(), tmp_path / "fresh")
    again = fresh.collector.generator(draw, fresh.policy, version=0, clock=Stopwatch())
    assert torch.equal(drawn.batch.tokens, again.batch.tokens)
    torch.testing.assert_close(drawn.batch.logp_mu, again.batch.logp_mu)  # the copy lies elsewhere in memory
    assert drawn.batch.version.tolist() == [0] * 12


@pytest.mark.slow
@pytest.mark.parametrize(("lag", "rank"), [(1, 0), (2, 0), (1, 4)])
def test_a_restart_resumes_bit_for_bit(tmp_path: Path, lag: int, rank: int) -> None:
    recipe = replace(recipe_with(lag=lag, chunks=2), lora=Lora(rank=rank))
    whole = trainer(recipe, tmp_path / "whole")
    whole.train()
    first = trainer(recipe, tmp_path / "parts")
    first.train(2)
    again = trainer(recipe, tmp_path / "parts")
    assert again.resume() == 2
    rows = again.train()
    assert [row["staleness_max"] for row in rows] == [lag, lag]
    assert_equal(weights(whole), weights(again))
    assert (tmp_path / "whole" / "rollouts.jsonl").read_text() == (tmp_path / "parts" / "rollouts.jsonl").read_text()


def test_a_restored_version_is_loaded_though_another_of_its_number_was(tmp_path: Path) -> None:
    """Two runs have the same number of updates and different weights; one goes on from the other's checkpoint."""
    recipe = recipe_with(lag=1)
    trainer(recipe, tmp_path / "one").train(2)
    expected = trainer(recipe, tmp_path / "one")
    other = trainer(replace(recipe, optimisation=replace(recipe.optimisation, lr=0.5)), tmp_path / "other")
    other.train(2)
    shutil.rmtree(tmp_path / "other")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    drawn = []
    for made in (expected, other):
        assert made.resume() == 2
        assert made.collector.pool is not None
        made.collector.pool.publish(3, made.updates)
        drawn.append(made.collector.pool.take(3)[1].batch)
    assert drawn[0].version.tolist() == drawn[1].version.tolist() == [1] * 12
    assert torch.equal(drawn[0].tokens, drawn[1].tokens)
    torch.testing.assert_close(drawn[0].logp_mu, drawn[1].logp_mu)


@pytest.mark.slow
def test_refills_under_a_lag_are_deterministic(tmp_path: Path) -> None:
    """Filters that want more draw by the copy's weights, after all that is under way."""
    recipe = replace(recipe_with(lag=2), filters=(FirstHalf(),))
    runs = [trainer(recipe, tmp_path / name) for name in ("one", "two")]
    rows = [run.train(3) for run in runs]
    assert [row["rounds"] for row in rows[0]] == [2, 2, 2]
    assert_equal(weights(runs[0]), weights(runs[1]))
    assert [row["staleness_max"] for row in rows[0]] == [0, 1, 2]


def test_the_copy_shares_what_is_not_trained() -> None:
    policy = Policy("tiny", device=CPU, max_prompt_tokens=64, lora=Lora(rank=2))
    twin = frozen_copy(policy)
    own, copied = dict(policy.model.named_parameters()), dict(twin.model.named_parameters())
    trained = policy.trainable()
    assert {name for name in own if own[name] is not copied[name]} == set(trained)
    assert not any(p.requires_grad for p in copied.values())


def test_an_item_survives_a_checkpoint() -> None:
    item = replace(ITEMS[1], generate_from=(Message("system", "s"), Message("user", "u")), forced="So", source="hinted")
    assert item_from_dict(item.to_dict()) == item


@pytest.mark.parametrize("section", [{"lag": -1}, {"chunks": 0}])
def test_settings_are_checked(section: dict[str, int]) -> None:
    base: dict[str, Any] = {"name": "x", "estimator": {"kind": "grpo"}, "objective": {"kind": "ppo_clip"}}
    with pytest.raises(BadInputError, match=f"asynchrony.{next(iter(section))}"):
        recipe_from_dict({**base, "asynchrony": section})
