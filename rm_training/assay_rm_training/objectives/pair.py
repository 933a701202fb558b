"""Losses of preference pairs: decided ones, ties, shares of votes.

Decided pairs, each loss a plain function of rewards to one loss a pair: Bradley-Terry with margin,
temperature, label smoothing and soft labels, and the variants of Skywork-Reward's ablation (arXiv 2410.18451). Leaves
out: what is added to a loss (`regularisers.py`), the choice among them (`objective.py`). Notation: c,
r rewards [B] of chosen and rejected, d = c - r, s the logistic function, p = s(d). Logarithms of s are computed in the
stable form log s(z) = min(z, 0) - log(1 + exp(-|z|)). A margin m and a temperature tau enter as d -> (d - m) / tau
(margin: Llama 2, arXiv 2307.09288; its tables of margins from memory).

Ties: the tie is an outcome with its own probability. Covers: Rao-Kupper and Davidson, their
log-probabilities and losses, the initial value of their parameter from the share of ties. Leaves out: training that
parameter (the task), reading ties (`assay.data.voted_pairs`). Both are Bradley-Terry where ties cannot happen. d =
r_first - r_second [B]; outcomes are 1 (first won), 0.5 (tie), 0 (second won). Sources: Rao and Kupper 1967; Davidson
1970; formulas recalled, not re-read, checked in tests against their forms in strengths exp(r) and to sum to 1.

Soft labels from the spread of annotators are the probability that the chosen side wins, from counted votes and
a prior. Leaves out: counting votes (`assay.data.voted_pairs`).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from assay.errors import BadInputError
from assay_policy_training.core.ratios import dpo_loss


def bradley_terry(d: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """-(1-e) log s(d) - e log s(-d), per pair [B].

    Bradley-Terry as in InstructGPT (arXiv 2203.02155); smoothing as in conservative DPO: with a share e of labels
    flipped the minimum lies at the finite d = ln((1-e)/e).
    """
    return dpo_loss(d, 1.0, label_smoothing)


def bradley_terry_soft(d: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """-t log s(d) - (1-t) log s(-d), per pair [B]: cross-entropy against t = P(chosen wins) in [0, 1].

    Its minimum is the entropy of t, at d = ln(t / (1-t)); t = 1 is Bradley-Terry, t = 1-e label smoothing.
    """
    return -target * F.logsigmoid(d) - (1 - target) * F.logsigmoid(-d)


def focal(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """-(1-p)^gamma log p, per pair [B]: the usual focal form."""
    return -(torch.sigmoid(-d) ** gamma) * F.logsigmoid(d)


def focal_internlm(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """-(1 - 2 max(0, p - 1/2))^gamma log p, per pair [B] (InternLM2, arXiv 2403.17297): full weight where wrong."""
    return -(focal_weight(d, gamma=gamma)) * F.logsigmoid(d)


def focal_weight(d: torch.Tensor, *, gamma: float = 2.0) -> torch.Tensor:
    """(1 - 2 max(0, p - 1/2))^gamma, per pair [B]: 1 for every pair ranked wrong, towards 0 for sure ones."""
    return (1 - 2 * F.relu(torch.sigmoid(d) - 0.5)) ** gamma


def hinge(d: torch.Tensor, *, margin: float = 1.0) -> torch.Tensor:
    """max(0, margin - d), per pair [B]."""
    return F.relu(margin - d)


def margin_mse(d: torch.Tensor, *, margin: float = 1.0) -> torch.Tensor:
    """(d - margin)^2, per pair [B]."""
    return (d - margin) ** 2


def tempered_log(d: torch.Tensor, *, tempering: float = 0.5) -> torch.Tensor:
    """-(p^(1-t) - 1) / (1-t), per pair [B]: bounded by 1/(1-t), so one wrong label cannot dominate; t -> 1 is
    Bradley-Terry. The ablation that names it (Skywork-Reward, arXiv 2410.18451) gives no formula: the standard one."""
    return -torch.expm1((1 - tempering) * F.logsigmoid(d)) / (1 - tempering)


def pointwise(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """-log s(c) - log s(-r), per pair [B]: each side is classified by itself.

    Needs absolute labels: on pairs it penalises prompts where both answers are good, and was the worst of the published
    ablation (87.6 against 93.8).
    """
    return -F.logsigmoid(chosen) - F.logsigmoid(-rejected)


FIRST, TIE, SECOND = 1.0, 0.5, 0.0


class TieLoss(NamedTuple):
    """A loss that learns from ties.

    `log_probabilities`: from d [B] and the tie parameter, a scalar, to [B, 3]: first won, tie, second won. `start`: the
    parameter's initial value from the share of ties in the data.
    """

    log_probabilities: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    start: Callable[[float], float]


def rao_kupper(d: torch.Tensor, log_threshold: torch.Tensor) -> torch.Tensor:
    """Log-probabilities [B, 3] of first won, tie, second won; `log_threshold` = ln h, a scalar (so h stays positive).

    P(first) = s(d - h), P(second) = s(-d - h), P(tie) = (e^2h - 1) P(first) P(second): a difference below h is
    likely not to be noticed.
    """
    threshold = torch.exp(log_threshold)
    first, second = F.logsigmoid(d - threshold), F.logsigmoid(-d - threshold)
    tie = first + second + torch.log(torch.expm1(2 * threshold))
    return torch.stack([first, tie, second], dim=-1)


def davidson(d: torch.Tensor, log_nu: torch.Tensor) -> torch.Tensor:
    """Log-probabilities [B, 3] of first won, tie, second won; `log_nu` a scalar.

    In proportion exp(d/2) : nu : exp(-d/2): the tie goes with the geometric mean of the two strengths.
    """
    scores = torch.stack([d / 2, log_nu.expand_as(d), -d / 2], dim=-1)
    return F.log_softmax(scores, dim=-1)


def outcome_loss(log_probabilities: torch.Tensor, outcome: torch.Tensor) -> torch.Tensor:
    """-log P(outcome), per comparison [B]. `outcome` [B] holds 1, 0.5 or 0."""
    column = torch.round(2 * (1 - outcome)).long()
    return -log_probabilities.gather(-1, column[:, None])[:, 0]


def rao_kupper_start(tie_share: float) -> float:
    """ln of the threshold that gives `tie_share` of ties among equals, h = ln((1+q)/(1-q)); q is kept in range."""
    share = min(max(tie_share, 0.01), 0.9)
    return math.log(math.log((1 + share) / (1 - share)))


def davidson_start(tie_share: float) -> float:
    """ln nu that gives `tie_share` of ties among equals: nu / (2 + nu) = q."""
    share = min(max(tie_share, 0.01), 0.9)
    return math.log(2 * share / (1 - share))


RAO_KUPPER = TieLoss(rao_kupper, rao_kupper_start)
DAVIDSON = TieLoss(davidson, davidson_start)


def vote_target(chosen: float, rejected: float, ties: float = 0.0, *, prior: float = 0.5) -> float:
    """P(chosen wins) = (n_chosen + n_ties / 2 + a) / (n + 2a): the mean of a Beta posterior under Beta(a, a).

    A tie is half a vote for each. a = 1/2 is Jeffreys' prior: a single vote gives 0.75, five of five 0.92; a = 0 uses
    the shares unchanged. Raises BadInputError without votes and prior.
    """
    counted = chosen + rejected + ties
    if min(chosen, rejected, ties, prior) < 0 or counted + prior <= 0:
        raise BadInputError(f"no probability from {chosen}:{rejected}, {ties} ties and prior {prior}")
    return (chosen + ties / 2 + prior) / (counted + 2 * prior)
