"""Evaluation of reward models: pairs, principles, slices, length bias."""
