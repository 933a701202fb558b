"""The watch over a reward that is not trained on: what it measures, when it speaks up, whom it sends to people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_episodes import game

from assay.domain import Message
from assay.errors import BadInputError
from assay.score import Score
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.protocols import Rewards, StepReport
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.held_out_reward import SUSPECTS_FILE, HeldOutReward, WatchSettings, overoptimised
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase

ITEM = PromptItem((Message("user", "say hi"),), (AllLowercase(),))
NAN = float("nan")


class Length:
    """A held-out reward: minus the characters of the response; missing for an empty one."""

    def __init__(self) -> None:
        self.asked = 0

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        self.asked += len(items)
        part = torch.tensor([-float(len(text)) if text else NAN for text in responses], dtype=torch.float64)
        return Rewards({"length": part}, [() for _ in items], [{} for _ in items])


def batch(responses: Sequence[str], reward: Sequence[float], groups: int = 1) -> RolloutBatch:
    rows = len(responses)
    ids, mask = torch.zeros(rows, 2, dtype=torch.long), torch.ones(rows, 2, dtype=torch.bool)
    return RolloutBatch(
        uid=tuple(f"g{row * groups // rows}" for row in range(rows)),
        prompts=(ITEM.prompt,) * rows,
        responses=tuple(responses),
        gen_input_ids=ids,
        gen_mask=mask,
        train_input_ids=ids,
        train_mask=mask,
        tokens=ids,
        mask=mask,
        loss_mask=mask,
        logp_mu=torch.zeros(rows, 2),
        version=torch.zeros(rows, dtype=torch.long),
        token_version=torch.zeros(rows, 2, dtype=torch.long),
        finished=torch.ones(rows, dtype=torch.bool),
        truncated=torch.zeros(rows, dtype=torch.bool),
        items=(ITEM,) * rows,
        reward=torch.tensor(reward, dtype=torch.float64),
    )


def report(step: int, rollouts: RolloutBatch) -> StepReport:
    return StepReport(step, {}, rollouts)


def test_means_agreement_and_missing(tmp_path: Path) -> None:
    watch = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0))
    found = watch.measure(report(1, batch(["aaaa", "aa", "a", ""], [3.0, 2.0, 1.0, 5.0])))
    assert found["held_out_reward_mean"] == pytest.approx(-7 / 3)
    assert found["held_out_missing"] == 1
    assert found["held_out_agreement"] == pytest.approx(-1)
    assert found["overoptimised"] == 0


def test_rollouts_without_a_reward_are_not_asked_about(tmp_path: Path) -> None:
    held = Length()
    found = HeldOutReward([held], tmp_path, WatchSettings(share=1.0)).measure(report(1, batch(["aa", "a"], [NAN, 1.0])))
    assert held.asked == 1
    assert found["held_out_rows"] == 1


def test_whole_groups_are_drawn_at_the_share_asked_for(tmp_path: Path) -> None:
    held = Length()
    watch = HeldOutReward([held], tmp_path, WatchSettings(share=0.3))
    rollouts = batch(["a"] * 800, [1.0] * 800, groups=200)
    found = watch.measure(report(1, rollouts))
    assert 0.2 < held.asked / 800 < 0.4
    assert held.asked % 4 == 0
    assert found["held_out_rows"] == held.asked


def test_the_widest_disagreement_goes_to_people(tmp_path: Path) -> None:
    watch = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0, suspects=1))
    watch.measure(report(4, batch(["long answer here", "short", "aa", "a"], [9.0, 1.0, 0.0, 0.5], groups=2)))
    (record,) = [json.loads(line) for line in (tmp_path / SUSPECTS_FILE).read_text().splitlines()]
    assert record["responses"] == ["long answer here", "short"]
    assert record["rewards"] == [9.0, 1.0]
    assert record["held_out"] == [-16.0, -5.0]
    assert record["step"] == 4
    assert record["doubt"] > 0


def test_agreeing_rewards_send_nobody(tmp_path: Path) -> None:
    HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0)).measure(report(1, batch(["aaa", "a"], [0.0, 1.0])))
    assert (tmp_path / SUSPECTS_FILE).read_text() == ""


def history(held: Sequence[float], proxy: Sequence[float], error: float = 0.05) -> list[dict[str, float]]:
    return [{"held": h, "proxy": p, "error": error} for h, p in zip(held, proxy, strict=True)]


def test_over_optimisation_is_a_fall_beyond_noise_while_the_other_rises() -> None:
    rising = [0.1 * n for n in range(12)]
    falls = [0.0, 0.4, 0.8, 1.0, 1.0, 0.9, 0.6, 0.3, 0.1, 0.0, -0.2, -0.4]
    assert overoptimised(history(falls, rising), 3, 3.0)
    assert not overoptimised(history(rising, rising), 3, 3.0)
    assert not overoptimised(history(falls, falls), 3, 3.0), "both fall: that is another trouble"
    assert not overoptimised(history(falls, rising, error=2.0), 3, 3.0), "within the noise"
    assert not overoptimised(history(falls[:5], rising[:5]), 3, 3.0), "too early to say"


def test_steps_of_another_reward_model_are_not_compared(tmp_path: Path) -> None:
    """A swap in the middle, to a model whose rewards lie higher: nothing says that the reward rose meanwhile."""
    held = [0.0, 0.4, 0.8, 1.0, 1.0, 0.9, 0.6, 0.3, 0.1, 0.0, -0.2, -0.4]
    level = [0.0] * 7 + [3.0] * 5
    watch = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0, suspects=0, window=3))
    for swap in (False, True):
        watch.history, flags = [], []
        for step, (value, proxy) in enumerate(zip(held, level, strict=True)):
            version = f"v{int(swap and step >= 7)}"
            score = Score(proxy, "m", version, "t", 1, False)
            rollouts = batch(["a" * round(100 - 10 * value)] * 2, [proxy] * 2, groups=2)
            found = watch.measure(report(step, rollouts.with_(scores=({"m": score},) * 2)))
            flags.append(found["overoptimised"])
        assert any(flags) is not swap
    first, last = (watch.history[n]["model"] for n in (0, -1))
    assert first != last
    assert [row["model"] for row in watch.history] == [first] * 7 + [last] * 5


def test_prompts_that_differ_are_not_taken_for_a_fall(tmp_path: Path) -> None:
    """Four prompts a step, rollouts of each alike, no trend: what differs from step to step is which prompts came."""
    false_alarms = 0
    for seed in range(8):
        watch = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0, suspects=0))
        draw = torch.Generator().manual_seed(seed)
        for step in range(1, 21):
            lengths = torch.randint(1, 40, (4,), generator=draw).repeat_interleave(8).tolist()
            found = watch.measure(report(step, batch(["a" * n for n in lengths], [0.1 * step] * 32, groups=4)))
        false_alarms += int(found["overoptimised"])
    assert false_alarms <= 1


def test_a_restart_forgets_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    first = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0))
    rollouts = batch(["aaaa", "a"], [1.0, 0.0])
    first.measure(report(1, rollouts))
    state: dict[str, Any] = json.loads(json.dumps(first.state_dict()))
    first.measure(report(2, rollouts))  # after the checkpoint, lost with the crash
    second = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0))
    second.load_state_dict(state)
    assert len(second.history) == 1
    second.measure(report(2, rollouts))
    assert [json.loads(line)["step"] for line in (tmp_path / SUSPECTS_FILE).read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.5}, {"window": 0}, {"sigmas": 0.0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="watch"):
        WatchSettings(**wrong)


def test_a_run_ends_when_the_watch_says_so(tmp_path: Path) -> None:
    """In a real run: the watch's numbers are in metrics, and a stop rule reads them."""
    recipe = load_recipe(
        "grpo", ["stop=[{kind: out_of_bounds, metric: held_out_rows, above: 1, patience: 2}]", "steps=6"]
    )
    sampling = replace(recipe.sampling, prompts_per_step=1, group_size=4, max_new_tokens=6)
    kl = replace(recipe.kl, coefficient=0.0)
    recipe = replace(recipe, sampling=sampling, checkpoint_every=0, report_kl=False, kl=kl)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    watch = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0))
    source = recipe.source.open([ITEM], seed=0, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [VerifierReward()], tmp_path, extra=[watch])
    rows = trainer.train()
    assert len(rows) == 2
    assert all(row["held_out_reward_mean"] < 0 for row in rows)
    assert trainer.stopped is not None


def test_episodes_go_to_people_with_their_turns(tmp_path: Path) -> None:
    """Longer is better by the reward that is trained on; the watch has it the other way."""
    rows = [game("cow", "alive?", "cow"), game("cow", "alive?", "wild?", "cow")]
    items = tuple(replace(ITEM, meta={EPISODE: row["episode"]}) for row in rows)
    rollouts = batch([row["response"] for row in rows], [1.0, 2.0]).with_(items=items)
    watch = HeldOutReward([Length()], tmp_path, WatchSettings(share=1.0))
    watch.measure(report(1, rollouts))
    (record,) = [json.loads(line) for line in (tmp_path / SUSPECTS_FILE).read_text().splitlines()]
    assert [[message["content"] for message in turns] for turns in record["responses"]] == [
        ["alive?", "yes", "wild?", "no", "cow"],
        ["alive?", "yes", "cow"],
    ]
    told = {**rows[1]["episode"], "opening": [{"role": "user", "content": "It is in a field."}]}
    others = (items[0], replace(ITEM, meta={EPISODE: told}))  # they do not read the same: no pair
    watch.measure(report(2, rollouts.with_(items=others)))
    assert len((tmp_path / SUSPECTS_FILE).read_text().splitlines()) == 1
