"""Runs: the list, details with live curves and samples, comparison, stopping."""
