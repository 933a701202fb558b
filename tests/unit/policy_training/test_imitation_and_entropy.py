"""A frozen teacher and its full KL; entropy bonuses and their controller; stages of settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.logprobs import full_kl, score_tokens
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.auxiliary.entropy import EntropyBonus, Magic
from assay_policy_training.plugins.auxiliary.kl import TeacherKl
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.plugins.schedules.decay import ScheduleStage, StagedSchedule
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", f"Say {n}"),), (AllLowercase(),)) for n in range(4)]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of the tiny one's vocabulary that says something else."""
    policy = Policy("tiny", device=CPU, max_prompt_tokens=64)
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    folder = tmp_path_factory.mktemp("models") / "teacher"
    policy.save(folder)
    return str(folder)


def pupil(teacher: str | None) -> Policy:
    torch.manual_seed(0)
    return Policy("tiny", device=CPU, max_prompt_tokens=64, with_reference=True, teacher=teacher)


def rollouts(policy: Policy) -> RolloutBatch:
    sampler = TransformersSampler(policy, Sampling(max_new_tokens=10))
    return sampler.rollout(ITEMS, 2, seed=1, version=0)


def frozen_teacher(policy: Policy) -> Any:
    assert policy.has_teacher
    return policy._teacher


def hybrid(policy: Policy, folder: Path, *overrides: str, **changes: Any) -> PolicyLoop:
    recipe = load_recipe("hybrid_imitation", overrides)
    sampling = replace(recipe.sampling, prompts_per_step=4, group_size=2, max_new_tokens=10)
    optimisation = replace(recipe.optimisation, lr=3e-3)
    recipe = replace(recipe, sampling=sampling, optimisation=optimisation, checkpoint_every=0, **changes)
    return PolicyLoop(recipe, policy, ShuffledPrompts(ITEMS, seed=0), [VerifierReward()], folder)


def teacher_kl(policy: Policy, batch: RolloutBatch, **options: Any) -> Tensor:
    return policy.scores(batch, temperature=1.0, extras={"teacher_kl"}, **options).extras["teacher_kl"]


def test_full_kl_is_that_of_whole_rows_of_logits(teacher: str) -> None:
    policy = pupil(teacher)
    batch = rollouts(policy)
    found = teacher_kl(policy, batch)
    ids = torch.cat([batch.train_input_ids, batch.tokens], 1)
    seen = torch.cat([batch.train_mask, batch.mask], 1)
    start = batch.train_input_ids.shape[1]
    with torch.no_grad():
        logp, log_q = (
            model(input_ids=ids, attention_mask=seen.long(), position_ids=(seen.cumsum(1) - 1).clamp(min=0))
            .logits[:, start - 1 : -1]
            .log_softmax(-1)
            for model in (policy.model, frozen_teacher(policy))
        )
    expected = (logp.exp() * (logp - log_q)).sum(-1) * batch.mask
    torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=1e-4)
    assert found.detach()[batch.mask].min() > 1e-3


def test_chunks_change_neither_the_kl_nor_its_gradient(teacher: str) -> None:
    policy = pupil(teacher)
    batch = rollouts(policy)

    def gradient(chunk_tokens: int) -> tuple[Tensor, Tensor]:
        found = score_tokens(
            policy.model,
            batch.train_input_ids,
            batch.train_mask,
            batch.tokens,
            batch.mask,
            temperature=0.7,
            extras={"teacher_kl"},
            teacher=policy._teacher,
            chunk_tokens=chunk_tokens,
        ).extras["teacher_kl"]
        parts = torch.autograd.grad(found.sum(), list(policy.trainable().values()))
        return found.detach(), torch.cat([part.flatten() for part in parts])

    whole, by_whole = gradient(512)
    pieces, by_pieces = gradient(3)
    torch.testing.assert_close(pieces, whole, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(by_pieces, by_whole, atol=1e-5, rtol=1e-4)
    assert by_whole.abs().max() > 1e-2


def test_a_vocabulary_padded_further_and_a_pruned_one() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, teacher_logits = torch.randn(3, 5, generator=draw), torch.randn(3, 8, generator=draw)
    expected = full_kl(logits, teacher_logits[:, :5])
    torch.testing.assert_close(full_kl(logits, teacher_logits), expected)
    cut = logits.clone().requires_grad_()
    kl = full_kl(cut.masked_fill(torch.arange(5) == 4, -torch.inf), teacher_logits[:, :5])
    logp = logits[:, :4].log_softmax(-1)
    by_hand = (logp.exp() * (logp - teacher_logits[:, :5].log_softmax(-1)[:, :4])).sum(-1)
    torch.testing.assert_close(kl.detach(), by_hand)
    (gradient,) = torch.autograd.grad(kl.sum(), cut)
    assert gradient.isfinite().all()
    assert not gradient[:, 4].any()


@pytest.mark.slow
def test_imitation_brings_the_policy_nearer_to_its_teacher(teacher: str, tmp_path: Path) -> None:
    policy = pupil(teacher)
    batch = rollouts(policy)
    frozen = {name: value.clone() for name, value in frozen_teacher(policy).state_dict().items()}
    before = float(teacher_kl(policy, batch)[batch.mask].mean().detach())
    trainer = hybrid(policy, tmp_path, "auxiliary.0.coefficient=1.0", "modulators.0.coefficient=1.0")
    trainer.train(5)
    after = float(teacher_kl(policy, batch)[batch.mask].mean().detach())
    assert after < 0.7 * before
    for name, value in frozen_teacher(policy).state_dict().items():
        assert torch.equal(value, frozen[name])


def test_without_a_teacher_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="'teacher': name a teacher model"):
        hybrid(pupil(None), tmp_path)
    assert not (tmp_path / "rollouts.jsonl").exists()
    assert load_recipe("hybrid_imitation").needs_teacher
    assert not load_recipe("grpo").needs_teacher


def test_a_teacher_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    policy = pupil(None)
    policy.save(tmp_path / "other")
    tokenizer = policy.tokenizer
    tokenizer.add_tokens(["entirely-new"])
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(BadInputError, match="another vocabulary"):
        pupil(str(tmp_path / "other"))


def test_the_teacher_is_in_the_recipe() -> None:
    recipe = load_recipe("hybrid_imitation", ["teacher=somewhere/else"])
    assert recipe.teacher == "somewhere/else"
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe


def magic_recipe(magic: Any, steps: int) -> Recipe:
    recipe = load_recipe("skywork_or1")
    sampling = replace(recipe.sampling, prompts_per_step=2, group_size=4, max_new_tokens=8)
    return replace(recipe, auxiliary=(magic,), sampling=sampling, filters=(), steps=steps, checkpoint_every=2)


def magic_trainer(recipe: Recipe, folder: Path) -> PolicyLoop:
    folder.mkdir(exist_ok=True)
    return PolicyLoop(recipe, pupil(None), ShuffledPrompts(ITEMS, seed=0), [VerifierReward()], folder)


@pytest.mark.slow
def test_magic_continues_where_it_was(tmp_path: Path) -> None:
    """The entropy of the tiny model is about 5.5: below a target of 9 the coefficient grows step by step."""
    recipe = magic_recipe(Magic(target=9.0, delta=1e-3), steps=4)
    rows = magic_trainer(recipe, tmp_path / "whole").train()
    assert [row["entropy_coefficient"] for row in rows] == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3])
    magic_trainer(recipe, tmp_path / "halves").train(2)
    again = magic_trainer(recipe, tmp_path / "halves")
    assert again.resume() == 2
    assert again.train()[0]["entropy_coefficient"] == pytest.approx(3e-3)


def test_magic_rests_above_its_target(tmp_path: Path) -> None:
    rows = magic_trainer(magic_recipe(Magic(target=1.0, start=2e-3, delta=1e-3), steps=3), tmp_path).train()
    assert [row["entropy_coefficient"] for row in rows] == [0.0, 0.0, 0.0]
    assert [row["entropy_coefficient_level"] for row in rows] == pytest.approx([1e-3, 0.0, 0.0])


def test_the_bonus_raises_the_entropy(tmp_path: Path) -> None:
    """Against the same run without it: rewards and rollouts of the first step are the same."""

    def entropy_after(coefficient: float, folder: Path) -> float:
        recipe = magic_recipe(EntropyBonus(coefficient), steps=1)
        recipe = replace(recipe, optimisation=replace(recipe.optimisation, lr=1e-3), checkpoint_every=0)
        trainer = magic_trainer(recipe, folder)
        trainer.train()
        batch = rollouts(pupil(None))
        return float(trainer.policy.scores(batch, temperature=1.0).entropy[batch.mask].mean())

    assert entropy_after(1.0, tmp_path / "with") > entropy_after(0.0, tmp_path / "without") + 1e-4


@pytest.mark.parametrize("make", [lambda: EntropyBonus(-1.0), lambda: TeacherKl(-1.0)])
def test_coefficients_are_not_negative(make: Any) -> None:
    with pytest.raises(BadInputError, match=r"auxiliary\.coefficient"):
        make()


def test_stages() -> None:
    plan = StagedSchedule(
        "max_new_tokens",
        (ScheduleStage(1, factor=1.0), ScheduleStage(500, factor=2.0), ScheduleStage(1000, factor=4.0)),
    )
    found = [plan.value("max_new_tokens", 8192, step) for step in (1, 499, 500, 999, 1000, 5000)]
    assert found == [8192, 8192, 16384, 16384, 32768, 32768]
    assert plan.value("temperature", 0.6, 700) == 0.6
    warmer = StagedSchedule("temperature", (ScheduleStage(3, value=1.2),))
    assert [warmer.value("temperature", 1.0, step) for step in (2, 3)] == [1.0, 1.2]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ScheduleStage(0, value=1.0), "step"),
        (lambda: ScheduleStage(1), "either a value or a factor"),
        (lambda: ScheduleStage(1, value=1.0, factor=2.0), "either a value or a factor"),
        (lambda: StagedSchedule("mood", (ScheduleStage(1, value=1.0),)), "setting"),  # type: ignore[arg-type]
        (lambda: StagedSchedule("lr", ()), "one after the other"),
        (
            lambda: StagedSchedule("lr", (ScheduleStage(5, value=1.0), ScheduleStage(5, value=2.0))),
            "one after the other",
        ),
    ],
)
def test_wrong_stages_are_named(make: Any, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        make()


def test_stages_reach_the_sampler(tmp_path: Path) -> None:
    stages = (
        StagedSchedule("max_new_tokens", (ScheduleStage(2, factor=2.0),)),
        StagedSchedule("temperature", (ScheduleStage(1, value=0.5), ScheduleStage(2, value=0.9))),
    )
    recipe = replace(magic_recipe(EntropyBonus(0.0), steps=2), schedules=stages, checkpoint_every=0)
    trainer = magic_trainer(recipe, tmp_path)
    trainer.train(1)
    assert (trainer.sampler.sampling.max_new_tokens, trainer.sampler.sampling.temperature) == (8, 0.5)
    rows = trainer.train(2)
    assert (trainer.sampler.sampling.max_new_tokens, trainer.sampler.sampling.temperature) == (16, 0.9)
    assert rows[0]["length_max"] > 8
