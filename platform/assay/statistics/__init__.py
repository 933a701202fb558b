"""Confidence intervals and rank correlations."""
