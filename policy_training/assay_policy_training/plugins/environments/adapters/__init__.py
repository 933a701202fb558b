"""Environments of other projects, run by their published packages, which nothing else needs."""
