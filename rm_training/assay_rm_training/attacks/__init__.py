"""Attacks on a reward: responses that carry nothing or less and are rewarded all the same, and how often they are."""
