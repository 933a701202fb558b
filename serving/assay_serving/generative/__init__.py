"""Generative reward models: they reason, then end with one fixed verdict line, and the reward is read there."""
