"""What an evaluation measures is of the distribution that its rollouts were drawn from, told what training tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay.statistics.intervals import clustered_mean
from assay.workspace import Workspace
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.contexts.direction import DrawnDirection
from assay_policy_training.plugins.contexts.seele import Seele
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import RowNumber, VerifierReward
from assay_policy_training.training.evaluation import PolicyChange, PolicyEvaluation, evaluate_policy
from assay_policy_training.training.run import Plan, train_policy
from assay_serving.verifiers import NoCommas


@pytest.mark.parametrize("cut", [None, -0.05])
def test_entropy_is_of_the_cut_vocabulary(cut: float | None) -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=32, with_reference=True)
    items = [PromptItem((Message("user", f"Say {word}."),), (NoCommas(),)) for word in ("hi", "no")]
    sampling = Sampling(max_new_tokens=6, temperature=0.7, prune_log_ratio=cut)
    found = evaluate_policy(policy, items, [VerifierReward()], sampling=sampling, samples=3, seed=1)
    rows = TransformersSampler(policy, sampling).rollout(items, 3, seed=1, version=0)
    with torch.no_grad():
        entropy = policy.scores(rows, temperature=0.7, prune_log_ratio=cut).entropy[rows.mask]
        whole = policy.scores(rows, temperature=0.7).entropy[rows.mask]
    assert found.entropy == pytest.approx(float(entropy.mean()), abs=1e-5)
    assert cut is None or found.entropy < float(whole.mean()) - 0.1, "the cut changes something"
    assert found.kl_k3 == pytest.approx(0.0, abs=1e-6)


class TwoAttributes:
    """Helpful by 2 and verbose by 1, whatever is said."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        parts = {"helpfulness": 2.0, "verbosity": 1.0}
        size = len(items)
        return Rewards(
            {name: torch.full((size,), value, dtype=torch.float64) for name, value in parts.items()},
            [()] * size,
            [{}] * size,
        )


ASKED = [PromptItem((Message("user", f"Say {n}."),)) for n in range(3)]


def test_held_out_prompts_of_dpa_are_told_a_direction_and_rewarded_by_it(workspace: Workspace) -> None:
    """The same angles before and after: 2 cos t + sin t of each, with any weights."""
    recipe = load_recipe("dpa", ["steps=2", "optimisation.lr=1e-2", "sampling.max_new_tokens=4"])
    recipe = replace(recipe, sampling=replace(recipe.sampling, prompts_per_step=2, group_size=2, max_prompt_tokens=128))
    plan = Plan(
        recipe=recipe, policy="tiny", prompts=("given",), name="directed", rewards=("given",), evaluation_samples=2
    )
    made = train_policy(workspace, plan, ASKED, [RowNumber("direction"), TwoAttributes()], held_out=ASKED)
    assert isinstance(recipe.contexts, DrawnDirection)
    angles = [math.radians(float(item.meta["direction"])) for item in recipe.contexts.evaluated(ASKED)]
    assert len(set(angles)) == 3
    expected = sum(2 * math.cos(t) + math.sin(t) for t in angles) / 3
    for found in (made.before, made.after):
        assert found is not None
        assert found.rewards_missing == 0
        assert found.reward_mean == pytest.approx(expected)


def test_the_direction_of_an_evaluation_does_not_depend_on_what_was_drawn() -> None:
    fresh, used = DrawnDirection(), DrawnDirection()
    drawn = used.first(ASKED)
    assert used.evaluated(ASKED) == fresh.evaluated(ASKED)
    assert used.drawn == 3
    assert all(-45 <= float(item.meta["direction"]) <= 0 for item in [*drawn, *used.evaluated(ASKED)])
    (fixed,) = DrawnDirection(evaluate_at=-15.0).evaluated(ASKED[:1])
    assert fixed.generation_context[0].content == "Weigh your answer: helpfulness 97, verbosity -26 (of 100)."
    with pytest.raises(BadInputError, match=r"contexts\.evaluate_at"):
        DrawnDirection(evaluate_at=200.0)


def test_hints_are_not_shown_at_evaluation() -> None:
    """Given a solution to go on from, the responses would all begin with it."""
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    items = [replace(ASKED[0], constraints=(NoCommas(),), meta={"solution": "First, this. Then, that. So: yes."})]
    hinted = Seele()
    assert hinted.first(items)[0].forced
    options = {"sampling": Sampling(max_new_tokens=4), "samples": 2, "seed": 1}
    shown = evaluate_policy(policy, items, [VerifierReward()], contexts=hinted, **options)  # type: ignore[arg-type]
    assert shown == evaluate_policy(policy, items, [VerifierReward()], **options)  # type: ignore[arg-type]


def evaluated(policy: Policy, weights_seed: int | None, prompts: int) -> PolicyEvaluation:
    """Of prompts that ask for no commas; `weights_seed`: noise on the policy's weights."""
    items = [PromptItem((Message("user", f"Say {n}."),), (NoCommas(),)) for n in range(prompts)]
    if weights_seed is not None:
        torch.manual_seed(weights_seed)
        with torch.no_grad():
            for weight in policy.model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    return evaluate_policy(policy, items, [VerifierReward()], sampling=Sampling(max_new_tokens=24), samples=3, seed=1)


def test_a_change_is_of_each_prompt_with_itself() -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=32)
    before, after = evaluated(policy, None, 12), evaluated(policy, 5, 12)
    assert before.verifier is not None
    assert after.verifier is not None
    found = PolicyChange.between(before, after)
    assert found.pass_rate is not None
    assert found.reward is not None
    assert found.pass_rate.prompts == 12
    assert found.pass_rate.value == pytest.approx(after.verifier.share - before.verifier.share)
    assert found.reward.value == pytest.approx((after.reward_mean or 0) - (before.reward_mean or 0))
    by_prompt = [(b or 0) - (a or 0) for a, b in zip(before.prompt_pass_rates, after.prompt_pass_rates, strict=True)]
    assert len(set(by_prompt)) > 1
    assert found.pass_rate.interval == clustered_mean(by_prompt, [str(n) for n in range(12)])
    same = PolicyChange.between(before, before)
    assert same.pass_rate is not None
    assert (same.pass_rate.value, same.pass_rate.interval) == (0.0, None)
    with pytest.raises(BadInputError, match="no change in common"):
        PolicyChange.between(before, evaluated(policy, None, 11))


def test_pass_at_k_of_an_evaluation_is_that_of_its_verdicts_and_its_change_is_paired() -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=32)
    before, after = evaluated(policy, None, 12), evaluated(policy, 5, 12)
    assert before.verifier is not None
    one, two = before.pass_at_k  # of 3 samples: k = 1, 2
    assert (one.k, one.prompts) == (1, 12)
    assert one.value == pytest.approx(before.verifier.share)
    for n, c in before.prompt_verdicts:
        assert n == 3
        assert 0 <= c <= 3
    misses = [(3 - c) * (2 - c) / 6 for _, c in before.prompt_verdicts]  # both of two samples fail
    assert two.value == pytest.approx(1 - sum(misses) / 12)
    change = PolicyChange.between(before, after)
    assert change.pass_at_k[2].value == pytest.approx(after.pass_at_k[1].value - two.value)
    assert before.to_dict()["pass_at_k"][1]["value"] == two.value
    assert "prompt_verdicts" not in before.to_dict()
    assert before.figures()["pass_at_2"] == two.value
    assert change.to_dict()["pass_at_k"][1]["k"] == 2
    unjudged = replace(before, prompt_verdicts=((0, 0),) * 12, pass_at_k=())
    assert PolicyChange.between(unjudged, before).pass_at_k == {}


def test_a_prompt_without_a_figure_on_one_side_has_no_change() -> None:
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=32)
    before = evaluated(policy, None, 2)
    before = replace(before, prompt_rewards=(0.5, None), prompt_pass_rates=(None, None))
    after = replace(before, prompt_rewards=(0.75, 1.0))
    found = PolicyChange.between(before, after)
    assert found.pass_rate is None
    assert found.reward is not None
    assert (found.reward.value, found.reward.prompts, found.reward.interval) == (0.25, 1, None)
