"""Decoding with a reward on numbers that are known: the paper's card, a language whose responses are enumerated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from assay.statistics.best_of_n import expected_best, kl_best_of, kl_with_ties
from assay_policy_training.core.logprobs import full_kl
from assay_policy_training.decoding.beam import Beam
from assay_policy_training.decoding.value_augmented import steered
from assay_policy_training.measures.tilted import divergence, tilted

TOKENS, LENGTH = 4, 3


def test_card_9_7_steers_the_candidates_by_their_values_around_the_mean() -> None:
    logits, values = torch.tensor([[0.0, -0.5, -1.0]]), torch.tensor([[0.2, 0.6, 0.1]])
    out = steered(logits, torch.arange(3)[None], values, 3.0)
    assert out[0].tolist() == pytest.approx([-0.3, 0.4, -1.6])
    assert out.softmax(-1)[0].tolist() == pytest.approx([0.304295, 0.612775, 0.08293], abs=1e-6)
    wide = torch.cat([logits, torch.tensor([[-7.0, -torch.inf]])], 1)
    assert steered(wide, torch.tensor([[1, 0, 2]]), values[:, [1, 0, 2]], 3.0)[0, 3:].tolist() == [-7.0, -math.inf]


def test_the_kl_of_a_token_is_that_of_the_two_distributions_and_cut_tokens_do_not_count() -> None:
    p, q = torch.tensor([[0.7, 0.2, 0.1, 0.0]]), torch.tensor([[0.9, 0.05, 0.05, 0.0]])
    exact = 0.7 * math.log(0.7 / 0.9) + 0.2 * math.log(4) + 0.1 * math.log(2)
    assert full_kl(p.log(), q.log()).tolist() == pytest.approx([exact], abs=1e-6)


class Language:
    """All responses of LENGTH tokens by a random policy, with random rewards: every value is exact."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.sequences = list(itertools.product(range(TOKENS), repeat=LENGTH))
        self.logits = {
            prefix: random.normal(size=TOKENS)
            for length in range(LENGTH)
            for prefix in itertools.product(range(TOKENS), repeat=length)
        }
        self.rewards = random.normal(size=len(self.sequences))
        self.policy = np.exp([sum(self.logp(s[:t])[s[t]] for t in range(LENGTH)) for s in self.sequences])

    def logp(self, prefix: tuple[int, ...]) -> npt.NDArray[np.float64]:
        logits = self.logits[prefix]
        return np.asarray(logits - np.log(np.exp(logits).sum()), dtype=float)

    def value(self, prefix: tuple[int, ...], beta: float | None) -> float:
        """Mean reward after the prefix by the policy; for a `beta` the soft value ln E[exp(beta r)] / beta."""
        rows = [n for n, s in enumerate(self.sequences) if s[: len(prefix)] == prefix]
        weights = self.policy[rows] / self.policy[rows].sum()
        if beta is None:
            return float(weights @ self.rewards[rows])
        return float(np.log(weights @ np.exp(beta * self.rewards[rows])) / beta)

    def decoded(self, beta: float, *, soft: bool) -> tuple[npt.NDArray[np.float64], float]:
        """Probability of every response under steering by exact values, and the sum of token KLs in expectation."""
        probabilities, kl = np.ones(len(self.sequences)), 0.0
        for prefix, logits in self.logits.items():
            values = [self.value((*prefix, token), beta if soft else None) for token in range(TOKENS)]
            base = torch.tensor(logits)[None]
            out = steered(base, torch.arange(TOKENS)[None], torch.tensor(values, dtype=torch.float64)[None], beta)
            chosen = out.softmax(-1)[0].numpy()
            rows = [n for n, s in enumerate(self.sequences) if s[: len(prefix)] == prefix]
            for row in rows:
                probabilities[row] *= chosen[self.sequences[row][len(prefix)]]
            # Prefixes come shortest first: the rows' product is so far that of the prefix and its next token.
            reach = dict.fromkeys(range(TOKENS), 0.0)
            for row in rows:
                reach[self.sequences[row][len(prefix)]] = probabilities[row]
            kl += sum(reach.values()) * float(full_kl(out, base))
        return probabilities, kl


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_with_soft_values_of_all_tokens_it_is_the_policy_times_exp_beta_r(beta: float) -> None:
    language = Language()
    probabilities, kl = language.decoded(beta, soft=True)
    target = tilted(language.policy, language.rewards, 1 / beta)
    assert probabilities == pytest.approx(target, rel=1e-9)
    assert kl == pytest.approx(divergence(target, language.policy), rel=1e-9), "token KLs add up to the sequence's"


@pytest.mark.parametrize("seed", range(5))
def test_with_the_policys_own_values_the_reward_rises_with_beta_and_is_near_the_best_at_its_kl(seed: int) -> None:
    language = Language(seed)
    base = float(language.policy @ language.rewards)
    reached = base
    for beta in (0.5, 1.0, 2.0):
        probabilities, kl = language.decoded(beta, soft=False)
        reward = float(probabilities @ language.rewards)
        assert kl == pytest.approx(divergence(probabilities, language.policy), rel=1e-9)
        assert reward > reached
        reached = reward
        # The optimum at the same KL, by bisection of its beta.
        low, high = 1e-3, 100.0
        for _ in range(60):
            middle = math.sqrt(low * high)
            optimum = tilted(language.policy, language.rewards, 1 / middle)
            low, high = (middle, high) if divergence(optimum, language.policy) < kl else (low, middle)
        best = float(optimum @ language.rewards)
        assert reward <= best + 1e-9
        assert reward - base > 0.8 * (best - base)


def test_the_kl_of_best_of_n_with_ties_is_that_of_the_levels() -> None:
    # Of rewards 0 and 1, a half each, the best of n is 1 with 1 - 2^-n (exact for draws with replacement).
    for n in (1, 2, 4):
        p = 1 - 0.5**n
        exact = p * math.log(2 * p) + ((1 - p) * math.log(2 * (1 - p)) if n > 1 else 0.0)
        assert kl_with_ties([0.0, 1.0] * 1000, n) == pytest.approx(exact, abs=2e-3)
    assert kl_with_ties([2.0] * 8, 4) == pytest.approx(0.0, abs=1e-12)
    untied = np.random.default_rng(0).normal(size=4000)
    assert kl_with_ties(untied, 4) == pytest.approx(kl_best_of(4), abs=2e-3)
    assert kl_with_ties(untied[:16], 16) < kl_best_of(16)
    assert expected_best([0.0, 1.0] * 4, [0.0, 1.0] * 4)[[0, 7]].tolist() == pytest.approx([0.5, 1.0])


def test_the_bound_of_beams_is_that_of_their_blocks() -> None:
    assert Beam(candidates=4).kl(3) == pytest.approx(3 * (math.log(4) - 0.75))
    assert Beam(candidates=4, width=2).kl(3) == pytest.approx(math.log(2) + 3 * math.log(4))
    assert Beam(candidates=1).kl(5) == 0.0
