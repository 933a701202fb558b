"""Rewards of steps, of the answer alone, of a row's numbers; what they become on tokens; how the command names them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay.statistics.logistic import sigmoid
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.core.steps import segments, step_of_piece, step_prefixes, step_values
from assay_policy_training.plugins.modulators.steps import BlockProgress
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.shaping.dense import ClipAndDelta
from assay_policy_training.rollouts.reward_uri import RewardReference, parse_reward
from assay_policy_training.rollouts.rewards import AnswerPart, ModelReward, ProcessReward, RowNumber, gather_rewards
from assay_serving.scorer import ModelInfo, ScoreItem

NAN = float("nan")
ITEM = PromptItem((Message("user", "say hi"),))


class Words:
    """Scores the number of words read, and remembers what it read; gives none where a word is "bad"."""

    info = ModelInfo("words", "v1", "scalar", "t1", 100, False, "unchecked", "float32", "cpu")

    def __init__(self) -> None:
        self.read: list[str] = []

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        self.read += [str(item.response) for item in items]
        return [
            ScoreFailure("backend", "will not say", "words")
            if "bad" in item.response
            else Score(float(len(str(item.response).split())), "words", "v1", "t1", 1, False)
            for item in items
        ]


@pytest.mark.parametrize(
    ("response", "strict", "answer"),
    [
        ("<think>a</think>b", True, "b"),
        ("<think>a</think>b", False, "b"),
        ("<think>a", True, None),
        ("b", True, None),
        ("b", False, "b"),
        ("<think>a</think> \n", True, None),
        ("a</think>b</think>c", True, "b</think>c"),
    ],
)
def test_answer_part(response: str, strict: bool, answer: str | None) -> None:
    assert AnswerPart(strict=strict).of(response) == answer


def test_only_the_answer_is_scored_and_none_is_a_failure_not_a_number() -> None:
    words = Words()
    found = gather_rewards(
        [ModelReward(words, answer=AnswerPart())], [ITEM] * 3, ["<think>a b c</think>d e", "a b", "</think>f"]
    )
    assert words.read == ["d e", "f"]
    assert found.parts["words"].tolist() == pytest.approx([2.0, NAN, 1.0], nan_ok=True)
    assert [len(f) for f in found.failures] == [0, 1, 0]
    assert found.failures[1][0].code == "no_answer"
    assert [dict(s) == {} for s in found.scores] == [False, True, False]
    nothing = ModelReward(words, answer=AnswerPart()).score([ITEM], ["a"])
    assert nothing.parts["words"].isnan().all()


def test_a_number_of_the_row() -> None:
    rows = [PromptItem(ITEM.prompt, meta={"direction": -15}), PromptItem(ITEM.prompt, meta={"direction": True}), ITEM]
    found = RowNumber("direction").score(rows, ["a"] * 3)
    assert found.parts["direction"].tolist() == pytest.approx([-15.0, NAN, NAN], nan_ok=True)
    assert [len(f) for f in found.failures] == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "prefixes", "numbers"),
    [
        ("a", ["a"], [0]),
        ("a\n\nb", ["a", "a\n\nb"], [0, 1]),
        ("a\n\n\n\nb\n\n", ["a\n\n", "a\n\n\n\nb\n\n"], [0, 0, 1, 1]),
        ("\n\na", ["\n\na"], [0, 0]),
        ("", [""], [0]),
    ],
)
def test_steps_of_a_text(text: str, prefixes: list[str], numbers: list[int]) -> None:
    assert step_prefixes(text) == prefixes
    assert step_of_piece(text) == numbers


@given(st.text(alphabet="ab \n", max_size=30))
def test_the_last_prefix_is_the_text_and_there_is_one_for_each_step(text: str) -> None:
    prefixes = step_prefixes(text)
    assert prefixes[-1] == text
    assert len(prefixes) == step_of_piece(text)[-1] + 1
    assert all(after.startswith(before) for before, after in pairwise(prefixes))


def test_every_prefix_is_scored_and_one_failure_leaves_the_row_missing() -> None:
    words = Words()
    source = ProcessReward(words, probability=False)
    found = source.score([ITEM] * 2, ["a b\n\nc\n\nd", "a\n\nbad\n\nc"])
    assert words.read[:3] == ["a b", "a b\n\nc", "a b\n\nc\n\nd"]
    assert found.parts["process"].tolist() == pytest.approx([4.0, NAN], nan_ok=True)
    assert [part.value for part in found.scores[0]["process"].parts] == [2.0, 3.0, 4.0]
    assert found.scores[1] == {}
    assert [f.code for f in found.failures[1]] == ["backend"]
    likely = ProcessReward(Words()).score([ITEM], ["a b"])
    assert likely.parts["process"].tolist() == pytest.approx([sigmoid(2.0)])


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)


def written(policy: Policy, texts: Sequence[str], reward: Sequence[float]) -> RolloutBatch:
    """Rows of one group that say these texts, with the values that `Words` gives their prefixes, a tenth each."""
    rows = len(texts)
    drawn = TransformersSampler(policy, Sampling(max_new_tokens=4)).rollout([ITEM], rows, seed=0, version=0)
    ids = [policy.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    width = max(map(len, ids))
    tokens = torch.zeros(rows, width, dtype=torch.long)
    mask = torch.zeros(rows, width, dtype=torch.bool)
    for row, listed in enumerate(ids):
        tokens[row, : len(listed)], mask[row, : len(listed)] = torch.tensor(listed), True
    found = ProcessReward(Words(), probability=False).score([ITEM] * rows, texts)
    return drawn.with_(
        responses=tuple(texts),
        tokens=tokens,
        mask=mask,
        loss_mask=mask,
        logp_mu=torch.zeros(rows, width),
        token_version=torch.zeros_like(tokens),
        r_parts=found.parts,
        scores=tuple(found.scores),
        reward=torch.tensor(reward, dtype=torch.float64),
    )


TEXTS = ["a b\n\nc\n\nd e", "é\n\n\n\nü u\n\n", "bad"]


def test_tokens_know_their_step(policy: Policy) -> None:
    """One byte a token here, so that a character may be split; white space between steps ends the step before."""
    batch = written(policy, TEXTS, [1.0, 0.0, 0.0])
    found = segments(policy.tokenizer, batch)
    assert found[0, :11].tolist() == [0] * 5 + [1] * 3 + [2] * 3
    assert found[1, :12].tolist() == [0] * 6 + [1] * 6
    values = step_values(batch, "process")
    assert values == [[2.0, 3.0, 5.0], [1.0, 3.0], None]
    for row, listed in enumerate(values[:2]):
        assert listed is not None
        assert int(found[row].max()) + 1 == len(listed)


def test_step_rewards_lie_on_the_last_token_of_their_step(policy: Policy) -> None:
    batch = written(policy, TEXTS, [1.0, 0.0, 0.5])
    plugin = ClipAndDelta(clips=False, alpha=0.5)
    plugin.attach(policy)
    shaped = plugin.shape(batch)
    assert shaped.scored_reward.tolist() == pytest.approx([1.0, 0.0, NAN], nan_ok=True)
    assert shaped.dense is not None
    assert {t: v for t, v in enumerate(shaped.dense[0].tolist()) if v} == {4: -0.5, 7: 1.5}  # values 2, 3, 5: -1, 3, 0
    assert {t: v for t, v in enumerate(shaped.dense[1].tolist()) if v} == {5: 0.5}
    assert not shaped.dense[2].any()
    returns = shaped.token_reward[0].flip(0).cumsum(0).flip(0)
    assert returns[0] == pytest.approx(1.0 + 0.5 * 2.0)  # the first step's own score, however many follow
    assert returns[8] == pytest.approx(1.0)
    more = plugin.shape(shaped)
    assert more.dense is not None
    torch.testing.assert_close(more.dense, 2 * shaped.dense)


def test_process_rewards_need_their_part(policy: Policy) -> None:
    plugin = ClipAndDelta(part="steps")
    plugin.attach(policy)
    with pytest.raises(BadInputError, match="no reward part 'steps'"):
        plugin.shape(written(policy, TEXTS, [1.0, 0.0, 0.5]))


def test_each_block_gets_its_own_progress(policy: Policy) -> None:
    """The sum over a row telescopes, so it is the block that earns it. Before the first: the mean of first values."""
    batch = written(policy, TEXTS, [1.0, 0.0, NAN])
    batch = batch.with_(adv=torch.where(batch.mask, 0.25, 0.0))
    plugin = BlockProgress(alpha=0.1)
    plugin.attach(policy)
    found = plugin.modulate(batch)
    start = (2.0 + 1.0) / 2
    expected = [0.25 + 0.1 * (2 - start)] * 5 + [0.25 + 0.1 * (3 - 2)] * 3 + [0.25 + 0.1 * (5 - 3)] * 3
    assert found[0, :11].tolist() == pytest.approx(expected)
    assert found[1, :6].tolist() == pytest.approx([0.25 + 0.1 * (1 - start)] * 6)
    assert batch.adv is not None
    assert torch.equal(found[2], batch.adv[2])
    assert not found[~batch.mask].any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verifier", RewardReference("member", "verifier")),
        ("http://h:1", RewardReference("whole", None, "http://h:1")),
        ("https://h/x?a=b", RewardReference("whole", None, "https://h/x?a=b")),
        ("quality=http://h:1#rm-2", RewardReference("whole", "quality", "http://h:1", "rm-2")),
        ("answer:http://h:1", RewardReference("answer", None, "http://h:1")),
        ("process=steps:http://h:1", RewardReference("steps", "process", "http://h:1")),
        ("my_rewards.py:Brevity", RewardReference("member", "my_rewards.py:Brevity")),
        ("row:direction", RewardReference("member", "row", key="direction")),
    ],
)
def test_how_the_command_names_a_reward(text: str, expected: RewardReference) -> None:
    assert parse_reward(text) == expected


@pytest.mark.parametrize("text", ["", "row:", "model", "answer:verifier", "a b=http://h", "ftp://h", "localhost:8000"])
def test_what_names_no_reward(text: str) -> None:
    with pytest.raises(BadInputError, match="assay serve"):
        parse_reward(text)
