"""Losses of comparisons with ties: the tie is an outcome with its own probability.

Covers: Rao-Kupper and Davidson, their log-probabilities and losses, the initial value of their parameter from the share
of ties. Leaves out: training that parameter (the task), reading ties (`assay.data.voted_pairs`).

Both are Bradley-Terry where ties cannot happen. d = r_first - r_second [B]; outcomes are 1 (first won), 0.5 (tie), 0
(second won). Sources: Rao and Kupper 1967; Davidson 1970; formulas recalled, not re-read, checked in tests against
their forms in strengths exp(r) and to sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

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
