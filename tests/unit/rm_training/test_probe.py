"""The linear probe: the exact optimum of its loss, chosen on gold, equal to the checkpoint it is saved as."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.score import Score, ScoreFailure
from assay.workspace import Workspace
from assay_rm_training.checkpoints.checkpoint import TOLERANCE, save_checkpoint
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_rm_training.methods.probe import ProbeConfig, ProbeScorer, fit_head, probe_spec, train_probe, with_head
from assay_serving.engines.frozen_backbone import FeatureResult, Features
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

Floats: TypeAlias = npt.NDArray[np.float64]
WORDS = ("alpha", "beta", "gamma", "delta")


@pytest.fixture(scope="module")
def backbone() -> FrozenBackbone:
    return FrozenBackbone("tiny", max_length=128)


@pytest.fixture(scope="module")
def pairs() -> list[PreferencePair]:
    asked = [(Message("user", f"Question {n} about {WORDS[n % 4]}?"),) for n in range(40)]
    return [PreferencePair(p, f"A good answer {n}.", f"bad {n}") for n, p in enumerate(asked)]


def loss(d: Floats, v: Floats, w: Floats, l2: float, e: float) -> float:
    z = d @ w
    each = (1 - e) * np.logaddexp(0, -z) + e * np.logaddexp(0, z)
    return float((v * each).sum() / v.sum() + 0.5 * l2 * (w @ w))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.01, 0.3, 3.0]))
def test_the_head_is_the_minimum_of_the_stated_loss(seed: int, smoothing: float, l2: float) -> None:
    """At the minimum the gradient that torch takes of the loss as written vanishes."""
    rng = np.random.default_rng(seed)
    d, v = rng.normal(size=(20, 5)) * 3, rng.uniform(0.1, 2.0, size=20)
    w = torch.tensor(fit_head(d, v, l2=l2, label_smoothing=smoothing), requires_grad=True)
    z = torch.tensor(d) @ w
    weights = torch.tensor(v)
    each = -(1 - smoothing) * torch.nn.functional.logsigmoid(z) - smoothing * torch.nn.functional.logsigmoid(-z)
    total = (weights * each).sum() / weights.sum() + 0.5 * l2 * (w @ w)
    total.backward()  # type: ignore[no-untyped-call]
    assert w.grad is not None
    assert float(w.grad.abs().max()) < 1e-6
    found = w.detach().numpy()
    for _ in range(5):
        assert loss(d, v, found + 0.05 * rng.normal(size=5), l2, smoothing) > loss(d, v, found, l2, smoothing)


def test_swapping_every_pair_negates_the_head() -> None:
    d = np.random.default_rng(1).normal(size=(30, 4))
    assert np.allclose(fit_head(-d, np.ones(30), l2=0.1), -fit_head(d, np.ones(30), l2=0.1))


def test_smoothing_keeps_a_separable_margin_at_its_finite_optimum() -> None:
    """One pair, no penalty to speak of: s(d) = 1 - e, so d = ln((1 - e) / e)."""
    w = fit_head(np.ones((1, 1)), np.ones(1), l2=1e-9, label_smoothing=0.1)
    assert w[0] == pytest.approx(np.log(9), rel=1e-5)


def test_the_penalty_is_chosen_on_gold(backbone: FrozenBackbone, pairs: list[PreferencePair]) -> None:
    cache = FeatureCache(backbone)
    probe = train_probe(cache, pairs[:30], ProbeConfig(), gold=pairs[30:])
    assert probe.l2 == min(probe.candidates, key=lambda l2: probe.candidates[l2][1])
    assert probe.chosen_on == "gold"
    assert set(probe.candidates) == set(ProbeConfig().l2)
    assert probe.pairs == 30


def test_without_gold_the_penalty_is_chosen_by_cross_validation(backbone: FrozenBackbone) -> None:
    """Labels without any rule in them: the strongest penalty predicts prompts left out best."""
    rng = np.random.default_rng(0)
    noise = []
    for n in range(120):
        sides = (f"answer {n} one", f"reply {n} two")
        chosen, rejected = sides if rng.random() < 0.5 else sides[::-1]
        noise.append(PreferencePair((Message("user", f"Question {n}?"),), chosen, rejected))
    probe = train_probe(FeatureCache(backbone), noise, ProbeConfig(l2=(100.0, 1e-4)))
    assert probe.l2 == 100.0
    assert probe.candidates[100.0][1] < probe.candidates[1e-4][1]


def test_a_probe_scores_as_the_checkpoint_it_is_saved_as(
    backbone: FrozenBackbone, pairs: list[PreferencePair], tmp_path: Path
) -> None:
    cache = FeatureCache(backbone)
    probe = train_probe(cache, pairs, ProbeConfig())
    items = [ScoreItem(p.prompt, text) for p in pairs for text in (p.chosen, p.rejected)]
    mine = ProbeScorer(cache, probe, name="probe", version="v").score(items)
    spec = probe_spec(cache, snapshot="s", run_id="run")
    folder = tmp_path / "probe"
    save_checkpoint(
        with_head(backbone.trainable, probe), spec, backbone.renderer, folder, sample=items[:8], card="a probe"
    )
    saved = TransformersScorer.load(ModelConfig(str(folder), device="cpu")).score(items)
    for one, other in zip(mine, saved, strict=True):
        assert isinstance(one, Score)
        assert isinstance(other, Score)
        assert abs(one.reward - other.reward) <= TOLERANCE * (1 + abs(other.reward))
        assert (one.tokens, one.truncated) == (other.tokens, other.truncated)


def test_features_are_computed_once_and_kept_in_the_workspace(
    backbone: FrozenBackbone, pairs: list[PreferencePair], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [ScoreItem(p.prompt, p.chosen) for p in pairs]
    first = FeatureCache(backbone, workspace).of(items)
    computed: list[int] = []
    encode = backbone.encode

    def counted(items: Sequence[ScoreItem], *rest: Any) -> list[FeatureResult]:
        computed.append(len(items))
        return encode(items, *rest)

    monkeypatch.setattr(backbone, "encode", counted)
    again = FeatureCache(backbone, workspace).of(items)
    assert computed == []
    for one, other in zip(first, again, strict=True):
        assert isinstance(one, Features)
        assert isinstance(other, Features)
        assert np.array_equal(one.vector, other.vector)
        assert (one.tokens, one.truncated) == (other.tokens, other.truncated)


def test_what_cannot_be_encoded_is_left_out_and_said(backbone: FrozenBackbone, pairs: list[PreferencePair]) -> None:
    long = PreferencePair(pairs[0].prompt, "word " * 400, "short")
    cache = FeatureCache(backbone)
    assert isinstance(cache.of([ScoreItem(long.prompt, long.chosen)])[0], ScoreFailure)
    assert train_probe(cache, [*pairs, long], ProbeConfig()).left_out == 1
    with pytest.raises(BadInputError, match="no pair to train on"):
        train_probe(cache, [long], ProbeConfig())


def test_a_penalty_of_zero_is_refused() -> None:
    with pytest.raises(BadInputError, match="positive"):
        ProbeConfig(l2=(0.0,))
