"""Values of steps: Monte Carlo against the linear system of a known Markov chain, which a real language model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from markov_chain import STATES, chain_model, truth

from assay.domain import Message
from assay.score import ScoreFailure
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.rollouts.prefix_values import PrefixEstimator, PrefixSettings, ProverReward
from assay_serving.verifiers import Regex

CPU = torch.device("cpu")


class EndsWithA:
    """1 for a response that ends with a."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        return Rewards.of("ends", [float(response.endswith("a")) for response in responses])


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = chain_model(tmp_path_factory.mktemp("chain"))
    return Policy(str(folder), device=CPU, max_prompt_tokens=200)


def item(text: str = "go") -> PromptItem:
    return PromptItem((Message("user", text),))


def test_values_are_those_of_the_chain(policy: Policy) -> None:
    """Within .05 of the linear system's at every prefix: 1,000 continuations have a standard error of .016 at most."""
    settings = PrefixSettings(samples=1000, max_new_tokens=60)
    mc = PrefixEstimator(policy, settings, [EndsWithA()])
    responses = [["a", "b"], ["c", "a"], ["d"]]
    values = truth()
    for row, steps in zip(mc.values([item()] * 3, responses), responses, strict=True):
        assert not isinstance(row, ScoreFailure)
        expected = [values[0], *(values[1 + STATES.index(step)] for step in steps[:-1])]
        assert [v.value for v in row[:-1]] == pytest.approx(expected, abs=0.05)
        assert row[-1].value == float(steps[-1] == "a")  # of the whole response: its own reward
        assert [v.tried for v in row] == [1000] * len(steps) + [1]
        assert [v.correct for v in row] == [round(v.value * v.tried) for v in row]


@pytest.mark.slow
def test_a_better_prover_is_the_best_of_k(policy: Policy) -> None:
    """Q under best-of-K = 1 - (1 - Q)^K."""
    mc = PrefixEstimator(policy, PrefixSettings(samples=1000, best_of=4, max_new_tokens=60), [EndsWithA()])
    (row,) = mc.values([item()], [["b", "d"]])
    assert not isinstance(row, ScoreFailure)
    expected = 1 - (1 - truth()) ** 4
    assert [v.value for v in row[:-1]] == pytest.approx([expected[0], expected[2]], abs=0.05)
    assert [v.correct for v in row] == [None, None, 0]  # counts would be those of a single continuation


def test_a_value_depends_neither_on_its_neighbours_nor_on_the_run(policy: Policy) -> None:
    mc = PrefixEstimator(policy, PrefixSettings(samples=8, max_new_tokens=20), [EndsWithA()])
    both = mc.values([item(), item("more")], [["a", "b"], ["c", "d"]])
    tokens = mc.generated
    assert mc.values([item("more"), item(), item()], [["c", "d"], ["a", "b"], ["a", "c"]])[:2] == both[::-1]
    assert mc.generated == 2 * tokens  # the shared prefixes of the third response are those of the second


def test_a_remembered_value_is_the_one_that_continuing_again_gives(policy: Policy) -> None:
    settings, rewards = PrefixSettings(samples=8, max_new_tokens=20), [EndsWithA()]
    responses = [["a", "b"], ["c", "d"]]
    mc = PrefixEstimator(policy, settings, rewards, remembered=10)
    first = mc.values([item()] * 2, responses)
    tokens = mc.generated
    assert mc.values([item()] * 2, responses) == first
    assert mc.generated == tokens
    [other] = mc.values([item("more")], [responses[0]])  # another prompt's prefixes are others
    assert mc.generated > tokens
    assert [other] == PrefixEstimator(policy, settings, rewards).values([item("more")], [responses[0]])


class RowsTruth:
    """What the prompt's row says."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        return Rewards.of("row", [float(prompt.meta["truth"]) for prompt in items])


def test_a_prompt_is_shared_only_where_a_reward_reads_the_same_of_it(policy: Policy) -> None:
    mc = PrefixEstimator(policy, PrefixSettings(samples=2, max_new_tokens=4), [RowsTruth()])
    rows = mc.values([replace(item(), meta={"truth": truth}) for truth in (0, 1)], [["a", "b"]] * 2)
    assert [[v.value for v in row] for row in rows if isinstance(row, list)] == [[0.0] * 3, [1.0] * 3]


class Seen:
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        self.texts.extend(responses)
        return Rewards.of("seen", [1.0] * len(responses))


def test_continuations_begin_after_the_forced_start_and_end_at_a_stop(policy: Policy) -> None:
    seen: list[str] = []
    one = PrefixEstimator(policy, PrefixSettings(samples=4, max_new_tokens=1), [Seen(seen)])
    one.values([replace(item(), forced="abc")], [["ab", "cc"]])  # the first step ends within what is forced
    assert {text[:3] for text in seen} == {"abc"}
    assert max(map(len, seen)) == 4
    seen.clear()
    PrefixEstimator(policy, PrefixSettings(samples=64, stop=("d",)), [Seen(seen)]).values([item()], [["a"]])
    assert any("d" in text for text in seen)
    assert not any("d" in text[:-1] for text in seen)


def test_a_prover_rewards_rollouts_by_the_prompts_constraints(policy: Policy) -> None:
    checked = PromptItem((Message("user", "go"),), (Regex("a", full_match=False),))
    source = ProverReward(policy, PrefixSettings(samples=64, max_new_tokens=60, separator="b"))
    rewards = source.score([checked, item()], ["dbab", "a"])
    assert rewards.parts["process"].tolist() == pytest.approx([1.0, float("nan")], nan_ok=True)
    score = rewards.scores[0]["process"]
    assert [part.name for part in score.parts] == ["step-0", "step-1", "step-2"]
    assert score.steps[1] == 1.0  # the a is there, whatever follows
    assert score.parts[0].value is not None
    assert 0 < score.parts[0].value < 1
    assert rewards.failures[1][0].code == "no_verifier"


def test_a_prefix_that_the_prover_cannot_read_to_its_end_has_no_value(policy: Policy) -> None:
    """Beyond a model's positions it answers without an error, and without meaning."""
    mc = PrefixEstimator(policy, PrefixSettings(samples=2, max_new_tokens=8), [EndsWithA()])
    limit = policy.model.config.max_position_embeddings
    read, unread = mc.values([item(), item()], [["a" * 4, "a"], ["a" * limit, "a"]])
    assert not isinstance(read, ScoreFailure)
    assert isinstance(unread, ScoreFailure)
    assert unread.code == "too_long"
    assert f"reads {limit}" in unread.message
