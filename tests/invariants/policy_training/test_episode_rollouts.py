"""Episodes as rows of tokens: what was drawn is what is trained on, whatever chat template, clock and company."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BackendError
from assay.models.chat.options import ChatOptions
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.critics.value_model import ValueModel
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.estimators.group_relative import grpo, over_tokens
from assay_policy_training.plugins.estimators.optimal_token_baseline import (
    optimal_token_advantage,
    returns_to_go,
    score_energy,
)
from assay_policy_training.plugins.modulators.steps import empg
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.mixed_attention import MixedAttention
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.samplers.vllm.completions import VllmCompletion
from assay_policy_training.plugins.samplers.vllm.turns import VllmTurns
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("Play.", "Play it again.", "Once more, please.")]
SAMPLING = Sampling(max_new_tokens=260, temperature=0.8)
#: Past turns lose what the policy thought, and their white space; its turn begins with a tag that is not kept.
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
#: Past turns of the assistant are gone but for their number.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last and "
    "messages | length > 4 %}[turn {{ loop.index }}]{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Rounds(Environment):
    """Ends by the length of what was said, so that episodes are uneven; told by the seed."""

    wait: float = 0.0

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.turns, self.seed = 0, seed % 1000
        return Observation(f"Seed {self.seed}.")

    async def step(self, action: Action) -> Observation | Done:
        await asyncio.sleep(self.wait * (len(action.text) % 3))
        self.turns += 1
        if self.turns == 4 or len(action.text) % 4 == 0:
            return Done({"win": self.turns / 4}, {"turn": 0.1 * (len(action.text) % 3)})
        return Observation(f"  {self.turns} {len(action.text)} <|im_end|> ", rewards={"turn": 0.1 * self.turns})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=256)


def episodes(policy: Policy, items: Any = ITEMS, *, size: int = 2, wait: float = 0.0, **limits: Any) -> RolloutBatch:
    plain = TransformersSampler(policy, SAMPLING)
    chosen = EpisodeLimits(**{"turn_tokens": 9, "overlap": False, **limits})
    sampler = in_environment(policy, plain, SAMPLING, Rounds(wait=wait), chosen)
    return sampler.rollout(items, size, seed=list(range(len(items))), version=0)


@pytest.mark.parametrize("template", [None, THINKING, FORGETFUL])
def test_rows_hold_what_was_drawn_and_what_was_read(template: str | None) -> None:
    policy = Policy("tiny", device=CPU, max_prompt_tokens=256, chat=ChatOptions(template=template))
    batch = episodes(policy)
    assert batch.segment is not None
    assert batch.forced is not None
    end = int(policy.tokenizer.eos_token_id)
    unlike = 0
    for row, item in enumerate(batch.items):
        record, conversation = item.meta[EPISODE], [*item.generation_context]
        for number, turn in enumerate(record["turns"]):
            drawn = batch.tokens[row][(batch.segment[row] == number) & batch.mask[row]].tolist()
            assert policy.tokenizer.decode(drawn, skip_special_tokens=True) == turn["text"]
            assert len(drawn) == turn["tokens"]
            read = batch.tokens[row][(batch.segment[row] == number + 1) & batch.forced[row]].tolist()
            shown = [Message("user", message["content"]) for message in turn["messages"]]
            conversation += [Message("assistant", turn["text"]), *shown]
            if shown:  # what the template adds to a conversation that ends with the policy's turn, and nothing else
                two = policy.renderer.render((Message("user", "q"), Message("assistant", "zqx"), *shown))
                added = policy.tokenizer(two.partition("zqx")[2], add_special_tokens=False)["input_ids"]
                assert read == added[drawn[-1] == end :]
                assert read.count(end) == (2 if drawn[-1] != end else 1)  # no observation opens or closes a turn
        whole = policy.renderer.encode(tuple(conversation[:-1]), conversation[-1].text).ids
        kept = batch.tokens[row][batch.present[row]].tolist()
        unlike += list(whole[-len(kept) :]) != kept
    assert unlike > 0  # tokenizing the conversation again gives other rows
    # The trainer's log-probs of the row as it stands are those that were sampled from.
    logp = policy.scores(batch, temperature=0.8).logp
    assert torch.allclose(logp[batch.mask], batch.logp_mu[batch.mask], atol=2e-5)


def test_observed_tokens_have_no_gradient(policy: Policy) -> None:
    batch = episodes(policy)
    assert batch.forced is not None
    row = int(batch.forced.sum(1).argmax())
    alone, kept = batch.select([row]), list[torch.Tensor]()

    def keep(_: Any, __: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    hook = policy.model.model.norm.register_forward_hook(keep)
    logp = policy.scores(alone, temperature=0.8).logp
    hook.remove()
    logp.masked_fill(~alone.loss_mask, 0.0).sum().backward()  # type: ignore[no-untyped-call]
    assert kept[0].grad is not None
    gradient, start = kept[0].grad[0].abs().sum(-1), int(alone.train_mask.sum())  # at p: of the token at p + 1
    observed, drawn = batch.forced[row].nonzero().squeeze(1), batch.mask[row].nonzero().squeeze(1)
    assert float(gradient[start + observed - 1].max()) == 0.0
    assert float(gradient[start + drawn - 1].min()) > 0.0


def test_rows_depend_neither_on_the_clock_nor_on_each_other(policy: Policy) -> None:
    alone = episodes(policy)
    for other in (episodes(policy, wait=0.01, overlap=True), episodes(policy, wait=0.01)):
        assert other.responses == alone.responses
        assert torch.equal(other.tokens, alone.tokens)
        assert torch.allclose(other.logp_mu, alone.logp_mu, atol=1e-5)
    one = episodes(policy, ITEMS[:1])
    assert one.responses == alone.responses[:2]
    assert alone.items[0].meta[EPISODE]["opening"] == alone.items[1].meta[EPISODE]["opening"]  # a group has one task
    assert alone.items[0].meta[EPISODE]["opening"] != alone.items[2].meta[EPISODE]["opening"]


def test_rows_read_on_in_the_pass_in_which_others_draw(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = [policy.renderer.encode(item.generation_context).ids for item in ITEMS]
    observed, passes, attend = [[5, 6, 7], [8] * 70, [9]], set[tuple[int, int]](), MixedAttention.__call__

    def counted(self: MixedAttention, *arguments: Any) -> torch.Tensor:
        passes.add((self.generating, len(self.last) - self.generating))
        return attend(self, *arguments)

    monkeypatch.setattr(MixedAttention, "__call__", counted)

    def drawn(rows: list[int], pause: int) -> Any:
        """Three turns of each, which resume `pause` steps later the later the row."""
        plain = TransformersSampler(policy, SAMPLING)
        generation = plain.turns([contexts[row] for row in rows], 1, [(7, row) for row in rows], 6)
        waiting, begun, step = list[tuple[int, int]](), [1] * len(rows), 0
        while generation.busy or waiting:
            step += 1
            waiting += [(row, step + pause * row) for row in (generation.step() if generation.busy else ())]
            for row, at in [entry for entry in waiting if entry[1] <= step]:
                waiting.remove((row, at))
                if begun[row] < 3:
                    begun[row] += 1
                    generation.resume(row, observed[rows[row]])
        return generation

    together = drawn([0, 1, 2], 2)
    assert {(1, 1), (2, 1)} <= passes
    for row in range(3):
        alone = drawn([row], 0)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        assert torch.equal(together.mask[row], alone.mask[0])
        assert torch.allclose(together.logp[row], alone.logp[0], atol=1e-5)


def test_keys_and_values_of_earlier_turns_are_kept(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    forward = policy.model.forward

    def counted(*arguments: Any, **options: Any) -> Any:
        read.append(options["input_ids"].numel())
        return forward(*arguments, **options)

    monkeypatch.setattr(policy.model, "forward", counted)
    batch = episodes(policy)
    assert batch.forced is not None
    # Every observed token is read once, with the last token of the turn before it.
    turns = sum(len(item.meta[EPISODE]["turns"]) for item in batch.items)
    passes = int(batch.forced.sum()) + int(batch.mask.sum()) + 3 * int(batch.gen_mask.sum(1).max())
    assert sum(read) <= passes + turns * 12  # padding between rows of one pass


class Seen:
    """Keeps the rows that were trained on."""

    rows: RolloutBatch

    def measure(self, report: StepReport) -> dict[str, float]:
        return {}

    def observe(self, report: StepReport) -> None:
        assert report.trained is not None
        self.rows = report.trained


def trained(policy: Policy, recipe: str, folder: Path, *overrides: str) -> tuple[RolloutBatch, dict[str, Any]]:
    """The rows of one step, and its metrics."""
    common = [
        f"environment={{kind: '{__name__}:Rounds'}}", "episodes.turn_tokens=9", "episodes.overlap=false",
        "sampling.max_new_tokens=260", "sampling.prompts_per_step=3", "sampling.group_size=4", "steps=1",
        "optimisation.lr=0.0", "optimisation.autocast=false",
    ]  # fmt: skip
    seen, prompts = Seen(), ShuffledPrompts(ITEMS, seed=0)
    folder.mkdir()
    chosen = load_recipe(recipe, [*common, *overrides])
    [row] = PolicyLoop(chosen, policy, prompts, [EnvironmentReward()], folder, extra=[seen]).train()
    return seen.rows, row


def by_turn(batch: RolloutBatch, row: int) -> list[list[float]]:
    """The different advantages of each turn's tokens."""
    assert batch.segment is not None
    adv, segment, mask = batch.estimated_adv[row], batch.segment[row], batch.mask[row]
    return [sorted(set(adv[(segment == turn) & mask].tolist())) for turn in range(int(segment.max()) + 1)]


def test_turn_level_methods_act_on_the_turns(policy: Policy, tmp_path: Path) -> None:
    batch, metrics = trained(policy, "empg", tmp_path / "empg")
    assert metrics["turns_mean"] > 1
    assert {"turn_reward_turn", "reward_win_mean", "reward_turn_mean", "episodes_cut"} <= metrics.keys()
    assert not bool(batch.estimated_adv[~batch.mask].any())
    grpo_adv = over_tokens(grpo(batch.outcome, batch.group), batch.mask)
    settings = {"k": 1.0, "k_next": 1.0, "zeta": 0.1}
    expected = empg(grpo_adv, batch.scored_entropy, batch.mask, batch.segment, **settings)
    assert torch.allclose(batch.estimated_adv, expected.float(), atol=1e-5)
    assert not torch.allclose(empg(grpo_adv, batch.scored_entropy, batch.mask, None, **settings), expected, atol=1e-2)
    uneven = [row for row in range(len(batch)) if len(by_turn(batch, row)) > 1]
    assert all(len(values) == 1 for row in uneven for values in by_turn(batch, row))  # one factor a turn
    assert any(len({values[0] for values in by_turn(batch, row)}) > 1 for row in uneven)

    shaped = ("shaping=[{kind: turn_rewards}]",)
    batch, _ = trained(policy, "optimal_token_baseline", tmp_path / "otb", *shaped)
    own = batch.mask.long().sum(1)
    drawn = [batch.select([row]).estimated_adv[0][batch.mask[row]] for row in range(len(batch))]
    assert all(len(values) == int(n) for values, n in zip(drawn, own, strict=True))
    assert not bool(batch.estimated_adv[~batch.mask].any())
    # Positions are counted among drawn tokens: without the observed ones the advantages are the same.
    energy = score_energy(batch.scored_logp_old.double(), batch.extras["sum_pi_sq"].double())
    width = int(own.max())
    columns = []
    for values in (returns_to_go(batch.token_reward, batch.mask), energy, batch.mask.double()):
        packed = torch.zeros(len(batch), width, dtype=torch.float64)
        for row in range(len(batch)):
            packed[row, : int(own[row])] = values[row][batch.mask[row]]
        columns.append(packed)
    alone = optimal_token_advantage(columns[0], columns[1], columns[2].bool(), batch.group)
    for row, values in enumerate(drawn):
        assert torch.allclose(values, alone[row, : len(values)].float(), atol=1e-5)


def test_rewards_of_turns_reach_the_advantages_of_their_turns(policy: Policy, tmp_path: Path) -> None:
    shaped = ("shaping=[{kind: turn_rewards}]",)
    batch, _ = trained(policy, "reinforce_pp", tmp_path / "returns", *shaped, "modulators=[]")
    records = [item.meta[EPISODE] for item in batch.items]
    for row, record in enumerate(records):
        earned = [turn["rewards"].get("turn", 0.0) for turn in record["turns"]]
        to_go = [sum(earned[turn:]) + record["rewards"].get("win", 0.0) for turn in range(len(earned))]
        if float(batch.valid[row]):
            assert [values[-1] for values in by_turn(batch, row)] == pytest.approx(to_go, abs=1e-5)
    batch, _ = trained(
        policy, "process_grpo", tmp_path / "process", "estimator.part=turn", "kl.coefficient=0", "reward.weights={}"
    )
    assert any(len({values[0] for values in by_turn(batch, row)}) > 1 for row in range(len(batch)))
    logged = [json.loads(line) for line in (tmp_path / "process" / "rollouts.jsonl").read_text().splitlines()]
    assert [turn["rewards"] for turn in logged[0]["episode"]["turns"]] == [
        turn["rewards"] for turn in records_by_response(batch, logged[0]["response"])["turns"]
    ]


class Unstable(Rounds):
    """Breaks down after a turn that was rewarded, in some episodes."""

    async def step(self, action: Action) -> Observation | Done:
        if self.turns and len(action.text) % 3 == 0:
            raise ValueError("broken")
        return await super().step(action)


def test_parts_of_a_failed_episode_are_missing_from_the_means(policy: Policy, tmp_path: Path) -> None:
    unstable = f"environment={{kind: '{__name__}:Unstable'}}"
    _, metrics = trained(policy, "grpo", tmp_path / "run", unstable, "kl.coefficient=0", "reward.weights={turn: 1}")
    rows = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    failed = [row for row in rows if row["episode"]["failure"]]
    assert any(turn["rewards"] for row in failed for turn in row["episode"]["turns"])
    assert all(value is None for row in failed for value in row["parts"].values())
    kept = [row["parts"]["turn"] for row in rows if row["parts"]["turn"] is not None]
    assert metrics["reward_turn_mean"] == pytest.approx(sum(kept) / len(kept))
    assert metrics["episodes_failed"] == len(failed) / len(rows) > 0


def records_by_response(batch: RolloutBatch, response: str) -> Any:
    return next(i.meta[EPISODE] for i, text in zip(batch.items, batch.responses, strict=True) if text == response)


class Broken(Environment):
    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        return Observation("Begin.")

    def step(self, action: Action) -> Done:
        raise ValueError("no game")


class Talkative(Rounds):
    """Answers a turn with a megabyte, which its limit on bytes allows and the row's tokens do not."""

    async def step(self, action: Action) -> Observation | Done:
        return Observation("word " * 200_000)


def test_of_a_long_observation_no_more_is_tokenized_than_fits(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    longest: list[int] = []
    tokenizer = type(policy.renderer.tokenizer)
    encode = tokenizer.__call__

    def counted(self: Any, text: Any, *arguments: Any, **options: Any) -> Any:
        longest.append(len(text) if isinstance(text, str) else 0)
        return encode(self, text, *arguments, **options)

    monkeypatch.setattr(tokenizer, "__call__", counted)
    sampler = in_environment(
        policy, TransformersSampler(policy, SAMPLING), SAMPLING, Talkative(), EpisodeLimits(turn_tokens=9)
    )
    batch = sampler.rollout(ITEMS[:1], 2, seed=[0], version=0)
    assert [item.meta[EPISODE]["ended"] for item in batch.items] == ["tokens", "tokens"]
    width = max(map(len, policy.tokenizer.get_vocab()))
    assert 0 < max(longest) <= (SAMPLING.max_new_tokens + 1) * width < 1_000_000


def test_a_run_whose_episodes_all_fail_ends_with_their_reason(policy: Policy, tmp_path: Path) -> None:
    overrides = [f"environment={{kind: '{__name__}:Broken'}}", "episodes.turn_tokens=2", "sampling.max_new_tokens=20"]
    sizes = ["sampling.prompts_per_step=1", "sampling.group_size=2", "optimisation.autocast=false", "kl.coefficient=0"]
    recipe = load_recipe("grpo", [*overrides, *sizes, "report_kl=false"])
    loop = PolicyLoop(recipe, policy, ShuffledPrompts(ITEMS, seed=0), [EnvironmentReward()], tmp_path)
    with pytest.raises(BackendError, match=r"none of 2 rollouts got a reward \(Broken: step: ValueError: no game\)"):
        loop.train(1)


def test_a_resumed_run_in_an_environment_is_as_an_uninterrupted_one(tmp_path: Path) -> None:
    def loop(folder: Path) -> PolicyLoop:
        folder.mkdir(exist_ok=True)
        overrides = [
            f"environment={{kind: '{__name__}:Rounds'}}", "episodes.overlap=false", "episodes.turn_tokens=7",
            "sampling.max_new_tokens=200", "sampling.prompts_per_step=2", "sampling.group_size=3", "steps=3",
            "optimisation.lr=1e-3", "optimisation.autocast=false", "kl.coefficient=0", "report_kl=false",
        ]  # fmt: skip
        recipe = load_recipe("grpo", overrides)
        fresh = Policy("tiny", device=CPU, max_prompt_tokens=256)
        return PolicyLoop(recipe, fresh, ShuffledPrompts(ITEMS, seed=0), [EnvironmentReward()], folder)

    whole, part = loop(tmp_path / "whole"), loop(tmp_path / "part")
    whole.train()
    part.train(2)
    part.save_checkpoint()
    resumed = loop(tmp_path / "part")
    assert resumed.resume() == 2
    resumed.train()
    for name, weights in whole.policy.model.state_dict().items():
        assert torch.equal(weights, resumed.policy.model.state_dict()[name]), name
    logs = [(tmp_path / name / "rollouts.jsonl").read_text().splitlines() for name in ("whole", "part")]
    rows = [[json.loads(line) for line in log] for log in logs]
    for row in (*rows[0], *rows[1]):
        for turn in row["episode"]["turns"]:
            del turn["seconds"]
    assert rows[0] == rows[1]


class ScriptedEngine:
    """Draws what the reference sampler drew: an engine in a protocol's place."""

    where, max_length = "a script", None

    def __init__(self, batch: RolloutBatch, at_once: int) -> None:
        self.at_once = at_once
        self.rows = {
            (*ids[seen].tolist(), *tokens[present].tolist()): (
                ids[seen].tolist(),
                tokens,
                mask,
                logp,
                int(present.sum()),
            )
            for ids, seen, tokens, present, mask, logp in zip(
                batch.gen_input_ids, batch.gen_mask, batch.tokens, batch.present, batch.mask, batch.logp_mu, strict=True
            )
        }

    def complete(self, rows: Any, n: int, fields: Any, seeds: Any) -> Any:
        for row in rows:
            whole = next(whole for whole in self.rows if whole[: len(row)] == tuple(row))
            context, _, mask, logp, length = self.rows[whole]
            at = len(row) - len(context)
            stop = at
            while stop < length and mask[stop]:
                stop += 1
            yield [VllmCompletion(whole[len(row) : len(context) + stop], tuple(logp[at:stop].tolist()))] * n

    def load(self, weights: Any) -> None:
        """It has no weights."""

    def confirm(self) -> None:
        """It has no weights."""

    def sleep(self) -> None:
        """It has no weights."""


@pytest.mark.parametrize("at_once", [1, 3])
def test_an_engine_of_requests_gives_the_same_rows(policy: Policy, at_once: int) -> None:
    reference = episodes(policy, size=1)

    class Engine(TransformersSampler):
        def turns(self, contexts: Any, group_size: int, places: Any, turn_tokens: int | None) -> Any:
            return VllmTurns(
                self.policy, ScriptedEngine(reference, at_once), self.sampling, contexts, places, turn_tokens
            )

    sampler = in_environment(policy, Engine(policy, SAMPLING), SAMPLING, Rounds(), EpisodeLimits(turn_tokens=9))
    batch = sampler.rollout(ITEMS, 1, seed=[0, 1, 2], version=0)
    assert batch.responses == reference.responses
    for name in ("tokens", "mask", "forced", "segment", "logp_mu", "finished"):
        assert torch.equal(getattr(batch, name), getattr(reference, name)), name


def test_requests_that_wait_are_given_up_with_their_run(policy: Policy) -> None:
    """A run that stops leaves the engine no more than what it was at."""
    asked: list[int] = []

    class Slow(ScriptedEngine):
        def complete(self, rows: Any, n: int, fields: Any, seeds: Any) -> Any:
            asked.append(1)
            time.sleep(0.1 if len(asked) == 1 else 0.4)
            return super().complete(rows, n, fields, seeds)

    class Engine(TransformersSampler):
        def turns(self, contexts: Any, group_size: int, places: Any, turn_tokens: int | None) -> Any:
            return VllmTurns(self.policy, Slow(reference, 2), self.sampling, contexts, places, turn_tokens)

    class Fails(Rounds):
        async def step(self, action: Action) -> Observation | Done:
            raise OSError("gone")

    reference = episodes(policy, size=1)
    limits = EpisodeLimits(turn_tokens=9, on_failure="stop")
    sampler = in_environment(policy, Engine(policy, SAMPLING), SAMPLING, Fails(), limits)
    with pytest.raises(BackendError, match="gone"):
        sampler.rollout(ITEMS * 4, 1, seed=[0, 1, 2] * 4, version=0)
    at_end = len(asked)
    time.sleep(1)
    assert len(asked) <= at_end + 2 < 12


def test_a_turn_has_one_end_where_the_template_ends_turns_by_another_token() -> None:
    """Gemma's `<end_of_turn>` is no end token of its tokenizer, but of the model's generation."""
    fresh = Policy("tiny", device=CPU, max_prompt_tokens=256)
    written = int(fresh.tokenizer.eos_token_id)
    fresh.model.generation_config.eos_token_id = [written]
    fresh.tokenizer.eos_token = fresh.tokenizer.pad_token
    batch = episodes(fresh, turn_tokens=None)
    assert batch.forced is not None
    by_itself = [
        (row, int(n)) for row in range(len(batch)) for n in batch.forced[row].nonzero()
        if batch.mask[row, n - 1] and batch.tokens[row, n - 1] == written
    ]  # fmt: skip
    assert by_itself
    assert all(batch.tokens[row, n] != written for row, n in by_itself)


def test_a_critic_reads_the_state_before_each_turn_with_what_was_observed(policy: Policy) -> None:
    """Its values at the policy's tokens are those of a row whose context is all that came before the turn."""
    batch = episodes(policy, ITEMS[:1])
    critic = ValueModel().open(policy)
    torch.nn.init.normal_(critic.score.weight)
    values, segment = critic.values(batch), batch.segment
    assert segment is not None
    assert not values[~batch.mask].any()
    for row in range(len(batch)):
        for turn in range(int(segment[row].max()) + 1):
            drawn = (batch.mask[row] & (segment[row] == turn)).nonzero().squeeze(1)
            context = torch.cat([batch.train_input_ids[row][batch.train_mask[row]], batch.tokens[row, : drawn[0]]])
            there = torch.ones(1, len(drawn), dtype=torch.bool)
            alone = batch.select([row]).with_(
                train_input_ids=context[None],
                train_mask=torch.ones(1, len(context), dtype=torch.bool),
                tokens=batch.tokens[row, drawn][None],
                mask=there,
                loss_mask=there,
                forced=None,
            )
            assert values[row, drawn].tolist() == pytest.approx(critic.values(alone)[0].tolist(), abs=1e-4)
