"""Our losses, advantages and divergences are verl's, computed by verl 0.9 itself on the same tensors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from peer_programs import said_by

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"
OBJECTIVES = {"ppo_clip", "gspo", "gmpo", "sapo", "cispo", "dro", "kl_cov"}
CRITICS = {"gae", "returns_to_go", "value loss"}
AGGREGATIONS = {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"}
FORMULAS = OBJECTIVES | CRITICS | AGGREGATIONS | {"grpo", "rloo", "opo", "pass_at_k"}
FORMULAS |= {"KL k1", "KL k2", "KL k3", "KL abs"}


@pytest.mark.slow
def test_formulas_and_their_gradients_are_verls() -> None:
    """Over 20 batches of rows of unequal length. verl adds 1e-8 to numbers of tokens and has SAPO's taus in float32."""
    worst = said_by("verl", "verl_formulas.py")
    assert worst.keys() == FORMULAS
    assert {name: difference for name, difference in worst.items() if not difference <= 1e-6} == {}


def test_the_page_names_every_formula_that_was_run() -> None:
    (row,) = re.findall(r"^\| verl 0\.9\.1.*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", row.split("|")[2])) == FORMULAS
