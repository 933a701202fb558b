"""Regularisers: terms that centre, bound or disentangle rewards.

Covers: centring and its squares variant, the log-barrier bound, the positive regulariser, GRM's text terms, ODIN's
length and orthogonality terms. Leaves out: their weights (`objective.py` and the methods), log-probabilities of text
and the heads (the tasks).
"""

import torch
import torch.nn.functional as F

from assay_policy_training.core.ratios import dpo_loss


def centring(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """(c + r)^2 per pair [B]: centres rewards at 0, which Bradley-Terry leaves free (arXiv 2312.09244)."""
    return (chosen + rejected) ** 2


def squares(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """c^2 + r^2 per pair [B], as in the PAR repository: unlike `centring` it also shrinks the margin."""
    return chosen**2 + rejected**2


def log_barrier(reward: torch.Tensor, *, bound: float = 5.0, floor: float = 1e-3) -> torch.Tensor:
    """-log(bound - r) - log(bound + r), per reward: keeps rewards within +-bound (InternLM2, arXiv 2403.17297).

    Negative inside, so a total with it may be negative. The arguments are cut at `floor`, as in xtuner: outside the
    band the gradient of that side is 0, so a reward that starts there is not pulled back.
    """
    return -torch.log((bound - reward).clamp_min(floor)) - torch.log((reward + bound).clamp_min(floor))


def positive_mean(chosen: torch.Tensor) -> torch.Tensor:
    """-log s(mean of c), a scalar, of the chosen rewards [B] of a FULL batch: not a sum over pairs ("pos_reg" of
    the GRM repository, weight 0.1)."""
    return -F.logsigmoid(chosen.mean())


def text_sft(log_probability: torch.Tensor, *, beta: float = 0.1) -> torch.Tensor:
    """-log s(beta * log p(chosen | prompt)), per response [B]: GRM's reference-free regulariser (arXiv 2406.10216).

    `log_probability` is summed over the response's tokens, so long responses weigh more; its weight must be small.
    """
    return -F.logsigmoid(beta * log_probability)


def text_nll(log_probability: torch.Tensor) -> torch.Tensor:
    """-log p(chosen | prompt), per response [B]: plain language modelling."""
    return -log_probability


def text_dpo(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
    *,
    beta: float = 0.1,
) -> torch.Tensor:
    """-log s(beta * ((log p_c - log p_r) - (log ref_c - log ref_r))), per pair [B] (GRM's second form)."""
    return dpo_loss((chosen - rejected) - (reference_chosen - reference_rejected), beta)


def correlation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Pearson's correlation of [n] and [n], a scalar; 0, with no gradient, where either does not vary."""
    x, y = x - x.mean(), y - y.mean()
    scale = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)
    if not bool(scale > torch.finfo(x.dtype).tiny):
        return (x * y).sum() * 0
    r: torch.Tensor = (x * y).sum() / scale
    return r


def length_terms(
    quality: torch.Tensor, length_reward: torch.Tensor, lengths: torch.Tensor, *, of_sum: bool = False
) -> torch.Tensor:
    """|corr(r_Q, len)| + 1 - corr(r_L, len), a scalar, over all n responses of a FULL batch (ODIN, 2402.07319).

    `of_sum` adds |corr(r_Q + r_L, len)|, as its published code does. On few responses the correlations are noise of
    order 1/sqrt(n). Independent of the unit of length.
    """
    terms = correlation(quality, lengths).abs() + 1 - correlation(length_reward, lengths)
    return terms + correlation(quality + length_reward, lengths).abs() if of_sum else terms


def orthogonality(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """|cos| of two heads' weights, flattened: a scalar; 0, with no gradient, where one is zero (ODIN)."""
    first, second = first.flatten(), second.flatten()
    scale = torch.linalg.vector_norm(first) * torch.linalg.vector_norm(second)
    if not bool(scale > torch.finfo(first.dtype).tiny):
        return (first * second).sum() * 0
    cosine: torch.Tensor = (first * second).sum() / scale
    return cosine.abs()
