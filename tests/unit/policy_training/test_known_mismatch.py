"""A sampler that the recipe itself sets apart from the trainer is corrected for, refused, or told of and measured."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.corrections.mismatch import known_mismatches, mismatch_warnings
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.samplers.recorded import RecordedResponses
from assay_policy_training.recipe.loading import recipe_from_dict
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.rewards import RecordedReward, VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase, MaxWords, NoCommas

TIS = ["token_tis"]
HOTTER = {"kind": "entropy_temperature", "spread": 0.3}


def recipe(**sections: Any) -> Recipe:
    sampling = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "max_prompt_tokens": 64}
    sampling |= sections.pop("sampling", {})
    plain = {"name": "plain", "estimator": "grpo", "objective": "ppo_clip", "report_kl": False, "steps": 2}
    return recipe_from_dict({**plain, "sampling": sampling, "optimisation": {"lr": 1e-2}, **sections})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)


def trainer(chosen: Recipe, policy: Policy, folder: Path, items: list[PromptItem] | None = None) -> PolicyLoop:
    made = items or [
        PromptItem((Message("user", f"Name colour {n}."),), (AllLowercase(), MaxWords(1 + n), NoCommas()))
        for n in range(4)
    ]
    source = RecordedReward() if isinstance(chosen.sampler, RecordedResponses) else VerifierReward()
    return PolicyLoop(chosen, policy, ShuffledPrompts(made, seed=0), [source], folder)


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        ({}, []),
        ({"sampling": {"prune_log_ratio": -9.0, "temperature": 0.6}}, []),
        ({"sampling": {"top_p": 0.9}}, ["sampling.top_p"]),
        ({"sampler": HOTTER}, ["sampler.kind"]),
        ({"sampler": {"kind": "entropy_temperature", "spread": 0.0}}, []),
        ({"asynchrony": {"lag": 1}, "sampling": {"top_p": 0.5}}, ["sampling.top_p", "asynchrony.lag"]),
        ({"sampler": "recorded", "sampling": {"top_p": 0.9}}, []),
    ],
)
def test_what_is_known_is_told_unless_it_is_corrected(sections: dict[str, Any], keys: list[str]) -> None:
    assert list(known_mismatches(recipe(**sections))) == keys
    assert [line.partition(":")[0] for line in mismatch_warnings(recipe(**sections))] == keys
    for corrected in ({"corrections": TIS}, {"objective": {"kind": "ppo_clip", "bypass": True}}, {"objective": "aipo"}):
        assert mismatch_warnings(recipe(**{**sections, **corrected})) == []


@pytest.mark.parametrize("sections", [{"sampling": {"top_p": 0.6}}, {"sampler": HOTTER}, {"asynchrony": {"lag": 1}}])
def test_a_run_tells_it_once_and_measures_it_in_every_step(
    sections: dict[str, Any], policy: Policy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        made = trainer(recipe(**sections), policy, tmp_path)
        rows = made.train()
    told = [record.getMessage() for record in caplog.records if record.name == "assay_policy_training.training.loop"]
    assert told == made.warnings
    assert len([line for line in told if "cannot act" not in line]) == 1
    assert rows[0].keys() >= {"mismatch_k3", "mismatch_ess"}
    assert rows[1]["mismatch_k3"] > 1e-6, "by the second step the scale is known, and the weights have moved"


def test_nothing_is_told_or_measured_of_a_sampler_that_is_the_trainer(
    policy: Policy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = trainer(recipe(), policy, tmp_path)
    (row,) = made.train(1)
    assert [line for line in made.warnings if "cannot act" not in line] == []
    assert "mismatch_k3" not in row
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == made.warnings


def recorded(policy: Policy, logprobs: bool) -> list[PromptItem]:
    """Four prompts with four responses each, which something else than the policy has drawn."""
    responses: list[dict[str, Any]] = []
    for text, reward in (("blue sky", 1.0), ("a red one", 0.0), ("green", 0.5), ("grey?", 0.2)):
        ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"][:6]
        responses.append({"tokens": ids, "reward": reward} | ({"logprobs": [-0.25] * len(ids)} if logprobs else {}))
    return [PromptItem((Message("user", f"Colour {n}?"),), meta={"responses": responses}) for n in range(4)]


@pytest.mark.parametrize(
    "sections",
    [{"corrections": TIS}, {"corrections": ["geometric"]}, {"objective": "aipo"}],
    ids=["token_tis", "geometric", "aipo"],
)
def test_recorded_rows_that_say_nothing_of_their_sampler_cannot_be_corrected(
    sections: dict[str, Any], policy: Policy, tmp_path: Path
) -> None:
    """At the start, not by weights of 1 that nobody sees."""
    with pytest.raises(BadInputError, match=r"needs logp_mu.*sampler\.logprobs=true"):
        trainer(recipe(sampler="recorded", **sections), policy, tmp_path, recorded(policy, logprobs=False))
    trainer(recipe(sampler="recorded"), policy, tmp_path, recorded(policy, logprobs=False)).train(1)


def test_recorded_rows_with_log_probs_are_corrected(policy: Policy, tmp_path: Path) -> None:
    chosen = recipe(sampler={"kind": "recorded", "logprobs": True}, corrections=TIS)
    made = trainer(chosen, policy, tmp_path, recorded(policy, logprobs=True))
    (row,) = made.train(1)
    assert row["mismatch_kl"] > 0.1, "a random model gives every token less than e^-0.25"
    assert row["tis_ess"] < 1
    batch = made.collector.generator.sampler.rollout(made.prompts.next(1), 2, seed=0, version=0)
    old = batch.logp_mu - 1.0
    (plugin,) = made.recipe.corrections
    weight = plugin.correct(batch.with_(logp_old=old)).weight
    assert weight[batch.mask].tolist() == pytest.approx([0.367879] * int(batch.mask.sum()), abs=1e-5)


def test_a_record_without_log_probs_is_named(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"prompt": "Colour 0?", "responses": ["blue"]}) + "\n", encoding="utf-8")
    sampler = replace(RecordedResponses(str(path)), logprobs=True).open(policy, Sampling(max_new_tokens=8))
    with pytest.raises(BadInputError, match="Colour 0") as missing:
        sampler.rollout([PromptItem((Message("user", "Colour 0?"),))], 1, seed=0, version=0)
    assert missing.value.field == "responses.0.logprobs"
