"""DeepSearch: what is backed up, where the search goes on, and rows that are what was sampled."""

import math
from typing import Any, ClassVar

import pytest
import torch
from token_rows import batch_of

from assay.domain import Message
from assay.errors import BadInputError
from assay.score import ScoreFailure
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.episode import Episode, EpisodeLimits
from assay_policy_training.plugins.estimators.tree_values import TreeValues
from assay_policy_training.plugins.samplers.tree_search import NODE_VALUE, Tree, TreeSearch, TurnNode, back_up

LIMITS = EpisodeLimits(turns=3, turn_tokens=4)
ITEM = PromptItem((Message("user", "Go."),))


class Parity(Environment):
    """Three turns; solved where their letters are even in number."""

    parts: ClassVar[tuple[str, ...]] = ("even",)
    copies: ClassVar[bool] = True

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._said = ""
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        self._said += f"{action.text}|"
        if self._said.count("|") == 3:
            return Done({"even": float(len(self._said) % 2 == 0)})
        return Observation(f"{len(self._said)}")


class Uncopied(Parity):
    copies: ClassVar[bool] = False


def node(parent: TurnNode | None, logp: float = -1.0, ended: bool = False, solved: bool = False) -> TurnNode:
    child = TurnNode(Episode(ITEM, Parity(), LIMITS), parent, [1], [True], [logp])
    if ended:
        child.episode.ended, child.episode.rewards = "done", {"even": float(solved)}
    if parent is not None:
        parent.children.append(child)
    return child


def test_backup_grows_to_the_leaf_and_no_failure_turns_a_success() -> None:
    root = node(None)
    path = [root]
    for _ in range(3):
        path.append(node(path[-1]))
    back_up(path[-1], -1.0, root)
    assert [one.value for one in path] == [-0.25, -0.5, -0.75, -1.0]
    other = node(path[1])
    back_up(other, 1.0, root)
    assert [one.value for one in (root, path[1], other)] == pytest.approx([1 / 3, 2 / 3, 1])
    back_up(path[-1], -1.0, root)
    assert [one.value for one in path] == pytest.approx([1 / 3, 2 / 3, -1.5, -2.0])
    assert [one.visits for one in path] == [3, 3, 2, 2]
    path[1].visits, tree = 8, Tree(root, TreeSearch(), "even", 4)
    tree.at = path[1]
    assert tree._bonus(path[2]) == pytest.approx(2.039334)  # 2 sqrt(ln 8 / 2)


def test_one_leaf_a_round_a_solved_one_or_the_surest_failure_then_the_best_of_the_frontier() -> None:
    root = node(None)
    tree = Tree(root, TreeSearch(width=2), "even", 8)
    left, right = node(root), node(root)
    tree.expanded()
    assert tree.at is left
    node(left, -0.7, ended=True)
    sure = node(left, -0.2, ended=True)
    tree.expanded()
    assert tree.rows == [sure]
    assert [left.value, left.mean] == pytest.approx([-2 / 3, -1 / 3])
    assert tree.at is right  # `left` is full
    node(right, -0.1, ended=True)
    solved = node(right, -3.0, ended=True, solved=True)
    tree.expanded()
    assert tree.rows == [sure, solved]
    assert tree.at is root  # the frontier is empty
    third = node(root)
    other = node(sure.parent and root, -5.0)
    tree.expanded()
    assert tree.at is third
    tree.plan = TreeSearch(width=2, uncertainty=1.0)
    assert max(tree._frontier(), key=tree._promise) is other


def test_a_failed_episode_is_a_row_and_says_nothing_of_the_turns_before_it() -> None:
    root = node(None)
    tree = Tree(root, TreeSearch(width=3), "even", 8)
    broken, silent, wrong = (node(root, logp, ended=True) for logp in (-0.1, -0.2, -3.0))
    broken.episode.fail(ScoreFailure("environment_failed", "gone", "Parity"))
    silent.episode.rewards = {"even": ScoreFailure("no_reward", "none", "Parity")}
    tree.expanded()
    assert (tree.rows, root.value) == ([wrong], -0.5)
    for _ in range(2):
        tree.expanded()
    assert tree.rows == [wrong, broken, silent]
    assert [one.value for one in (root, broken, silent)] == [-0.5, 0.0, 0.0]


def test_rows_are_what_was_sampled() -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    sampling = Sampling(prompts_per_step=2, group_size=4, max_new_tokens=96, max_prompt_tokens=64)
    plan = TreeSearch(width=3)
    sampler: Any = plan.open(policy, sampling).in_environment(Parity(), LIMITS)
    items = [ITEM, PromptItem((Message("user", "Stay."),))]
    batch = sampler.rollout(items, 4, seed=7, version=2)
    assert batch.uid == ("2.0",) * 4 + ("2.1",) * 4
    assert torch.equal(batch.tokens, sampler.rollout(items, 4, seed=7, version=2).tokens)
    scores = policy.scores(batch, temperature=1.0)
    assert torch.allclose(scores.logp[batch.mask], batch.logp_mu[batch.mask], atol=1e-4)
    for row, item in enumerate(batch.items):
        record = item.meta[EPISODE]
        drawn = [batch.tokens[row][batch.mask[row] & (batch.segment[row] == turn)] for turn in range(3)]
        texts = [policy.tokenizer.decode(ids, skip_special_tokens=True) for ids in drawn]
        assert texts == [turn["text"] for turn in record["turns"]]
        assert record["ended"] == "done"
        assert abs(float(batch.extras[NODE_VALUE][row][batch.mask[row]][-1])) == pytest.approx(1)
    assert len({tuple(row.tolist()) for row in batch.tokens}) == 8  # no leaf twice
    separate = 8 * 3 * 4
    assert sampler.drawn_tokens < 3 * separate
    with pytest.raises(BadInputError, match="Uncopied has no"):
        plan.open(policy, sampling).in_environment(Uncopied(), LIMITS)


def test_advantages_are_those_of_the_nodes() -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    value = torch.tensor([[3.0, 1.0], [3.0, -1.0], [0.5, 1.0]])
    batch = batch_of(
        mask,
        [1.0, 0.0, 1.0],
        ["a", "a", "b"],
        segment=torch.tensor([[0, 1]] * 3),
        extras={NODE_VALUE: value},
    )
    adv, _ = TreeValues()(batch)
    clipped = math.tanh(3.0)
    expected = [[clipped, 1.0], [clipped, -1.0], [math.tanh(0.5), 1.0]]
    assert torch.allclose(adv, torch.tensor(expected), atol=1e-5)
    assert clipped == pytest.approx(0.995055, abs=1e-6)
