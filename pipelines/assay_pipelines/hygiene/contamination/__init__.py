"""Keeping benchmarks out of training data: registering benchmarks, checking the store's prompts against them."""
