"""Rollouts in windows: joined they are one rollout, rewards come once and in time, a restart changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.config import Optimisation
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.critics.value_model import ValueCritic, ValueModel
from assay_policy_training.plugins.estimators.gae import Gae
from assay_policy_training.plugins.estimators.group_relative import Grpo
from assay_policy_training.plugins.filters.groups import EnoughValid
from assay_policy_training.plugins.modulators.whitening import Whitening
from assay_policy_training.plugins.objectives.ratio_clip import PpoClip
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Rewards, StepReport
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.samplers.windowed import Windowed, WindowedSampler
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
TEXTS = ("hi", "a rather longer prompt than the others", "and you?", "name a colour", "or two")
ITEMS = [PromptItem((Message("user", text),)) for text in TEXTS]
LONGEST = 13


@pytest.fixture(scope="module")
def policy() -> Policy:
    """One that ends its turn now and then: the tiny model alone nearly never does."""
    made = Policy("tiny", device=CPU, max_prompt_tokens=128)
    with torch.no_grad():
        head = made.model.get_output_embeddings()
        row = head.weight.clone()
        row[sorted(made.end_ids)] = row[:200].mean(0) * 8
        made.model.set_output_embeddings(torch.nn.Linear(row.shape[1], row.shape[0], bias=False))
        made.model.get_output_embeddings().weight.copy_(row)
    return made


def windows(
    policy: Policy, items: Sequence[PromptItem], group_size: int, *, window: int, temperature: float
) -> tuple[list[RolloutBatch], WindowedSampler]:
    """Every batch until all rows are done."""
    sampling = Sampling(max_new_tokens=LONGEST, temperature=temperature, rows_at_once=3)
    sampler = Windowed(window=window).open(policy, sampling)
    seen: list[RolloutBatch] = []
    while not seen or sampler.carried():
        step = len(seen)
        batch = sampler.rollout([] if seen else items, group_size, seed=step, version=step)
        if not seen:
            batch = batch.with_(uid=tuple(map(str, range(len(batch)))))
        sampler.observe(StepReport(step + 1, {}, batch))
        seen.append(batch)
    return seen, sampler


def done_rows(batches: Sequence[RolloutBatch]) -> dict[str, tuple[RolloutBatch, int]]:
    """uid -> the batch in which it was done, and its row there."""
    found: dict[str, tuple[RolloutBatch, int]] = {}
    for batch in batches:
        assert batch.unfinished is not None
        for row in (~batch.unfinished).nonzero().squeeze(1).tolist():
            assert batch.uid[row] not in found
            found[batch.uid[row]] = (batch, row)
    return found


@pytest.mark.parametrize("window", [1, 4, 5, LONGEST, 40])
def test_windows_joined_are_one_rollout(policy: Policy, window: int) -> None:
    """A row's random numbers are its own, wherever it is interrupted."""
    sampling = Sampling(max_new_tokens=LONGEST)
    whole = TransformersSampler(policy, sampling).rollout(ITEMS, 2, seed=0, version=0)
    batches, _ = windows(policy, ITEMS, 2, window=window, temperature=1.0)
    assert len(batches) == -(-int(whole.lengths.max()) // window)
    found = done_rows(batches)
    assert len(found) == len(whole)
    for number in range(len(whole)):
        batch, row = found[str(number)]
        own, expected = batch.mask[row], whole.mask[number]
        assert torch.equal(batch.tokens[row][own], whole.tokens[number][expected])
        torch.testing.assert_close(batch.logp_mu[row][own], whole.logp_mu[number][expected], atol=1e-3, rtol=1e-3)
        assert batch.responses[row] == whole.responses[number]
        assert batch.prompts[row] == whole.prompts[number]
        assert bool(batch.finished[row]) == bool(whole.finished[number])
        assert bool(batch.truncated[row]) == bool(whole.truncated[number])
        context = batch.train_input_ids[row][batch.train_mask[row]]
        assert torch.equal(context, whole.train_input_ids[number][whole.train_mask[number]])


def test_rows_of_both_endings_are_in_these_tests(policy: Policy) -> None:
    batches, _ = windows(policy, ITEMS, 4, window=4, temperature=1.0)
    rows = done_rows(batches).values()
    assert any(bool(batch.finished[row]) for batch, row in rows)
    assert any(bool(batch.truncated[row]) for batch, row in rows)


def test_every_token_is_trained_once_and_knows_its_weights(policy: Policy) -> None:
    batches, _ = windows(policy, ITEMS, 2, window=4, temperature=1.0)
    fresh: Counter[tuple[str, int]] = Counter()
    for version, batch in enumerate(batches):
        for row in range(len(batch)):
            for place in batch.loss_mask[row].nonzero().squeeze(1).tolist():
                fresh[batch.uid[row], place] += 1
                assert int(batch.token_version[row, place]) == version
    for uid, (batch, row) in done_rows(batches).items():
        length = int(batch.lengths[row])
        assert [fresh[uid, place] for place in range(length)] == [1] * length
        assert batch.token_version[row, :length].tolist() == [place // 4 for place in range(length)]


def test_log_probs_are_the_trainers(policy: Policy) -> None:
    """The weights stay as they are here, so those of every window are today's."""
    batches, _ = windows(policy, ITEMS, 2, window=3, temperature=0.8)
    with torch.no_grad():
        for batch in batches:
            logp = policy.scores(batch, temperature=0.8).logp
            torch.testing.assert_close(logp, batch.logp_mu, atol=1e-4, rtol=1e-4)


def test_text_that_the_turn_starts_with(policy: Policy) -> None:
    items = [replace(ITEMS[0], forced="Sure: "), ITEMS[1]]
    batches, _ = windows(policy, items, 1, window=5, temperature=1.0)
    for batch in batches:
        assert batch.forced is not None
        assert not (batch.loss_mask & batch.forced).any()
        assert torch.equal(batch.loss_mask, batch.mask & (batch.token_version == int(batch.version[0])))
    for uid, (batch, row) in done_rows(batches).items():
        assert batch.responses[row].startswith("Sure: ") == (uid == "0")


def test_a_shorter_limit_ends_rows_that_are_longer(policy: Policy) -> None:
    sampler = Windowed(window=4).open(policy, Sampling(max_new_tokens=LONGEST))
    first = sampler.rollout(ITEMS, 2, seed=0, version=0)
    sampler.observe(StepReport(1, {}, first))
    assert sampler.carried() > 0
    sampler.sampling = replace(sampler.sampling, max_new_tokens=3)
    last = sampler.rollout([], 2, seed=1, version=1)
    assert last.unfinished is not None
    assert not last.unfinished.any()
    assert last.truncated.all()
    assert not last.loss_mask.any()
    assert last.lengths.tolist() == [4] * len(last)


class Recorder:
    """A reward from the text, and a memory of what it was asked. `broken`: no row gets one."""

    def __init__(self, *, broken: bool = False) -> None:
        self.asked: list[str] = []
        self.broken = broken

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        self.asked += responses
        part = [torch.nan if self.broken else sum(c.islower() for c in text) / max(1, len(text)) for text in responses]
        failures = [(ScoreFailure("backend", "out of order", "text"),) if self.broken else () for _ in items]
        return Rewards({"text": torch.tensor(part, dtype=torch.float64)}, failures, [{}] * len(items))


def t_ppo(**changes: Any) -> Recipe:
    settings: dict[str, Any] = {
        "name": "t_ppo",
        "sampler": Windowed(window=4),
        "estimator": Gae(critic_lam=1.0),
        "modulators": (Whitening(tokens="trained"),),
        "objective": PpoClip(),
        "critic": ValueModel(lr=1e-3, warmup_steps=1),
        "filters": (EnoughValid(minimum=1),),
        "sampling": Sampling(prompts_per_step=4, group_size=1, max_new_tokens=10, max_prompt_tokens=128),
        "optimisation": Optimisation(lr=1e-3, micro_batch_rows=3, minibatches=2),
        "steps": 6,
        "checkpoint_every": 1,
        "report_kl": False,
    }
    return Recipe(**(settings | changes))


def trainer(folder: Path, source: Recorder, recipe: Recipe | None = None) -> PolicyLoop:
    folder.mkdir(exist_ok=True)
    made = Policy("tiny", device=CPU, max_prompt_tokens=128)
    return PolicyLoop(recipe or t_ppo(), made, ShuffledPrompts(ITEMS, seed=0), [source], folder)


class Watch:
    """S16: keeps the batches of a run."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []

    def measure(self, report: StepReport) -> dict[str, float]:
        self.reports.append(report)
        return {}


def test_rewards_are_asked_for_once_when_rows_are_done(tmp_path: Path) -> None:
    source, watch = Recorder(), Watch()
    run = trainer(tmp_path / "run", source)
    run.extra.append(watch)
    rows = run.train()
    batches = [report.batch for report in watch.reports]
    found = done_rows(batches)
    assert sorted(source.asked) == sorted(batch.responses[row] for batch, row in found.values())
    assert all(len(batch) == 4 for batch in batches)  # the same number of rows is under way in every step
    records = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    assert sorted(record["uid"] for record in records) == sorted(found)
    assert all(record["reward"] is not None for record in records)
    for row, report in zip(rows, watch.reports, strict=True):
        batch, trained = report.batch, report.trained
        assert batch.unfinished is not None
        assert torch.equal(batch.valid, ~batch.unfinished)
        assert row["rewards_missing"] == 0
        assert row["rollouts_unfinished"] == int(batch.unfinished.sum())
        assert row.get("value_rows", 0) == int((~batch.unfinished).sum())
        assert trained is not None
        assert len(trained) == len(batch)
    assert rows[0]["rollouts_unfinished"] > 0
    gaps = [row["sampler_gap_max"] for row in rows if "sampler_gap_max" in row]
    assert gaps
    assert max(gaps) < 1e-3  # tokens that older weights drew are no mismatch
    assert sum(row["prompts_drawn"] for row in rows) == 4 + sum(
        int((~batch.unfinished).sum()) for batch in batches[:-1] if batch.unfinished is not None
    )


def test_rows_that_continue_learn_from_the_critic(tmp_path: Path) -> None:
    """After the critic has learnt something, tokens of windows before the last have advantages of their own."""
    watch = Watch()
    run = trainer(tmp_path / "run", Recorder())
    run.extra.append(watch)
    run.train()
    seen = 0
    for report in watch.reports:
        trained = report.trained
        assert trained is not None
        assert trained.adv is not None
        assert trained.unfinished is not None
        assert not trained.adv[~trained.loss_mask].any()
        if report.step > 4:
            going = trained.unfinished[:, None] & trained.loss_mask
            seen += len(set(trained.adv[going].tolist())) > 1
    assert seen > 0


@pytest.mark.slow
def test_rows_that_are_carried_survive_a_restart(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", Recorder())
    whole.train()
    for stop in (1, 4):
        folder = tmp_path / f"stopped-{stop}"
        first = trainer(folder, Recorder())
        first.train(stop)
        assert isinstance(first.sampler, WindowedSampler)
        assert first.sampler.carried() > 0
        again = trainer(folder, Recorder())
        assert again.resume() == stop
        again.train()
        assert isinstance(whole.critic, ValueCritic)
        assert isinstance(again.critic, ValueCritic)
        for mine, other in ((whole.parameters, again.parameters), (whole.critic.parameters, again.critic.parameters)):
            for name, value in mine.items():
                assert torch.equal(value, other[name]), f"{name} differs after a resume at {stop}"
        rollouts = [(tmp_path / name / "rollouts.jsonl").read_text() for name in ("whole", folder.name)]
        assert rollouts[0] == rollouts[1]


def test_a_reward_that_always_fails_is_an_error_when_the_first_rows_are_done(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"step 3: none of \d rollouts got a reward \(text: out of order\)"):
        trainer(tmp_path / "run", Recorder(broken=True)).train()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"critic": None}, "critic"),
        ({"estimator": Grpo(), "sampling": Sampling(group_size=4)}, "critic"),
    ],
)
def test_windows_need_a_critic(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        t_ppo(**changes)


def test_a_window_is_at_least_one_token() -> None:
    with pytest.raises(BadInputError, match="window"):
        Windowed(window=0)
