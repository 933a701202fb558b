"""Measures of policies beside their mean reward: what they can solve, what they lost, how seeds differ."""
