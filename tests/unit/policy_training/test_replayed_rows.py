"""Replay: rows of other objectives weighted, rows drawn by their advantage, rows of earlier steps mixed in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.aggregation import aggregate, count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.replay.objectives import Objectives
from assay_policy_training.plugins.replay.recent import REPLAYED, PriorityReplay, Recent
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import MaxWords

CPU = torch.device("cpu")


def tagged(names: str, reward: list[float], lengths: list[int] | None = None) -> RolloutBatch:
    """Rows of objectives named by single letters, with advantage 1."""
    lengths = lengths or [2] * len(names)
    batch = rollouts(
        lengths,
        items=tuple(PromptItem((Message("user", name),), meta={"source": name}) for name in names),
        reward=torch.tensor(reward, dtype=torch.float64),
    )
    return batch.with_(adv=batch.mask.float())


@pytest.mark.parametrize(("denominator", "mode"), [("rows", "seq-mean-token-mean"), ("tokens", "token-mean")])
def test_each_objective_has_its_own_denominator(denominator: str, mode: str) -> None:
    """(1/K) sum lambda_k L_k of token losses equal to the advantage, whatever the sizes of the objectives."""
    batch = tagged("aaab", [1.0] * 4, [2, 3, 4, 1])
    plugin = Objectives(denominator=denominator)  # type: ignore[arg-type]
    adv = plugin.mix(batch).adv
    assert adv is not None
    assert plugin.weights == {"a": 1, "b": 1}, "nothing known yet"
    assert float(aggregate(adv, batch.loss_mask, count(batch.loss_mask), mode)) == pytest.approx(1)
    only_b = adv * torch.tensor([0, 0, 0, 1.0])[:, None]
    assert float(aggregate(only_b, batch.loss_mask, count(batch.loss_mask), mode)) == pytest.approx(0.5)


def test_weights_follow_what_still_moves_and_a_restart_keeps_the_windows() -> None:
    plugin, early = Objectives(window=2, temperature=0.5), {}
    for step, level in enumerate([0.1, 0.1, 0.4, 0.6]):
        if step == 2:
            early = json.loads(json.dumps(plugin.state_dict()))
        plugin.mix(tagged("ab", [0.5, level]))
    # a: 1 + 0; b: .5/.1 + .1/.6
    gap = (5 + 1 / 6 - 1) / 0.5
    share = 1 / (1 + torch.tensor(-gap).exp().item())
    assert plugin.weights == {"a": pytest.approx(2 * (1 - share)), "b": pytest.approx(2 * share)}
    again = Objectives(window=2, temperature=0.5)
    again.load_state_dict(early)
    for level in (0.4, 0.6):
        again.mix(tagged("ab", [0.5, level]))
    assert again.state_dict() == plugin.state_dict()


def test_missing_rewards_are_no_zeros() -> None:
    plugin = Objectives()
    plugin.mix(tagged("aab", [1.0, float("nan"), float("nan")]))
    assert plugin.history == {"a": [1.0]}


def test_priority_draws_by_the_advantage_and_does_not_weight_by_it_again() -> None:
    adv = torch.tensor([3.0, 1.0, 0.0, -2.0])
    batch = rollouts([2, 1, 2, 2])
    batch = batch.with_(adv=adv[:, None] * batch.mask)
    plugin, total = PriorityReplay(), torch.zeros(4)
    for _ in range(500):
        made = plugin.mix(batch).adv
        assert made is not None
        rows = made[:, 0]
        assert float(rows.sum()) == pytest.approx(4 * 2.0), "four draws of the mean positive advantage, 2"
        total += rows / 2.0
    assert total[2:].tolist() == [0, 0]
    assert float(total[0] / total[1]) == pytest.approx(3, rel=0.15)
    first, second = PriorityReplay(), PriorityReplay()
    first.mix(batch)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert torch.equal(first.mix(batch).adv, second.mix(batch).adv)  # type: ignore[arg-type]
    none = batch.with_(adv=-torch.ones(4, 2))
    assert PriorityReplay().mix(none) is none


def step_of(version: int) -> RolloutBatch:
    mu = torch.full((4, 3), -1.0 - version)
    return rollouts(
        [3] * 4,
        uid=[f"{version}.{row // 2}" for row in range(4)],
        version=torch.full((4,), version),
        items=tuple(PromptItem((Message("user", "?"),), (MaxWords(3),), {"n": row}) for row in range(4)),
        source=("policy",) * 4,
        failures=((),) * 4,
        scores=({},) * 4,
        logp_mu=mu,
        logp_old=mu + 0.1,
        adv=torch.ones(4, 3),
    )


def test_rows_of_earlier_steps_join_until_they_are_too_old() -> None:
    plugin = Recent(share=0.5, max_staleness=2)
    assert len(plugin.mix(step_of(0))) == 4, "nothing to replay yet"
    mixed = plugin.mix(step_of(1))
    assert mixed.source == ("policy",) * 4 + (REPLAYED,) * 2
    assert mixed.version.tolist() == [1, 1, 1, 1, 0, 0]
    assert mixed.logp_old is not None
    assert set(mixed.logp_old[4:].flatten().tolist()) == {-1.0}, "what the row was sampled with"
    assert torch.allclose(mixed.logp_old[:4], torch.tensor(-1.9))
    assert len(plugin.mix(step_of(4))) == 4, "all of it is too old"
    assert plugin.memory is not None
    assert set(plugin.memory.version.tolist()) == {4}


def test_memory_holds_the_newest_rows() -> None:
    plugin = Recent(share=0.5, max_staleness=100, capacity=6)
    for version in range(3):
        plugin.mix(step_of(version))
    assert plugin.memory is not None
    assert plugin.memory.version.tolist() == [1, 1, 2, 2, 2, 2]


def test_memory_may_hold_what_gained_alone() -> None:
    plugin = Recent(share=1.0, positive=True)
    adv = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
    plugin.mix(step_of(0).with_(adv=adv))
    plugin.mix(step_of(1).with_(adv=torch.zeros(4, 3)))
    assert plugin.memory is not None
    assert plugin.memory.version.tolist() == [0, 0]
    assert torch.equal(plugin.memory.estimated_adv, adv[[0, 3]])
    assert plugin.mix(step_of(2)).source == ("policy",) * 4 + (REPLAYED,) * 2


@pytest.mark.slow
def test_replay_continues_after_a_restart(tmp_path: Path) -> None:
    """In a run: bit for bit, with rows of earlier steps in the batch of the step after the restart."""
    sizes = ["sampling.prompts_per_step=2", "sampling.group_size=3", "sampling.max_new_tokens=6", "checkpoint_every=1"]
    recipe = load_recipe("grpo", [*sizes, "optimisation.lr=0.001", "replay.kind=recent", "replay.share=1"])
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe
    prompts = [PromptItem((Message("user", f"Say {n}."),), (MaxWords(2),)) for n in range(4)]
    sizes_seen: list[int] = []

    class Watched:
        """S16: how many rows were trained on."""

        def measure(self, report: Any) -> dict[str, float]:
            sizes_seen.append(0 if report.trained is None else len(report.trained))
            return {}

    def trainer(folder: Path) -> PolicyLoop:
        folder.mkdir(exist_ok=True)
        policy = Policy("tiny", device=CPU, max_prompt_tokens=64, with_reference=True)
        source = recipe.source.open(prompts, seed=0, policy=policy)
        return PolicyLoop(recipe, policy, source, [VerifierReward()], folder, extra=[Watched()])

    whole = trainer(tmp_path / "whole")
    whole.train(3)
    assert sizes_seen == [6, 12, 12]
    trainer(tmp_path / "parts").train(2)
    again = trainer(tmp_path / "parts")
    assert again.resume() == 2
    again.train(3)
    for name, parameter in whole.parameters.items():
        assert torch.equal(parameter, again.parameters[name]), name


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Objectives(window=0), "replay.window"),
        (lambda: Objectives(denominator="groups"), "replay.denominator"),  # type: ignore[arg-type]
        (lambda: Recent(share=0), "replay.share"),
        (lambda: Recent(max_staleness=0), "replay.max_staleness"),
    ],
)
def test_wrong_settings_are_named(make: Any, field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        make()
    assert caught.value.field == field
