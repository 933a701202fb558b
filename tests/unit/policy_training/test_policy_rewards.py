"""Rewards and prompts of a policy run: missing stays missing, every wrong row is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_policy_training.core.batch import RolloutBatch, group_index, on_last_token
from assay_policy_training.core.prompt import FINAL_TURN, PromptItem
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.filters.groups import EnoughValid
from assay_policy_training.plugins.prompts.source import ShuffledPrompts, load_prompts
from assay_policy_training.rollouts.open_rewards import open_rewards
from assay_policy_training.rollouts.reward_uri import recorded_reward
from assay_policy_training.rollouts.rewards import ModelReward, VerifierReward, gather_rewards
from assay_policy_training.training.evaluation import PassRate
from assay_serving.composition.checking import ConstraintScorer
from assay_serving.composition.composed import ComposedScorer
from assay_serving.composition.description import ComposedSpec
from assay_serving.scorer import ModelInfo, ScoreItem, Scorer
from assay_serving.verifiers import AllLowercase, MathAnswer, MaxWords

NAN = float("nan")
PLAIN = PromptItem((Message("user", "say hi"),))
CHECKED = PromptItem((Message("user", "say hi"),), (AllLowercase(), MaxWords(2)))


class PickyScorer:
    """Scores the length of a response; gives none for an empty one."""

    info = ModelInfo("picky", "v1", "scalar", "t1", 100, False, "unchecked", "float32", "cpu")

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return [
            Score(float(len(item.response)), "picky", "v1", "t1", 1, False)
            if item.response
            else ScoreFailure("bad_input", "empty response", "picky")
            for item in items
        ]


def _batch(uid: tuple[str, ...], reward: list[float]) -> RolloutBatch:
    rows = len(uid)
    ids, mask = torch.zeros(rows, 2, dtype=torch.long), torch.ones(rows, 2, dtype=torch.bool)
    return RolloutBatch(
        uid=uid,
        prompts=(PLAIN.prompt,) * rows,
        responses=("x",) * rows,
        gen_input_ids=ids,
        gen_mask=mask,
        train_input_ids=ids,
        train_mask=mask,
        tokens=ids,
        mask=mask,
        loss_mask=mask,
        logp_mu=torch.zeros(rows, 2),
        version=torch.zeros(rows, dtype=torch.long),
        token_version=ids,
        finished=mask[:, 0],
        truncated=~mask[:, 0],
        reward=torch.tensor(reward, dtype=torch.float64),
    )


def test_failed_score_is_missing_with_its_reason_and_never_zero() -> None:
    found = gather_rewards([ModelReward(PickyScorer())], [PLAIN] * 3, ["abc", "", "a"])
    assert found.parts["picky"].tolist() == pytest.approx([3.0, NAN, 1.0], nan_ok=True)
    assert [len(f) for f in found.failures] == [0, 1, 0]
    assert found.failures[1][0].message == "empty response"
    assert [dict(s) == {} for s in found.scores] == [False, True, False]
    assert found.scores[0]["picky"].version == "v1"


def test_a_composed_reward_gets_the_prompts_constraints_and_references() -> None:
    parts = [
        {"name": "asked", "constraints": "label"},
        {"name": "long", "model": "picky", "shaping": [{"kind": "centre"}]},
    ]
    combine = {"kind": "weighted_sum", "weights": {"asked": 10, "long": 1}}
    spec = ComposedSpec.from_dict({"kind": "composed", "parts": parts, "combine": combine})
    scorers: dict[str, Scorer] = {"asked": ConstraintScorer(None, "fraction"), "long": PickyScorer()}
    source = ModelReward(ComposedScorer(spec, scorers, name="safe"))
    known = PromptItem(CHECKED.prompt, CHECKED.constraints, {"references": ["four"]})
    found = gather_rewards([source], [known, CHECKED, PLAIN], ["Hi all", "hi", "hi"])
    assert found.parts["safe"].tolist() == pytest.approx([5.0 + 2.0, NAN, NAN], nan_ok=True)
    assert "references" in found.failures[1][0].message
    assert "label" in found.failures[2][0].message
    assert [part.name for part in found.scores[0]["safe"].parts] == ["asked", "long"]


def test_composition_is_the_weighted_sum_and_keeps_missing() -> None:
    parts = {"a": torch.tensor([1.0, NAN, 2.0]), "b": torch.tensor([10.0, 10.0, NAN])}
    assert Composition({"a": 2.0, "b": 0.1})(parts).tolist() == pytest.approx([3.0, NAN, NAN], nan_ok=True)
    assert Composition({"a": 1.0, "b": 0.0})(parts).tolist() == pytest.approx([1.0, NAN, 2.0], nan_ok=True)
    assert Composition()(parts).tolist() == pytest.approx([11.0, NAN, NAN], nan_ok=True)
    with pytest.raises(BadInputError, match="no reward part 'c'"):
        Composition({"c": 1.0})(parts)
    with pytest.raises(BadInputError, match="weight 0"):
        Composition({"a": 0.0})(parts)


def test_two_sources_of_one_name_are_refused() -> None:
    with pytest.raises(BadInputError, match="picky"):
        gather_rewards([ModelReward(PickyScorer()), ModelReward(PickyScorer())], [PLAIN], ["a"])


def test_verifier_part_is_the_share_of_constraints_met() -> None:
    found = VerifierReward().score([CHECKED, CHECKED, PLAIN], ["hi there", "Hi there", "hi"])
    assert found.parts["verifier"].tolist() == pytest.approx([1.0, 0.5, NAN], nan_ok=True)
    assert found.failures[2][0].code == "no_verifier"


def test_a_program_checks_the_answer_and_not_what_tools_said() -> None:
    asked = PromptItem(CHECKED.prompt, (MathAnswer("42"),), {FINAL_TURN: "I do not know."})
    transcript = 'Let me see.<tool_call>{"name": "calculator"}</tool_call>\n42\nI do not know.'
    assert VerifierReward().score([asked], [transcript]).parts["verifier"].tolist() == [0.0]
    known = PromptItem(CHECKED.prompt, (MathAnswer("42"),), {FINAL_TURN: "The answer is 42."})
    assert VerifierReward().score([known], [transcript]).parts["verifier"].tolist() == [1.0]


def test_groups_with_too_few_rewards_are_dropped() -> None:
    batch = _batch(("a", "a", "b", "b", "a"), [1.0, NAN, 2.0, NAN, 3.0])
    assert EnoughValid(2).keep(batch).tolist() == [True, False, False, False, True]


def test_rows_keep_their_group_when_selected() -> None:
    batch = _batch(("a", "b", "a"), [1.0, 2.0, 3.0]).select([2, 1])
    assert batch.uid == ("a", "b")
    assert batch.scored_reward.tolist() == [3.0, 2.0]
    assert group_index(("x", "y", "x")).tolist() == [0, 1, 0]


def test_loss_mask_stays_inside_the_mask() -> None:
    batch = _batch(("a", "b"), [1.0, 2.0])
    with pytest.raises(ValueError, match="subset"):
        batch.with_(mask=torch.zeros(2, 2, dtype=torch.bool))


def test_scalar_reward_sits_on_the_last_valid_token() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()
    found = on_last_token(torch.tensor([1.0, 2.0, NAN, 4.0]), mask)
    assert found.tolist() == [[0, 1, 0], [0, 0, 2], [0, 0, 0], [0, 0, 0]]


def test_prompts_come_once_an_epoch_and_resume_in_place() -> None:
    items = load_prompts("constrained:5", seed=0)
    source = ShuffledPrompts(items, seed=3)
    first = [source.next(2) for _ in range(3)]
    state = json.loads(json.dumps(source.state_dict()))
    rest = source.next(7)
    drawn = [item.prompt for batch in first for item in batch][:5]
    assert sorted(map(str, drawn)) == sorted(str(item.prompt) for item in items)
    again = ShuffledPrompts(items, seed=3)
    again.load_state_dict(state)
    assert again.next(7) == rest
    with pytest.raises(BadInputError, match="not the prompts"):
        ShuffledPrompts(items[:4], seed=3).load_state_dict(state)


def test_prompt_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"prompt": "hello", "constraints": [MaxWords(3).to_dict()], "topic": "t"},
        {"prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    first, second = load_prompts(str(path), seed=0)
    assert first == PromptItem((Message("user", "hello"),), (MaxWords(3),), {"topic": "t"}, as_text=True)
    assert [m.role for m in second.prompt] == ["system", "user"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "row 1: broken JSON"),
        ("{}", "row 1, field 'prompt'"),
        ('{"prompt": "a", "constraints": [{"kind": "rhyme"}]}', "row 1: field 'kind': no verifier is named 'rhyme'"),
        ('{"prompt": "a", "constraints": 3}', "constraints"),
        ('{"prompt": "a", "constraints": [3]}', "constraints"),
        (
            '{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
            "row 1, field 'prompt': ends with the assistant's turn",
        ),
        ("", "no prompts"),
    ],
)
def test_wrong_prompt_rows_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=complaint):
        load_prompts(str(path), seed=0)


@pytest.mark.parametrize("source", ["nowhere.jsonl", "constrained:none", "constrained:0"])
def test_unknown_prompt_sources(source: str) -> None:
    with pytest.raises(BadInputError, match="prompts"):
        load_prompts(source, seed=0)


def test_a_misspelt_prompt_source_is_told_the_sources() -> None:
    with pytest.raises(BadInputError, match=r"no such file or snapshot.*twenty_questions"):
        load_prompts("twenty_question:8", seed=0)


def _width(rate: PassRate) -> float:
    assert rate.interval is not None
    return rate.interval.high - rate.interval.low


def test_interval_of_a_pass_rate() -> None:
    """Wilson's for prompts of one rollout each, 8 of 10; wider where rollouts of a prompt pass together."""
    alone = PassRate.of([1.0] * 8 + [0.0] * 2, [str(number) for number in range(10)])
    assert (alone.passed, alone.total, alone.share) == (8, 10, 0.8)
    assert _width(alone) >= 0.9433178 - 0.4901625
    assert PassRate.of([1.0] * 8, ["same"] * 8).interval is None
    together = PassRate.of([1.0] * 32 + [0.0] * 8, [str(number // 4) for number in range(40)])
    independent = PassRate.of([1.0] * 32 + [0.0] * 8, [str(number) for number in range(40)])
    assert _width(together) > 1.5 * _width(independent)
    assert PassRate.of([0.0] * 10, list("abcdefghij")).low == pytest.approx(0)
    assert PassRate.of([1.0] * 10, list("abcdefghij")).high == pytest.approx(1)


def test_a_reward_of_ones_own_comes_from_a_file(tmp_path: Path) -> None:
    """By file and class, recorded by the absolute path; what has no `score` is refused."""
    source = "import torch\nfrom assay_policy_training.plugins.protocols import Rewards\n\n\nclass Brevity:\n"
    source += "    name = 'brevity'\n\n    def score(self, items, responses):\n"
    source += "        part = torch.tensor([1.0 / (1 + len(r)) for r in responses], dtype=torch.float64)\n"
    source += "        return Rewards({self.name: part}, [() for _ in items], [{} for _ in items])\n\n\n"
    source += "class Nothing:\n    pass\n"
    (tmp_path / "brief.py").write_text(source, encoding="utf-8")
    reference = recorded_reward(f"{tmp_path}/x/../brief.py:Brevity", "some-model")
    assert reference == f"{tmp_path / 'brief.py'}:Brevity"
    with ExitStack() as stack:
        (opened,) = open_rewards(stack, [reference], [None], wait=0, deadline=1)
        items = [PromptItem((Message("user", "Hi"),))]
        assert opened.score(items, ["abc"]).parts["brevity"].tolist() == [0.25]
        with pytest.raises(BadInputError, match=r"is no reward: it has no score"):
            open_rewards(stack, [f"{tmp_path / 'brief.py'}:Nothing"], [None], wait=0, deadline=1)
    with pytest.raises(BadInputError, match=r"no reward is named 'verifer'; did you mean verifier\?"):
        recorded_reward("verifer", None)


def test_prompts_of_ones_own_come_from_a_file(tmp_path: Path) -> None:
    source = "from assay.domain import Message\nfrom assay_policy_training.core.prompt import PromptItem\n\n\n"
    source += "def greetings(argument, *, seed, split):\n"
    source += "    return [PromptItem((Message('user', f'{split} {seed} {n}'),)) for n in range(2)]\n"
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    items = load_prompts(f"{tmp_path / 'mine.py'}:greetings", seed=7)
    assert [item.prompt[0].content for item in items] == ["train 7 0", "train 7 1"]
    with pytest.raises(BadInputError, match=r"has no 'greeting'; did you mean greetings\?"):
        load_prompts(f"{tmp_path / 'mine.py'}:greeting", seed=7)
