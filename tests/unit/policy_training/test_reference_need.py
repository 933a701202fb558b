"""A reference is loaded where something is computed from it, not for a report that takes a second model."""

import pytest

from assay_policy_training.core.metrics import is_kl
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.shipped import shipped_recipes

ALARM = "metrics=[{kind: alarm}]"


@pytest.mark.parametrize(
    ("overrides", "loaded"),
    [
        ([], False),
        (["report_kl=true"], True),
        (["lora.rank=4"], True),  # the base with its adapters off: no weights
        (["lora.rank=4", "report_kl=false"], False),
        (["kl.coefficient=0.1", "report_kl=false"], True),
        (["shaping=[{kind: kl}]", "report_kl=false"], True),
        (["sampler={kind: geometric_mixture}", "report_kl=false"], True),
        ([ALARM], True),
        ([ALARM, "report_kl=false"], False),
        (["stop=[{kind: out_of_bounds, metric: eval_kl_k3, above: 1.0}]"], True),
        (["stop=[{kind: no_progress, metric: reward_mean}]"], False),
    ],
)
def test_what_needs_a_reference(overrides: list[str], loaded: bool) -> None:
    assert load_recipe("dr_grpo", overrides).needs_reference is loaded


@pytest.mark.slow
def test_recipes_that_only_reported_the_distance_load_none() -> None:
    needing = [name for name in shipped_recipes() if load_recipe(name).needs_reference]
    assert {"grpo", "ppo"} <= set(needing)
    assert len(needing) < len(shipped_recipes()) / 2


def test_metrics_of_the_distance() -> None:
    assert is_kl("kl_k1")
    assert is_kl("-eval_math_kl_k3")
    assert not is_kl("approx_kl_old")
