"""Shapes and combinations against the reference numbers, and what must hold for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay_serving.composition.combining import (
    AnyCombination,
    ConstraintPenalty,
    Ensemble,
    Gate,
    GatedSum,
    Level,
    Minimum,
    Product,
    Value,
    WeightedSum,
)
from assay_serving.composition.shaping import (
    AnyShape,
    Centre,
    Clip,
    LengthPenalty,
    LogSigmoid,
    Par,
    ShapingContext,
    Sigmoid,
    Standardise,
    Tanh,
)

NOTHING = ShapingContext()
rewards = st.floats(-15, 15)
references = st.lists(rewards, min_size=1, max_size=10)
three = st.lists(rewards, min_size=3, max_size=3)


def known(*values: float, uncertainty: float | None = None) -> dict[str, Value]:
    return {name: Value(value, uncertainty) for name, value in zip("abcdefgh", values, strict=False)}


def test_card_C1() -> None:
    near = ShapingContext((0.0, 1.0, 2.0))
    found = [Par().apply(r, near) for r in (-2.0, 0.0, 1.0, 5.0)]
    assert found == pytest.approx([0.061538, 0.296048, 0.5, 0.975965], abs=1e-6)
    centred = [Sigmoid().apply(Centre().apply(r, near), NOTHING) for r in (-2.0, 0.0, 1.0, 5.0)]
    assert centred == pytest.approx([0.047426, 0.268941, 0.5, 0.982014], abs=1e-6)
    assert Par().slope(0.7, ShapingContext((0.7,))) == pytest.approx(0.25)
    assert Par(k=2.0).slope(0.7, ShapingContext((0.7,))) == pytest.approx(0.5)


def test_card_C1b() -> None:
    assert Sigmoid().apply(8.0, NOTHING) == pytest.approx(0.999665, abs=1e-6)
    assert Sigmoid().apply(-8.0, NOTHING) == pytest.approx(0.000335, abs=1e-6)
    near = ShapingContext((0.0, 1.0, 2.0))
    assert Par(offset=3.0).apply(5.0, near) == pytest.approx(0.703952, abs=1e-6)
    assert LogSigmoid().apply(1.0, near) == pytest.approx(-1.203243, abs=1e-6)


def test_card_A13b() -> None:
    shape = LengthPenalty(rate=0.01, free=300, ceiling=5.0)
    assert shape.apply(7.0, ShapingContext(length=450.0)) == pytest.approx(3.5)
    assert LengthPenalty().apply(0.0, ShapingContext(length=450.0)) == pytest.approx(-1.5)
    assert LengthPenalty().apply(0.25, ShapingContext(length=300.0)) == 0.25


def test_card_C6() -> None:
    levels = GatedSum((Level("a", 0.0), Level("b", 0.4), Level("c")))
    assert levels.combine(known(1, 0.5, 0.3)).reward == pytest.approx(1.8)
    assert levels.combine(known(1, 0.3, 0.3)).reward == pytest.approx(1.3)
    assert levels.combine(known(0, 0.9, 0.9)).reward == 0
    assert levels.needs(known(1, 0.3)) == ("a", "b")
    assert levels.needs(known(0)) == ("a",)


def test_card_C9() -> None:
    weighted = WeightedSum({"a": 0.5, "b": 0.3, "c": 0.2}, normalise=True)
    assert weighted.combine(known(0.8, 0.5, 1.0)).reward == pytest.approx(0.75)
    veto = Gate("sum", "a", 0.0, at_least=1.0)
    values = {"sum": Value(0.75), "a": Value(0.0)}
    assert veto.combine(values).reward == 0
    assert veto.needs(values) == ("a",)


def test_constraints_by_hand() -> None:
    soft = ConstraintPenalty("a", "b", at_least=0.8, penalty=2.0)
    assert soft.combine(known(1.0, 0.5)).reward == pytest.approx(0.4)
    assert soft.combine(known(1.0, 0.8)).reward == 1.0
    hard = ConstraintPenalty("a", "b", at_most=0.1, otherwise=-5.0)
    assert hard.combine(known(1.0, 0.2)).reward == -5.0
    assert hard.needs(known(1.0, 0.2)) == ("b",)
    assert hard.combine(known(1.0, 0.1)).reward == 1.0


def test_an_ensemble_by_hand() -> None:
    values = known(1.0, 5.0, 3.0, 4.0, 2.0)
    names = ("a", "b", "c", "d", "e")
    assert Ensemble(names, weight=0.5).combine(values).reward == pytest.approx(3.0 - 0.5 * math.sqrt(2.0))
    assert Ensemble(names, combine_by="uwo", weight=0.5).combine(values).reward == pytest.approx(2.0)
    assert Ensemble(names).combine(values).uncertainty == pytest.approx(math.sqrt(2.0))


@given(references, rewards)
def test_par_lies_between_0_and_1_whatever_the_order_of_references(near: list[float], reward: float) -> None:
    found = Par().apply(reward, ShapingContext(near))
    assert 0 < found < 1
    assert Par().apply(reward, ShapingContext(near[::-1])) == pytest.approx(found, abs=1e-12)
    assert Par().apply(reward, ShapingContext(sorted(near))) == pytest.approx(found, abs=1e-12)
    shifted = Par().apply(reward + 3.0, ShapingContext([r + 3.0 for r in near]))
    assert shifted == pytest.approx(found, abs=1e-9)


SHAPES: list[AnyShape] = [
    Par(),
    Par(k=0.3, offset=3.0),
    Centre(),
    LogSigmoid(),
    Sigmoid(k=0.5),
    Tanh(k=0.3),
    Clip(-1.0, 2.0),
    Clip(high=0.0),
    Standardise(0.4, 2.5),
    LengthPenalty(ceiling=4.0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape))
@given(near=references, reward=rewards, more=st.floats(0, 5))
def test_shapes_never_fall_where_the_reward_rises(
    shape: AnyShape, near: list[float], reward: float, more: float
) -> None:
    around = ShapingContext(near, 100.0)
    assert shape.apply(reward + more, around) >= shape.apply(reward, around) - 1e-12


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape))
@given(near=references, reward=rewards)
def test_slopes_are_the_differences_of_nearby_rewards(shape: AnyShape, near: list[float], reward: float) -> None:
    around, step = ShapingContext(near, 350.0), 1e-5
    for bend in (-1.0, 0.0, 2.0, 4.0):  # where a clip or a ceiling bends
        assume(abs(reward - bend) > 1e-3)
    difference = shape.apply(reward + step, around) - shape.apply(reward - step, around)
    assert shape.slope(reward, around) == pytest.approx(difference / (2 * step), abs=1e-6)


@given(three, three, st.floats(-3, 3), three)
def test_a_weighted_sum_is_linear(x: list[float], y: list[float], factor: float, weights: list[float]) -> None:
    total = WeightedSum(dict(zip("abc", weights, strict=True)))

    def of(values: Sequence[float]) -> float:
        return total.combine(known(*values)).reward

    both = of([factor * a + b for a, b in zip(x, y, strict=True)])
    assert both == pytest.approx(factor * of(x) + of(y), abs=1e-9)


@given(three)
def test_the_minimum_and_the_lower_bound_exceed_no_operand(values: list[float]) -> None:
    names = ("a", "b", "c")
    assert Minimum(names).combine(known(*values)).reward == min(values)
    bound = Ensemble(names, weight=2.0).combine(known(*values)).reward
    assert bound <= math.fsum(values) / 3 + 1e-9


@given(rewards, rewards, rewards)
def test_a_closed_gate_gives_the_floor_and_an_open_one_its_operand(value: float, key: float, threshold: float) -> None:
    gate = Gate("a", "b", floor=-7.0, above=threshold)
    assert gate.combine(known(value, key)).reward == (value if key > threshold else -7.0)
    kept = Gate("a", "b", floor=-7.0, at_least=threshold)
    assert kept.combine(known(value, key)).reward == (value if key >= threshold else -7.0)


@given(three, st.lists(st.floats(0, 3), min_size=3, max_size=3))
def test_uncertainties_add_as_of_independent_operands(values: list[float], spreads: list[float]) -> None:
    given_values = {n: Value(v, s) for n, v, s in zip("abc", values, spreads, strict=True)}
    total = WeightedSum({"a": 2.0, "b": -1.0, "c": 0.0}).combine(given_values)
    assert total.uncertainty == pytest.approx(math.hypot(2.0 * spreads[0], spreads[1]))
    product = Product(("a", "b")).combine(given_values).uncertainty
    assert product == pytest.approx(math.hypot(values[1] * spreads[0], values[0] * spreads[1]))


def test_an_operand_without_an_uncertainty_takes_that_of_the_whole() -> None:
    values = {"a": Value(1.0, 0.5), "b": Value(2.0)}
    assert WeightedSum({"a": 1.0, "b": 1.0}).combine(values).uncertainty is None
    assert WeightedSum({"a": 1.0, "b": 0.0}).combine(values).uncertainty == 0.5
    assert Gate("a", "b", 0.0, above=5.0).combine(values).uncertainty is None


def make(cls: type, *given: object, **named: object) -> object:
    return cls(*given, **named)


@pytest.mark.parametrize(
    ("cls", "named", "said"),
    [
        (Clip, {}, "low, high"),
        (Clip, {"low": 1.0, "high": 1.0}, "below high"),
        (Par, {"k": 0.0}, "positive"),
        (Par, {"references": ()}, "at least one reference"),
        (LogSigmoid, {"percentile": 1.0}, "between 0 and 1"),
        (Standardise, {"mean": 0.0, "std": 0.0}, "positive"),
        (LengthPenalty, {"rate": -1.0}, "0 or more"),
        (WeightedSum, {"weights": {}}, "at least one weight"),
        (WeightedSum, {"weights": {"a": -1.0}, "normalise": True}, "positive sum"),
        (Minimum, {"of": ("a",)}, "two operands"),
        (Product, {"of": ("a", "a")}, "twice"),
        (Gate, {"of": "a", "open": "b", "floor": 0.0}, "exactly one of above and at_least"),
        (GatedSum, {"levels": (Level("a"), Level("b"))}, "every level but the last"),
        (GatedSum, {"levels": (Level("a", 0.0), Level("b", 0.0))}, "gates nothing"),
        (ConstraintPenalty, {"of": "a", "where": "b", "at_least": 0.0}, "penalty and otherwise"),
        (ConstraintPenalty, {"of": "a", "where": "b", "at_least": 0.0, "penalty": -1.0}, "must not pay"),
        (Ensemble, {"of": ("a", "b"), "weight": -1.0}, "0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(cls: type, named: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(cls, **named)


def test_a_comparison_with_nothing_is_an_error_and_no_number() -> None:
    for shape in (Par(), Centre(), LogSigmoid()):
        with pytest.raises(ValueError, match="no reference"):
            shape.apply(1.0, NOTHING)


def test_every_combination_needs_only_what_it_lists() -> None:
    combinations: list[AnyCombination] = [
        WeightedSum({"a": 1.0, "b": 2.0}),
        Minimum(("a", "b")),
        Product(("a", "b")),
        Gate("a", "b", 0.0, above=0.0),
        GatedSum((Level("a", 0.0), Level("b"))),
        ConstraintPenalty("a", "b", at_least=0.0, penalty=1.0),
        Ensemble(("a", "b")),
    ]
    for combination in combinations:
        for values in ({}, known(1.0, 1.0), known(-1.0, -1.0)):
            assert set(combination.needs(values)) <= set(combination.operands) == {"a", "b"}
