"""Answers forced after each turn: what they are worth in the environment as it was, and the credit that follows."""

from typing import ClassVar

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.modulators.steps import BlockProgress
from assay_policy_training.plugins.samplers.episode_plan import PlannedSampler
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.forced_answers import ForcedAnswers
from assay_policy_training.plugins.samplers.transformers import Transformers
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward

ITEMS = [PromptItem((Message("user", text),)) for text in ("Play.", "Once more, please.")]
SAMPLING = Sampling(max_new_tokens=150)


class Ripening(Environment):
    """Worth a tenth of the turns taken when it is cut, 1 when it ends by itself, after three."""

    copies: ClassVar[bool] = True
    fails: bool = False

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.turns = 0
        return Observation("Go.")

    def step(self, action: Action) -> Observation | Done:
        self.turns += 1
        if self.fails and self.turns == 2:
            raise RuntimeError("broken")
        return Done({"win": 1.0}, {"turn": 0.5}) if self.turns == 3 else Observation(f"{self.turns}.")

    def cut(self) -> Done:
        return Done({"win": self.turns / 10})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)


def played(policy: Policy, environment: Environment, plan: object) -> RolloutBatch:
    sampler, limits = plan.open(policy, SAMPLING), EpisodeLimits(turns=5, turn_tokens=6)  # type: ignore[attr-defined]
    batch = in_environment(policy, sampler, SAMPLING, environment, limits).rollout(ITEMS, 3, seed=[1, 2], version=0)
    rewards = EnvironmentReward().score(batch.items, batch.responses)
    return batch.with_(r_parts=rewards.parts, scores=tuple(rewards.scores), reward=next(iter(rewards.parts.values())))


def test_each_turn_is_credited_with_what_an_answer_after_it_would_have_earned_more(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J = .1, .2, 1 before the turns (the third one ends the game) and 1 at the end: progress .1, .8, 0."""
    asked: list[str] = []
    turns = PlannedSampler.turns

    def noted(self: PlannedSampler, contexts: list[list[int]], *others: object) -> object:
        asked.extend(str(policy.tokenizer.decode(context)) for context in contexts)
        return turns(self, contexts, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(PlannedSampler, "turns", noted)
    batch = played(policy, Ripening(), ForcedAnswers(samples=2, max_new_tokens=12, part="win"))
    assert torch.equal(batch.tokens, played(policy, Ripening(), Transformers()).tokens)
    for item in batch.items:
        assert item.meta[EPISODE]["forced_answers"] == pytest.approx([0.1, 0.2, 1.0, 1.0])
    episodes, forced = [text for text in asked if "Answer" not in text], [text for text in asked if "Answer" in text]
    assert len(episodes) == 2  # a group shares the pass over its prompt, and the first of its states
    assert all(text.count("Answer now.") == 1 for text in forced)
    assert sum("1." not in text for text in forced) == 2
    flat = batch.with_(adv=torch.zeros(batch.mask.shape))
    adv, segment = BlockProgress(alpha=1.0, part="forced_answer").modulate(flat), batch.segment
    assert segment is not None
    for turn, progress in enumerate([0.1, 0.8, 0.0]):
        assert adv[batch.mask & (segment == turn)].tolist() == pytest.approx(
            [progress] * int((batch.mask & (segment == turn)).sum())
        )
    assert not adv[~batch.mask].any()


def test_episodes_that_fail_have_no_answers_and_no_credit(policy: Policy) -> None:
    batch = played(policy, Ripening(fails=True), ForcedAnswers(samples=1, max_new_tokens=6))
    assert all(item.meta[EPISODE]["forced_answers"] == [] for item in batch.items)
    assert batch.r_parts["forced_answer"].isnan().all()
    assert all(item.meta[EPISODE]["failure"]["code"] == "environment_failed" for item in batch.items)
