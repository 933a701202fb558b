"""Reference numbers of objectives on groups and of step values, named by their tests."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from assay_policy_training.core.ratios import dpo_loss, ipo_loss
from assay_policy_training.plugins.estimators.step_values import differences
from assay_policy_training.plugins.objectives.offline import last_of_segment, over_segments, response_ratio
from assay_policy_training.plugins.objectives.preference import answer_loss, difference_loss, improvement_loss
from assay_policy_training.plugins.objectives.rover import at_next
from assay_policy_training.plugins.objectives.verdicts import against_group, class_weights, group_gain, length_weights

TOLERANCE = 1e-5


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def each(a: float, b: float, c: float, d: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return numbers(a), numbers(b), numbers(c), numbers(d)


def test_pacs() -> None:
    scores, label, group = numbers(1, -1, 0, -0.5), numbers(1, 0, 0, 1), torch.zeros(4, dtype=torch.long)
    psi = against_group(scores, group, "rloo").requires_grad_()
    assert psi.tolist() == pytest.approx([1.5, -1.166667, 0.166667, -0.5], abs=TOLERANCE)
    loss = binary_cross_entropy_with_logits(psi, label)
    assert float(loss.detach()) == pytest.approx(0.556634, abs=TOLERANCE)
    (gradient,) = torch.autograd.grad(loss, psi)
    assert gradient.tolist() == pytest.approx([-0.045606, 0.059365, 0.135393, -0.155615], abs=TOLERANCE)
    weights = class_weights(numbers(1, 0, 0, 0), group)
    assert weights.tolist() == pytest.approx([2, 0.666667, 0.666667, 0.666667], abs=TOLERANCE)
    one_class = class_weights(numbers(1, 1, 1, 0), torch.tensor([0, 0, 1, 1]))
    assert one_class.tolist() == [1, 1, 1, 1], "a group of one class counts in full, as in the released code"


def test_pacs_baselines_by_group() -> None:
    scores, group = numbers(1, 3, 5, 7), torch.tensor([0, 1, 0, 2])
    assert against_group(scores, group, "none").tolist() == [1, 3, 5, 7]
    assert against_group(scores, group, "rloo").tolist() == [-4, 3, 4, 7], "a row alone keeps its score"
    z = against_group(numbers(1, 2, 3), torch.zeros(3, dtype=torch.long), "grpo")
    assert z.tolist() == pytest.approx([-1, 0, 1], abs=TOLERANCE)


def test_rover() -> None:
    """One position of a three-token vocabulary, and the position before it."""
    new, old = numbers(0.5, 0.3, 0.2).log(), numbers(0.4, 0.4, 0.2).log()
    following = (new - old).mean()
    assert float(following) == pytest.approx(-0.021513, abs=TOLERANCE)
    assert float((new - old)[0]) == pytest.approx(0.223144, abs=TOLERANCE)
    mask = torch.tensor([[True, True, False]])
    moved = at_next(torch.tensor([[9.0, float(following), 7.0]]), mask)
    assert (0.5 + moved[0, 0]).item() == pytest.approx(0.478487, abs=TOLERANCE)
    assert moved[0, 1:].tolist() == [0, 0], "nothing comes after the last token"


def test_drpo_and_its_two_pass_coefficients() -> None:
    share = numbers(0.2, 0.6)
    assert length_weights(share, 0.1).tolist() == pytest.approx([0.982014, 0.017986], abs=TOLERANCE)
    scores = numbers(-0.5, -0.7, -0.6, -0.9).requires_grad_()
    gain = group_gain(scores[:2], scores[2:], share, tau=10.0, lam=0.1)
    assert float(gain.detach()) == pytest.approx(0.245278, abs=TOLERANCE)
    (gradient,) = torch.autograd.grad(-gain, scores)
    assert gradient.tolist() == pytest.approx([-0.982014, -0.017986, 0.507499, 0.492501], abs=TOLERANCE)


def test_dpo_and_ipo() -> None:
    """-log sigmoid(.08) and (.8 - 5)^2, by hand; gradients -beta sigmoid(-beta m) and 2 (m - 1/(2 beta))."""
    margin = numbers(0.8).requires_grad_()
    for loss, value, slope in ((dpo_loss, 0.653947, -0.048001), (ipo_loss, 17.64, -8.4)):
        out = loss(margin, 0.1).sum()
        (gradient,) = torch.autograd.grad(out, margin)
        assert float(out.detach()) == pytest.approx(value, abs=TOLERANCE)
        assert float(gradient) == pytest.approx(slope, abs=TOLERANCE)


def test_prdp() -> None:
    """beta m = .5 x 1.2 against a difference of 1; held within .3 of old (.2, -.1): .5 x (.5 + .3)."""
    scores, old, reward = numbers(0.9, -0.3).requires_grad_(), numbers(0.2, -0.1), numbers(1, 0)
    free = difference_loss(scores, old, reward, beta=0.5, clip=10.0)
    assert free[0, 1].item() == pytest.approx(0.16, abs=TOLERANCE)
    assert torch.equal(free, free.T), "a pair is the same from both sides"
    held = difference_loss(scores, old, reward, beta=0.5, clip=0.3)[0, 1]
    assert held.item() == pytest.approx((0.5 * 0.8 - 1) ** 2, abs=TOLERANCE)
    (gradient,) = torch.autograd.grad(held, scores)
    assert gradient[0] == 0, "the row that has moved too far is not moved further"


def test_prdp_is_solved_by_the_regularised_optimum() -> None:
    """ref exp(r / beta) / Z has no loss: the normaliser drops out of differences."""
    ref, reward, beta = numbers(0.5, 0.3, 0.2), numbers(0, 1, 0), 0.5
    best = ref * (reward / beta).exp()
    ratio = (best / best.sum() / ref).log()
    assert (best / best.sum()).tolist() == pytest.approx([0.171426, 0.760004, 0.06857], abs=TOLERANCE)
    assert float(difference_loss(ratio, ratio, reward, beta=beta, clip=1.0).abs().max()) < 1e-12


def test_inpo() -> None:
    eta, tau = 0.5, 0.2
    margin = 0.8 - tau / eta * 0.3 - (1 - tau / eta) * 0.5
    assert margin == pytest.approx(0.38, abs=TOLERANCE)
    assert float(ipo_loss(torch.tensor(margin), eta)) == pytest.approx(0.3844, abs=TOLERANCE)


def test_srpo() -> None:
    loss = improvement_loss(*each(0.6, -0.2, -0.4, 0.1), 0.5)
    assert float(loss) == pytest.approx(0.03625, abs=TOLERANCE)
    # g(w) - g(l) as far apart as g(w|w) - g(l|l): nothing left to fit, whatever the constant between them.
    assert float(answer_loss(*each(5.3, 5.0, 0.1, -0.2), 0.5)) == pytest.approx(0, abs=TOLERANCE)
    # .5 (.5 (.6 - .3))^2
    assert float(answer_loss(*each(5.6, 5.0, 0.1, -0.2), 0.5)) == pytest.approx(0.01125, abs=TOLERANCE)


def test_a_lol_ratio() -> None:
    mask = torch.tensor([[True, True, False]])
    assert float(response_ratio(torch.tensor([[0.3, -0.2, 5.0]]), mask, 0.9)) == pytest.approx(1.105171, abs=TOLERANCE)
    assert float(response_ratio(torch.tensor([[2.0, 2.0, 0.0]]), mask, 0.9)) == pytest.approx(1.9, abs=TOLERANCE)


def test_step_advantages() -> None:
    assert differences([0.4, 0.7, 0.3, 1.0]) == pytest.approx([0.3, -0.4, 0.7], abs=TOLERANCE)
    found = differences([0.5, 0.6, 0.5, 0.1, 0.1])
    assert found == pytest.approx([0.1, -0.1, -0.4, 0.0], abs=TOLERANCE)
    assert differences([0.5, 0.6, 0.5, 0.1, 0.1], samples=16) == pytest.approx([0, 0, -0.4, 0.0], abs=TOLERANCE)


def test_direct_advantage_sums_steps() -> None:
    """Log-ratios .2 -.1 of a step of advantage .3 at beta 2, between other steps."""
    segment, mask = torch.tensor([[0, 1, 1, 2, 2]]), torch.tensor([[True, True, True, True, False]])
    sums = over_segments(torch.tensor([[5.0, 0.2, -0.1, 7.0, 9.0]]), segment, mask)
    assert sums[0].tolist() == pytest.approx([5.0, 0.1, 0.1, 7.0, 0.0], abs=TOLERANCE)
    assert last_of_segment(segment, mask).tolist() == [[True, False, True, True, False]]
    assert 0.5 * (float(sums[0, 1]) - 0.3 / 2) ** 2 == pytest.approx(0.00125, abs=TOLERANCE)
