"""Corrections of the sampler's mismatch: reference oracles [token ratios] to [TIS batch-normalised], [TRM], their
metrics, what they leave alone, and which recipes are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.aggregation import TOTAL, aggregate, count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.ratios import log_ratio, row_mean, truncated_is
from assay_policy_training.plugins.corrections.importance import (
    GeometricRejection,
    SequenceMis,
    SequenceTis,
    TokenMis,
    TokenTis,
    TrustRegionMask,
    divergences,
    row_ratio,
    token_mis,
)
from assay_policy_training.plugins.corrections.mismatch import effective_share
from assay_policy_training.recipe.loading import load_recipe

L = [0.05, 1.2, -0.9, 0.0]
ALL = [TokenTis(), TokenTis(normalise=True), SequenceTis(), SequenceTis(normalise=True), TokenMis(), SequenceMis()]
ALL += [GeometricRejection(), TrustRegionMask(), TrustRegionMask(None, 0.01)]


def drawn(*ratios: list[float], width: int | None = None, **fields: Any) -> RolloutBatch:
    """Rows whose log old - log mu are given."""
    batch = rollouts([len(row) for row in ratios], width=width, **fields)
    old = torch.zeros(batch.mask.shape)
    for row, values in zip(old, ratios, strict=True):
        row[: len(values)] = torch.tensor(values) - 1
    return batch.with_(logp_old=old, logp_mu=-batch.mask.float())


def test_token_ratios() -> None:
    ratio = torch.tensor(L)
    assert ratio.exp().tolist() == pytest.approx([1.051271, 3.320117, 0.40657, 1.0], abs=1e-5)
    zero = torch.zeros(4)
    assert truncated_is(ratio, zero, 2.0).tolist() == pytest.approx([1.051271, 2.0, 0.40657, 1.0], abs=1e-5)
    weight, inside = token_mis(ratio, 0.5, 2.0)
    assert weight.tolist() == pytest.approx([1.051271, 0.0, 0.0, 1.0], abs=1e-5)
    assert inside.tolist() == [True, False, False, True]


def test_row_ratios() -> None:
    ratio, mask = torch.tensor([L]), torch.ones(1, 4, dtype=torch.bool)
    assert float(row_ratio(ratio, mask)) == pytest.approx(1.419068, abs=1e-5)
    assert float(row_mean(ratio, mask).exp()) == pytest.approx(1.091442, abs=1e-5)
    largest, mean = divergences(ratio, mask)
    assert [float(largest), float(mean)] == pytest.approx([0.72, 0.356989], abs=1e-5)


@pytest.mark.parametrize(("cap", "expected"), [(2.0, [0.5, 1, 2, 2]), (10.0, [0.5, 1, 3, 10]), (None, [0.5, 1, 3, 12])])
def test_truncated_ratio_of_any_two_policies(cap: float | None, expected: list[float]) -> None:
    """Oracle [AIPO]; the result carries no gradient, however large the ratio."""
    num = torch.tensor([0.5, 1, 3, 12]).log().requires_grad_()
    found = truncated_is(num, torch.zeros(4), cap)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert not found.requires_grad
    assert truncated_is(torch.tensor([500.0]), torch.zeros(1), None).isfinite().all()


def test_token_tis_and_its_metrics() -> None:
    made = TokenTis(cap=2.0).correct(drawn(L))
    assert made.weight[0].tolist() == pytest.approx([1.051271, 2.0, 0.40657, 1.0], abs=1e-5)
    assert made.keep.all()
    assert made.metrics["tis_ess"] == pytest.approx(0.792299, abs=1e-5)
    assert made.metrics["tis_clipped_share"] == 0.25
    assert made.metrics["mismatch_kl"] == pytest.approx(-sum(L) / 4, abs=1e-6)
    assert made.metrics["mismatch_k3"] == pytest.approx(0.356989, abs=1e-5)
    assert made.metrics["mismatch_perplexity_ratio"] == pytest.approx(1 / 1.091442, abs=1e-5)
    squares = torch.tensor(L).double().exp() ** 2
    assert made.metrics["mismatch_chi2"] == pytest.approx(float(squares.mean() - 1), abs=1e-5)
    assert made.metrics["mismatch_worst"] == pytest.approx(1.2, abs=1e-6)
    assert made.metrics["tis_rejected_rows"] == 0


def test_weights_are_normalised_after_truncation() -> None:
    found = TokenTis(cap=2.0, normalise=True).correct(drawn(L, width=7)).weight[0, :4]
    assert found.tolist() == pytest.approx([0.943301, 1.794591, 0.364813, 0.897295], abs=1e-5)
    rows = SequenceTis(cap=2.0, normalise=True).correct(drawn([2.0], [0.0, 0.0])).weight[:, 0]
    assert rows.tolist() == pytest.approx([2 / 1.5, 1 / 1.5], abs=1e-5)


def test_effective_share_of_equal_weights_is_one() -> None:
    assert float(effective_share(torch.full((5,), 0.3))) == pytest.approx(1.0)


def test_sequence_weights_and_rejections() -> None:
    batch = drawn(L, [2.0], [0.0, 0.0])
    tis = SequenceTis(cap=2.0).correct(batch)
    assert tis.weight[0].tolist() == pytest.approx([1.419068] * 4, abs=1e-5)
    assert float(tis.weight[1, 0]) == 2.0
    mis = SequenceMis(cap=3.0).correct(batch)
    assert mis.keep[batch.mask].tolist() == [True] * 4 + [False] + [True] * 2
    assert float(mis.weight[1, 0]) == 0.0
    assert mis.metrics["mis_rejected_rows"] == pytest.approx(1 / 3)
    assert mis.metrics["mis_rejected_tokens"] == pytest.approx(1 / 7)


def test_icepop_masks_tokens_on_both_sides() -> None:
    made = TokenMis(0.5, 2.0).correct(drawn(L))
    assert made.keep[0].tolist() == [True, False, False, True]
    assert made.weight[0].tolist() == pytest.approx([1.051271, 0, 0, 1], abs=1e-5)
    assert made.metrics["icepop_rejected_tokens"] == 0.5


def test_geometric_rejection() -> None:
    made = GeometricRejection(0.999, 1.001).correct(drawn([0.1, -0.1, 0.0], [0.002, 0.002], [0.0]))
    assert made.keep[:, 0].tolist() == [True, False, True]
    assert bool((made.weight == 1).all())
    assert made.metrics["geometric_kept_short"] == 0.5
    assert made.metrics["geometric_kept_long"] == 1.0


def test_trust_region() -> None:
    """Oracle [TRM]: the sampled token alone would be accepted where the exact KL rejects."""
    mu, theta = torch.tensor([0.9, 0.05, 0.05]), torch.tensor([0.7, 0.2, 0.1])
    exact = float((mu * (mu / theta).log()).sum())
    largest, mean = divergences(log_ratio(theta.log(), mu.log())[None, :1], torch.ones(1, 1, dtype=torch.bool))
    assert exact == pytest.approx(0.122211, abs=1e-5)
    assert [float(largest), float(mean)] == pytest.approx([0.031579, 0.029092], abs=1e-5)
    row = [float((theta / mu).log()[0])]
    assert TrustRegionMask(0.05).correct(drawn(row)).keep.all()
    assert not TrustRegionMask(0.03).correct(drawn(row)).keep.any()
    # A criterion that holds does not save a row from the other.
    far = drawn([0.4] + [0.0] * 99, [0.1] * 100)
    assert TrustRegionMask(0.05, None).correct(far).keep[:, 0].tolist() == [False, True]
    assert TrustRegionMask(None, 0.002).correct(far).keep[:, 0].tolist() == [True, False]
    assert TrustRegionMask(0.05, 0.002).correct(far).keep[:, 0].tolist() == [False, False]


def test_rejected_rows_stay_in_the_denominator() -> None:
    """Oracle [TRM total-N mean]: sums 2, 4, 6 with the second row rejected give 2.666667, not 4."""
    loss = torch.tensor([[2.0], [4.0], [6.0]])
    mask = torch.tensor([[True], [False], [True]])
    assert float(aggregate(loss, mask, count(mask), TOTAL)) == pytest.approx(2.666667, abs=1e-5)
    assert float(aggregate(loss, mask, count(mask), "seq-mean-token-sum")) == 4.0


@pytest.mark.parametrize("plugin", ALL, ids=repr)
def test_equal_policies_are_left_alone(plugin: Any) -> None:
    batch = drawn([0.0, 0.0], [0.0])
    made = plugin.correct(batch)
    assert made.keep.all()
    assert bool((made.weight == 1).all())
    assert made.metrics["mismatch_k3"] == 0
    assert all(torch.tensor(list(made.metrics.values())).isfinite())


def test_rows_are_corrected_where_mu_is_of_the_context_that_is_trained_on() -> None:
    """Hinted rows that are trained with their hint (ghpo) are, those trained without it (guide) are not."""
    plain = PromptItem((Message("user", "q"),))
    shown = (Message("user", "q, with a hint"),)
    items = (
        replace(plain, generate_from=shown, train_on=shown, source="hinted"),
        replace(plain, generate_from=shown, source="guided"),
        replace(plain, meta={"recorded": {"text": "a"}}, source="recorded"),
        replace(plain, meta={"recorded": {"tokens": [1], "logprobs": [-1.0]}}, source="recorded"),
    )
    batch = drawn(*[[0.5]] * 4).with_(items=items, source=tuple(item.source for item in items))
    weight = TokenTis(cap=9.0).correct(batch).weight[:, 0]
    assert weight.tolist() == pytest.approx([1.648721, 1.0, 1.0, 1.648721], abs=1e-6)


@pytest.mark.parametrize("plugin", ALL, ids=repr)
def test_rows_of_another_source_are_not_corrected(plugin: Any) -> None:
    """Nor do they count in a metric or in a normalisation."""
    batch = drawn([0.0, 0.5], [3.0, -9.0], [0.1]).with_(source=("policy", "guided", "policy"))
    made = plugin.correct(batch)
    assert made.keep[1].all()
    assert made.weight[1].tolist() == [1.0, 1.0]
    alone = plugin.correct(batch.select([0, 2]))
    assert made.metrics == alone.metrics
    assert torch.equal(made.weight[[0, 2]], alone.weight)
    assert plugin.correct(batch.select([1])).metrics == {}


@pytest.mark.parametrize("plugin", ALL, ids=repr)
def test_order_and_padding_change_nothing(plugin: Any) -> None:
    rows = ([0.0, 0.5, -0.2], [1.5, -0.1], [0.1], [0.02, -0.02])
    plain, padded = drawn(*rows), drawn(*rows, width=9)
    order = [2, 0, 3, 1]
    made, wide, turned = (plugin.correct(batch) for batch in (plain, padded, plain.select(order)))
    torch.testing.assert_close(wide.weight[:, :3][plain.mask], made.weight[plain.mask])
    assert torch.equal(wide.keep[:, :3][plain.mask], made.keep[plain.mask])
    torch.testing.assert_close(turned.weight, made.weight[order])
    assert torch.equal(turned.keep, made.keep[order])
    assert wide.metrics == pytest.approx(made.metrics)
    assert turned.metrics == pytest.approx(made.metrics)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-200, 200), min_size=1, max_size=6))
def test_weights_are_finite_and_bounded(values: list[float]) -> None:
    batch = drawn(values)
    for plugin, cap in (
        (TokenTis(2.0), 2.0),
        (SequenceTis(3.0), 3.0),
        (TokenMis(0.5, 5.0), 5.0),
        (SequenceMis(4.0), 4.0),
    ):
        made = plugin.correct(batch)
        assert made.weight.isfinite().all()
        assert float(made.weight.max()) <= cap + 1e-5
        assert all(value == value and abs(value) != float("inf") for value in made.metrics.values())


def test_rejection_leaves_statistics_alone() -> None:
    """Released code rejects in the mask that whitening reads; here the advantages of a step are the same."""
    from assay_policy_training.plugins.estimators.group_relative import Grpo

    batch = drawn([0.0], [9.0], [0.1], uid=("a", "a", "a")).with_(reward=torch.tensor([1.0, 0, 0], dtype=torch.float64))
    made = SequenceMis().correct(batch)
    assert not made.keep.all()
    after, _ = Grpo()(batch.with_(loss_mask=batch.loss_mask & made.keep))
    before, _ = Grpo()(batch)
    assert torch.equal(after, before)


@pytest.mark.parametrize(
    ("recipe", "overrides", "field"),
    [
        ("aipo", ["corrections=[{kind: token_tis}]"], "corrections"),
        ("aipo", ["corrections=[{kind: icepop}]"], "corrections"),
        ("tis", ["objective.bypass=true"], "corrections"),
        ("mis", ["objective.bypass=true"], "corrections"),
        ("tis", ["corrections=[{kind: token_tis}, {kind: sequence_tis}]"], "corrections"),
        ("gspo", ["corrections=[{kind: token_tis}]"], "corrections"),
        ("gspo", ["aggregation.mode=token-mean"], "aggregation.mode"),
        ("gmpo", ["aggregation.mode=token-mean"], "aggregation.mode"),
        ("gspo", ["token_weights=[{kind: high_entropy}]"], "token_weights"),
        ("trust_region_masking", ["aggregation.mode=seq-mean-token-sum"], "aggregation.mode"),
    ],
)
def test_recipes_that_would_correct_twice_are_refused(recipe: str, overrides: list[str], field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_recipe(recipe, overrides)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("aipo", ["corrections=[{kind: geometric}]"]),
        ("geometric_rejection", ["corrections=[{kind: geometric}]", "objective.bypass=true"]),
        ("gspo", ["corrections=[{kind: sequence_tis}]"]),
        ("gspo", ["corrections=[{kind: geometric}]"]),
        ("cispo", ["corrections=[{kind: token_tis}]"]),
    ],
)
def test_rejection_without_weights_goes_with_everything(recipe: str, overrides: list[str]) -> None:
    assert load_recipe(recipe, overrides).corrections


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenTis(cap=0),
        lambda: SequenceTis(cap=-1),
        lambda: SequenceMis(cap=float("nan")),
        lambda: TokenMis(low=2.0),
        lambda: GeometricRejection(high=0.9),
        lambda: TrustRegionMask(None, None),
        lambda: TrustRegionMask(-1.0),
    ],
)
def test_settings_out_of_range(make: Any) -> None:
    with pytest.raises(BadInputError):
        make()
