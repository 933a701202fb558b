"""Contamination: registering benchmarks, checking the store's prompts against them."""
