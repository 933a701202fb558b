"""Environments that do what they should not, wrong calls, and what is counted of them."""

import asyncio
import gc
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch

from assay.conversation.parts import ToolDefinitionPart
from assay.domain import Message
from assay.errors import BackendError, BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, FINAL_TURN, PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.environments.record import episode_measures
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_policy_training.plugins.samplers.episodes import EpisodeSampler, in_environment
from assay_policy_training.plugins.samplers.recorded import RecordedResponses
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.shaping.dense import TurnRewards
from assay_policy_training.recipe.loading import recipe_from_dict, recipe_to_dict
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.rollouts.rewards import verifier_accuracy
from assay_policy_training.trainer import PolicyTrainer
from assay_serving.verifiers import MathAnswer

ITEM = PromptItem((Message("user", "Play."),))
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "%s"}}\n</tool_call>'


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)


class Misbehaving(Environment):
    """Goes on for two turns, unless it does what `does` says at `at`."""

    does: str = ""
    at: Literal["reset", "step", "close"] = "step"
    closed: ClassVar[list[int]] = []

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.turns = 0
        answer: Observation = self._done_to("reset", Observation("Go."))
        return answer

    def step(self, action: Action) -> Observation | Done:
        self.turns += 1
        last = Done({"win": 1.0}, {"turn": 0.5})
        going_on = Observation("On.", rewards={"turn": 0.25})
        answer: Observation | Done = self._done_to("step", going_on if self.turns < 2 else last)
        return answer

    def close(self) -> None:
        self.closed.append(id(self))
        self._done_to("close", None)

    def _done_to(self, at: str, answer: Any) -> Any:
        if at != self.at:
            return answer
        match self.does:
            case "raise":
                raise RuntimeError("the game is broken")
            case "exit":
                raise SystemExit(3)
            case "hang":
                time.sleep(3)
            case "other type":
                return {"observation": "a dict"}
            case "no sequence":
                return Observation("On.", results=None)  # type: ignore[arg-type]
            case "assistant":
                return Observation([Message("assistant", "I speak for you.")])
            case "flood":
                return Observation("x" * 5000)
            case "half a character":
                return Observation("\ud800")
            case "no schema":
                return Observation(tools=(ToolDefinitionPart("find", "", "[1]" if self.turns else "{"),))
            case "too large":
                return Done({"win": 10**400})
            case "of numpy":
                return Done({"win": np.float32(0.5)})  # type: ignore[dict-item]
            case "no number":
                return Done({"win": "yes"})  # type: ignore[dict-item]
            case "infinite":
                return Done({"win": float("nan")})
            case "no reward":
                return Done({"win": ScoreFailure("backend", "the referee is away", "win")})
        return answer


class Declared(Misbehaving):
    parts: ClassVar[tuple[str, ...]] = ("win",)


class Blocking(Misbehaving):
    async def step(self, action: Action) -> Done:  # type: ignore[override]
        time.sleep(4 if self.does else 0)  # what it does wrong
        return Done({"win": 1.0})


def played(policy: Policy, environment: Environment, *, rows: int = 2, **limits: Any) -> RolloutBatch:
    sampling = Sampling(max_new_tokens=300)
    chosen = EpisodeLimits(**{"turn_tokens": 3, "step_seconds": 0.4, "observation_bytes": 1000, **limits})
    sampler = in_environment(policy, TransformersSampler(policy, sampling), sampling, environment, chosen)
    return sampler.rollout([ITEM], rows, seed=[5], version=0)


def failures_of(batch: RolloutBatch) -> list[str]:
    return [(item.meta[EPISODE]["failure"] or {}).get("code", "") for item in batch.items]


@pytest.mark.parametrize(
    ("does", "at", "code", "message"),
    [
        ("raise", "step", "environment_failed", "step: RuntimeError: the game is broken"),
        ("raise", "reset", "environment_failed", "reset: RuntimeError: the game is broken"),
        ("exit", "step", "environment_failed", "SystemExit: 3"),
        ("hang", "step", "environment_timeout", "step did not answer within 0.4 s"),
        ("other type", "step", "environment_failed", "step gave dict, not an observation"),
        ("other type", "reset", "environment_failed", "reset gave dict, not an observation"),
        ("no sequence", "step", "environment_failed", "step observed what is no sequence"),
        ("assistant", "step", "environment_failed", "step gave a Message among what is observed"),
        ("flood", "reset", "observation_too_long", "the observation has 5000 bytes, more than 1000"),
        ("half a character", "reset", "environment_failed", "reset observed what is no text"),
        ("half a character", "step", "environment_failed", "step observed what is no text"),
        ("no schema", "reset", "environment_failed", "reset gave a tool definition without a JSON schema"),
        ("no schema", "step", "environment_failed", "step gave a tool definition without a JSON schema"),
    ],
)
def test_an_environment_that_fails_fails_its_row_by_name(
    policy: Policy, does: str, at: Any, code: str, message: str
) -> None:
    Misbehaving.closed.clear()
    batch = played(policy, Misbehaving(does=does, at=at))
    failure = batch.items[0].meta[EPISODE]["failure"]
    assert failures_of(batch) == [code] * 2
    assert message in failure["message"]
    assert failure["model"] == "Misbehaving"
    assert not bool(batch.loss_mask.any())
    assert len(set(Misbehaving.closed)) == 2  # each of them, once
    assert len(Misbehaving.closed) == 2
    with pytest.raises(BackendError, match=f"environment Misbehaving: {code}: "):
        played(policy, Misbehaving(does=does, at=at), on_failure="stop")


def test_other_rows_and_a_failing_close_are_untouched(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    batch = played(policy, Misbehaving(does="raise", at="close"))
    assert failures_of(batch) == ["", ""]
    assert "not closed: close: RuntimeError" in caplog.text
    assert [turn["rewards"] for turn in batch.items[0].meta[EPISODE]["turns"]] == [{"turn": 0.25}, {"turn": 0.5}]
    assert batch.finished.tolist() == [True, True]


def test_a_coroutine_that_blocks_its_loop_holds_nothing_up(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_policy_training.plugins.environments.running.GRACE_S", 0.1)
    start = time.monotonic()
    batch = played(policy, Blocking(does="hang"), rows=1, step_seconds=0.2)
    assert failures_of(batch) == ["environment_timeout"]
    assert time.monotonic() - start < 4
    assert failures_of(played(policy, Blocking(), rows=1)) == [""]


def test_rewards_of_turns_and_episodes_with_their_failures(policy: Policy) -> None:
    batch = played(policy, Misbehaving())
    rewards = EnvironmentReward().score(batch.items, batch.responses)
    assert {name: part.tolist() for name, part in rewards.parts.items()} == {"win": [1.0, 1.0], "turn": [0.75, 0.75]}
    assert rewards.scores[0]["turn"].steps == (0.25, 0.5)
    rewarded = batch.with_(reward=sum(rewards.parts.values()), r_parts=rewards.parts, scores=tuple(rewards.scores))
    shaped = TurnRewards().shape(rewarded)
    assert shaped.scored_reward.tolist() == [1.0, 1.0]
    assert shaped.outcome.tolist() == rewarded.outcome.tolist() == [1.75, 1.75]
    assert shaped.dense is not None
    last = [int(((batch.segment == turn) & batch.mask)[0].nonzero()[-1]) for turn in (0, 1)]
    assert {int(n): float(shaped.dense[0, n]) for n in shaped.dense[0].nonzero()} == {last[0]: 0.25, last[1]: 0.5}
    for does, code in (
        ("no number", "not_finite"),
        ("infinite", "not_finite"),
        ("too large", "not_finite"),
        ("no reward", "backend"),
    ):
        odd = played(policy, Misbehaving(does=does))
        answered = EnvironmentReward().score(odd.items, odd.responses)
        assert bool(answered.parts["win"].isnan().all())
        assert [failure.code for failure in answered.failures[0]] == [code]
    of_numpy = played(policy, Misbehaving(does="of numpy"))
    assert EnvironmentReward().score(of_numpy.items, of_numpy.responses).parts["win"].tolist() == [0.5, 0.5]
    failed = played(policy, Misbehaving(does="raise", at="reset"))  # a step in which nothing was earned has a part
    assert bool(EnvironmentReward().score(failed.items, failed.responses).parts["environment"].isnan().all())
    with pytest.raises(BadInputError, match="gives no rewards"):
        EnvironmentReward().score(*(lambda b: (b.items, b.responses))(played(policy, Tools(), turns=1)))
    with pytest.raises(BadInputError, match="no environment gives rewards here"):
        EnvironmentReward().score([ITEM], ["x"])


def test_budgets_end_an_episode_and_it_says_what_it_earned(policy: Policy) -> None:
    class Endless(Environment):
        def reset(self, prompt: PromptItem, seed: int) -> Observation:
            return Observation()

        def step(self, action: Action) -> Observation:
            return Observation("On.")

        def cut(self) -> Done:
            return Done({"win": -1.0})

    by_turns = played(policy, Endless(), turns=3)
    assert [item.meta[EPISODE]["ended"] for item in by_turns.items] == ["turns", "turns"]
    assert EnvironmentReward().score(by_turns.items, by_turns.responses).parts["win"].tolist() == [-1.0, -1.0]
    assert by_turns.truncated.tolist() == [True, True]
    assert EnvironmentReward().score(by_turns.items, by_turns.responses).failures == [(), ()]
    silent = played(policy, Declared(), turns=1)  # says nothing of an episode that is cut
    answered = EnvironmentReward().score(silent.items, silent.responses)
    assert [failure.code for failure in answered.failures[0]] == ["episode_cut"]
    assert answered.parts["turn"].tolist() == [0.25, 0.25]
    by_tokens = played(policy, Endless(), turns=100)
    assert {item.meta[EPISODE]["ended"] for item in by_tokens.items} == {"tokens"}
    assert by_tokens.present.sum(1).max() <= 300
    slow = played(policy, Endless(), turns=100, episode_seconds=1e-3)
    assert failures_of(slow) == ["environment_timeout"] * 2


@pytest.mark.slow
def test_the_time_of_an_episode_begins_with_its_own_reset(policy: Policy) -> None:
    """Four that are reset one after the other take longer together than one may."""

    class SlowlyReset(Misbehaving):
        async def reset(self, prompt: PromptItem, seed: int) -> Observation:  # type: ignore[override]
            await asyncio.sleep(0.4)
            return super().reset(prompt, seed)

    start = time.monotonic()
    batch = played(policy, SlowlyReset(), rows=4, at_once=1, episode_seconds=1.5, step_seconds=5.0)
    assert time.monotonic() - start > 1.6
    assert failures_of(batch) == [""] * 4
    late = played(policy, SlowlyReset(), rows=1, episode_seconds=0.3, step_seconds=5.0)
    assert failures_of(late) == ["environment_timeout"]


def test_a_failed_episode_leaves_no_reward_of_its_turns(policy: Policy) -> None:
    class BreaksDown(Misbehaving):
        def step(self, action: Action) -> Observation | Done:
            if self.turns:
                raise RuntimeError("the game is broken")
            return super().step(action)

    failed, played_out = played(policy, BreaksDown()), played(policy, Misbehaving())
    assert failed.items[0].meta[EPISODE]["turns"][0]["rewards"] == {"turn": 0.25}
    assert "turn_reward_turn" not in episode_measures(failed.items)
    assert episode_measures([*failed.items, *played_out.items])["turn_reward_turn"] == 0.375


def test_tools_that_cannot_be_opened_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    options = {"environment": {"kind": "tools", "tools": ["search?file=missing.jsonl"]}}
    with pytest.raises(BadInputError, match=r"missing\.jsonl"):
        PolicyTrainer.from_recipe(
            "grpo", reward="verifier", prompts="constrained:4", policy="no/such-model", workspace=tmp_path,
            settings=options,
        )  # fmt: skip


def episode(invalid: str = "tell", **limits: Any) -> Episode:
    made = Episode(ITEM, Tools(), EpisodeLimits(invalid=invalid, **limits))  # type: ignore[arg-type]
    made.begin(Tools().reset(ITEM, 0))
    return made


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<tool_call>{broken</tool_call>", "no JSON"),
        ('<tool_call>{"name": "oven", "arguments": {}}</tool_call>', "there is no tool 'oven'"),
        ('<tool_call>{"name": "calculator", "arguments": {}}</tool_call>', "the arguments are expression; not none"),
        (CALL % r"\ud800", "the call is no JSON: "),  # neither can be stored, or read by a tokenizer
        (CALL.replace('"%s"', "NaN"), "the call is no JSON: "),
    ],
)
def test_a_wrong_call_is_told_or_fails_as_configured(body: str, fault: str) -> None:
    told = episode()
    assert told.act(body, 5) is None  # the environment need not see it
    assert fault in told.turns[0].results[0].content
    assert (told.turns[0].invalid, told.failure) == (1, None)
    failing = episode("fail")
    assert failing.act(body, 5) is None
    assert failing.failure is not None
    assert (failing.failure.code, failing.ended) == ("invalid_call", "failed")
    assert fault in failing.failure.message


def test_several_calls_a_turn_run_together_and_keep_their_order() -> None:
    environment = Tools()
    made = Episode(ITEM, environment, EpisodeLimits(calls=3))
    made.begin(environment.reset(ITEM, 0))
    calls = [CALL % "1+1", "<tool_call>{broken</tool_call>", CALL % "1/0", CALL % "2+2"]
    action = made.act("\n".join(calls), 40)
    assert action is not None
    assert [call.arguments["expression"] for call in action.calls] == ["1+1", "1/0"]
    made.observe(environment.step(action), action)
    contents = [result.content for result in made.turns[0].results]
    assert contents[0] == "2"
    assert ["error" in content for content in contents] == [False, True, True, True]
    assert "a turn may make 3 calls" in contents[3]
    measured = episode_measures([PromptItem(ITEM.prompt, meta=made.meta())])
    assert (measured["tool_calls"], measured["invalid_calls"], measured["tool_errors"]) == (4, 2, 0.75)
    done = made.act("So 2.", 3)
    assert done is not None
    made.observe(environment.step(done), done)
    assert made.ended == "done"
    assert made.meta()[FINAL_TURN] == "So 2."


def test_an_oversized_observation_is_told_or_fails(policy: Policy) -> None:
    told = played(policy, Misbehaving(does="flood"), turns=2)
    assert "error: the observation has 5000 bytes, more than 1000" in told.responses[0]
    assert episode_measures(told.items)["oversized_observations"] == 2.0
    assert failures_of(played(policy, Misbehaving(does="flood"), invalid="fail")) == ["observation_too_long"] * 2
    with pytest.raises(BackendError, match="observation_too_long"):
        played(policy, Misbehaving(does="flood"), invalid="fail", on_failure="stop")


def test_a_failed_episode_is_neither_right_nor_wrong(policy: Policy) -> None:
    item = PromptItem(ITEM.prompt, (MathAnswer("1"),))
    failed, ended = (played(policy, env).items[0] for env in (Misbehaving(does="raise"), Misbehaving()))
    rows = [replace(item, meta=row.meta) for row in (failed, ended)]
    assert verifier_accuracy(rows, ["", ""]).tolist() == pytest.approx([float("nan"), 0.0], nan_ok=True)


def test_an_ended_rollout_leaves_no_thread_and_no_open_file(policy: Policy) -> None:
    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    played(policy, Misbehaving(), rows=1)
    time.sleep(0.1)
    gc.collect()
    gc.disable()
    try:
        before = held()
        for _ in range(4):
            played(policy, Misbehaving(), rows=1)
        time.sleep(0.1)
        assert all(now <= then for now, then in zip(held(), before, strict=True))  # others' may end by now
    finally:
        gc.enable()


class Parallel(Environment):
    """Counts how many steps are under way at once."""

    under_way: ClassVar[int] = 0
    most: ClassVar[int] = 0
    lock: ClassVar[Any] = threading.Lock()

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        return Observation(tools=(ToolDefinitionPart("find", "", None),))

    async def step(self, action: Action) -> Done:
        cls = type(self)
        cls.under_way += 1
        cls.most = max(cls.most, cls.under_way)
        await asyncio.sleep(0.05)
        cls.under_way -= 1
        return Done({"win": 1.0})


@pytest.mark.parametrize(("at_once", "most"), [(4, range(1, 5)), (64, range(5, 65))])
def test_steps_are_awaited_together_within_a_bound(policy: Policy, at_once: int, most: Sequence[int]) -> None:
    Parallel.most = 0
    batch = played(policy, Parallel(), rows=24, at_once=at_once)
    assert failures_of(batch) == [""] * 24
    assert Parallel.most in most


def test_samplers_that_do_not_generate_turns_are_refused(policy: Policy) -> None:
    sampling = Sampling()
    recorded = RecordedResponses().open(policy, sampling)
    with pytest.raises(BadInputError, match="RecordedSampler does not generate turn by turn"):
        EpisodeSampler(policy, recorded, sampling, Tools(), EpisodeLimits())


def test_an_environment_lies_beside_the_recipe_and_survives_its_record(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from assay_policy_training.plugins.environments.environment import Done, Environment, Observation\n"
        "class Mine(Environment):\n"
        "    size: int = 2\n"
        "    def reset(self, prompt, seed):\n        return Observation('x')\n"
        "    def step(self, action):\n        return Done()\n"
    )
    sections = {
        "name": "mine",
        "estimator": "grpo",
        "objective": "reinforce",
        "environment": {"kind": "own.py:Mine", "size": 3},
    }
    recipe = recipe_from_dict(sections, folder=tmp_path)
    again = recipe_from_dict(recipe_to_dict(recipe))
    assert again.environment == recipe.environment
    assert again.environment.size == 3  # type: ignore[union-attr]
    with pytest.raises(BadInputError, match="did you mean tools"):
        recipe_from_dict({**sections, "environment": {"kind": "tool"}})
    with pytest.raises(BadInputError, match=r"episodes\.turns"):
        recipe_from_dict({**sections, "episodes": {"turns": 0}}, folder=tmp_path)


OPENED = """
class Opened:
    name, description, parameters = "opened", "A tool that holds a connection.", {"properties": {}}
    open = 0

    def __init__(self):
        Opened.open += 1

    def run(self, arguments):
        return ""

    def close(self):
        Opened.open -= 1


class Broken(Opened):
    def __init__(self):
        raise OSError("no such server")
"""


def test_fresh_tools_that_were_opened_before_one_that_cannot_be_are_closed(tmp_path: Path) -> None:
    file = tmp_path / "opened_tools.py"
    file.write_text(OPENED, encoding="utf-8")
    environment = Tools(tools=(f"{file}:Opened", f"{file}:Broken"), fresh=True)
    with pytest.raises(Exception, match="no such server"):
        environment.reset(PromptItem((Message("user", "Go."),)), 0)
    [tool] = environment._opened
    assert type(tool).open == 1  # type: ignore[attr-defined]
    environment.close()
    assert type(tool).open == 0  # type: ignore[attr-defined]
