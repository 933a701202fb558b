"""Decoding with a reward: the policy stays as it is, a reward or a value chooses what it writes."""
