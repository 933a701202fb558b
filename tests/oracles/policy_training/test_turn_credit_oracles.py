"""Credit over the turns of episodes, by hand: GAE over turns, GiGPO's two levels."""

from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay.score import Score
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.steps import with_step_values
from assay_policy_training.plugins.compositions.gated import GatedAccumulation
from assay_policy_training.plugins.estimators.gae import Gae, gae, turn_gae
from assay_policy_training.plugins.estimators.turn_groups import Gigpo
from assay_policy_training.plugins.shaping.dense import TurnRewards
from assay_policy_training.recipe.loading import recipe_from_dict

#: Two turns of two tokens, with an observed token between them.
MASK = torch.tensor([[True, True, False, True, True]])
SEGMENT = torch.tensor([[0, 0, 1, 1, 1]])
VALUES = torch.tensor([[0.5, 0.9, 0.0, 0.6, 0.8]])
REWARD = torch.tensor([[0.0, 0.1, 0.0, 0.0, 1.0]], dtype=torch.float64)


def one_row(**fields: Any) -> RolloutBatch:
    dense = torch.tensor([[0.0, 0.1, 0.0, 0.0, 0.0]], dtype=torch.float64)
    columns = {"mask": MASK, "loss_mask": MASK, "segment": SEGMENT, "values": VALUES, "dense": dense}
    return rollouts([5], **({**columns, "reward": torch.ones(1, dtype=torch.float64)} | fields))


def test_gae_over_turns_has_the_value_before_a_turn_and_all_that_it_earns() -> None:
    """A_1 = 1 - .6; A_0 = .1 + .9 x .6 - .5 + .9 x .5 x .4."""
    by_turn = turn_gae(REWARD, VALUES, MASK, SEGMENT, gamma=0.9, lam=0.5)
    assert by_turn[0].tolist() == pytest.approx([0.32, 0.32, 0.0, 0.4, 0.4])
    adv, returns = Gae(gamma=0.9, lam=0.5, level="turn")(one_row())
    assert adv[0].tolist() == pytest.approx([0.32, 0.32, 0.0, 0.4, 0.4])
    assert returns[0].tolist() == pytest.approx([0.82, 0.82, 0.0, 1.0, 1.0])
    cut, _ = Gae(gamma=0.9, lam=0.5, level="turn", bootstrap="cut")(one_row(truncated=torch.tensor([True])))
    assert cut[0].tolist() == pytest.approx([0.563, 0.563, 0.0, 0.94, 0.94])  # 1 + .9 x .6 - .6
    with pytest.raises(BadInputError, match=r"estimator\.level.*no turns"):
        Gae(level="turn")(one_row(segment=None))


def test_tokens_and_turns_agree_where_they_must() -> None:
    random = torch.Generator().manual_seed(0)
    reward, values = (torch.rand(1, 5, generator=random).double() * MASK for _ in range(2))
    plain = gae(reward, values, MASK, gamma=1.0, lam=1.0)
    by_turn = turn_gae(reward, values, MASK, SEGMENT, gamma=1.0, lam=1.0)
    assert by_turn[0, [0, 3]].tolist() == pytest.approx(plain[0, [0, 3]].tolist())
    alone = torch.arange(5)[None]  # every token a turn
    assert torch.equal(
        turn_gae(reward, values, MASK, alone, gamma=0.9, lam=0.7), gae(reward, values, MASK, gamma=0.9, lam=0.7)
    )
    drawn = MASK[0]
    without = gae(reward[:, drawn], values[:, drawn], MASK[:, drawn], gamma=0.9, lam=0.7)
    assert torch.equal(gae(reward, values, MASK, gamma=0.9, lam=0.7)[:, drawn], without)


def episode(*states: str, shown: bool = False) -> PromptItem:
    """An item with the record of an episode whose turns were taken in these states, named or only shown."""
    seen = [[Message("user", state).to_dict()] for state in (*states[1:], "end")] if shown else [[] for _ in states]
    turns = [
        {"results": [], "messages": messages, **({} if shown else {"state": state})}
        for state, messages in zip(states, seen, strict=True)
    ]
    opening = [Message("user", states[0]).to_dict()] if shown else []
    return PromptItem((), meta={EPISODE: {"opening": opening, "turns": turns}})


@pytest.mark.parametrize("shown", [False, True])
def test_gigpo_adds_turns_in_one_state_to_rows_of_one_prompt(shown: bool) -> None:
    """Outcomes 1, 0, 1 less 2/3. Returns at gamma .5 in a: .5, 0, .5; in b: 1, 0; c is met once; another prompt's a
    does not count."""
    items = tuple(episode(*states, shown=shown) for states in ("ab", "ab", "ac", "aa"))
    batch = rollouts(
        [2, 2, 2, 2],
        uid=["g", "g", "g", "h"],
        items=items,
        segment=torch.tensor([[0, 1]] * 4),
        reward=torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64),
    )
    adv, returns = Gigpo(gamma=0.5)(batch)
    rows = [[1 / 3 + 1 / 6, 1 / 3 + 1 / 2], [-2 / 3 - 1 / 3, -2 / 3 - 1 / 2], [1 / 3 + 1 / 6, 1 / 3], [-0.25, 0.25]]
    assert returns is None
    assert [row.tolist() for row in adv] == [pytest.approx(row, abs=1e-6) for row in rows]
    scaled, _ = Gigpo(gamma=0.5, scale="deviation", eps=0.0, weight=2.0)(batch)
    assert scaled[0].tolist() == pytest.approx([3**-0.5 * 3, 3**-0.5 + 2 * 0.5**0.5], abs=1e-6)
    missing, _ = Gigpo(gamma=0.5)(batch.with_(reward=torch.tensor([1.0, torch.nan, 1.0, 1.0]).double()))
    assert missing.tolist()[:3] == [[0.0, 0.0]] * 3
    with pytest.raises(BadInputError, match="no episodes"):
        Gigpo()(batch.with_(items=(PromptItem(()),) * 4))


def test_immediate_rewards_are_at_their_turns_where_the_long_term_reward_opens_the_gate() -> None:
    """Turns that earn .1 and .3 in a row that wins and in one that loses: 1 + .4 and 0, the .4 at its turns."""
    plain = Score(0.0, "m", "v", "t", 1, truncated=False)
    parts = {"win": torch.tensor([1.0, 0.0]).double(), "asked": torch.tensor([0.4, 0.4]).double()}
    reward = GatedAccumulation(levels=("win", "asked"), thresholds={"win": 0.5})(parts)
    batch = rollouts(
        [4, 4],
        segment=torch.tensor([[0, 0, 1, 1]] * 2),
        scores=({"asked": with_step_values(plain, [0.1, 0.3])},) * 2,
        r_parts=parts,
        reward=reward,
    )
    shaped = TurnRewards(gates={"win": 0.5}).shape(batch)
    assert shaped.outcome.tolist() == pytest.approx([1.4, 0.0])
    assert shaped.token_reward.tolist() == [pytest.approx([0, 0.1, 0, 1.3]), [0.0] * 4]
    hacked = TurnRewards().shape(batch)  # a loser's turns earn, and its end pays for it
    assert hacked.token_reward[1].tolist() == pytest.approx([0, 0.1, 0, -0.1])


def test_a_composition_that_gates_what_turns_earned_is_told_to_the_shaper() -> None:
    gated = {"kind": "gated", "levels": ["win", "question"], "thresholds": {"win": 0.5}}
    recipe = {
        "name": "gated",
        "reward": gated,
        "estimator": {"kind": "returns_to_go"},
        "objective": {"kind": "reinforce"},
    }
    with pytest.raises(BadInputError, match=r"shaping\.gates.*win.*0\.5"):
        recipe_from_dict({**recipe, "shaping": [{"kind": "turn_rewards", "gates": {"win": 0.2}}]})
    recipe_from_dict({**recipe, "shaping": [{"kind": "turn_rewards", "gates": {"win": 0.5}}]})
