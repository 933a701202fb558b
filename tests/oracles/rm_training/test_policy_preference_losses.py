"""Losses that train policies on preferences: TRL's numbers on the same log-probabilities, and values by hand."""

from __future__ import annotations

import importlib
import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.errors import BadInputError
from assay_rm_training.objectives.preference import kto, log_odds_ratio, robust
from assay_rm_training.preference.method import LogProbs
from assay_rm_training.preference.pairs import Dpo, Ipo, Orpo, PairMethod, SimPo

PAIRS, TOKENS = 6, 9
LENGTHS = torch.tensor([[4, 7], [8, 3], [5, 5], [1, 8], [6, 2], [8, 8]])


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


#: [2 x pairs, tokens - 1]: log-probabilities of TRL's rows, the chosen ones first, 0 where there is no token.
MASK = torch.arange(TOKENS - 1) < torch.cat([LENGTHS[:, 0], LENGTHS[:, 1]])[:, None]
TOKEN_LOGPS = torch.where(MASK, -random(2 * PAIRS, TOKENS - 1, seed=1).abs(), 0.0)
SUMS = torch.stack(TOKEN_LOGPS.sum(1).chunk(2), dim=1)
REFERENCE = SUMS + random(PAIRS, 2, seed=2)


class Accelerator:
    """One process."""

    device = torch.device("cpu")

    def gather_for_metrics(self, value: torch.Tensor) -> torch.Tensor:
        return value

    gather = reduce = gather_for_metrics


def trl_module(name: str) -> Any:
    pytest.importorskip("trl", reason="the extra `bench` is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def outputs_of(logps: torch.Tensor) -> Any:
    return SimpleNamespace(log_probs=logps, entropy=logps, mean_logits=logps, is_top1=logps > 0)


def trl_dpo_loss(loss: str, *, beta: float, label_smoothing: float) -> torch.Tensor:
    trainer: Any = object.__new__(trl_module("trl.trainer.dpo_trainer").DPOTrainer)
    vars(trainer).update(
        beta=beta, label_smoothing=label_smoothing, loss_types=[loss], loss_weights=[1.0], ld_alpha=None,
        f_divergence_type="reverse_kl", precompute_ref_logps=True, aux_loss_enabled=False, use_weighting=False,
        accelerator=Accelerator(), model=SimpleNamespace(training=False), args=SimpleNamespace(),
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
    )  # fmt: skip
    completion = torch.cat([torch.zeros(2 * PAIRS, 1, dtype=torch.long), MASK.long()], dim=1)
    inputs = {
        "input_ids": torch.ones(2 * PAIRS, TOKENS, dtype=torch.long),
        "attention_mask": torch.ones(2 * PAIRS, TOKENS, dtype=torch.long),
        "completion_mask": completion,
        "ref_chosen_logps": REFERENCE[:, 0],
        "ref_rejected_logps": REFERENCE[:, 1],
    }
    return trainer._compute_loss(lambda **_: outputs_of(TOKEN_LOGPS), inputs, False)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("method", "theirs"),
    [
        (Dpo(0.3), ("sigmoid", 0.0)),
        (Dpo(0.3, loss="robust", label_smoothing=0.2), ("robust", 0.2)),
        (Dpo(0.3, loss="hinge"), ("hinge", 0.0)),
        (Ipo(0.3), ("ipo", 0.0)),
    ],
    ids=lambda case: case.name if isinstance(case, PairMethod) else case[0],
)
def test_losses_are_those_of_trls_dpo_trainer(method: PairMethod, theirs: tuple[str, float]) -> None:
    found = method.losses(LogProbs(SUMS, LENGTHS, REFERENCE)).mean()
    expected = trl_dpo_loss(theirs[0], beta=0.3, label_smoothing=theirs[1])
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)


def test_simpo_is_that_of_trls_cpo_trainer() -> None:
    trainer = trl_module("trl.experimental.cpo.cpo_trainer").CPOTrainer
    settings = SimpleNamespace(
        alpha=0.0, beta=2.0, loss_type="simpo", simpo_gamma=1.2, label_smoothing=0.1, accelerator=Accelerator()
    )
    means = SUMS / LENGTHS
    expected, *rewards = trainer.cpo_loss(settings, means[:, 0], means[:, 1])
    method, measured = SimPo(2.0, 1.2, 0.1), LogProbs(SUMS, LENGTHS, None)
    torch.testing.assert_close(method.losses(measured), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(method.rewards(measured), torch.stack(rewards, dim=1), atol=1e-6, rtol=0)


def test_orpo_is_that_of_trls_trainer() -> None:
    """Its negative log-likelihood is TRL's of one row: TRL takes the mean over all tokens of a batch."""
    trainer = trl_module("trl.experimental.orpo.orpo_trainer").ORPOTrainer
    means = SUMS / LENGTHS
    settings = SimpleNamespace(beta=0.4, accelerator=Accelerator())
    ratio_losses, *rewards, _, log_odds = trainer.odds_ratio_loss(settings, means[:, 0], means[:, 1])
    method, measured = Orpo(0.4), LogProbs(SUMS, LENGTHS, None)
    expected = -means[:, 0] - ratio_losses
    torch.testing.assert_close(method.losses(measured), expected.double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(method.rewards(measured), torch.stack(rewards, 1).double(), atol=1e-6, rtol=0)
    assert log_odds_ratio(means[:, 0], means[:, 1]).mean().item() == pytest.approx(log_odds.item(), abs=1e-6)


@pytest.mark.parametrize("shift", [0.5, -5.0])  # a KL term above 0, and one that is cut at 0
def test_kto_is_that_of_trls_trainer(shift: float) -> None:
    trainer: Any = object.__new__(trl_module("trl.trainer.kto_trainer").KTOTrainer)
    labels = torch.tensor([True, False, True, True, False, False])
    logps, reference, mismatched = TOKEN_LOGPS[:PAIRS], REFERENCE[:, 0], random(PAIRS, seed=4) + shift
    vars(trainer).update(
        beta=0.3, desirable_weight=1.0, undesirable_weight=1.5, loss_type="kto", calculate_KL=True,
        precompute_ref_logps=True, aux_loss_enabled=False, accelerator=Accelerator(),
        model=SimpleNamespace(training=False), _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0,
        _compute_kl_logps=lambda model, batch: mismatched,
    )  # fmt: skip
    inputs = {
        "input_ids": torch.ones(PAIRS, TOKENS, dtype=torch.long),
        "attention_mask": torch.ones(PAIRS, TOKENS, dtype=torch.long),
        "completion_mask": torch.cat([torch.zeros(PAIRS, 1, dtype=torch.long), MASK[:PAIRS].long()], dim=1),
        "label": labels,
        "ref_logps": reference,
        "ref_KL_logps": torch.zeros(PAIRS, dtype=torch.float64),
    }
    expected = trainer._compute_loss(lambda **_: outputs_of(logps), inputs, False)
    kl = mismatched.mean().clamp_min(0)
    assert bool(kl > 0) == (shift > 0)
    losses = kto(SUMS[:, 0] - reference, kl, labels, beta=0.3, undesirable_weight=1.5)
    assert losses.mean().item() == pytest.approx(expected.item(), abs=1e-6)


def test_values_by_hand() -> None:
    measured = LogProbs(torch.tensor([[-20.0, -30.0]]), torch.tensor([[4, 10]]), torch.tensor([[-22.0, -27.0]]))
    assert Dpo(0.1).losses(measured).item() == pytest.approx(math.log1p(math.exp(-0.5)))  # 0.1 * ((2) - (-3)) = 0.5
    smoothed = 0.8 * math.log1p(math.exp(-0.5)) + 0.2 * math.log1p(math.exp(0.5))
    assert Dpo(0.1, label_smoothing=0.2).losses(measured).item() == pytest.approx(smoothed)
    assert Ipo(0.1).losses(measured).item() == pytest.approx((0.5 + 0.3 - 5) ** 2, rel=1e-6)  # 2/4 - (-3/10), 1/0.2
    assert SimPo(2.0, 1.0).losses(measured._replace(reference=None)).item() == pytest.approx(
        math.log1p(math.exp(2 * (5 - 3) + 1))
    )


def test_swapped_sides_negate_the_difference() -> None:
    measured = LogProbs(SUMS, LENGTHS, REFERENCE)
    swapped = LogProbs(SUMS.flip(1), LENGTHS.flip(1), REFERENCE.flip(1))
    for method in (Dpo(0.3), Ipo(0.3)):
        difference = method.rewards(measured).diff(dim=1)
        torch.testing.assert_close(method.rewards(swapped).diff(dim=1), -difference)
    # -log s(d) + log s(-d) = -d
    gap = Dpo(0.3).losses(measured) - Dpo(0.3).losses(swapped)
    torch.testing.assert_close(gap, Dpo(0.3).rewards(measured).diff(dim=1)[:, 0])


def test_robust_dpo_is_unbiased_where_labels_are_flipped() -> None:
    """Averaged over flips of probability e it is the loss of the right labels."""
    d, e = random(20, seed=5), 0.3
    expected = robust(d)
    found = (1 - e) * robust(d, label_smoothing=e) + e * robust(-d, label_smoothing=e)
    torch.testing.assert_close(found, expected)


def test_gradients_are_finite_at_the_ends() -> None:
    chosen = torch.tensor([-1e-12, -50.0, 0.0, -0.7], requires_grad=True)
    losses: list[Callable[[], torch.Tensor]] = [
        lambda: log_odds_ratio(chosen, torch.full_like(chosen, -1.0)),
        lambda: kto(1e4 * chosen, torch.tensor(0.0), torch.tensor([True, False, True, False]), beta=1.0),
    ]
    for loss in losses:
        (gradient,) = torch.autograd.grad(loss().sum(), chosen)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("settings", [{"beta": 0.0}, {"beta": 0.1, "label_smoothing": 0.5}, {"loss": "odd"}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        Dpo(**settings)
