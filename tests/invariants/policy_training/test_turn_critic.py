"""ArCHer's critic: its targets by hand, what it reads, what it learns, and that a restart changes nothing."""

from copy import deepcopy

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.critics.turn_values import TurnCritic, TurnValues, stored_episode
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.environments.shipped.twenty_questions import TwentyQuestions
from assay_policy_training.plugins.estimators.turn_advantage import TurnAdvantage
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

ITEMS = [PromptItem((Message("user", text),), meta={"secret": "cat"}) for text in ("Play.", "Once more, please.")]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)


@pytest.fixture(scope="module")
def batch(policy: Policy) -> RolloutBatch:
    """8 episodes of up to 3 turns; rewards by row, and .25 for every first turn."""
    sampling = Sampling(max_new_tokens=120)
    plain, limits = TransformersSampler(policy, sampling), EpisodeLimits(turns=3, turn_tokens=5)
    rows = in_environment(policy, plain, sampling, TwentyQuestions(), limits).rollout(ITEMS, 4, seed=1, version=0)
    reward, dense = torch.arange(8).double() % 2, torch.zeros(rows.mask.shape, dtype=torch.float64)
    dense[:, 0] = 0.25
    return rows.with_(reward=reward, dense=dense)


def critic_of(policy: Policy, **settings: object) -> TurnCritic:
    return TurnValues(**({"lr": 1e-2, "turn_tokens": 5, "epochs": 1, "rows": 8} | settings)).open(policy)  # type: ignore[arg-type]


def test_targets_follow_the_next_state_of_the_target_networks(policy: Policy, batch: RolloutBatch) -> None:
    """With V' = .5 and Q' = .7 everywhere: r 1 and a later turn give 1 + .9 x .5 = 1.45, a last turn its reward."""
    critic = critic_of(policy)
    for number, head in enumerate(critic.target[1].heads):
        weight, bias = list(head.parameters())[-2:]
        torch.nn.init.zeros_(weight)
        torch.nn.init.constant_(bias, 0.7 if number < 2 else 0.5)
    episodes = [stored_episode(batch, row) for row in range(len(batch))]
    assert episodes[1].earned[0] == 0.25
    assert episodes[1].earned[-1] == 1.0
    q, v = critic.td_targets(episodes, episodes[:2])
    expected = [
        earned + (0.0 if last == number else 0.9 * 0.5)
        for episode in episodes
        for last in [len(episode.earned) - 1]
        for number, earned in enumerate(episode.earned)
    ]
    assert 0.25 + 0.9 * 0.5 in expected
    assert q.tolist() == [pytest.approx([value] * 2) for value in expected]
    assert v.tolist() == [pytest.approx([0.7, 0.7])] * sum(len(episode.earned) for episode in episodes[:2])


def test_a_state_is_read_before_its_turn_and_a_turn_to_its_end(policy: Policy, batch: RolloutBatch) -> None:
    critic, at = critic_of(policy), int((batch.segment == 1).int().argmax(1)[1])  # type: ignore[union-attr]
    values, actions = critic.values(batch), critic.action_values(batch)
    assert not values[~batch.mask].any()
    assert not actions[~batch.mask].any()
    assert len(set(values[1, batch.mask[1]].tolist())) == int(batch.segment[1].max()) + 1  # type: ignore[index]
    tokens = batch.tokens.clone()
    first_of_turn = int((batch.mask[1] & (batch.segment[1] == 1)).nonzero()[0])  # type: ignore[index]
    tokens[1, first_of_turn] += 1
    changed = batch.with_(tokens=tokens)
    new_values, new_actions = critic.values(changed), critic.action_values(changed)
    assert at <= first_of_turn
    assert torch.equal(new_values[1, : first_of_turn + 1], values[1, : first_of_turn + 1])
    assert new_actions[1, first_of_turn] != actions[1, first_of_turn]
    assert torch.equal(new_actions[1, :first_of_turn], actions[1, :first_of_turn])
    adv, _ = TurnAdvantage()(batch.with_(values=values, extras={"action_values": actions}))
    assert adv[1, first_of_turn] == actions[1, first_of_turn] - values[1, first_of_turn]


@pytest.mark.slow
def test_it_learns_which_episodes_earn_and_goes_on_after_a_restart(policy: Policy, batch: RolloutBatch) -> None:
    critic = critic_of(policy, epochs=12, tau=0.5)
    first = critic.update(batch, step=1, seed=1)
    last = [critic.update(batch, step=step, seed=step) for step in (2, 3)][-1]
    assert last["turn_q_loss"] < 0.3 * first["turn_q_loss"]
    restarted = critic_of(policy, epochs=12, tau=0.5)
    restarted.load_tensors(deepcopy(critic.tensors()))
    restarted.load_state_dict(critic.state_dict())
    assert restarted.update(batch, step=4, seed=4) == critic.update(batch, step=4, seed=4)
    assert torch.equal(restarted.values(batch), critic.values(batch))
    assert len(critic.memory) == 32
