"""Contexts with hints: who is shown what, what is trained on, and what a restart keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_rows import context_of_rows, rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.aggregation import LossAggregation
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.metrics import TokenMeans
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.auxiliary.kl import HintNll
from assay_policy_training.plugins.contexts.hints import GUIDED, Ghpo, Guide
from assay_policy_training.plugins.contexts.seele import SHARE, Seele, steps_of
from assay_policy_training.plugins.filters.groups import GuidedMixed
from assay_policy_training.plugins.objectives.guide import GuideLoss
from assay_policy_training.plugins.protocols import ResampleRequest, StepReport
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.gradients import Gradients
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import MinWords

CPU = torch.device("cpu")
SOLUTION = "ABCDEFGH"
ITEM = PromptItem((Message("system", "Be brief."), Message("user", "Sum?")), meta={"solution": SOLUTION, "hint": "add"})
BARE = PromptItem((Message("user", "No solution"),))


def group(item: PromptItem, acc: list[float], uid: str = "1.0") -> RolloutBatch:
    rows = len(acc)
    return rollouts([3] * rows, uid=[uid] * rows, items=(item,) * rows, acc=torch.tensor(acc, dtype=torch.float64))


def test_ghpo_shows_more_of_the_solution_each_round_and_trains_with_it() -> None:
    contexts = Ghpo(wording=" Start: {hint}")
    assert contexts.first([ITEM, BARE]) == [ITEM, BARE]
    shown = []
    for number in (1, 2, 3):
        (redraw,) = contexts.again(group(ITEM, [0, 0]), number)
        assert redraw.replace
        assert redraw.uid == "1.0"
        assert redraw.item.prompt == ITEM.prompt, "rewards read the prompt itself"
        assert redraw.item.generation_context == redraw.item.training_context
        shown.append(redraw.item.generation_context[-1].content)
    assert shown == ["Sum? Start: AB", "Sum? Start: ABCD", "Sum? Start: ABCDEF"]
    assert contexts.again(group(ITEM, [0, 0]), 4) == []


@pytest.mark.parametrize("acc", [[0.0, 1.0], [float("nan"), float("nan")]], ids=["one right", "no verifier"])
def test_no_hint_without_a_reason(acc: list[float]) -> None:
    for contexts in (Ghpo(), Guide()):
        assert contexts.again(group(ITEM, acc), 1) == []
        assert contexts.again(group(BARE, [0, 0]), 1) == [], "nothing to take a hint from"


def test_a_missing_verdict_takes_no_part() -> None:
    assert len(Ghpo().again(group(ITEM, [0, float("nan")]), 1)) == 1


def test_ghpo_cold_start_ends_and_is_remembered() -> None:
    contexts = Ghpo(cold_start=2)
    assert contexts.first([ITEM, BARE])[0].generation_context != ITEM.prompt
    assert contexts.first([ITEM, BARE])[1] == BARE
    contexts.observe(StepReport(2, {}, group(ITEM, [1])))
    again = Ghpo(cold_start=2)
    again.load_state_dict(json.loads(json.dumps(contexts.state_dict())))
    assert again.first([ITEM]) == [ITEM]


def test_guide_generates_with_the_hint_and_trains_without() -> None:
    (redraw,) = Guide(wording="\nHint: {hint}").again(group(ITEM, [0, 0, 0]), 1)
    assert redraw.item.generation_context[-1].content == "Sum?\nHint: add"
    assert redraw.item.training_context == ITEM.prompt
    assert redraw.item.source == GUIDED
    assert Guide().again(group(ITEM, [0, 0, 0]), 2) == []


def test_only_mixed_guided_groups_are_trained_on() -> None:
    acc = torch.tensor([0, 0, 0, 1, 1, 1, 0, 0], dtype=torch.float64)
    batch = rollouts([2] * 8, uid=list("aabbccdd"), acc=acc, source=(GUIDED,) * 6 + ("policy",) * 2)
    assert GuidedMixed().keep(batch).tolist() == [False, False, True, True, False, False, True, True]


def test_guided_rows_have_a_ratio_of_their_own() -> None:
    """Against what generated them, without a clip; the policy's own rows keep theirs."""
    logp = torch.full((2, 1), -1.0)
    batch = rollouts(
        [1, 1],
        source=(GUIDED, "policy"),
        adv=torch.ones(2, 1),
        logp_old=torch.full((2, 1), -2.0),
        logp_mu=torch.full((2, 1), -1.0 - torch.tensor(2.0).log().item()),
    )
    objective = GuideLoss(gamma=0.1)
    loss, reports = objective.loss(logp, context_of_rows(objective.prepare(batch)))
    assert loss.squeeze(1).tolist() == pytest.approx([-2 / 2.1, -1.2], abs=1e-5)
    assert reports["guided_share"].squeeze(1).tolist() == [1, 0]


def test_quantile_of_the_whole_step_sets_the_shape() -> None:
    ratios = torch.tensor([0.5, 1.0, 2.0, 100.0])
    batch = rollouts(
        [1] * 4,
        source=(GUIDED,) * 3 + ("policy",),
        adv=torch.ones(4, 1),
        logp_old=ratios.log()[:, None],
        logp_mu=torch.zeros(4, 1),
    )
    prepared = GuideLoss(shape="quantile", level=0.9).prepare(batch)
    assert torch.allclose(prepared.extras["guide_gamma"], torch.tensor(1.8))  # between 1 and 2


def test_seele_aims_at_half_of_the_rollouts_right() -> None:
    """A simulated prompt that is solved where at least 0.6 of the solution is shown."""
    solution = "0123456789" * 10
    item = PromptItem((Message("user", "Sum?"),), meta={"solution": solution})
    contexts, rows = Seele(rounds=8), []
    (drawn,) = contexts.first([item])
    assert drawn.forced == "", "one step: nothing of it is shown"
    turn = 0
    while True:
        share = drawn.meta[SHARE]
        assert drawn.forced == solution[: round(100 * share)]
        rows += [(drawn, float(share >= 0.6) if n % 4 else float(share >= 0.7)) for n in range(8)]
        batch = rollouts(
            [1] * len(rows),
            uid=["1.0"] * len(rows),
            items=tuple(item for item, _ in rows),
            acc=torch.tensor([acc for _, acc in rows], dtype=torch.float64),
        )
        found = contexts.again(batch, turn := turn + 1)
        if not found:
            break
        (redraw,) = found
        assert isinstance(redraw, ResampleRequest)
        assert not redraw.replace, "rows of all rounds stay in one group"
        drawn = redraw.item
    assert turn == 8
    assert abs(next(iter(contexts.last.values())) - 0.6) < 0.08
    again = Seele(rounds=8)
    again.load_state_dict(json.loads(json.dumps(contexts.state_dict())))
    assert again.first([item])[0].meta[SHARE] == next(iter(contexts.last.values()))
    assert contexts.first([BARE]) == [BARE]


def test_steps_of_a_solution() -> None:
    assert [steps_of(text) for text in ("", "one", "One. Two! Three", "a\n\nb\n")] == [1, 1, 3, 2]
    item = PromptItem((Message("user", "?"),), meta={"solution": "One. Two. Three. Four."})
    assert Seele().first([item])[0].meta[SHARE] == 0.75


def test_hint_tokens_are_given_and_only_learnt_by_likelihood() -> None:
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128)
    (shown,) = Seele().first([PromptItem((Message("user", "?"),), meta={"solution": "One. Two."})])
    assert shown.forced == "One."
    batch = TransformersSampler(policy, Sampling(max_new_tokens=4)).rollout([shown], 2, seed=0, version=0)
    assert batch.forced is not None
    assert not (batch.forced & batch.mask).any()
    assert all(text.startswith(shown.forced) for text in batch.responses)
    batch = batch.with_(adv=torch.zeros(batch.mask.shape), logp_old=batch.logp_mu)
    context, loss = context_of_rows(batch), HintNll(0.001)
    forced = batch.forced
    assert forced is not None
    assert context.rows is not None
    assert torch.equal(loss.own_mask(context.rows), forced)
    logp = torch.full(batch.mask.shape, -2.0)
    assert set(loss.loss(logp, context)[forced].tolist()) == {2.0}
    plain = rollouts([2], adv=torch.zeros(1, 2), logp_old=torch.zeros(1, 2))
    assert not loss.own_mask(plain).any()


def test_the_hints_likelihood_has_denominators_of_its_own() -> None:
    """A mean over hint tokens stays one, however many tokens the policy's own loss has, none included."""
    recipe = load_recipe("grpo", ["auxiliary=[{kind: hint_nll, coefficient: 1.0}]", "kl.coefficient=0.0"])
    recipe = replace(recipe, aggregation=LossAggregation("token-mean"), report_kl=False)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128)
    (shown,) = Seele().first([PromptItem((Message("user", "?"),), meta={"solution": "One. Two."})])
    batch = TransformersSampler(policy, Sampling(max_new_tokens=4)).rollout([shown], 2, seed=0, version=0)
    batch = batch.with_(adv=torch.zeros(batch.mask.shape))
    assert batch.forced is not None
    nll = -policy.scores(batch, temperature=1.0).logp[batch.forced].mean()
    for loss_mask in (batch.mask, torch.zeros_like(batch.mask)):
        gradients = Gradients(recipe, policy)
        found = gradients.accumulate(
            batch.with_(loss_mask=loss_mask), torch.arange(2), recipe.sampling, TokenMeans(), first=True
        )
        assert found == pytest.approx(nll.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("recipe", "section", "field"),
    [
        ("guide_grpo", "corrections", "corrections"),
        ("pacs", "corrections", "corrections"),
        ("drpo", "token_weights", "token_weights"),
    ],
)
def test_what_does_not_go_together_is_refused(recipe: str, section: str, field: str) -> None:
    plugin = {"corrections": {"kind": "token_tis"}, "token_weights": {"kind": "high_entropy"}}[section]
    sections = recipe_to_dict(load_recipe(recipe)) | {section: [plugin]}
    with pytest.raises(BadInputError) as caught:
        recipe_from_dict(sections)
    assert caught.value.field == field


def test_a_hinted_group_is_trained_on_in_a_run(tmp_path: Path) -> None:
    """Guide-GRPO end to end: an impossible prompt is drawn again with the hint, and dropped as still unsolved."""
    recipe = load_recipe(
        "guide_grpo",
        ["sampling.prompts_per_step=2", "sampling.group_size=2", "sampling.max_new_tokens=6", "checkpoint_every=0"],
    )
    impossible = PromptItem(ITEM.prompt, (MinWords(500),), ITEM.meta)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=True)
    source = recipe.source.open([impossible], seed=0, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [VerifierReward()], tmp_path)
    (row,) = trainer.train(1)
    written = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert {record["source"] for record in written} == {GUIDED}
    assert {record["prompt"][-1]["content"] for record in written} == {"Sum?"}
    assert (row["rollouts"], row["rollouts_trained"]) == (4, 0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Ghpo(shares=(0.0,)), "contexts.shares"),
        (lambda: Ghpo(wording="no place"), "contexts.wording"),
        (lambda: Guide(threshold=1.0), "contexts.threshold"),
        (lambda: Seele(rounds=0), "contexts.rounds"),
        (lambda: Seele(target=1.0), "contexts.target"),
        (lambda: GuidedMixed(low=0.5, high=0.2), "filters.low"),
        (lambda: GuideLoss(shape="round"), "objective.shape"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_named(make: Any, field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        make()
    assert caught.value.field == field
