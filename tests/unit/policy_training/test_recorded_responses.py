"""Responses that exist already: read, checked, rewarded and made into rows that the same loop trains on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.cli.main import main
from assay.domain import Message
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem, checked_record, read_records
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.contexts.revise import PREVIOUS, Revise
from assay_policy_training.plugins.estimators.step_values import StepValues
from assay_policy_training.plugins.samplers.recorded import RecordedResponses, RecordedSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import RecordedReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import StartsWith

CPU = torch.device("cpu")
RECORDS: list[Any] = [
    "a plain text",
    {"steps": ["first ", "then"], "step_values": [0.5, 0.7, 1.0], "reward": 1},
    {"text": "rated", "reward": 0.25},
]
ITEM = PromptItem((Message("user", "Say it."),), meta={"responses": RECORDS})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)


def sampler(policy: Policy, **options: Any) -> RecordedSampler:
    return RecordedSampler(policy, Sampling(**({"max_new_tokens": 64} | options)), {})


def test_rows_are_the_records(policy: Policy) -> None:
    batch = sampler(policy).rollout([ITEM], 3, seed=1, version=5)
    assert sorted(batch.responses) == ["a plain text", "first then", "rated"]
    assert set(batch.uid) == {"5.0"}
    assert set(batch.source) == {"recorded"}
    assert bool(batch.finished.all())
    assert batch.version.tolist() == [5, 5, 5]
    row = batch.responses.index("first then")
    assert batch.segment is not None
    own = batch.tokens[row][batch.mask[row]]
    steps = batch.segment[row][batch.mask[row]]
    assert int(own[-1]) in policy.end_ids
    assert policy.tokenizer.decode(own[steps == 0]) == "first "
    assert policy.tokenizer.decode(own[steps == 1], skip_special_tokens=True) == "then"
    with torch.no_grad():
        logp = policy.scores(batch, temperature=1.0).logp
    torch.testing.assert_close(batch.logp_mu, logp * batch.mask)
    assert batch.items[row].meta["recorded"]["place"] == 1


def test_one_seed_gives_one_draw(policy: Policy) -> None:
    drawn = [sampler(policy).rollout([ITEM], 2, seed=seed, version=0).responses for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_given_tokens_keep_their_log_probs_and_long_ones_are_cut(policy: Policy) -> None:
    ids = policy.tokenizer("some words here", add_special_tokens=False)["input_ids"]
    given = [-0.5 - 0.01 * n for n in range(len(ids))]
    item = PromptItem(ITEM.prompt, meta={"responses": [{"tokens": ids, "logprobs": given}]})
    (row,) = sampler(policy).rollout([item], 1, seed=0, version=0).logp_mu
    assert row.tolist() == pytest.approx(given)
    cut = sampler(policy, max_new_tokens=4).rollout([item], 1, seed=0, version=0)
    assert cut.logp_mu[0].tolist() == pytest.approx(given[:4])
    assert bool(cut.truncated[0])


def test_forced_start_and_steps_keep_their_places(policy: Policy) -> None:
    item = replace(ITEM, forced="Well: ", meta={"responses": [RECORDS[1]]})
    batch = sampler(policy).rollout([item], 1, seed=0, version=0)
    assert batch.segment is not None
    assert batch.responses == ("Well: first then",)
    first = batch.tokens[0][batch.mask[0] & (batch.segment[0] == 0)]
    assert policy.tokenizer.decode(first) == "first "


def test_too_few_records_name_the_prompt(policy: Policy) -> None:
    with pytest.raises(BadInputError, match=r"3 recorded responses to 'Say it\.', a group has 4"):
        sampler(policy).rollout([ITEM], 4, seed=0, version=0)
    with pytest.raises(BadInputError, match="no recorded response to the prompt 'Unknown'"):
        sampler(policy).rollout([PromptItem((Message("user", "Unknown"),))], 1, seed=0, version=0)


def test_recorded_rewards_and_missing_ones(policy: Policy) -> None:
    batch = sampler(policy).rollout([ITEM], 3, seed=1, version=0)
    found = RecordedReward().score(batch.items, batch.responses)
    by_text = dict(zip(batch.responses, found.parts["recorded"].tolist(), strict=True))
    assert by_text["first then"] == 1
    assert by_text["rated"] == 0.25
    assert math.isnan(by_text["a plain text"])
    missing = batch.responses.index("a plain text")
    assert [failure.code for failure in found.failures[missing]] == ["no_reward"]


def test_file_of_records(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [{"prompt": "Say it.", "responses": ["one"]}, {"prompt": "Say it.", "responses": [{"text": "two"}]}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    opened = RecordedResponses(str(path)).open(policy, Sampling(max_new_tokens=8))
    batch = opened.rollout([PromptItem(ITEM.prompt)], 2, seed=0, version=0)
    assert sorted(batch.responses) == ["one", "two"]
    with pytest.raises(BadInputError, match="no such file"):
        read_records(tmp_path / "none.jsonl")
    path.write_text(json.dumps({"prompt": "hi", "responses": [{"steps": []}]}) + "\n", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"records\.jsonl.*row 1.*responses\.0\.steps"):
        read_records(path)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (7, "responses.2"),
        ({}, "responses.2"),
        ({"text": 3}, "responses.2.text"),
        ({"steps": ["a", ""]}, "responses.2.steps"),
        ({"tokens": [1, "b"]}, "responses.2.tokens"),
        ({"text": "a", "logprobs": [0.1]}, "responses.2.logprobs"),
        ({"tokens": [1, 2], "logprobs": [0.1]}, "responses.2.logprobs"),
        ({"text": "a", "reward": "good"}, "responses.2.reward"),
        ({"steps": ["a", "b"], "step_values": [0.1]}, "responses.2.step_values"),
    ],
)
def test_wrong_records_are_named(record: Any, field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        checked_record(record, 2)
    assert caught.value.field == field


def test_step_values_of_records() -> None:
    """V .4 .7 .3 and the outcome 1; Q_0 .5, Q .6 .5 .1 .1; a row without values, and one without a reward."""
    records = [
        {"steps": list("abc"), "step_values": [0.4, 0.7, 0.3]},
        {"steps": list("abcd"), "step_values": [0.5, 0.6, 0.5, 0.1, 0.1]},
        {"text": "a"},
        {"steps": list("ab"), "step_values": [0.5, 0.6, 0.5]},
    ]
    items = tuple(PromptItem((), meta={"recorded": record}) for record in records)
    segment = torch.tensor([[0, 1, 1, 2], [0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 1, 1]])
    reward = torch.tensor([1, 0, 1, torch.nan], dtype=torch.float64)
    batch = rollouts([4] * 4, items=items, segment=segment, reward=reward)
    adv, returns = StepValues()(batch)
    assert returns is None
    expected = [[0.3, -0.4, -0.4, 0.7], [0.1, -0.1, -0.4, 0], [0] * 4, [0] * 4]
    assert torch.allclose(adv, torch.tensor(expected))
    kept, _ = StepValues(positive_only=True, samples=16)(batch)
    assert torch.allclose(kept, torch.tensor([[0.3, 0, 0, 0.7], [0] * 4, [0] * 4, [0] * 4]))


def test_a_response_that_was_cut_is_judged_by_what_is_left() -> None:
    record = {"steps": list("abc"), "step_values": [0.4, 0.7, 0.3]}
    batch = rollouts([2], items=(PromptItem((), meta={"recorded": record}),), segment=torch.tensor([[0, 1]]))
    adv, _ = StepValues()(batch.with_(reward=torch.ones(1, dtype=torch.float64)))
    assert torch.allclose(adv, torch.tensor([[0.3, -0.4]]))


def test_values_of_a_critic_and_of_the_group() -> None:
    values = torch.tensor([[0.4, 9.0, 0.7, 9.0], [0.5, 9.0, 9.0, 9.0]])
    segment = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])
    reward = torch.tensor([1.0, 0.2], dtype=torch.float64)
    batch = rollouts([4, 3], uid=["a", "a"], values=values, segment=segment, reward=reward)
    adv, returns = StepValues("critic")(batch)
    assert torch.allclose(adv, torch.tensor([[0.3, 0.3, 0.3, 0.3], [-0.3, -0.3, -0.3, 0]]))
    assert returns is not None
    assert returns[1].tolist() == pytest.approx([0.2, 0.2, 0.2, 0])
    adv, _ = StepValues("group", positive_only=True)(batch)
    assert torch.allclose(adv, torch.tensor([[0.8] * 4, [0.0] * 4]))


def test_revisions_show_every_answer_after_every_answer(policy: Policy) -> None:
    item = PromptItem(ITEM.prompt, meta={"responses": [{"text": "good", "reward": 1}, {"text": "bad", "reward": 0}]})
    plain = sampler(policy).rollout([item], 2, seed=3, version=0)
    redraws = Revise(request="Better!").again(plain, 1)
    assert len(redraws) == 2
    assert Revise().again(plain, 2) == []
    pairs = set()
    for redraw in redraws:
        batch = sampler(policy).rollout([redraw.item], 2, seed=0, version=0)
        shown = redraw.item.training_context
        previous = redraw.item.meta[PREVIOUS]
        assert [message.content for message in shown] == ["Say it.", ["good", "bad"][previous], "Better!"]
        assert redraw.item.prompt == item.prompt
        for row, text in enumerate(batch.responses):
            assert batch.items[row].meta["recorded"]["place"] == ["good", "bad"].index(text)
            pairs.add((text, previous))
    assert pairs == {("good", 0), ("bad", 0), ("good", 1), ("bad", 1)}
    with pytest.raises(BadInputError, match="recorded"):
        Revise().again(rollouts([1], items=(ITEM,)), 1)


@pytest.mark.parametrize(
    ("recipe", "steps"),
    [
        ("inpo", 6),
        ("srpo", 6),
        ("direct_advantage", 3),
        ("incorrect_data", 3),
        ("a_lol", 3),
        ("pacs", 3),
        ("drpo", 6),
        ("rover", 6),
    ],
)
def test_methods_come_to_prefer_the_better_response(recipe: str, steps: int, tmp_path: Path) -> None:
    """The gap between the two responses' log-probs grows, by the same loop and without generating a token."""
    good = {"steps": ["yes, ", "of course"], "step_values": [0.5, 0.8, 1.0], "reward": 1.0}
    bad = {"steps": ["never ", "again"], "step_values": [0.5, 0.2, 0.0], "reward": 0.0}
    right = (StartsWith("yes"),)
    asked = [(Message("user", f"Will you do {n}?"),) for n in range(3)]
    items = [PromptItem(prompt, right, {"responses": [bad, good]}) for prompt in asked]
    sizes = ["sampling.prompts_per_step=3", "sampling.group_size=2", "checkpoint_every=0", "optimisation.lr=0.01"]
    chosen = load_recipe(recipe, [*sizes, "sampler.kind=recorded"])
    torch.manual_seed(0)
    fresh = Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)
    source = chosen.source.open(items, seed=0, policy=fresh)
    trainer = PolicyLoop(chosen, fresh, source, [RecordedReward()], tmp_path)

    def gap() -> float:
        batch = RecordedSampler(fresh, Sampling(), {}).rollout(items, 2, seed=0, version=0)
        sign = torch.tensor([1.0 if text.startswith("yes") else -1.0 for text in batch.responses])
        return float((sign * batch.logp_mu.sum(1)).sum()) / len(items)

    before = gap()
    trainer.train(steps)
    assert gap() > before + 0.5


@pytest.mark.slow
def test_a_lol_against_values_of_a_critic(tmp_path: Path) -> None:
    """The critic learns what the responses to a prompt earn: the better one's advantage falls from 1 to half."""
    records = [{"text": "yes, of course", "reward": 1.0}, {"text": "never again", "reward": 0.0}]
    items = [PromptItem((Message("user", f"Will you do {n}?"),), meta={"responses": records}) for n in range(2)]
    options = ["sampling.prompts_per_step=2", "sampling.group_size=2", "checkpoint_every=0", "optimisation.lr=0"]
    critic = ["critic.kind=value_model", "critic.lr=0.003"]
    chosen = load_recipe("a_lol", [*options, "estimator.values=critic", "replay=null", *critic])
    torch.manual_seed(0)
    fresh = Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)
    source = chosen.source.open(items, seed=0, policy=fresh)
    PolicyLoop(chosen, fresh, source, [RecordedReward()], tmp_path).train(25)
    rows = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    better = [row["advantage"] for row in rows if row["reward"] == 1]
    assert better[0] == pytest.approx(1)
    assert better[-1] == pytest.approx(0.5, abs=0.2)


@pytest.mark.slow
def test_a_file_of_records_is_an_input_of_the_run_and_found_from_any_folder(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [{"text": "one", "reward": 1.0}, {"text": "two", "reward": 0.0}]
    asked = [f"Say {word}." for word in ("this", "that")]
    (tmp_path / "here").mkdir()
    for name, rows in (
        ("prompts.jsonl", [{"prompt": ask} for ask in asked]),
        ("held-out.jsonl", [{"prompt": "Say so.", "constraints": [{"kind": "no_commas"}]}]),
        ("records.jsonl", [{"prompt": ask, "responses": texts} for ask in asked]),
    ):
        (tmp_path / "here" / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def assay(*arguments: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main(["rl", *arguments, "--json", "-w", str(workspace.root)])
        printed = capsys.readouterr()
        assert ended.value.code == 0, printed.err
        found: dict[str, Any] = json.loads(printed.out)
        return found

    monkeypatch.chdir(tmp_path / "here")
    plan = ["--reward", "recorded", "--policy", "tiny", "--prompts", "prompts.jsonl", "--prompts-per-step", "2"]
    plan += ["--group-size", "2", "--max-new-tokens", "6", "--steps", "1", "--name", "a"]
    plan += ["--set", "sampler={kind: recorded, file: records.jsonl}", "--set", "checkpoint_every=1"]
    plan += ["--evaluate", "1", "--eval-prompts", "held-out.jsonl"]
    run = assay(*plan)["run"]
    with workspace.store.unit() as db:
        query = "SELECT ref FROM run_links WHERE run_id = $run AND direction = 'input' AND kind = 'file'"
        inputs = {row[0] for row in db.execute(query, {"run": run}).fetchall()}
    names = ("prompts.jsonl", "records.jsonl", "held-out.jsonl")
    assert inputs == {str((tmp_path / "here" / name).resolve()) for name in names}
    monkeypatch.chdir(tmp_path)
    assert assay("--resume", run, "--steps", "2", "--name", "b")["steps"] == 2
