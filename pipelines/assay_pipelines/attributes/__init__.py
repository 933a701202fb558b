"""Preference attributes of comparisons and correctness checks of responses, by models, rules or files."""
