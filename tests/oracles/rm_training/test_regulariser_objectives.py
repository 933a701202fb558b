"""GRM's text terms, ODIN, regression with aggregation and step labels against the reference numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.models.readings import Stepwise
from assay_rm_training.objectives import pair, responses
from assay_rm_training.objectives.regularisers import (
    correlation,
    length_terms,
    orthogonality,
    positive_mean,
    text_dpo,
    text_nll,
    text_sft,
)
from assay_rm_training.objectives.responses import Aggregation, fold, masked_mse

F64 = torch.float64


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_card_A9() -> None:
    bt, sft = pair.bradley_terry(tensor(1.0)), text_sft(tensor(-20.0), beta=0.1)
    assert bt.item() == pytest.approx(0.313262, abs=1e-6)
    assert sft.item() == pytest.approx(2.126928, abs=1e-6)
    assert (0.99 * bt + 0.01 * sft).item() == pytest.approx(0.331398, abs=1e-6)
    assert text_nll(tensor(-20.0)).item() == 20.0
    # by hand: beta * ((-20 + 30) - (-22 + 27)) = 0.5
    found = text_dpo(tensor(-20.0), tensor(-30.0), tensor(-22.0), tensor(-27.0), beta=0.1)
    assert found.item() == pytest.approx(math.log1p(math.exp(-0.5)))


def test_a_model_like_its_reference_has_the_dpo_loss_of_a_coin() -> None:
    found = text_dpo(tensor(-20.0), tensor(-30.0), tensor(-20.0), tensor(-30.0))
    assert found.item() == pytest.approx(math.log(2))


def test_pos_reg_is_of_the_batch_not_of_its_parts() -> None:
    whole = positive_mean(tensor(2.0, -1.0))
    assert whole.item() == pytest.approx(math.log1p(math.exp(-0.5)))
    parts = (positive_mean(tensor(2.0)) + positive_mean(tensor(-1.0))) / 2
    assert whole.item() != pytest.approx(parts.item(), abs=0.01)


LENGTHS, QUALITY, LENGTH_REWARD = tensor(100, 200, 300, 400), tensor(1, 3, 2, 4), tensor(0.1, 0.2, 0.3, 0.5)


def test_card_A12() -> None:
    assert correlation(QUALITY, LENGTHS).item() == pytest.approx(0.8, abs=1e-6)
    assert correlation(LENGTH_REWARD, LENGTHS).item() == pytest.approx(0.982708, abs=1e-6)
    assert correlation(QUALITY + LENGTH_REWARD, LENGTHS).item() == pytest.approx(0.836008, abs=1e-6)
    assert length_terms(QUALITY, LENGTH_REWARD, LENGTHS).item() == pytest.approx(0.817292, abs=1e-6)
    assert length_terms(QUALITY, LENGTH_REWARD, LENGTHS, of_sum=True).item() == pytest.approx(1.6533, abs=1e-6)
    assert orthogonality(tensor(1, 0, 1), tensor(0, 1, 1)).item() == pytest.approx(0.5, abs=1e-6)


@given(st.floats(0.01, 100), st.floats(-1000, 1000))
def test_the_unit_of_length_changes_nothing(scale: float, offset: float) -> None:
    moved = length_terms(QUALITY, LENGTH_REWARD, LENGTHS * scale + offset)
    assert moved.item() == pytest.approx(length_terms(QUALITY, LENGTH_REWARD, LENGTHS).item(), abs=1e-6)


def test_what_does_not_vary_gives_zero_and_no_nan() -> None:
    flat, weights = torch.zeros(4, dtype=F64, requires_grad=True), torch.zeros(3, dtype=F64, requires_grad=True)
    loss = length_terms(flat, flat, LENGTHS, of_sum=True) + orthogonality(weights, tensor(1, 2, 3))
    assert loss.item() == 1.0
    loss.backward()  # type: ignore[no-untyped-call]
    assert flat.grad is not None
    assert weights.grad is not None
    assert not flat.grad.any()
    assert not weights.grad.any()
    assert length_terms(QUALITY, LENGTH_REWARD, torch.full_like(LENGTHS, 7)).item() == 1.0


def test_gradients_of_regularisers() -> None:
    assert torch.autograd.gradcheck(
        lambda q, r: length_terms(q, r, LENGTHS, of_sum=True), (random(4, seed=1), random(4, seed=2))
    )
    assert torch.autograd.gradcheck(orthogonality, (random(5, seed=3), random(5, seed=4)))
    assert torch.autograd.gradcheck(lambda x: text_sft(x).sum(), (random(4),))
    assert torch.autograd.gradcheck(lambda a, b: text_dpo(a, b, tensor(1, 2), tensor(2, 1)).sum(), (random(2),) * 2)
    assert torch.autograd.gradcheck(positive_mean, (random(4),))


def test_missing_ratings_count_nothing() -> None:
    predicted = torch.tensor([[1.0, 2.0], [1.0, 5.0], [3.0, 3.0]], dtype=F64, requires_grad=True)
    target = torch.tensor([[0.0, 0.0], [3.0, math.nan], [math.nan, math.nan]], dtype=F64)
    present = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]], dtype=F64)
    loss = masked_mse(predicted, target, present)
    assert loss.tolist() == [2.5, 4.0, 0.0]
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert predicted.grad is not None
    assert predicted.grad.tolist() == [[1.0, 2.0], [-4.0, 0.0], [0.0, 0.0]]


def test_gradients_of_regression() -> None:
    target, present = random(3, 2, seed=9).detach(), torch.tensor([[1.0, 1], [0, 1], [0, 0]], dtype=F64)
    assert torch.autograd.gradcheck(lambda p: masked_mse(p, target, present).sum(), (random(3, 2),))


def test_card_C6_gate() -> None:
    gate = Aggregation("gate", thresholds=(0.0, 0.4))
    rows = [(1, 0.5, 0.3), (1, 0.3, 0.3), (0, 0.9, 0.9)]
    assert [gate(row) for row in rows] == pytest.approx([1.8, 1.3, 0.0])


@given(st.floats(-5, 5))
def test_a_gated_rating_changes_nothing(value: float) -> None:
    gate = Aggregation("gate", thresholds=(0.0, 0.4))
    assert gate((1, 0.3, value)) == pytest.approx(1.3)


def test_aggregations_by_hand() -> None:
    values = [(1.0, 4.0), (3.0, -2.0)]
    assert [Aggregation()(row) for row in values] == [2.5, 0.5]
    assert [Aggregation("min")(row) for row in values] == [1.0, -2.0]
    assert [Aggregation("weights", weights=(2.0, -1.0))(row) for row in values] == [-2.0, 8.0]
    for kind, settings in (("weights", {}), ("mean", {"weights": (1.0,)}), ("gate", {}), ("median", {})):
        with pytest.raises(BadInputError):
            Aggregation(kind, **settings)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="3 weights for 2"):
        Aggregation("weights", weights=(1, 2, 3))(values[0])
    with pytest.raises(BadInputError, match="one less"):
        Aggregation("gate", thresholds=(1.0, 1.0))(values[0])
    with pytest.raises(BadInputError, match="not linear"):
        Aggregation("min").linear_weights(2)


@pytest.mark.parametrize("aggregation", [Aggregation(), Aggregation("weights", weights=(0.2, -1.0, 3.0))])
def test_a_linear_aggregation_is_one_head(aggregation: Aggregation) -> None:
    """Folded head = aggregate of the ratings in their own units, less the constant of their means."""
    head, hidden = random(3, 8, seed=1).detach(), random(5, 8, seed=2).detach()
    means, scales = tensor(3.0, 0.0, -1.0), tensor(2.0, 0.5, 1.0)
    ratings = hidden @ head.T * scales + means
    folded = hidden @ fold(head, aggregation.linear_weights(3), scales.tolist())[0]
    constant = aggregation(means.tolist())
    assert (folded + constant).tolist() == pytest.approx([aggregation(row) for row in ratings.tolist()])


def test_step_loss_by_hand() -> None:
    """s(0) = 1/2; s(2) = 0.880797; a soft label of 0.25 at z = 0 costs ln 2 too."""
    logits, labels = tensor(0.0, 2.0, 2.0, 0.0, 9.0), tensor(1.0, 1.0, 0.0, 0.25, math.nan)
    found = responses.step_loss(logits, labels, tensor(1, 1, 1, 1, 0))
    assert found.tolist() == pytest.approx([math.log(2), 0.126928, 2.126928, math.log(2), 0.0], abs=1e-6)


def test_a_missing_label_reaches_no_gradient() -> None:
    logits = tensor(0.0, 3.0).requires_grad_()
    responses.step_loss(logits, tensor(1.0, math.nan), tensor(1, 0)).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.tolist() == [-0.5, 0.0]


def test_gradients_of_steps() -> None:
    labels, labelled = tensor(1, 0, 0.3, 0), tensor(1, 1, 1, 0)
    assert torch.autograd.gradcheck(lambda z: responses.step_loss(z, labels, labelled).sum(), (random(4),))


def test_steps_to_one_reward() -> None:
    logits = [2.0, -1.0, 0.5]
    assert Stepwise(aggregation="min").aggregate(logits) == -1.0
    assert Stepwise(aggregation="last").aggregate(logits) == 0.5
    expected = math.log(math.prod(1 / (1 + math.exp(-z)) for z in logits))
    assert Stepwise(aggregation="product").aggregate(logits) == pytest.approx(expected)
    assert Stepwise("\n\n").split("one\nline\n\n\n\ntwo") == ["one\nline", "two"]
    assert Stepwise().split("") == [""]
    for wrong in ({"separator": ""}, {"aggregation": "median"}):
        with pytest.raises(BadInputError):
            Stepwise(**wrong)  # type: ignore[arg-type]
