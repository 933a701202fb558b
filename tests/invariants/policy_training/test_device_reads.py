"""A policy on a device that is not the host: the numbers of the host's, and how often it is waited for.

Ceilings do not depend on the number of micro-batches, nor, but for one read in `UNREAD` tokens, on the tokens.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend_device import on_pretend_device, passages

from assay.domain import Message
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.metrics import Stopwatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.critics.value_model import ValueModel
from assay_policy_training.plugins.samplers.assembly import assemble
from assay_policy_training.plugins.samplers.decoding import UNREAD
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.loop import PolicyLoop

ITEMS = [PromptItem((Message("user", f"Hello {'there ' * n}"),)) for n in range(3)]
SAMPLING = Sampling(prompts_per_step=3, group_size=4, max_new_tokens=40, rows_at_once=8)


def policy_on(device: torch.device, *, reference: bool = False) -> Policy:
    return Policy("tiny", device=device, max_prompt_tokens=64, with_reference=reference)


def learned(device: torch.device, recipe_name: str, rows: int) -> tuple[dict[str, float], int, int]:
    """Metrics of a step on six rollouts, how often the device was read, and how often it was waited for to write."""
    recipe = load_recipe(recipe_name)
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, micro_batch_rows=rows))
    if isinstance(recipe.critic, ValueModel):
        recipe = replace(recipe, critic=replace(recipe.critic, micro_batch_rows=rows))
    torch.manual_seed(0)
    policy = policy_on(device, reference=recipe.needs_reference)
    prompts: Any = None  # none is drawn
    loop = PolicyLoop(recipe, policy, prompts, [], Path(os.devnull))
    mask = torch.arange(12) < torch.tensor([12, 3, 7, 9, 12, 5])[:, None]
    tokens = (torch.arange(72).view(6, 12) * 7 % 90 + 5) * mask
    batch = assemble(policy, ITEMS[:2], 3, (tokens, mask, -torch.ones(6, 12) * mask), version=0)
    reward = torch.tensor([1.0, 0, 0, 1, 1, 0], dtype=torch.float64)
    batch = batch.with_(reward=reward, acc=reward, r_parts={"reward": reward})
    seen = passages()
    _, metrics = loop.learn(batch, 1, recipe.sampling, Stopwatch())
    return metrics, seen.reads.total(), seen.waits.total()


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "reads"), [("grpo", 5), ("ppo", 20)], ids=["grpo", "ppo"])
def test_a_step_learns_the_same_on_a_device_and_waits_as_often_however_it_is_divided(recipe: str, reads: int) -> None:
    host, _, _ = learned(torch.device("cpu"), recipe, 3)
    metrics, few_reads, few_waits = on_pretend_device(learned, recipe, 3)
    _, many_reads, many_waits = on_pretend_device(learned, recipe, 1)
    assert metrics == pytest.approx(host, rel=1e-5, abs=1e-7)
    assert many_reads == few_reads <= reads
    assert (few_waits, many_waits) == (0, 0)


def drawn(device: torch.device, sampling: Sampling) -> tuple[RolloutBatch, int]:
    sampler = TransformersSampler(policy_on(device), sampling)
    sampler.rollout(ITEMS, sampling.group_size, seed=1, version=0)  # what is set up once
    seen = passages()
    batch = sampler.rollout(ITEMS, sampling.group_size, seed=1, version=0)
    return batch, seen.reads.total()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [(), ("e", "t")], ids=["ends", "texts"])
def test_rollouts_are_the_hosts_and_rows_are_asked_seldom(stop: tuple[str, ...]) -> None:
    """More prompts than there is room for, rows that end early; texts that are found tokens after they were drawn."""
    sampling = replace(SAMPLING, stop=stop)
    host, _ = drawn(torch.device("cpu"), sampling)
    device, reads = on_pretend_device(drawn, sampling)
    assert len(set(host.lengths.tolist())) > 1
    assert torch.equal(host.tokens, device.tokens)
    assert torch.equal(host.mask, device.mask)
    assert torch.allclose(host.logp_mu, device.logp_mu, atol=1e-5)
    _, more = on_pretend_device(drawn, replace(sampling, max_new_tokens=120))
    passes = 2  # three groups where there is room for two
    assert more - reads <= passes * ((120 - 40) / UNREAD + 1) * (2 if stop else 1)


def turns(device: torch.device) -> tuple[list[list[int]], torch.Tensor]:
    """Three turns of each row, with as many observed tokens as its number after each."""
    sampling = replace(SAMPLING, stop=("e",))
    policy = policy_on(device)
    contexts = [policy.renderer.encode(item.prompt).ids for item in ITEMS]
    decoding = TransformersSampler(policy, sampling).turns(contexts, 2, [(5, n) for n in range(6)], 9)
    spoken: list[list[int]] = [[] for _ in range(6)]
    ended = [0] * 6
    while decoding.busy:
        for row in decoding.step():
            spoken[row] += decoding.turn(row)
            ended[row] += 1
            if ended[row] < 3 and decoding.remaining(row) > row + 1:
                decoding.resume(row, [5] * (row + 1))
            else:
                decoding.forget(row)
    return spoken, decoding.tokens.cpu()


@pytest.mark.slow
def test_rows_go_on_after_a_turn_as_on_the_host() -> None:
    spoken, tokens = turns(torch.device("cpu"))
    on_device = on_pretend_device(turns)
    assert on_device[0] == spoken
    assert torch.equal(on_device[1], tokens)
