"""How processes share a step of policy training: prompts of a draw, rows of a minibatch, means over tokens."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch
from async_training import trainer
from hypothesis import example, given
from hypothesis import strategies as st
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.models.parallelism.distributed import parse_parallel
from assay.models.parallelism.strategy import SingleProcess, resolve
from assay_policy_training.core.config import Optimisation
from assay_policy_training.core.metrics import Stopwatch, TokenMeans
from assay_policy_training.core.micro_batches import PassLimits, micro_batches, process_micro_batches
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.collector import process_share
from assay_policy_training.rollouts.generate import RolloutRequest

SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=2", "sampling.max_new_tokens=4"]
SMALL += ["kl.coefficient=0", "optimisation.epochs=2"]


class Seat(SingleProcess):
    """One of several processes, as far as dealing out goes."""

    def __init__(self, rank: int, world: int, *, equal: bool) -> None:
        self.rank, self.world = rank, world
        self.equal_passes = equal


def test_a_row_that_no_process_scored_is_an_error(tmp_path: Path) -> None:
    with closing(trainer(load_recipe("grpo", SMALL), tmp_path)) as loop:
        batch = loop.collector.collect(1, version=0, clock=Stopwatch()).batch
        scored = loop._score(batch, loop.recipe.sampling)
        assert scored.logp_old is not None
        loop.policy.parallel = Seat(0, 2, equal=False)  # and the other's rows do not arrive
        with pytest.raises(BackendError, match=rf"no process scored \d+ of {len(batch)} rows"):
            loop._score(batch, loop.recipe.sampling)


@given(prompts=st.integers(0, 9), world=st.integers(1, 5))
def test_every_prompt_of_a_draw_is_one_process_s(prompts: int, world: int) -> None:
    items = tuple(PromptItem((Message("user", str(number)),)) for number in range(prompts))
    whole = RolloutRequest(4, items, tuple(f"4.{n}" for n in range(prompts)), tuple(range(prompts)), Sampling())
    shares = [process_share(whole, rank, world) for rank in range(world)]
    assert tuple(item for share in shares for item in share.items) == items
    assert tuple(uid for share in shares for uid in share.uids) == whole.uids
    sizes = [len(share.items) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert tuple(seed for share in shares for seed in share.seeds) == whole.seeds


@example(lengths=[1, 1, 1, 1], size=5, world=3, shared=False, equal=True)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=13),
    size=st.integers(1, 5),
    world=st.integers(1, 4),
    shared=st.booleans(),
    equal=st.booleans(),
)
def test_every_row_counts_once_in_equally_many_passes(
    lengths: list[int], size: int, world: int, shared: bool, equal: bool
) -> None:
    batch = rollouts(lengths)
    rows = torch.arange(len(lengths))
    hands = [
        process_micro_batches(
            batch, rows, limits=PassLimits(rows=size), shared=shared, parallel=Seat(rank, world, equal=equal)
        )
        for rank in range(world)
    ]
    counted = [row for hand in hands for piece in hand if piece.counts for row in piece.rows.tolist()]
    assert sorted(counted) == rows.tolist()
    assert all(len(piece.rows) <= size for hand in hands for piece in hand)
    if equal:
        assert len({len(hand) for hand in hands}) == 1
    else:
        assert all(piece.counts for hand in hands for piece in hand)
    if len(lengths) >= world:
        assert all(any(piece.counts for piece in hand) for hand in hands)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=13),
    tokens=st.integers(0, 40),
    size=st.integers(0, 5),
    shared=st.booleans(),
)
def test_passes_keep_to_both_limits_and_a_longer_row_goes_alone(
    lengths: list[int], tokens: int, size: int, shared: bool
) -> None:
    batch = rollouts(lengths)
    parts = list(micro_batches(batch, torch.arange(len(lengths)), limits=PassLimits(tokens, size), shared=shared))
    assert sorted(row for part in parts for row in part.tolist()) == list(range(len(lengths)))
    context = batch.train_mask.sum(1)
    for part in parts:
        groups = {int(batch.group[row]): int(context[row]) for row in part}
        own = [int(batch.lengths[row]) for row in part]
        positions = sum(groups.values()) + sum(own) if shared else len(part) * (int(context[part].max()) + max(own))
        assert len(part) <= (size or len(part))
        assert not tokens or positions <= tokens or len(part) == 1


def test_the_device_limits_passes_where_the_settings_do_not() -> None:
    here = torch.device("cpu")
    assert PassLimits.of(Optimisation(), here) == (1024, 0)
    assert PassLimits.of(Optimisation(), torch.device("cuda")) == (16384, 0)
    assert PassLimits.of(Optimisation(micro_batch_rows=4), here) == (0, 4)
    assert PassLimits.of(Optimisation(micro_batch_rows=4, micro_batch_tokens=9), here) == (9, 4)


def test_means_of_processes_are_those_of_all_tokens() -> None:
    values, mask = torch.arange(12.0).view(3, 4), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()
    whole, parts = TokenMeans(), [TokenMeans(), TokenMeans()]
    for means, rows in ((whole, [0, 1, 2]), (parts[0], [1]), (parts[1], [0, 2])):
        means.add("x", values[rows], mask[rows])
        means.add_largest("gap", -values[rows], mask[rows])
    for means in (whole, *parts):
        means.add_number("of the minibatch", 3.5)
    parts[1].add("seen by one alone", values, mask)
    whole.add("seen by one alone", values, mask)
    assert TokenMeans.joined(parts).to_dict() == pytest.approx(whole.to_dict())
    assert whole.to_dict()["x"] == pytest.approx((0 + 1 + 2 + 4 + 8 + 9 + 10 + 11) / 8)


def test_a_division_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match="one of auto, none, ddp, fsdp, not 'zero3'"):
        parse_parallel("zero3")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(BadInputError, match="torchrun"):
        resolve(parse_parallel("fsdp"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInputError, match="choose ddp or fsdp"):
        resolve(parse_parallel("none"))
    assert resolve(parse_parallel("auto")) == "ddp"
