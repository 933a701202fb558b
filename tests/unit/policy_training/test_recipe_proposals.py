"""Recipes proposed for a task in words."""

from __future__ import annotations

import json

import pytest

from assay.cli.main import main
from assay.errors import BadInputError
from assay_policy_training.recipe.proposals import propose, traits_of
from assay_policy_training.recipe.shipped import recipe_text, shipped_recipes

TEXTS = {name: recipe_text(name) for name in shipped_recipes()}


@pytest.mark.parametrize(
    ("recipe", "traits"),
    [
        ("ppo", {"reward model", "critic"}),
        ("grpo", {"reward model", "KL to a reference"}),
        ("pacs", {"verifier"}),
        ("a_lol", {"recorded responses"}),
        ("icepop", {"reward model"}),
    ],
)
def test_what_a_recipe_needs_is_read_from_its_text(recipe: str, traits: set[str]) -> None:
    assert set(traits_of(TEXTS[recipe])) == traits
    assert "asynchronous rollouts" in traits_of(TEXTS["areal"])


def test_one_gpu_has_no_room_for_a_critic() -> None:
    found = propose("verifiable maths, 1 GPU", TEXTS)
    assert len(found) == 5
    assert all({"verifier", "any reward"} & set(proposal.traits) for proposal in found)
    assert not any({"critic", "asynchronous rollouts"} & set(proposal.traits) for proposal in found)
    assert {"dapo", "dr_grpo", "grpo"} <= {proposal.recipe for proposal in found}
    assert found[0].matches == ("verifiable", "maths")
    critics = [proposal.recipe for proposal in propose("a critic for helpful chat", TEXTS)]
    assert "ppo" in critics
    assert "ppo" not in [proposal.recipe for proposal in propose("helpful chat without critic", TEXTS, most=20)]


def test_rare_words_of_the_header_count_most() -> None:
    assert propose("actors with new weights", TEXTS)[0].recipe in ("areal", "laminar", "llama_rl")
    assert propose("repetition penalty", TEXTS)[0].recipe == "cosine_length"


def test_words_that_no_recipe_knows_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match="--for"):
        propose("zyzzyva", TEXTS)
    with pytest.raises(SystemExit) as end:
        main(["recipes", "--for", "length penalty", "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["proposals"][0]["matches"]
