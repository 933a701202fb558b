"""Episodes that go on from others: what is shared is the same tokens, in the same state, however that is reached."""

import math
from copy import deepcopy
from typing import ClassVar

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import ORIGIN, RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import EpisodeLimits
from assay_policy_training.plugins.environments.record import episode_measures
from assay_policy_training.plugins.environments.tool_use import Tools
from assay_policy_training.plugins.estimators.turn_groups import SharedPrefix
from assay_policy_training.plugins.samplers.branching import Branching, branch_probability, turn_entropies
from assay_policy_training.plugins.samplers.episodes import in_environment
from assay_policy_training.plugins.samplers.transformers import Transformers
from assay_policy_training.recipe.loading import recipe_from_dict
from assay_serving.tools.tool import ToolCall

ITEMS = [PromptItem((Message("user", text),)) for text in ("Play.", "Once more, please.")]
SAMPLING = Sampling(max_new_tokens=150, temperature=0.9)


class Counting(Environment):
    """Says how long the texts were so far; ends after four turns."""

    calls: ClassVar[list[int]] = []
    drifts: bool = False  #: answers otherwise the second time

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self.lengths = [seed % 7]
        return Observation(f"Seed {seed % 7}.")

    def step(self, action: Action) -> Observation | Done:
        self.calls.append(1)
        self.lengths.append(len(action.text))
        if len(self.lengths) == 5:
            return Done({"sum": float(sum(self.lengths))})
        return Observation(f"{self.lengths}{len(self.calls) if self.drifts else ''}", rewards={"turn": 0.5})


class Copied(Counting):
    copies: ClassVar[bool] = True


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)


def branched(policy: Policy, environment: Environment, size: int = 5, plan: object = None) -> RolloutBatch:
    sampler = (plan or Branching(initial=2, base=0.8)).open(policy, SAMPLING)  # type: ignore[attr-defined]
    limits = EpisodeLimits(turns=4, turn_tokens=6)
    return in_environment(policy, sampler, SAMPLING, environment, limits).rollout(ITEMS, size, seed=[1, 2], version=0)


def test_a_branch_has_its_parents_row_up_to_where_it_goes_on(policy: Policy) -> None:
    Counting.calls.clear()
    batch = branched(policy, Copied())
    origin, branches = batch.extras[ORIGIN], 0
    scored = policy.scores(batch, temperature=0.9).logp.detach()
    assert float((scored - batch.logp_mu)[batch.mask].abs().max()) < 1e-4
    assert batch.tokens.shape[1] <= SAMPLING.max_new_tokens
    for row in range(len(batch)):
        record, own = batch.items[row].meta[EPISODE], row % 5
        if own == (parent := int(origin[row, 0])):
            assert "shared_turns" not in record
            continue
        branches += 1
        source, shared = row - own + parent, origin[row] == parent
        there = shared & batch.present[row]
        for column in (batch.tokens, batch.mask, batch.logp_mu, batch.segment):
            assert column is not None
            assert torch.equal(column[row][there], column[source][there])
        taken = record["shared_turns"]
        assert record["turns"][:taken] == batch.items[source].meta[EPISODE]["turns"][:taken]
        assert int(batch.segment[row][there].max()) == taken  # type: ignore[index]
        seed = int(record["opening"][0]["content"].removeprefix("Seed ").removesuffix("."))
        assert record["rewards"]["sum"] == seed + sum(len(turn["text"]) for turn in record["turns"])
    assert branches >= 4
    measures = episode_measures(batch.items)
    executed = sum(len(item.meta[EPISODE]["turns"]) - item.meta[EPISODE].get("shared_turns", 0) for item in batch.items)
    assert len(Counting.calls) == executed
    assert measures["shared_turns"] == pytest.approx(measures["turns_mean"] - executed / len(batch))


def test_turns_taken_again_give_what_a_copy_gives(policy: Policy) -> None:
    """Without copies the turns are taken again; one that is answered otherwise fails its episode, and no other."""
    copied, again = branched(policy, Copied()), branched(policy, Counting())
    assert torch.equal(copied.tokens, again.tokens)
    assert torch.equal(copied.extras[ORIGIN], again.extras[ORIGIN])
    records = [[item.meta[EPISODE] for item in batch.items] for batch in (copied, again)]
    assert [record["rewards"] for record in records[0]] == [record["rewards"] for record in records[1]]
    drifted = branched(policy, Counting(drifts=True))
    failed = [item.meta[EPISODE]["failure"] for item in drifted.items]
    branch = [int(drifted.extras[ORIGIN][row, 0]) != row % 5 for row in range(len(drifted))]
    assert [failure is not None for failure in failed] == branch
    assert all("answered otherwise" in failure["message"] for failure in failed if failure)
    assert not drifted.loss_mask[torch.tensor(branch)].any()


def test_a_group_without_branches_is_that_of_the_plain_sampler(policy: Policy) -> None:
    plain = branched(policy, Counting(), 2, Transformers())
    assert torch.equal(branched(policy, Counting(), 2).tokens, plain.tokens)
    fresh = branched(policy, Counting(), 5, Branching(initial=2, base=0.0, weight=0.0))
    assert torch.equal(fresh.tokens, branched(policy, Counting(), 5, Transformers()).tokens)


def test_the_chance_of_a_branch_by_hand() -> None:
    assert branch_probability(0.3, base=0.5, weight=0.2) == pytest.approx(0.56)
    assert branch_probability(-9.0, base=0.5, weight=0.2) == 0.0
    drawn = torch.tensor([True, True, True, False, True, True])
    entropy = torch.tensor([1.0, 2.0, 4.0, 9.0, 3.0, 0.5])
    assert turn_entropies(entropy, drawn, tokens=2, vocabulary=8) == pytest.approx([3 / math.log(8), 3.5 / math.log(8)])


def test_shared_tokens_have_the_mean_advantage_of_the_rows_that_share_them() -> None:
    """Rewards 1, 0, 0: row 1 shares two tokens with row 0, row 2 one: the mean of two advantages, and of all."""
    batch = rollouts(
        [3, 3, 3],
        uid=["g"] * 3,
        reward=torch.tensor([1.0, 0.0, 0.0]).double(),
        extras={ORIGIN: torch.tensor([[0, 0, 0], [0, 0, 1], [0, 2, 2]])},
    )
    adv, _ = SharedPrefix(eps=0.0)(batch)
    high, low = 2 / 3 / (1 / 3) ** 0.5, -1 / 3 / (1 / 3) ** 0.5
    both = (high + low) / 2
    assert [row.tolist() for row in adv] == [
        pytest.approx(row, abs=1e-6) for row in ([0.0, both, high], [0.0, both, low], [0.0, low, low])
    ]
    with pytest.raises(BadInputError, match="branching"):
        SharedPrefix()(batch.with_(extras={}))


def test_tools_are_copied_with_what_they_were_asked_unless_they_hold_state() -> None:
    tools = Tools()
    tools.reset(ITEMS[0], 0)
    tools.step(Action("", (ToolCall("calculator", {"expression": "1+1"}),)))
    copied = deepcopy(tools)
    tools.step(Action("", (ToolCall("calculator", {"expression": "2+2"}),)))
    assert [len(environment._turns) for environment in (tools, copied)] == [2, 1]
    assert tools.copies
    assert not Tools(fresh=True).copies


@pytest.mark.parametrize("kind", ["branching", "forced_answers", "tree_search"])
def test_what_plays_episodes_needs_an_environment(kind: str) -> None:
    recipe = {"name": "arpo", "estimator": {"kind": "grpo"}, "objective": {"kind": "reinforce"}}
    with pytest.raises(BadInputError, match=r"sampler\.kind.*environment"):
        recipe_from_dict({**recipe, "sampler": {"kind": kind}})
