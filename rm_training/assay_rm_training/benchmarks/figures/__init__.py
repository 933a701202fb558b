"""Figures that protocols share: best of n, votes over models, rank correlation."""
