"""Recipes: every shipped one loads and survives the round trip; every wrong key is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from torch import Tensor

from assay.errors import BadInputError, NotFoundError
from assay_policy_training.core.aggregation import LossAggregation
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.contexts.guided_retry import GuidedRetry
from assay_policy_training.plugins.estimators.group_relative import DrGrpo, Grpo, Rloo
from assay_policy_training.plugins.objectives.ratio_clip import PpoClip
from assay_policy_training.plugins.protocols import negotiate
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict, shipped_recipes


@dataclass(frozen=True)
class Constant:
    """An advantage estimator from outside the package."""

    value: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        return batch.mask * self.value, None


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_survive_the_round_trip(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe_from_dict(yaml.safe_load(yaml.safe_dump(recipe_to_dict(recipe)))) == recipe


def test_each_recipe_has_its_own_estimator() -> None:
    found = {name: type(load_recipe(name).estimator) for name in ("grpo", "dr_grpo", "rloo")}
    assert found == {"grpo": Grpo, "dr_grpo": DrGrpo, "rloo": Rloo}


def test_a_setting_stays_in_whatever_order_its_kind_is_chosen() -> None:
    kind, setting = "contexts.kind=guided_retry", "contexts.part=complete"
    for order in ((kind, setting), (setting, kind)):
        assert load_recipe("grpo", order).contexts == GuidedRetry(part="complete")
    replaced = (setting, "contexts={kind: guided_retry, rounds: 2}", kind)
    assert load_recipe("grpo", replaced).contexts == GuidedRetry()


def test_overrides_reach_their_field() -> None:
    recipe = load_recipe("grpo", ["optimisation.lr=1e-5", "objective.dual_clip=null", "reward.weights={a: 1, b: 0.5}"])
    assert recipe.optimisation.lr == 1e-5  # YAML reads 1e-5 as text
    assert recipe.objective == PpoClip(dual_clip=None)
    assert recipe.reward == Composition({"a": 1.0, "b": 0.5})


def test_constant_length_is_the_configured_maximum() -> None:
    aggregator = load_recipe("dr_grpo", ["sampling.max_new_tokens=77"]).aggregator
    assert aggregator == LossAggregation("seq-mean-token-sum-norm", max_length=77)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("lerning_rate=1", "lerning_rate"),
        ("optimisation.lerning_rate=1", "optimisation.lerning_rate"),
        ("optimisation.lr=fast", "optimisation.lr"),
        ("steps=2.5", "steps"),
        ("steps=true", "steps"),
        ("optimisation.epochs=0", "optimisation.epochs"),
        ("sampling.group_size=1", "sampling.group_size"),
        ("sampling.top_p=0", "sampling.top_p"),
        ("estimator.kind=gea", "no estimator is named 'gea'; did you mean gae"),
        ("estimator.ddof=2", "estimator.ddof"),
        ("aggregation.mode=mean", "aggregation.mode"),
        ("kl.estimator=k4", "kl.estimator"),
        ("sampling", "key=value"),
        ("name.first=1", "name.first"),
        ("sampler.knd=x", r"no key of sampler is named 'knd'; did you mean kind\?"),
        ("max_new_tokens=16", r"no such key; did you mean sampling.max_new_tokens\?"),
        ("lr=1", r"no such key; did you mean optimisation.lr\?"),
    ],
)
def test_wrong_values_are_named(override: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        load_recipe("grpo", [override])


def test_plain_reinforce_allows_one_step_a_batch() -> None:
    with pytest.raises(BadInputError, match="ppo_clip"):
        load_recipe("rloo", ["optimisation.minibatches=2"])


def test_unknown_recipe_and_broken_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no recipe is named 'dr_gprpo'; did you mean dr_grpo"):
        load_recipe("dr_gprpo")
    with pytest.raises(NotFoundError, match=r"no_such\.yaml"):
        load_recipe("no_such.yaml")
    path = tmp_path / "mine.yaml"
    path.write_text("estimator: [", encoding="utf-8")
    with pytest.raises(BadInputError, match=r"mine\.yaml"):
        load_recipe(str(path))
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(BadInputError, match=r"mine\.yaml: not UTF-8"):
        load_recipe(str(path))
    path.write_text("name: mine\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="'estimator': missing"):
        load_recipe(str(path))


def test_plugin_from_another_package_and_its_needs() -> None:
    """A recipe may name any installed dataclass; what it needs and nobody supplies is refused at the start."""
    recipe = load_recipe("grpo", [f"estimator.kind={__name__}:Constant", "estimator.value=2"])
    assert recipe.estimator == Constant(2.0)
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe
    with pytest.raises(BadInputError, match="Constant needs hidden"):
        negotiate([recipe.estimator], {"entropy", "logp_old"})
    assert negotiate([recipe.estimator, recipe.objective], {"hidden", "logp_old"}) == {"hidden", "logp_old"}
