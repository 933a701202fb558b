"""Rollouts of vLLM are the policy's: their log-probs are the trainer's, before and after weights are published, and
an engine that kept old ones is caught.

Needs a vLLM environment: ASSAY_VLLM_PYTHON names its Python (docs/policy-training/samplers.md). What needs none is in
`test_vllm_requests.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from assay.domain import Message
from assay.errors import BackendError
from assay.models.tiny import make_tiny
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.sampling import Sampling, top_p_filter
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.samplers.vllm import server
from assay_policy_training.plugins.samplers.vllm.buckets import buckets
from assay_policy_training.plugins.samplers.vllm.launch import BATCHED_TOKENS
from assay_policy_training.plugins.samplers.vllm.policy_engine import TOLERANCES, VllmSampler
from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase

ENVIRONMENT = "ASSAY_VLLM_PYTHON"
PEFT = "ASSAY_VLLM_PEFT"  #: a folder with peft and accelerate, where vLLM's environment has none
ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "tests" / "support" / "vllm_sampler_child.py"
CPU = torch.device("cpu")
TOLERANCE = 1e-3
BLOCK = 128  #: tokens of a block of vLLM's cache on a CPU
SAMPLING = Sampling(max_new_tokens=16, max_prompt_tokens=96, temperature=0.8)
ITEMS = [
    PromptItem((Message("user", text),), (AllLowercase(),))
    for text in ("hi", "a rather longer prompt than the others", "and you?")
]

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def vllm_python() -> str:
    named = os.environ.get(ENVIRONMENT)
    if not named:
        pytest.skip(f"no vLLM environment: set {ENVIRONMENT} to its Python")
    return named


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied model with heads of 32 (vLLM's CPU attention wants no less)."""
    folder = tmp_path_factory.mktemp("vllm-policies") / "tied"
    folder.mkdir()
    make_tiny(folder, hidden=128)
    return folder


@pytest.fixture(scope="module")
def untied(tied: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a vocabulary head of its own."""
    folder = tmp_path_factory.mktemp("vllm-policies") / "untied"
    policy = Policy(str(tied), device=CPU, max_prompt_tokens=96)
    policy.model.config.tie_word_embeddings = False
    head = policy.model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(0)) * 0.1)
    policy.model._tied_weights_keys = None
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sampler(vllm_python: str, tied: Path) -> VllmSampler:
    """Of a server of ours, which ends with the process."""
    policy = Policy(str(tied), device=CPU, max_prompt_tokens=96)
    plan = VllmServerSampler(launch=True, python=vllm_python, arguments=("--max-num-seqs", "16"))
    return plan.open(policy, SAMPLING)


@pytest.fixture
def fresh(sampler: VllmSampler, tied: Path) -> VllmSampler:
    """The server with the weights that it started with, and nothing left of other tests."""
    sampler.policy = Policy(str(tied), device=CPU, max_prompt_tokens=96)
    sampler.sampling = SAMPLING
    sampler.publish(sampler.policy, 0)
    return sampler


def letters_of(batch: RolloutBatch, number: int) -> tuple[str, ...]:
    """Some letters that responses hold, as texts to stop at."""
    return tuple(sorted({letter for response in batch.responses for letter in response if letter.isalnum()})[:number])


def test_rows_end_at_the_token_that_completes_a_stop_text(fresh: VllmSampler) -> None:
    """The beginnings of the rows without stop texts, cut by the rule of every sampler, and finished."""
    free = fresh.rollout(ITEMS, 4, seed=5, version=0)
    texts = letters_of(free, 5)
    stops = StopStrings(fresh.policy.tokenizer, texts)
    fresh.sampling = replace(SAMPLING, stop=texts)
    batch = fresh.rollout(ITEMS, 4, seed=5, version=0)
    rows = [free.tokens[row][free.mask[row]].tolist() for row in range(len(free))]
    assert [batch.tokens[row][batch.mask[row]].tolist() for row in range(len(batch))] == [
        row[: stops.length(row)] for row in rows
    ]
    assert batch.mask.sum() < free.mask.sum()
    assert batch.finished.tolist() == [
        stops.reached(row[: stops.length(row)]) or bool(free.finished[number]) for number, row in enumerate(rows)
    ]
    assert gap(fresh.policy, batch, SAMPLING) < TOLERANCE


def gap(policy: Policy, batch: RolloutBatch, sampling: Sampling) -> float:
    with torch.no_grad():
        scores = policy.scores(batch, temperature=sampling.temperature, prune_log_ratio=sampling.prune_log_ratio)
    return float((scores.logp - batch.logp_mu)[batch.mask].abs().max())


@torch.no_grad()
def move(policy: Policy, seed: int) -> None:
    """Every weight, as an update would, but more."""
    generator = torch.Generator().manual_seed(seed)
    for weight in policy.trainable().values():
        weight.add_(torch.randn(weight.shape, generator=generator) * 0.05)


@pytest.mark.parametrize(("temperature", "prune"), [(1.0, None), (0.6, None), (1.3, -2.0)])
def test_log_probs_are_the_trainers(fresh: VllmSampler, temperature: float, prune: float | None) -> None:
    fresh.sampling = replace(SAMPLING, temperature=temperature, prune_log_ratio=prune)
    batch = fresh.rollout(ITEMS, 4, seed=1, version=3)
    assert gap(fresh.policy, batch, fresh.sampling) < TOLERANCE
    assert batch.uid == tuple(f"3.{number}" for number in range(3) for _ in range(4))
    assert batch.version.tolist() == [3] * 12
    assert len({tuple(row.tolist()) for row in batch.tokens[:4]}) > 1, "rows of a group are drawn apart"


def test_top_p_log_probs_are_of_the_distribution_sampled(fresh: VllmSampler) -> None:
    fresh.sampling = replace(SAMPLING, top_p=0.6)
    batch = fresh.rollout(ITEMS[:1], 3, seed=2, version=0)
    for row in range(len(batch)):
        context, own = batch.gen_input_ids[row][batch.gen_mask[row]], batch.tokens[row][batch.mask[row]]
        with torch.no_grad():
            logits = fresh.policy.model(input_ids=torch.cat([context, own])[None]).logits[0, len(context) - 1 : -1]
        expected = top_p_filter(logits / SAMPLING.temperature, 0.6).log_softmax(-1).gather(1, own[:, None]).squeeze(1)
        torch.testing.assert_close(batch.logp_mu[row][batch.mask[row]], expected, atol=TOLERANCE, rtol=0)


def test_seeds_groups_and_parts(fresh: VllmSampler) -> None:
    """One seed gives one draw; a group handed over early is that of the whole."""
    batch = fresh.rollout(ITEMS, 3, seed=5, version=0)
    again, other = (fresh.rollout(ITEMS, 3, seed=seed, version=0) for seed in (5, 6))
    assert torch.equal(batch.tokens, again.tokens)
    assert not torch.equal(batch.tokens, other.tokens)
    parts = list(fresh.stream(ITEMS, 3, seed=5, version=0))
    assert [len(part) for part in parts] == [3, 3, 3]
    assert torch.equal(torch.cat([part.tokens for part in parts]), batch.tokens)


def test_more_prompts_than_are_read_at_once(fresh: VllmSampler) -> None:
    """vLLM 0.32 on a CPU ends where a seeded prompt is read in two parts."""
    long = [PromptItem((Message("user", f"{number} " + "word " * 12),)) for number in range(8)]
    batch = fresh.rollout(long, 16, seed=3, version=0)
    assert int(batch.gen_mask.sum()) > 2 * BATCHED_TOKENS
    assert gap(fresh.policy, batch, SAMPLING) < TOLERANCE


def test_ends_truncation_and_forced_text(fresh: VllmSampler) -> None:
    """A row that ended holds its end token; one that was cut holds all it may; forced tokens are given, not drawn."""
    fresh.sampling = replace(SAMPLING, max_new_tokens=64, temperature=1.5)
    forced = [replace(ITEMS[0], forced="So "), *ITEMS[1:]]
    batch = fresh.rollout(forced, 16, seed=7, version=0)
    last = batch.tokens.gather(1, batch.present.int().cumsum(1).argmax(1, keepdim=True)).squeeze(1)
    ended = torch.isin(last, torch.tensor(sorted(fresh.policy.end_ids)))
    assert torch.equal(ended, batch.finished)
    assert torch.equal(batch.truncated, ~batch.finished)
    assert 0 < int(batch.finished.sum()) < len(batch)
    assert batch.lengths[batch.truncated].tolist() == [64] * int(batch.truncated.sum())
    assert batch.forced is not None
    given = int(batch.forced[0].sum())
    assert given > 0
    assert batch.forced.any(1).tolist() == [True] * 16 + [False] * 32
    assert not (batch.forced & batch.mask).any()
    assert all(text.startswith("So ") for text in batch.responses[:16])
    assert gap(fresh.policy, batch, fresh.sampling) < TOLERANCE


def test_published_weights_are_checked(fresh: VllmSampler, tied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = fresh.policy
    move(policy, 1)
    assert gap(policy, fresh.rollout(ITEMS, 3, seed=1, version=0), SAMPLING) > 0.1, "the weights did change"
    fresh.publish(policy, 1)
    assert fresh.difference is not None
    assert fresh.difference < TOLERANCE
    assert gap(policy, fresh.rollout(ITEMS, 3, seed=1, version=1), SAMPLING) < TOLERANCE
    with pytest.raises(BackendError, match=r"does not have the policy's weights \(version 2\): log-prob"):
        fresh.check(Policy(str(tied), device=CPU, max_prompt_tokens=96), 2)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(1.3)
    monkeypatch.setattr(server, "buckets", partial(buckets, size=100_000))  # a layer comes in several
    fresh.publish(policy, 3)
    assert gap(policy, fresh.rollout(ITEMS, 3, seed=1, version=3), SAMPLING) < TOLERANCE


def test_adapters_are_merged(fresh: VllmSampler, tied: Path) -> None:
    policy = Policy(str(tied), device=CPU, max_prompt_tokens=96, lora=Lora(rank=4))
    move(policy, 2)
    fresh.publish(policy, 1)
    batch = fresh.rollout(ITEMS, 3, seed=1, version=1)
    assert gap(policy, batch, SAMPLING) < TOLERANCE
    assert gap(Policy(str(tied), device=CPU, max_prompt_tokens=96), batch, SAMPLING) > 0.01


@pytest.mark.parametrize("lag", [0, 1])
def test_a_run_publishes_what_it_trains(fresh: VllmSampler, tmp_path: Path, lag: int) -> None:
    """Without a lag the first ratio is 1 in every step; with one, mu is a step old, and the check still holds."""
    recipe = load_recipe("grpo")
    sampling = replace(SAMPLING, prompts_per_step=2, group_size=3)
    optimisation = replace(recipe.optimisation, lr=1e-2, warmup_steps=0)
    recipe = replace(
        recipe, sampling=sampling, optimisation=optimisation, steps=3, asynchrony=Asynchrony(lag, chunks=2)
    )
    recipe = replace(recipe, kl=replace(recipe.kl, coefficient=0.0), report_kl=False)
    prompts = ShuffledPrompts(ITEMS, seed=0)
    rows = PolicyLoop(recipe, fresh.policy, prompts, [VerifierReward()], tmp_path, sampler=fresh).train()
    assert [row["staleness_max"] for row in rows] == [min(step, lag) for step in range(3)]
    gaps = [row["sampler_gap_max"] for row in rows]
    assert gaps[0] < TOLERANCE
    assert all((g > TOLERANCE) == bool(lag) for g in gaps[1:]), gaps


class Counting(Environment):
    """Three turns; answers one more slowly than another, with what shows how long it was."""

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.turns = 0
        return Observation("Count what you say. " * 7)

    async def step(self, action: Action) -> Observation | Done:
        await asyncio.sleep(0.05 * (len(action.text) % 3))
        self.turns += 1
        return Done({"win": 1.0}) if self.turns == 3 else Observation(f"  {len(action.text)} <|im_end|> ")


def cached_tokens(sampler: VllmSampler) -> float:
    """Tokens that the server has found in its prefix cache so far."""
    metrics = httpx.get(f"{sampler.engine.where}/metrics", timeout=10.0, trust_env=False).text
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:prefix_cache_hits_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_episodes_are_token_exact_and_their_turns_are_found_in_the_prefix_cache(fresh: VllmSampler, tied: Path) -> None:
    policy = fresh.policy = Policy(str(tied), device=CPU, max_prompt_tokens=256)
    sampling = Sampling(max_new_tokens=130, max_prompt_tokens=256, temperature=0.8)
    limits, before = EpisodeLimits(turn_tokens=8, step_seconds=20), cached_tokens(fresh)
    batch = in_environment(policy, fresh, sampling, Counting(), limits).rollout(ITEMS, 2, seed=4, version=0)
    assert batch.segment is not None
    assert batch.forced is not None
    for row, item in enumerate(batch.items):
        turns = item.meta[EPISODE]["turns"]
        assert len(turns) == 3
        for number, turn in enumerate(turns):
            drawn = batch.tokens[row][(batch.segment[row] == number) & batch.mask[row]].tolist()
            assert policy.tokenizer.decode(drawn, skip_special_tokens=True) == turn["text"]
            read = policy.tokenizer.decode(batch.tokens[row][(batch.segment[row] == number) & batch.forced[row]])
            assert (f"user\n  {len(turns[number - 1]['text'])} " in read) == (number > 0)
    assert not bool((batch.loss_mask & batch.forced).any())
    assert torch.equal(batch.mask | batch.forced, batch.present)
    assert gap(policy, batch, sampling) < TOLERANCE  # in one pass of the trainer over the rows as they stand
    assert int(batch.gen_mask.sum(1).min()) > BLOCK
    assert cached_tokens(fresh) - before >= 2 * len(batch) * BLOCK  # a second and a third turn of each row
    # Nearly without chance both engines draw the same, turn by turn.
    sure = replace(sampling, temperature=1e-4)
    both = [
        in_environment(policy, plain, sure, Counting(), limits).rollout(ITEMS, 1, seed=4, version=0)
        for plain in (fresh, TransformersSampler(policy, sure))
    ]
    assert both[0].responses == both[1].responses
    for name in ("tokens", "mask", "forced", "segment"):
        assert torch.equal(getattr(both[0], name), getattr(both[1], name)), name


def child(python: str, what: str, policy: Path, folder: Path, *command: str) -> dict[str, Any]:
    """What `vllm_sampler_child.py` finds inside vLLM's environment; `command`: that starts its Python."""
    reply = folder / "reply.json"
    folders = ("platform", "serving", "policy_training")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*(str(ROOT / each) for each in folders), os.environ.get(PEFT, "")]),
        "VLLM_CPU_OMP_THREADS_BIND": "0",
    }
    made = subprocess.run(
        [python, *command, str(CHILD), str(policy), str(reply), what],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if "No module named 'peft'" in made.stderr:
        pytest.skip(f"peft is not in vLLM's environment, and ${PEFT} names no folder with it")
    assert made.returncode == 0, made.stderr[-3000:]
    found: dict[str, Any] = json.loads(reply.read_text())
    return found


@pytest.mark.parametrize(
    ("which", "what"), [("tied", "weights"), ("untied", "weights"), ("tied", "adapter"), ("tied", "bfloat16")]
)
def test_in_process(vllm_python: str, which: str, what: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Weights, or an adapter, come from memory; what vLLM does with them leaves the trainer's as they are."""
    found = child(vllm_python, what, request.getfixturevalue(which), tmp_path)
    tolerance = found["tolerance"]
    assert tolerance == TOLERANCES["bfloat16" if what == "bfloat16" else "float32"]
    assert found["before"] < tolerance
    assert found["stopped"]
    assert min(found["stale_1"], found["stale_2"]) > tolerance
    assert max(found[name] for name in ("checked_1", "after_1", "checked_2", "after_2", "again")) < tolerance
    assert found["changed"] == []
    if what == "weights":  # without the head packed again
        assert ("does not have the policy's weights" in found["plain"]) == (which == "tied")


def test_a_launched_servers_base_stays_and_its_adapter_is_replaced(vllm_python: str, tied: Path) -> None:
    policy = Policy(str(tied), device=CPU, max_prompt_tokens=96, lora=Lora(rank=4))
    sampler = VllmServerSampler(launch=True, python=vllm_python, arguments=("--max-num-seqs", "16")).open(
        policy, SAMPLING
    )
    assert sampler.adapters
    for version in (1, 2):
        move(policy, version)
        sampler.publish(policy, version)
        batch = sampler.rollout(ITEMS, 3, seed=1, version=version)
        assert gap(policy, batch, SAMPLING) < TOLERANCE
        assert gap(Policy(str(tied), device=CPU, max_prompt_tokens=96), batch, SAMPLING) > 0.01


@pytest.mark.slow
def test_an_engine_for_each_process(vllm_python: str, tied: Path, tmp_path: Path) -> None:
    """torchrun, two processes, one engine each: a step's prompts are shared out, and all rows are of the policy."""
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = child(vllm_python, "processes", tied, tmp_path, *run)
    assert found["rows"] == [[2, 2], [2, 2]]
    assert found["prompts"] == 4
    assert max(found["gaps"]) < TOLERANCE
